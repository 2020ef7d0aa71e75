--- Where the weights of a model are in Keras's files, and which variables they belong to.
--
-- Two layouts. By layer (.h5): a group for each layer of the model, with the list of its weights: the trainable ones,
-- then the others. By path (.weights.h5, .keras): layers/dense_1/vars/0 and so on, where layers have automatic names by
-- class, counted in the order of model.layers. The first .keras files (tf.keras 2.12 and 2.13) have a list of layers in
-- which those with weights occur twice, so that these take two numbers: dense, dense_2, dense_4.
local core = require "mgpu.core"

local M = {}

--- variables_of(layer) -> its variables and those of the layers inside it, the trainable ones first.
function M.variables_of(layer)
  local list = layer.trainable_variables
  for _, v in ipairs(layer.non_trainable_variables) do list[#list + 1] = v end
  return list
end

-- The variables of the layer itself, the trainable ones first.
local function own_variables(layer)
  if layer.stored_variables then return layer:stored_variables() end
  local list = {}
  for _, trainable in ipairs { true, false } do
    for _, v in ipairs(layer.weights) do
      if v.trainable == trainable then list[#list + 1] = v end
    end
  end
  return list
end

--- snake_case(class) -> the name that Keras gives to objects of a class: "conv2d_transpose".
function M.snake_case(class)
  local name = class == "Input" and "InputLayer" or class == "Model" and "Functional" or class
  return (name:gsub("(.)(%u%l+)", "%1_%2"):gsub("(%l)(%u)", "%1_%2"):lower())
end

--- The folders of the layers of a network: since tf.keras 2.14, and before.
M.FOLDER, M.FIRST_FOLDER = "layers", "_layer_checkpoint_dependencies"

--- each_entry(entry, path, visit): calls visit(path, entry) for the layers inside a model's configuration
--- (model_config.lua), with the paths that each_path gives their layers, which need not be made yet.
function M.each_entry(entry, path, visit)
  local counts = {}
  for _, inner in ipairs(entry.config.layers) do
    local name = M.snake_case(inner.class_name)
    local n = counts[name]
    counts[name] = (n or 0) + 1
    local where = ("%s%s/%s%s"):format(path == "" and "" or path .. "/", M.FOLDER, name, n and "_" .. n or "")
    visit(where, inner)
    if inner.config.layers then M.each_entry(inner, where, visit) end
  end
end

-- Returns a function that gives the layers of one container Keras's automatic names, one after the other.
local function numbering(folder)
  local counts = {}
  return function(layer)
    local name = M.snake_case(layer.python_name or layer.class_name)
    local n = counts[name]
    local twice = folder == M.FIRST_FOLDER and #M.variables_of(layer) > 0
    counts[name] = (n or 0) + (twice and 2 or 1)
    return n and name .. "_" .. n or name
  end
end

-- The layers inside a layer: array of {layer, path}. Those of an own layer are under the names of their fields.
local function inner_layers(layer, folder)
  local list, names = {}, {}
  if layer.is_network then
    local name = numbering(folder)
    for _, inner in ipairs(layer.layers) do list[#list + 1] = { inner, folder .. "/" .. name(inner) } end
    return list
  end
  layer:each_content(function(inner, field, in_array)
    if core.is_variable(inner) then return end
    field = layer.keras_fields and layer.keras_fields[field] or field
    names[field] = names[field] or numbering()
    list[#list + 1] = { inner, in_array and field .. "/" .. names[field](inner) or field }
  end)
  return list
end

--- each_path(layer, path, visit, folder = FOLDER): calls visit(path, layer, variables) for the layer and all layers
--- inside it, with the path that Keras gives to each and its own variables.
function M.each_path(layer, path, visit, folder)
  folder = folder or M.FOLDER
  visit(path, layer, own_variables(layer))
  for _, inner in ipairs(inner_layers(layer, folder)) do
    M.each_path(inner[1], path == "" and inner[2] or path .. "/" .. inner[2], visit, folder)
  end
end

return M
