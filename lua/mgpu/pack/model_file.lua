--- model_file(path): raises unless the file is that of a model which can be read where nothing is installed.
local core = require "mgpu.core"

-- Formats that only libhdf5 reads, which is not packed.
local H5 = { h5 = true, hdf5 = true, keras = true }

return function(path)
  local ending = (path:match "%.([^./]*)$" or ""):lower()
  if H5[ending] then
    core.fail("usage", ("--pack: %s is read by libhdf5, which is not packed: save the model as .safetensors, with "
      .. "mgpu.load_model(%q):save \"model.safetensors\""):format(path, path))
  end
  local open = ending == "onnx" and core.onnx_open or core.store_open
  open(path):close()
end
