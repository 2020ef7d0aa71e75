--- Which weight of a file goes into which variable of a model.
--
--     local names = matching.plan(model, path, described, order, how)   -- before the tensors are read
--     matching.assign(model, path, tensors, order, how)
-- Everything is compared before anything is assigned, so that an error leaves the model as it was. The options are
-- those of load_weights: by_name (weights that only one side has are left alone) and skip_mismatch (weights whose
-- shapes differ are left alone).
local core = require "mgpu.core"
local layer_names = require "mgpu.nn.layer_names"
local quantized = require "mgpu.nn.quantized.layers"

local M = {}

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ")
end

local function described(model, name, shape) return ("%q of shape %s"):format(name, model.shape_text(shape)) end

local function same_shape(model, t, v) return model.shape_text(t.shape) == model.shape_text(v:shape()) end

-- The difference between the names of the file and those of the model, or nil.
local function name_difference(model, tensors)
  local missing, extra = {}, {}
  for name in pairs(tensors) do extra[name] = true end
  for _, v in ipairs(model.variables) do
    extra[v.name] = nil
    if not tensors[v.name] then missing[v.name] = true end
  end
  if next(missing) then
    return ("the file lacks the weights %s"):format(sorted(missing))
      .. (next(extra) and ("; it has %s, which the model does not"):format(sorted(extra)) or "")
  end
  return next(extra) and ("the file has the weights %s, which the model does not"):format(sorted(extra))
end

--- layers_of_weights(model) -> variable -> the layer that holds it.
function M.layers_of_weights(model)
  local layer_of = {}
  model:each_layer(function(layer)
    for _, v in ipairs(layer.weights) do layer_of[v] = layer end
  end)
  return layer_of
end

-- Whether `name` in the file can be the weight v: the same name, or the same weight of a layer of the same class, both
-- layers having automatic names (dense/kernel and dense_1/kernel).
local function same_kind(v, layer, name)
  if name == v.name then return true end
  local kind = layer and (rawget(layer, "name_kind") or layer_names.kind(layer.class_name))
  if not kind or not layer_names.is_automatic(layer.name, kind) then return false end
  local rest = v.name:sub(#layer.name + 1)
  return name:sub(-#rest) == rest and layer_names.is_automatic(name:sub(1, -#rest - 1), kind)
end

-- The names of the file's tensors for the model's weights, taken in the file's order; nil and the difference if a kind
-- differs, or a shape unless skip_mismatch is given.
local function find_by_order(model, tensors, order, how)
  local variables, layer_of, list = model.variables, M.layers_of_weights(model), {}
  if #order ~= #variables then
    return nil, ("by order, the file has %d weights, the model %d"):format(#order, #variables)
  end
  local listed = {}
  for _, name in ipairs(order) do listed[name] = true end
  for name in pairs(tensors) do
    if not listed[name] then return nil, ("by order, the file has no place for the weight %q"):format(name) end
  end
  for i, v in ipairs(variables) do
    local t = tensors[order[i]]
    if not t then
      return nil, ("by order, the file lists the weight %q but does not hold it"):format(tostring(order[i]))
    end
    if not same_kind(v, layer_of[v], order[i]) or not (how.skip_mismatch or same_shape(model, t, v)) then
      return nil, ("by order, weight %d is %s in the file, but %s in the model"):format(i,
        described(model, order[i], t.shape), described(model, v.name, v:shape()))
    end
    list[i] = order[i]
  end
  return list
end

-- The names of the file's tensors in the order of model.variables, false where the file has none.
local function find(model, path, tensors, order, how)
  local problem = not how.by_name and name_difference(model, tensors)
  if problem and order then
    local list, difference = find_by_order(model, tensors, order, how)
    if list then return list end
    problem = problem .. "; " .. difference
  end
  if problem then core.fail("data", path .. ": " .. problem) end
  local list = {}
  for i, v in ipairs(model.variables) do list[i] = tensors[v.name] and v.name or false end
  return list
end

-- float16 can be read into float32, but integers are never the weights of a network.
local function same_kind_of_number(a, b) return a == b or (a:find "float" and b:find "float") end

--- plan(model, path, tensors, order, how) -> array: for each of model.variables the name of its tensor, or false to
--- leave it alone. By name, or else by order: automatic names count from the start of the process, so that a second
--- model made by the same code has other names.
-- ARGS tensors: name -> {shape =, dtype =}; order: array of the names as the saved model had them, or nil; how:
-- {by_name =, skip_mismatch =} or nil. Errors: weights that do not fit.
function M.plan(model, path, tensors, order, how)
  how = how or {}
  local list = find(model, path, tensors, order, how)
  for i, v in ipairs(model.variables) do
    local t = list[i] and tensors[list[i]]
    if t and not same_shape(model, t, v) then
      if not how.skip_mismatch then
        core.fail("data", ("%s: the weight %q has shape %s in the file, the model needs %s"):format(path, v.name,
          model.shape_text(t.shape), model.shape_text(v:shape())))
      end
      list[i] = false
    elseif t and not same_kind_of_number(t.dtype, v:dtype()) then
      core.fail("data", ("%s: the weight %q is %s in the file, the model needs %s"):format(path, v.name, t.dtype,
        v:dtype()))
    end
  end
  return list
end

-- Raises if a layer cannot take one of the values: list of {variable, tensor}.
local function check_values(model, path, list)
  local layer_of
  for _, entry in ipairs(list) do
    layer_of = layer_of or M.layers_of_weights(model)
    local layer = layer_of[entry[1]]
    if layer then quantized.check_value(layer, entry[1], entry[2], path) end
  end
end

--- assign_planned(model, names, tensors, path): gives the model's variables the tensors that `plan` has named. Errors:
--- a value that a layer cannot have; then nothing has changed.
function M.assign_planned(model, names, tensors, path)
  local list = {}
  for i, v in ipairs(model.variables) do
    if names[i] then list[#list + 1] = { v, tensors[names[i]] } end
  end
  check_values(model, path, list)
  for i, v in ipairs(model.variables) do
    if names[i] then v:assign(tensors[names[i]]:to(v:device())) end
  end
end

--- assign(model, path, tensors, order, how): plans and assigns. ARGS tensors: by name; the others as for plan.
function M.assign(model, path, tensors, order, how)
  local shapes = {}
  for name, t in pairs(tensors) do shapes[name] = { shape = t:shape(), dtype = t:dtype() } end
  M.assign_planned(model, M.plan(model, path, shapes, order, how), tensors, path)
end

--- warn_nonfinite(path, names): says which tensors of the file have a NaN or an infinity, if any have.
function M.warn_nonfinite(path, names)
  if #names == 0 then return end
  local quoted = {}
  for i = 1, math.min(3, #names) do quoted[i] = ("%q"):format(names[i]) end
  require "mgpu.say"("%s: warning: NaN or infinite numbers in %s%s\n", path, table.concat(quoted, ", "),
    #names > 3 and (" and %d more"):format(#names - 3) or "")
end

-- ---- by layer -----------------------------------------------------------------------------------

-- The pairs {group of the file, layer of the model}: by name if the names are the same or how.by_name is given, else by
-- order. Both sides are arrays of {name =, tensors = or variables =}.
local function paired_layers(path, groups, layers, how)
  local by_name, common, pairs_found = {}, 0, {}
  for _, group in ipairs(groups) do by_name[group.name] = group end
  for i, layer in ipairs(layers) do
    if by_name[layer.name] then
      common = common + 1
      pairs_found[common] = { by_name[layer.name], layers[i] }
    end
  end
  if how.by_name or (common == #layers and #groups == #layers) then return pairs_found end
  if #groups ~= #layers then
    core.fail("data", ("%s: the file has weights of %d layers, the model of %d: to load those that both have, use "
      .. "{by_name = true}"):format(path, #groups, #layers))
  end
  for i, layer in ipairs(layers) do pairs_found[i] = { groups[i], layer } end
  return pairs_found
end

--- assign_layers(model, path, groups, layers, how): gives the model the tensors of a file that knows the weights of a
--- layer by their order only.
-- ARGS groups: the file's layers that have weights, array of {name =, tensors =}; layers: those of the model, array of
-- {name =, variables =}; how: see the top, and how.convert(v, t), the tensor t of the file in the form of the
-- variable v. RETURNS the variables that have got a value, as a set. Errors: another number of layers or weights, or
-- another shape; then nothing has changed.
function M.assign_layers(model, path, groups, layers, how)
  how = how or {}
  local list = {}
  for _, pair in ipairs(paired_layers(path, groups, layers, how)) do
    local tensors, variables = pair[1].tensors, pair[2].variables
    if #tensors ~= #variables and not how.skip_mismatch then
      core.fail("data", ("%s: layer %q has %d weights in the file, %d in the model"):format(path, pair[2].name,
        #tensors, #variables))
    end
    for i, v in ipairs(#tensors == #variables and variables or {}) do
      local t = how.convert and how.convert(v, tensors[i]) or tensors[i]
      if same_shape(model, { shape = t:shape() }, v) then
        list[#list + 1] = { v, t }
      elseif not how.skip_mismatch then
        core.fail("data", ("%s: the weight %q has shape %s in the file, the model needs %s"):format(path, v.name,
          model.shape_text(tensors[i]:shape()), model.shape_text(v:shape())))
      end
    end
  end
  check_values(model, path, list)
  local loaded = {}
  for _, entry in ipairs(list) do
    local v, t = entry[1], entry[2]
    if t:dtype() ~= v:dtype() then t = t:cast(v:dtype()) end
    v:assign(t:to(v:device()))
    loaded[v] = true
  end
  return loaded
end

return M
