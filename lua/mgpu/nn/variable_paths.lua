--- variable_paths(model) -> variable -> the array of its paths, from the longest on: the names of the model, of the
--- layers that hold it, one inside the other, and of the variable, with and without the outer ones.
--- "encoder/dense/kernel" is also "dense/kernel". Keras counts some of the outer names, by where a layer was built.
local core = require "mgpu.core"

local function add(paths, v, owners)
  local list, last = { v.name }, v.name:match "[^/]*$"
  for i = 1, #owners do list[#list + 1] = table.concat(owners, "/", i) .. "/" .. last end
  paths[v] = paths[v] or list
end

local function visit(layer, owners, paths)
  local inner = { unpack(owners) }
  inner[#inner + 1] = layer.name
  for _, v in ipairs(layer.weights) do add(paths, v, inner) end
  if layer.is_network then
    for _, item in ipairs(layer.layers) do visit(item, inner, paths) end
  else
    layer:each_content(function(item)
      if not core.is_variable(item) then visit(item, inner, paths) end
    end)
  end
end

return function(model)
  local paths = {}
  visit(model, {}, paths)
  return paths
end
