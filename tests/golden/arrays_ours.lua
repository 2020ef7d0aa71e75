-- Writes files of tensors of each dtype to the folder of the first argument, for make_arrays.py to read.
local mgpu = require "mgpu"

local folder = arg[1]
for _, dtype in ipairs { "bool", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16" } do
  local x = mgpu.tensor({ { 0, 1, 1 }, { 1, 0, 1 } }):to(dtype)
  local tensors = { ["group/x"] = x, scalar = x[1][2], empty = mgpu.zeros({ 0, 3 }, { dtype = dtype }) }
  local function path(ending) return ("%s/%s.%s"):format(folder, dtype, ending) end
  mgpu.save(path "safetensors", tensors)
  mgpu.save(path "h5", tensors)
  if dtype ~= "bfloat16" then
    mgpu.save(path "npy", x)
    mgpu.save(path "npz", tensors)
  end
end
