--- mgpu.data: sources of datasets, one line each, loaded on first use.
return require "mgpu.strict_table".lazy("data source", "mgpu.data", {
  csv = "csv",
  from_tensors = "from_tensors",
  generator = "generator",
  zip = "zip",
  concatenate = "concatenate",
  interleave = "interleave",
  image_folder = "image_folder",
  npy = "npy",
  npz = "npz",
  text_lines = "text_lines",
  tfrecord = "tfrecord",
  write_tfrecord = "write_tfrecord",
})
