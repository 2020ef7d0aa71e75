--- NumPy's .npz: the weights by name, one array each. There is no configuration, and no order of the weights: layers
--- need the names they had.
local core = require "mgpu.core"
local matching = require "mgpu.nn.formats.matching"

local M = {}

--- save_weights(model, path): writes the weights.
function M.save_weights(model, path)
  local tensors = {}
  for _, v in ipairs(model.variables) do
    if tensors[v.name] then
      model:fail("two weights are called %q: give the layers different names", v.name)
    end
    tensors[v.name] = v:value()
  end
  core.store_save(path, tensors)
end

--- load_weights(model, path, how): reads the weights; how: see matching.lua.
function M.load_weights(model, path, how)
  local store = core.store_open(path)
  local names = matching.plan(model, path, store:tensors(), nil, how)
  local tensors, nonfinite = store:read()
  store:close()
  matching.warn_nonfinite(path, nonfinite)
  matching.assign_planned(model, names, tensors, path)
end

return M
