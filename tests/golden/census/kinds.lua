-- Makes the objects of census records (objects.py) as a file of Keras has them, and computes what Keras computed.
local mgpu = require "mgpu"
local core = require "mgpu.core"
local compiled_state = require "mgpu.train.compiled_state"
local keras_objects = require "mgpu.nn.keras.objects"
local origin = require "mgpu.nn.keras.origin"
local training = require "mgpu.nn.keras.training"

local given = keras_objects.given

local function at() return origin.source("census", {}, "3.15.1", {}) end

-- The tensor of a record's array, nil for null.
local function tensor(array)
  if given(array) == nil then return nil end
  local data = {}
  for i, x in ipairs(array.data) do data[i] = type(x) == "string" and tonumber(x) or x end
  if #data == 0 then return mgpu.zeros(array.shape, array.dtype) end
  local t = mgpu.tensor(data, { dtype = array.dtype == "bool" and "float32" or array.dtype })
  t = t:reshape(#array.shape > 0 and array.shape or {})
  return array.dtype == "bool" and t:to "bool" or t
end

local function tensors(list)
  local found = {}
  for i, array in ipairs(list) do found[i] = tensor(array) end
  return found
end

local function as_tensor(value) return type(value) == "userdata" and value or mgpu.tensor(value) end

-- A compiled model with what a configuration of Keras says, as load_model makes it.
local function compiled(config)
  local model = mgpu.Sequential { mgpu.layers.Dense { 1, input_shape = { 1 } } }
  config.optimizer = config.optimizer or { class_name = "SGD", config = {} }
  local state = training.from_keras(model, config, {}, nil, at())
  compiled_state.restore(model, state.config, {}, { path = "census" })
  return model.compiled
end

local KINDS = {}

function KINDS.loss(record)
  local made = training.loss_from(record.object, at())
  local loss = mgpu.losses[made.class_name].new(made.config)
  return { loss(tensor(record.y_true), tensor(record.y_pred), { sample_weight = tensor(record.sample_weight) }) }
end

function KINDS.metric(record)
  record.object.config.name = nil -- "loss" is taken
  local metric = compiled { loss = "mse", metrics = { record.object } }.outputs[1].metrics[1]
  metric:reset()
  for _, update in ipairs(record.updates) do
    local values = given(update.values)
    if values or not update.y_pred then
      metric:update(tensor(values or update.y_true), tensor(given(update.sample_weight) or update.y_pred))
    else
      metric:update(tensor(update.y_true), tensor(update.y_pred), tensor(update.sample_weight))
    end
  end
  return { as_tensor(metric:result()) }
end

function KINDS.optimizer(record)
  local optimizer = compiled { loss = "mse", optimizer = record.object }.optimizer
  local variables = {}
  for i, t in ipairs(tensors(record.variables)) do variables[i] = mgpu.variable(t, { name = record.names[i] }) end
  local excluded = {}
  for _, i in ipairs(record.excluded) do excluded[#excluded + 1] = variables[i] end
  if excluded[1] then optimizer:exclude_from_weight_decay { var_list = excluded } end
  local values, wanted = {}, {}
  for step, gradients in ipairs(record.gradients) do
    optimizer:apply(tensors(gradients), variables)
    for i, t in ipairs(record.after[step] and tensors(record.after[step]) or {}) do
      values[#values + 1], wanted[#wanted + 1] = variables[i]:value(), t
    end
  end
  return values, wanted
end

function KINDS.schedule(record)
  local schedule = compiled { loss = "mse", optimizer = { class_name = "SGD", config = {
    learning_rate = record.object } } }.optimizer.options.learning_rate
  return { as_tensor(require "mgpu.nn.schedules.schedule".get(schedule)(tensor(record.step):item())) }
end

for _, kind in ipairs { "regularizer", "constraint" } do
  KINDS[kind] = function(record)
    local config = keras_objects["from_" .. kind](record.object, at(), kind)
    return { as_tensor(require("mgpu.nn." .. kind .. "s").get(config)(tensor(record.x))) }
  end
end

function KINDS.initializer(record)
  local config = keras_objects.from_initializer(record.object, at(), "initializer")
  return { require "mgpu.nn.initializers".get(config)(record.shape, record.dtype) }
end

function KINDS.activation(record)
  local options = {}
  for key, value in pairs(record.options) do options[key] = value end
  local class = record.class
  if not next(options) then return { mgpu.activations[class](tensor(record.x)) } end
  local single = { negative_slope = 1, alpha = 1, approximate = 1, axis = 1, lower = 1 }
  local key, value = next(options)
  if next(options, key) == nil and single[key] and class ~= "relu" then
    if key == "axis" and value >= 0 then value = value + 1 end
    return { mgpu.activations[class](tensor(record.x), value) }
  end
  if class == "relu" then
    return { mgpu.activations.relu(tensor(record.x), options.negative_slope, options.max_value, options.threshold) }
  end
  core.fail("unsupported", "census: options of " .. class)
end

--- values(record) -> our values and Keras's, arrays of tensors.
local function values(record)
  local found, wanted = KINDS[record.kind](record)
  return found, wanted or { tensor(record.result) }
end

return values
