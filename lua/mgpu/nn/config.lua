--- Saving and loading models: weights in a file of named tensors, the configuration as JSON beside
-- them. Loading never runs code.
--
--     model:save "mnist.safetensors"
--     local again = mgpu.load_model("mnist.safetensors", { custom = { Scale = Scale } })
-- These functions are methods of models; load_model is mgpu's.
local core = require "mgpu.core"
local mixed_precision = require "mgpu.nn.mixed_precision"
local names = require "mgpu.nn.layer_names"
local options = require "mgpu.options"

local M = {}

local FORMAT = "mgpulua 1"

-- The weights by name, and the file's metadata with their order.
local function tensors_of(model)
  local tensors, order = {}, {}
  for i, v in ipairs(model.variables) do
    if tensors[v.name] then
      model:fail("two weights are called %q: give the layers names of their own", v.name)
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

-- The optimizer's state, by position: its variables have an order.
local function optimizer_part(model, tensors)
  local compiled = model.compiled
  if not compiled or not compiled.optimizer then return nil end
  local optimizer = compiled.optimizer
  for i, v in ipairs(optimizer:variables()) do tensors[("optimizer/%d"):format(i)] = v:value() end
  return { class_name = optimizer.class, config = optimizer:get_config() }
end

--- save(path): weights, configuration and, if compiled, the optimizer. The file appears whole or not
--- at all.
function M.save(model, path)
  need_path(path, 'model:save "model.safetensors"')
  need_built(model, "save")
  local tensors, metadata = tensors_of(model)
  local optimizer = optimizer_part(model, tensors)
  metadata.config = core.json_encode { class_name = model.class_name, config = model:get_config(),
    optimizer = optimizer }
  core.store_save(path, tensors, metadata)
end

--- save_weights(path): the weights alone.
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

-- The tensors for the model's weights by name; nil and what is wrong if a name is missing or one too many.
local function by_name(model, path, tensors)
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

-- Of each weight the layer that holds it.
local function holders(model)
  local layer_of = {}
  model:each_layer(function(layer)
    for _, v in ipairs(layer.weights) do layer_of[v] = layer end
  end)
  return layer_of
end

-- Whether the name in the file can be that of the variable: the same, or that of the same weight of
-- another unnamed layer of the class.
local function same_kind(v, layer, name)
  if name == v.name then return true end
  local kind = layer and names.kind(layer.class_name)
  if not kind or not names.is_automatic(layer.name, kind) then return false end
  local rest = v.name:sub(#layer.name + 1)
  return name:sub(-#rest) == rest and names.is_automatic(name:sub(1, -#rest - 1), kind)
end

-- The tensors in the file's order, if kinds and shapes are the model's throughout; else nil and what differs.
local function by_order(model, tensors, order)
  local variables, layer_of, list = model.variables, holders(model), {}
  if #order ~= #variables then
    return nil, ("by order, the file has %d weights, the model %d"):format(#order, #variables)
  end
  for i, v in ipairs(variables) do
    local t = tensors[order[i]]
    if not t then return nil, ("the file says that it has %q, which it has not"):format(tostring(order[i])) end
    if not same_kind(v, layer_of[v], order[i])
      or model.shape_text(t:shape()) ~= model.shape_text(v:shape()) then
      return nil, ("by order, weight %d of the file is %s, that of the model %s"):format(i,
        described(model, order[i], t:shape()), described(model, v.name, v:shape()))
    end
    list[i] = t
  end
  return list
end

-- Gives the model the file's weights. The names of unnamed layers count from the process's start, so that
-- a second model made by the same code has others: then they go by order. Everything is compared before
-- anything is assigned.
local function assign_weights(model, path, tensors, metadata)
  local list, problem = by_name(model, path, tensors)
  if not list and metadata.weights then
    local order = core.json_decode(metadata.weights)
    local difference
    list, difference = by_order(model, tensors, type(order) == "table" and order or {})
    if not list then problem = problem .. "; " .. difference end
  end
  if not list then core.fail("data", path .. ": " .. problem) end
  for i, v in ipairs(model.variables) do v:assign(list[i]:to(v:device())) end
end

--- load_weights(path): by name, or by order where layers have no names of their own; nothing changes if
--- anything does not fit.
function M.load_weights(model, path)
  need_path(path, 'model:load_weights "weights.safetensors"')
  need_built(model, "load_weights")
  assign_weights(model, path, core.store_load(path))
end

-- A configuration is data from outside: names are looked up, options checked like a user's.

local function damaged(path, what)
  core.fail("data", ("%s: the configuration is damaged: %s"):format(path, what))
end

local function layer_of(entry, custom, path)
  if type(entry) ~= "table" or type(entry.class_name) ~= "string" or type(entry.config) ~= "table" then
    damaged(path, "a layer has no class_name or config")
  end
  local name = entry.class_name
  if name == "Sequential" or name == "Model" then return M.from_config(entry, custom, path) end
  local class = custom[name]
  if not class then
    local layers = require "mgpu.nn.layers"
    local known = false
    for _, each in ipairs(layers()) do known = known or each == name end
    if not known then
      core.fail("data", ("%s: unknown layer class %q: give it with load_model(path, {custom = {%s = "
        .. "...}})"):format(path, name, name))
    end
    class = layers[name]
  end
  return class(entry.config)
end

local function sequential(config, custom, path)
  local parts = { name = config.name, trainable = config.trainable }
  if type(config.input_shape) == "table" then
    parts[1] = require "mgpu.nn.layers".Input { config.input_shape, dtype = config.input_dtype }
  end
  for _, entry in ipairs(config.layers) do parts[#parts + 1] = layer_of(entry, custom, path) end
  return require "mgpu.nn.sequential" (parts)
end

-- The symbols that the places {use, output} of a list mean.
local function at(places, made, path)
  local list = {}
  if type(places) ~= "table" then damaged(path, "a use of a layer has no inputs") end
  for i, place in ipairs(places) do
    local outputs = type(place) == "table" and made[place[1]]
    list[i] = outputs and outputs[place[2]] or damaged(path, "a layer is used before it is made")
  end
  return list
end

local function functional(config, custom, path)
  local layers, inputs, made = {}, {}, { [0] = {} }
  for i, entry in ipairs(config.layers) do layers[i] = layer_of(entry, custom, path) end
  if type(config.inputs) ~= "table" or type(config.uses) ~= "table" then
    damaged(path, "the model has no inputs or uses")
  end
  for i, input in ipairs(config.inputs) do
    inputs[i] = layers[input.layer] or require "mgpu.nn.layers".Input { input.shape }
    made[0][i] = inputs[i]
  end
  for n, use in ipairs(config.uses) do
    local layer, list = layers[use.layer], at(use.inputs, made, path)
    if not layer then damaged(path, "a use names no layer") end
    local y = layer(use.listed and list or list[1], use.training)
    made[n] = require "mgpu.nn.symbolic_tensor".is_symbol(y) and { y } or y
  end
  local outputs = at(config.outputs, made, path)
  return require "mgpu.nn.model" { name = config.name, trainable = config.trainable,
    inputs = config.listed and inputs or inputs[1], outputs = config.several and outputs or outputs[1] }
end

--- A model from {class_name =, config =} as save writes it.
function M.from_config(entry, custom, path)
  path, custom = path or "configuration", custom or {}
  local config = entry.config
  if type(config) ~= "table" or type(config.layers) ~= "table" then damaged(path, "it has no layers") end
  local make = entry.class_name == "Model" and functional or sequential
  if type(config.dtype) ~= "string" then return make(config, custom, path) end
  return mixed_precision.with_policy(mixed_precision.get(config.dtype, path), function()
    return make(config, custom, path)
  end)
end

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

--- mgpu.load_model(path, {custom = {Name = class}, compile = true}) -> model; `model.saved_optimizer`
--- continues where training stopped: model:compile {optimizer = model.saved_optimizer, ...}. With
--- compile = false it is left out.
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
  local model = M.from_config(saved, chosen.custom, path)
  assign_weights(model, path, tensors, metadata)
  if chosen.compile and type(saved.optimizer) == "table" then
    restore_optimizer(model, saved.optimizer, tensors)
  end
  return model
end

return setmetatable(M, { __index = { load_model = load_model } })
