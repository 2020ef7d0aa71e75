-- Writes the models of onnx_cases.lua into a folder, for make_onnx.py: N.onnx, and N.npz with the inputs by name.
--
--     build/mgpulua tests/golden/write_onnx.lua FOLDER

package.path = "tests/?.lua;" .. package.path
local core = require "mgpu.core"

local folder = assert(arg[1], "a folder is missing")
for i, case in ipairs(require "golden.onnx_cases") do
  local model, inputs = case.make()
  local named = {}
  for k, x in ipairs(inputs) do named[model.input_names and model.input_names[k] or "input"] = x end
  model:save(("%s/%d.onnx"):format(folder, i))
  core.store_save(("%s/%d.npz"):format(folder, i), named)
end
