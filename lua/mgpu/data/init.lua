--- mgpu.data: for each source of datasets the file that defines it, loaded on first use.
return require "mgpu.strict_table".lazy("data source", "mgpu.data", {
  csv = "csv",
  from_tensors = "from_tensors",
  generator = "generator",
  zip = "joins",
  concatenate = "joins",
  interleave = "joins",
  image_folder = "image_folder",
  npy = "numpy",
  npz = "numpy",
  text_lines = "text_lines",
  tfrecord = "tfrecord",
  write_tfrecord = "tfrecord",
})
