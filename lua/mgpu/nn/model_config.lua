--- Models from their configurations, as model:save writes them: {class_name = "Sequential", config = {...}}.
--
-- A configuration is data from outside: class names are looked up among the known ones, options are checked like a
-- user's, and no code of the file is run.
local call_arguments = require "mgpu.nn.call_arguments"
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"
local mixed_precision = require "mgpu.nn.mixed_precision"

local M = {}

local MOST_LAYERS = 10000 -- making more of them would take seconds

local CONFIGURATION = "the configuration is damaged: "

local function damaged(path, what)
  core.fail("data", ("%s: %s%s"):format(path, CONFIGURATION, what))
end

local OPERATORS = { add = "Add", sub = "Subtract", mul = "Multiply", div = "Divide", mod = "Mod", pow = "Power" }

-- The Operation for a layer of the class Arithmetic, which held the arithmetic of symbolic tensors in older files.
local function from_arithmetic(config)
  local first, second, number = { input = 1 }, { input = 2 }, config.number
  if number then
    first, second = config.reversed and number or first, config.reversed and first or number
  end
  local negative = config.operator == "neg"
  return { class_name = "Operation", config = { name = config.name, trainable = config.trainable, dtype = config.dtype,
    stream_name = config.stream_name, op = negative and "Negative" or OPERATORS[config.operator] or "Arithmetic",
    arguments = negative and { x = first } or { x1 = first, x2 = second } } }
end

local layer_from

-- The configuration of a layer of this class with the layers that its options hold made.
local function with_inner_layers(class, config, custom, path)
  local made
  for _, option in ipairs(class.own_declared) do
    local value = option[2]:find "layer" and config[option[1]]
    if type(value) == "table" then
      if not made then
        made = {}
        for key, item in pairs(config) do made[key] = item end
      end
      local list = {}
      for i, entry in ipairs(value) do list[i] = layer_from(entry, custom, path) end
      made[option[1]] = value[1] and list or layer_from(value, custom, path)
    end
  end
  return made or config
end

local make_layer

local shared -- while a model is made: number -> the layer that several of its parts have

-- fn(...), in which a layer that is described several times with one number is made once.
local function sharing(fn, ...)
  local before = shared
  shared = {}
  local results = { pcall(fn, ...) }
  shared = before
  if not results[1] then error(results[2], 0) end
  return results[2]
end

-- The layer or inner model of an entry {class_name =, config =, shared =}.
function layer_from(entry, custom, path)
  local number = type(entry) == "table" and type(entry.shared) == "number" and entry.shared
  if not number or not shared then return make_layer(entry, custom, path) end
  local there = shared[number]
  if not there then
    there = make_layer(entry, custom, path)
    shared[number] = there
  elseif there.class_name ~= entry.class_name then
    damaged(path, "a shared layer has two classes")
  end
  return there
end

function make_layer(entry, custom, path)
  if type(entry) ~= "table" or type(entry.class_name) ~= "string" or type(entry.config) ~= "table" then
    damaged(path, "a layer has no class_name or config")
  end
  local name = entry.class_name
  if name == "Sequential" or name == "Model" then return M.make(entry, custom, path) end
  if name == "Arithmetic" and not custom[name] then return layer_from(from_arithmetic(entry.config), custom, path) end
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
  if not class.add_weight then core.fail("data", ("%s: custom.%s is not a class of layers"):format(path, name)) end
  return class(with_inner_layers(class, entry.config, custom, path))
end

local function make_sequential(config, custom, path)
  local parts = { name = config.name, trainable = config.trainable }
  if type(config.input_shape) == "table" then
    parts[1] = require "mgpu.nn.layers".Input { config.input_shape, dtype = config.input_dtype,
      batch_size = config.batch_size }
  end
  for _, entry in ipairs(config.layers) do parts[#parts + 1] = layer_from(entry, custom, path) end
  return require "mgpu.nn.sequential" (parts)
end

-- The symbolic tensors that a list of places {use, output} means; made[use][output].
local function symbols_at(places, made, path)
  local list = {}
  if type(places) ~= "table" then damaged(path, "a use of a layer has no inputs") end
  for i, place in ipairs(places) do
    local outputs = type(place) == "table" and made[place[1]]
    list[i] = outputs and outputs[place[2]] or damaged(path, "a layer is used before it is made")
  end
  return list
end

local function make_functional(config, custom, path)
  local layers, inputs, made = {}, {}, { [0] = {} }
  for i, entry in ipairs(config.layers) do layers[i] = layer_from(entry, custom, path) end
  if type(config.inputs) ~= "table" or type(config.uses) ~= "table" then
    damaged(path, "the model has no inputs or uses")
  end
  for i, input in ipairs(config.inputs) do
    if type(input) ~= "table" then damaged(path, "an input is not described") end
    inputs[i] = layers[input.layer] or require "mgpu.nn.layers".Input { input.shape }
    made[0][i] = inputs[i]
  end
  for n, use in ipairs(config.uses) do
    if type(use) ~= "table" then damaged(path, "a use of a layer is not described") end
    local layer, list = layers[use.layer], symbols_at(use.inputs, made, path)
    if not layer then damaged(path, "a use names no layer") end
    local options = type(use.options) == "table" and use.options or nil
    call_arguments.check_names(layer, options)
    local y = layer(use.listed and list or list[1], call_arguments.how(use.training, options))
    made[n] = require "mgpu.nn.symbolic_tensor".is_symbol(y) and { y } or y
  end
  local outputs = symbols_at(config.outputs, made, path)
  return require "mgpu.nn.model" { name = config.name, trainable = config.trainable,
    inputs = config.listed and inputs or inputs[1], outputs = config.several and outputs or outputs[1] }
end

-- The model or inner model of an entry.
function M.make(entry, custom, path)
  local config = type(entry) == "table" and entry.config
  if type(config) ~= "table" or type(config.layers) ~= "table" then damaged(path, "it has no layers") end
  if entry.class_name ~= "Model" and entry.class_name ~= "Sequential" then
    damaged(path, ("a model cannot be a %q"):format(tostring(entry.class_name)))
  end
  local make = entry.class_name == "Model" and make_functional or make_sequential
  if type(config.dtype) ~= "string" then return make(config, custom, path) end
  return mixed_precision.with_policy(mixed_precision.get(config.dtype, path), function()
    return make(config, custom, path)
  end)
end

-- whose: what is damaged, before the reason.
local function guarded(path, whose, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then return result end
  local code = core.error_code()
  local named = type(result) == "string" and result:find(path, 1, true)
  local tells = named and (code == "data" or code == "unsupported")
  if type(result) ~= "string" or code == "oom" or code == "interrupted" or tells then
    error(result, 0)
  end
  local start = path .. ": "
  result = error_line(result)
  local what = result:sub(1, #start) == start and result:sub(#start + 1) or result
  if code == "unsupported" then core.fail(code, start .. what) end
  core.fail("data", start .. whose .. what)
end

--- guarded(path, fn, ...) -> fn's first result. Errors of fn about data of the file become "data" errors that name the
--- file. Errors that name it already, a lack of memory and Ctrl-C pass unchanged.
function M.guarded(path, fn, ...) return guarded(path, CONFIGURATION, fn, ...) end

--- guarded_graph(path, fn, ...) -> the same for a file without a configuration.
function M.guarded_graph(path, fn, ...) return guarded(path, "", fn, ...) end

-- The number of layers in a configuration, those of inner models included.
local function count_layers(entry)
  local layers = type(entry) == "table" and type(entry.config) == "table" and entry.config.layers
  local n = 0
  for _, layer in ipairs(type(layers) == "table" and layers or {}) do n = n + 1 + count_layers(layer) end
  return n
end

--- from_config(entry, custom, path) -> the model. custom: classes by name; path: named in errors. Errors: an unknown
--- class; an incomplete configuration; one that a class refuses; more than 10,000 layers.
function M.from_config(entry, custom, path)
  path = path or "configuration"
  if count_layers(entry) > MOST_LAYERS then damaged(path, ("it has more than %d layers"):format(MOST_LAYERS)) end
  return M.guarded(path, sharing, M.make, entry, custom or {}, path)
end

-- The classes of the model's own layers by name, as from_config takes them.
local function own_classes(model)
  local classes, layers = {}, require "mgpu.nn.layers"
  model:each_layer(function(layer)
    local name = layer.class_name
    local known = not layer.is_network and rawget(layers, name)
    if layer.is_network or (known and known.own_declared == layer.own_declared) then return end
    if classes[name] and classes[name].new ~= layer.new then
      core.fail("usage", ("clone_model: two classes of layers are called %q"):format(name))
    end
    classes[name] = setmetatable({ new = layer.new }, { __index = layer, -- a layer has what its class has
      __call = function(_, config) return layer.new(config) end })
  end)
  return classes
end

--- copy(layer, config) -> a new layer of the same class with this configuration.
function M.copy(layer, config)
  return sharing(layer_from, { class_name = layer.class_name, config = config }, own_classes(layer), layer.name)
end

--- mgpu.clone_model(model) -> a model with the same layers and names, and new weights; it is not compiled.
-- Errors: something that is not a model; a layer with an option that is a function.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 2, input_shape = { 3 } } }
--     local copy = mgpu.clone_model(model)
--     local x = mgpu.ones { 1, 3 }
--     print(copy(x):eq(model(x)):all():item()) -- its weights are drawn anew  --> false
--     copy:set_weights(model:get_weights())
--     print(copy(x):eq(model(x)):all():item())  --> true
function M.clone_model(model)
  if type(model) ~= "table" or not model.is_network then
    core.fail("usage", ("clone_model: expected a model, got %s"):format(
      type(model) == "table" and tostring(model) or "a " .. type(model)))
  end
  local entry = { class_name = model.class_name, config = model:get_config() }
  return sharing(M.make, entry, own_classes(model), "clone_model")
end

return M
