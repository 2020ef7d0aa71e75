--- mgpu.data: streams of batches; one line a source, loaded on first use.
return require "mgpu.strict_table".lazy("data source", "mgpu.data", {
  from_tensors = "from_tensors",
})
