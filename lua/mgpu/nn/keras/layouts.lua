--- The weights of models in HDF5 files: the two layouts of Keras, read and written.
--
-- by_layer (.h5): a group for each layer with the names of its weights in an attribute.
-- by_path (.weights.h5 and the file in a .keras archive): layers/dense_1/vars/0, numbered within the layer; the first
-- files of the format have another folder for "layers".
local h5_file = require "mgpu.nn.keras.h5_file"
local keras1 = require "mgpu.nn.keras.keras1"
local matching = require "mgpu.nn.formats.matching"
local objects = require "mgpu.nn.keras.objects"
local ordered_keys = require "mgpu.ordered_keys"
local quantized = require "mgpu.nn.quantized.layers"
local stored_dtype = require "mgpu.nn.stored_dtype"
local weights = require "mgpu.nn.keras.weights"

local M = { by_layer = {}, by_path = {} }

-- The axes of a kernel along which Theano slides it.
local TURNED = { Conv1D = { 1 }, Conv3D = { 1, 2, 3 }, Conv2D = { 1, 2 }, Conv2DTranspose = { 1, 2 } }

local function join(root, path) return root == "" and path or root .. "/" .. path end

-- ---- by layer -----------------------------------------------------------------------------------

--- by_layer.tensors(file, path) -> the tensors and names that the attribute weight_names of the group lists.
function M.by_layer.tensors(file, path)
  local tensors, names = {}, file:texts(path, "weight_names") or {}
  for i, name in ipairs(names) do
    tensors[i] = file.tensors[join(path, name)]
    if not tensors[i] then objects.damaged(file, "it lists the weight %q of %q but does not hold it", name, path) end
  end
  return tensors, names
end

-- What a file holds for a weight, in the form that the layer has in memory: quantized weights are packed.
local function value_for(layer, v, t) return layer and quantized.from_file(layer, v, t) or t end

-- The form that a weight of the file has in a variable of the model: Keras 1, whose files say no version here, has
-- other kernels, and Theano turns a kernel around before it slides over the image.
local function conversion(model, file, root)
  local turned = (file:text(root, "backend") or file:text("", "backend")) == "theano"
  local first = not file.attributes[root] or file.attributes[root].keras_version == nil
  if not turned and not first then return nil end
  local layer_of = matching.layers_of_weights(model)
  return function(v, t)
    local layer = layer_of[v]
    if first and layer then t = keras1.kernel(layer, t) end
    return turned and layer and TURNED[layer.class_name] and t:rank() > 2 and t:flip(TURNED[layer.class_name]) or t
  end
end

--- by_layer.load(model, file, root, how): root: "model_weights", or "" in a file of weights.
function M.by_layer.load(model, file, root, how)
  local groups, layers = {}, {}
  for _, name in ipairs(file:texts(root, "layer_names") or objects.damaged(file, "it has no layer_names")) do
    local tensors = M.by_layer.tensors(file, join(root, name))
    if #tensors > 0 then groups[#groups + 1] = { name = name, tensors = tensors } end
  end
  for _, layer in ipairs(model.layers) do
    local variables = weights.variables_of(layer)
    if #variables > 0 then layers[#layers + 1] = { name = layer.name, variables = variables } end
  end
  how = how or {}
  local convert, layer_of = conversion(model, file, root), matching.layers_of_weights(model)
  matching.assign_layers(model, file.path, groups, layers, { by_name = how.by_name, skip_mismatch = how.skip_mismatch,
    convert = function(v, t) return value_for(layer_of[v], v, convert and convert(v, t) or t) end })
end

-- The name, or name_1, ... if it is in `used`.
local function unique(used, name)
  local n, found = 1, name
  while used[found] do found, n = name .. "_" .. n, n + 1 end
  used[found] = true
  return found
end

--- by_layer.add_tensors(entries, path, names, tensors): adds a group with the tensors and their names.
function M.by_layer.add_tensors(entries, path, names, tensors)
  local made, used, listed = {}, {}, {}
  for above in path:gmatch "()/" do made[path:sub(1, above - 1)] = true end -- they exist
  h5_file.add_group(entries, made, path)
  for i, name in ipairs(names) do listed[i] = unique(used, name) end
  h5_file.add_texts(entries, path, "weight_names", listed)
  for i, name in ipairs(listed) do h5_file.add_dataset(entries, made, join(path, name), tensors[i]) end
end

--- by_layer.add(entries, model, root, version): adds the weights of the model; `version` is what the file says about
--- the version of Keras.
function M.by_layer.add(entries, model, root, version)
  local names, layers = {}, model.layers
  for i, layer in ipairs(layers) do names[i] = layer.name end
  h5_file.add_group(entries, {}, root)
  h5_file.add_texts(entries, root, "layer_names", names)
  entries[#entries + 1] = { path = root, attribute = "backend", text = "tensorflow" }
  entries[#entries + 1] = { path = root, attribute = "keras_version", text = version }
  for _, layer in ipairs(layers) do
    local tensors, listed = {}, {}
    for i, v in ipairs(weights.variables_of(layer)) do
      tensors[i], listed[i] = stored_dtype.value(nil, v, v:value()), v.name
    end
    M.by_layer.add_tensors(entries, join(root, layer.name), listed, tensors)
  end
end

-- ---- by path ------------------------------------------------------------------------------------

-- The tensors path/vars/0, path/vars/1, ...
local function numbered(file, path)
  local list = {}
  while file.tensors[join(path, "vars/" .. #list)] do list[#list + 1] = file.tensors[join(path, "vars/" .. #list)] end
  return list
end

--- by_path.numbered(file, path) -> the tensors path/vars/0, path/vars/1, ...
M.by_path.numbered = numbered

-- Whether a path in a file of weights holds something other than a layer's weights.
local function is_other(path)
  return path:find "^optimizer/" or path:find "^metrics/" or path:find "seed_generator/"
    or path:find "^_" and path:sub(1, #weights.FIRST_FOLDER + 1) ~= weights.FIRST_FOLDER .. "/"
end

-- Keras 3 has properties for some fields that begin with "_", and Keras 2 has none: the paths differ in that only.
local function public(path) return (path:gsub("/_", "/")) end

--- by_path.load(model, file, how).
function M.by_path.load(model, file, how)
  local groups, layers, seen = {}, {}, {}
  for _, path in ipairs(file.groups) do
    local owner = path:match "^(.*)/vars$" or path == "vars" and ""
    local tensors = owner and not is_other(path) and numbered(file, owner) or {}
    if #tensors > 0 then
      local name = how and how.by_name and file:text(path, "name") or public(owner)
      groups[#groups + 1] = { name = name, tensors = tensors }
    end
  end
  weights.each_path(model, "", function(path, layer, variables)
    if #variables > 0 and not seen[layer] then
      layers[#layers + 1] = { name = how and how.by_name and layer.name or public(path), variables = variables }
    end
    seen[layer] = true
  end, file.groups[weights.FIRST_FOLDER] and weights.FIRST_FOLDER)
  local layer_of = matching.layers_of_weights(model)
  local loaded = matching.assign_layers(model, file.path, groups, layers, { by_name = how and how.by_name,
    skip_mismatch = how and how.skip_mismatch, convert = function(v, t) return value_for(layer_of[v], v, t) end })
  for layer in pairs(seen) do
    for _, v in ipairs(layer.value_loaded and layer.weights or {}) do
      if loaded[v] then layer:value_loaded(v) end
    end
  end
end

--- by_path.add_numbered(entries, made, path, name, tensors, stored = {}): adds the group path/vars with the tensors 0,
--- 1, ...; stored[i]: the type in the file, if it is not that of the tensor.
function M.by_path.add_numbered(entries, made, path, name, tensors, stored)
  local group = join(path, "vars")
  h5_file.add_group(entries, made, group)
  entries[#entries + 1] = { path = group, attribute = "name", text = name }
  for i, t in ipairs(tensors) do
    h5_file.add_dataset(entries, made, ("%s/%d"):format(group, i - 1), t, stored and stored[i])
  end
end

--- by_path.add(entries, made, model): adds the weights of the model. made: see h5_file.
function M.by_path.add(entries, made, model)
  local seen = {}
  weights.each_path(model, "", function(path, layer, variables)
    if seen[layer] then return end
    seen[layer] = true
    local tensors, stored = {}, {}
    for i, v in ipairs(variables) do
      stored[i] = quantized.stored_as(layer, v)
      tensors[i] = stored_dtype.value(layer, v, layer.stored_value and layer:stored_value(v) or v:value())
    end
    M.by_path.add_numbered(entries, made, path, layer.name, tensors, stored)
    local named = layer.named_tensors and layer:named_tensors() or {}
    for _, place in ipairs(ordered_keys(named)) do
      h5_file.add_group(entries, made, join(path, place:match "(.*)/"))
      h5_file.add_dataset(entries, made, join(path, place), named[place])
    end
  end)
end

return M
