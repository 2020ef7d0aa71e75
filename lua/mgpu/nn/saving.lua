--- Saving and loading models: a safetensors file with the weights and, as JSON, the configuration.
--
--     model:save "mnist.safetensors"
--     local again = mgpu.load_model("mnist.safetensors", { custom = { Scale = Scale } })
-- save, save_weights and load_weights are methods of models; load_model is mgpu's. Loading never runs code of the
-- file.
local core = require "mgpu.core"
local model_config = require "mgpu.nn.model_config"
local layer_names = require "mgpu.nn.layer_names"
local options = require "mgpu.options"

local M = {}

local FORMAT = "mgpulua 1"

-- The weights by name, and the file's metadata, which hold their order.
local function tensors_of(model)
  local tensors, order = {}, {}
  for i, v in ipairs(model.variables) do
    if tensors[v.name] then
      model:fail("two weights are called %q: give the layers different names", v.name)
    end
    tensors[v.name], order[i] = v:value(), v.name
  end
  return tensors, { format = FORMAT, weights = core.json_encode(order) }
end

local function need_path(path, example)
  if type(path) ~= "string" then
    core.fail("usage", ("%s: the path must be text, got %s"):format(example, path == nil and "nothing"
      or "a " .. type(path)))
  end
end

local function need_built(model, what)
  if not model.built then
    model:fail("%s: the model has no weights yet: give it an Input or call it once", what)
  end
end

-- Adds the optimizer's variables to `tensors`, named by position. RETURNS its class and configuration, or nil.
local function optimizer_part(model, tensors)
  local compiled = model.compiled
  if not compiled or not compiled.optimizer then return nil end
  local optimizer = compiled.optimizer
  for i, v in ipairs(optimizer:variables()) do tensors[("optimizer/%d"):format(i)] = v:value() end
  return { class_name = optimizer.class, config = optimizer:get_config() }
end

--- model:save(path): writes weights, configuration and, if compiled, the optimizer. After an error or a crash the file
--- is the old one or none, never a part. Errors: a model that is not built; an option that is a function; the disk.
function M.save(model, path)
  need_path(path, 'model:save "model.safetensors"')
  need_built(model, "save")
  local tensors, metadata = tensors_of(model)
  local optimizer = optimizer_part(model, tensors)
  metadata.config = core.json_encode { class_name = model.class_name, config = model:get_config(),
    optimizer = optimizer }
  core.store_save(path, tensors, metadata)
end

--- model:save_weights(path): writes the weights alone. Errors: as save.
function M.save_weights(model, path)
  need_path(path, 'model:save_weights "weights.safetensors"')
  need_built(model, "save_weights")
  core.store_save(path, tensors_of(model))
end

-- ---- loading ------------------------------------------------------------------------------------

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ")
end

local function described(model, name, shape) return ("%q of shape %s"):format(name, model.shape_text(shape)) end

-- The tensors for the model's weights, found by name; nil and the difference if the names are not the same.
local function find_by_name(model, path, tensors)
  local list, missing, extra = {}, {}, {}
  for name in pairs(tensors) do
    if not name:find "^optimizer/" then extra[name] = true end
  end
  for i, v in ipairs(model.variables) do
    local t = tensors[v.name]
    extra[v.name], list[i] = nil, t
    if not t then missing[v.name] = true end
  end
  if next(missing) then
    return nil, ("the file lacks the weights %s"):format(sorted(missing))
      .. (next(extra) and ("; it has %s, which the model does not"):format(sorted(extra)) or "")
  elseif next(extra) then
    return nil, ("the file has the weights %s, which the model does not"):format(sorted(extra))
  end
  for i, v in ipairs(model.variables) do
    if model.shape_text(list[i]:shape()) ~= model.shape_text(v:shape()) then
      core.fail("data", ("%s: the weight %q has shape %s in the file, the model needs %s"):format(path,
        v.name, model.shape_text(list[i]:shape()), model.shape_text(v:shape())))
    end
  end
  return list
end

-- RETURNS variable -> the layer that holds it.
local function layers_of_weights(model)
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
  local kind = layer and layer_names.kind(layer.class_name)
  if not kind or not layer_names.is_automatic(layer.name, kind) then return false end
  local rest = v.name:sub(#layer.name + 1)
  return name:sub(-#rest) == rest and layer_names.is_automatic(name:sub(1, -#rest - 1), kind)
end

-- The tensors for the model's weights, taken in the file's order; nil and the difference if a kind or shape differs.
local function find_by_order(model, tensors, order)
  local variables, layer_of, list = model.variables, layers_of_weights(model), {}
  if #order ~= #variables then
    return nil, ("by order, the file has %d weights, the model %d"):format(#order, #variables)
  end
  for i, v in ipairs(variables) do
    local t = tensors[order[i]]
    if not t then return nil, ("the file lists the weight %q but does not hold it"):format(tostring(order[i])) end
    if not same_kind(v, layer_of[v], order[i])
      or model.shape_text(t:shape()) ~= model.shape_text(v:shape()) then
      return nil, ("by order, weight %d of the file is %s, that of the model %s"):format(i,
        described(model, order[i], t:shape()), described(model, v.name, v:shape()))
    end
    list[i] = t
  end
  return list
end

-- Assigns the file's weights to the model, by name or else by order: automatic names count from the start of the
-- process, so that a second model made by the same code has other names. Everything is compared before anything is
-- assigned.
local function assign_weights(model, path, tensors, metadata)
  local list, problem = find_by_name(model, path, tensors)
  if not list and metadata.weights then
    local order = core.json_decode(metadata.weights)
    local difference
    list, difference = find_by_order(model, tensors, type(order) == "table" and order or {})
    if not list then problem = problem .. "; " .. difference end
  end
  if not list then core.fail("data", path .. ": " .. problem) end
  for i, v in ipairs(model.variables) do v:assign(list[i]:to(v:device())) end
end

--- model:load_weights(path): reads the weights, by name, or by order where layers have automatic names. Errors: weights
--- that do not fit; then nothing has changed.
function M.load_weights(model, path)
  need_path(path, 'model:load_weights "weights.safetensors"')
  need_built(model, "load_weights")
  assign_weights(model, path, core.store_load(path))
end

-- model.saved_optimizer: the optimizer of the file, with its state.
local function restore_optimizer(model, saved, tensors)
  local class = require "mgpu.nn.optimizers"[saved.class_name]
  local optimizer = class(saved.config)
  optimizer:build(model.trainable_variables)
  for i, v in ipairs(optimizer:variables()) do
    local t = tensors[("optimizer/%d"):format(i)]
    if t and model.shape_text(t:shape()) == model.shape_text(v:shape()) then v:assign(t) end
  end
  model.saved_optimizer = optimizer
end

local LOAD = options.declare { { "custom", "table", default = {} }, { "compile", "boolean", default = true } }

local function check_custom(custom)
  for name, class in pairs(custom) do
    if type(class) ~= "table" or type(class.new) ~= "function" then
      core.fail("usage", ("load_model: custom.%s must be a class made by mgpu.Layer:extend, got a %s"):format(
        tostring(name), type(class)))
    end
  end
end

--- mgpu.load_model(path, {custom = {Name = class}, compile = true}) -> the model.
--
-- custom: own layer classes by name. `model.saved_optimizer` continues where training stopped:
-- model:compile {optimizer = model.saved_optimizer, ...}; with compile = false it is left out.
-- Errors: no model in the file; an unknown layer class; a damaged file; weights that do not fit.
local function load_model(path, given)
  need_path(path, 'mgpu.load_model "model.safetensors"')
  if given ~= nil and type(given) ~= "table" then
    core.fail("usage", "load_model: options are a table, got a " .. type(given))
  end
  local chosen = options.check("load_model", LOAD, given or {})
  check_custom(chosen.custom)
  local tensors, metadata = core.store_load(path)
  if not metadata.config then
    core.fail("data", path .. ": the file holds weights only: make the model and use load_weights")
  end
  local saved = core.json_decode(metadata.config)
  if type(saved) ~= "table" or type(saved.config) ~= "table" then
    core.fail("data", path .. ": the configuration is damaged")
  end
  local model = model_config.from_config(saved, chosen.custom, path)
  assign_weights(model, path, tensors, metadata)
  if chosen.compile and type(saved.optimizer) == "table" then
    restore_optimizer(model, saved.optimizer, tensors)
  end
  return model
end

return { methods = M, load_model = load_model }
