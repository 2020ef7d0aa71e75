--- The compiled state of a model: Keras's configurations <-> those of train/compiled_state.lua.
--
-- Keras has it as training_config in .h5 files and as compile_config in .keras files: {optimizer or optimizer_config,
-- loss, loss_weights, metrics, weighted_metrics, ...}.
local core = require "mgpu.core"
local learning_rate = require "mgpu.nn.optimizers.learning_rate"
local model_config = require "mgpu.nn.model_config"
local objects = require "mgpu.nn.keras.objects"
local optimizer_state = require "mgpu.nn.keras.optimizer_state"

local M = {}

local given = objects.given

-- The fields of a configuration that are not null; those in `left_out` are dropped.
local function fields_of(config, left_out)
  local fields = {}
  for key, value in pairs(config) do
    if given(value) ~= nil and not (left_out and left_out[key]) then fields[key] = value end
  end
  return fields
end

local function known(kind, name)
  for _, each in ipairs(require("mgpu.nn." .. kind)()) do
    if each == name then return true end
  end
  return false
end

local function refuse(at, what, name)
  objects.fail(at, "the %s %q is not known: give it with {custom = {%s = ...}}, or load with {compile = false}", what,
    tostring(name), tostring(name))
end

-- The name of a function: a text, or {class_name = "function", config = name}; nil for anything else.
local function function_name(value)
  if type(value) == "string" then return value end
  if type(value) ~= "table" or value.class_name ~= "function" then return nil end
  return given(value.config) or nil
end

-- ---- losses -------------------------------------------------------------------------------------

local LOSS_NAMES = { kullback_leibler_divergence = "kl_divergence", KLD = "kl_divergence", kld = "kl_divergence",
  MSE = "mse", MAE = "mae", MAPE = "mape", MSLE = "msle", logcosh = "log_cosh", Logcosh = "log_cosh" }
local UNUSED_LOSS = { dtype = true, fn = true }

-- The options of a loss or metric, with axes from 1.
local function options_from(config, left_out)
  local fields = fields_of(config, left_out)
  for key, value in pairs(fields) do fields[key] = objects.plain(value) end
  fields.axis = objects.moved_axes(fields.axis, 1)
  if fields.reduction == "auto" then fields.reduction = nil end
  return fields
end

local function options_to(config)
  local fields = fields_of(config)
  if fields.axis == -1 then fields.axis = nil end -- Keras's sparse_categorical_crossentropy does not have it
  fields.axis = objects.moved_axes(fields.axis, -1)
  return fields
end

--- loss_from(value, at) -> our {class_name =, config =} of a loss of Keras, nil for null.
-- Errors: one that is not known.
function M.loss_from(value, at)
  if given(value) == nil then return nil end
  local name = function_name(value)
  if name then
    name = LOSS_NAMES[name] or name
    if not known("losses", name) and not at.custom[name] then refuse(at, "loss", name) end
    return { class_name = name, config = {} }
  end
  local class, config = objects.class_and_config(value)
  if not class or type(config) ~= "table" then objects.damaged(at, "a loss has no class_name or config") end
  if class == "LossFunctionWrapper" or class == "MeanLossWrapper" then return M.loss_from(config.fn, at) end
  if not known("losses", class) and not at.custom[class] then refuse(at, "loss", class) end
  local fields = options_from(config, UNUSED_LOSS)
  if config.reduction == core.null then fields.reduction = "none" end
  return { class_name = class, config = fields }
end

-- The loss of an output, which training makes one number.
local function trained_loss(value, at)
  local loss = M.loss_from(value, at)
  if loss and loss.config.reduction == "none" then
    objects.fail(at, "the loss %q has no reduction, but training needs one number: load with {compile = false}",
      loss.class_name)
  end
  return loss
end

local function loss_to(loss)
  if not loss then return core.null end
  return objects.object(loss.class_name, options_to(loss.config), "keras.losses")
end

-- ---- metrics ------------------------------------------------------------------------------------

-- Keras's metrics that are functions -> our classes. Other functions are losses.
local METRIC_FUNCTIONS = { accuracy = "Accuracy", acc = "Accuracy", binary_accuracy = "BinaryAccuracy",
  categorical_accuracy = "CategoricalAccuracy", sparse_categorical_accuracy = "SparseCategoricalAccuracy",
  top_k_categorical_accuracy = "TopKCategoricalAccuracy", mse = "MeanSquaredError", mae = "MeanAbsoluteError",
  sparse_top_k_categorical_accuracy = "SparseTopKCategoricalAccuracy", MSE = "MeanSquaredError",
  mean_squared_error = "MeanSquaredError", mean_absolute_error = "MeanAbsoluteError", MAE = "MeanAbsoluteError" }
local UNUSED_METRIC = { dtype = true, fn = true, reduction = true }

-- Keras's null of this option has a meaning: "none" here.
local NULL_OPTION = { R2Score = "class_aggregation" }

-- A metric that is the function `name`.
local function metric_function(name, fields, at)
  if METRIC_FUNCTIONS[name] then
    fields.name = fields.name or name
    return { class_name = METRIC_FUNCTIONS[name], config = fields }
  end
  if not known("losses", LOSS_NAMES[name] or name) and not at.custom[name] then refuse(at, "metric", name) end
  local label = fields.name or name
  fields.name = nil
  local loss = M.loss_from(name, at)
  for key, value in pairs(fields) do loss.config[key] = value end
  return { loss = loss, name = label }
end

-- prefix: what Keras 2 puts before the names of metrics of a model with several outputs.
local function metric_from(value, prefix, at)
  local name = function_name(value)
  if name then return metric_function(name, {}, at) end
  local class, config = objects.class_and_config(value)
  if not class or type(config) ~= "table" then objects.damaged(at, "a metric has no class_name or config") end
  local fields = options_from(config, UNUSED_METRIC)
  local option = NULL_OPTION[class]
  if option and config[option] == core.null then fields[option] = "none" end
  if type(fields.name) == "string" and fields.name:sub(1, #prefix) == prefix then
    fields.name = fields.name:sub(#prefix + 1)
  end
  if class == "MeanMetricWrapper" then
    return metric_function(function_name(config.fn) or refuse(at, "metric", fields.name), fields, at)
  end
  if class == "Accuracy" and not at.custom[class] then fields.exact = true end -- "accuracy" is our automatic one
  if METRIC_FUNCTIONS[class] or known("metrics", class) or at.custom[class] then
    return { class_name = class, config = fields }
  end
  if known("losses", class) then -- Keras has metrics that are called like losses
    local label = fields.name
    fields.name = nil
    return { loss = { class_name = class, config = fields }, name = label }
  end
  refuse(at, "metric", class)
end

local function metrics_from(list, prefix, at)
  local metrics = {}
  if given(list) == nil then return nil end
  if type(list) ~= "table" or list.class_name then list = { list } end
  for i, value in ipairs(list) do metrics[i] = metric_from(value, prefix, at) end
  return #metrics > 0 and metrics or nil
end

local function metric_to(metric, output)
  if metric.loss then
    return objects.object("MeanMetricWrapper", { name = metric.name, fn = metric.loss.config.name
      or metric.loss.class_name }, "keras.metrics")
  elseif metric.class_name == "Accuracy" and not metric.config.exact then
    return metric.config.name == "acc" and "acc" or "accuracy"
  end
  local class = metric.class_name
  if class == "TopK" then
    local sparse = output.loss and output.loss.class_name == "SparseCategoricalCrossentropy"
    class = sparse and "SparseTopKCategoricalAccuracy" or "TopKCategoricalAccuracy"
  end
  local fields, option = options_to(metric.config), NULL_OPTION[class]
  if option and fields[option] == "none" then fields[option] = core.null end
  fields.exact = nil -- Keras's class is always
  if not fields.from_sorted_ids then fields.from_sorted_ids = nil end -- older ones do not know it
  return objects.object(class, fields, "keras.metrics")
end

-- ---- optimizers ---------------------------------------------------------------------------------

local UNUSED_OPTIMIZER = { is_legacy_optimizer = true, jit_compile = true, dynamic = true }

-- What options of Keras 1 and 2 mean: `decay` is a schedule, but for Nadam the one of its momentum. The Keras that was
-- not yet part of TensorFlow clipped the norm of all gradients together, and started Adagrad's sums at 0.
local function old_options(class, fields, at)
  if class == "Nadam" then
    fields.schedule_decay, fields.decay = fields.schedule_decay or fields.decay, nil
  elseif fields.decay and fields.decay ~= 0 then
    if type(fields.decay) ~= "number" then objects.damaged(at, "the option decay of the optimizer is not a number") end
    if type(fields.learning_rate) == "table" then
      objects.fail(at, "an optimizer with a schedule and decay is not supported: load with {compile = false}")
    end
    fields.learning_rate = learning_rate.decayed(fields.learning_rate, fields.decay)
  end
  -- they divide by sqrt(s) + epsilon, not by sqrt(s + epsilon): the same for s = 0, and nearly so for larger ones
  local outside = class == "Adagrad" or class == "RMSprop" and (fields.momentum or 0) == 0
  if fields.decay and outside and type(fields.epsilon) == "number" then fields.epsilon = fields.epsilon ^ 2 end
  fields.decay = nil
  if not at.before_tensorflow then return end
  fields.clipnorm, fields.global_clipnorm = nil, fields.clipnorm
  if class == "Adagrad" then fields.initial_accumulator_value = fields.initial_accumulator_value or 0 end
end

local function schedule_from(value, at)
  local class, config = objects.class_and_config(value)
  if not class or type(config) ~= "table" then
    objects.damaged(at, "a learning rate is neither a number nor a schedule")
  end
  if not known("schedules", class) then refuse(at, "schedule", class) end
  return { class_name = class, config = fields_of(config) }
end

-- Optimizers whose state is not read from .h5 files: Keras's own files of Adafactor end within the optimizer's
-- variables, since two of them have one name.
local WITHOUT_STATE = { Adafactor = true }

--- is_foreign(config, at, is_h5) -> whether the optimizer is one without its state in files of this format. Says that
--- the model is loaded without it.
function M.is_foreign(config, at, is_h5)
  local saved = type(config) == "table" and (given(config.optimizer_config) or given(config.optimizer))
  local class = saved and objects.class_and_config(saved)
  if not (is_h5 and WITHOUT_STATE[class]) then return false end
  require "mgpu".output(("load_model: %s: the state of the optimizer %s is not read from .h5 files: the model is "
    .. "loaded without it, so call compile before fit\n"):format(at.path, class))
  return true
end

-- Options for which Keras's None is our false, since it is not their default.
local NONE_IS_FALSE = { Muon = { rms_rate = true } }

-- Muon's exclude_layers holds regular expressions in Keras, parts of names here.
local SPECIAL = "[%^%$%.%*%+%?%(%)%[%]{}|\\]"

local function exclusions_from(fields, at)
  local parts = {}
  for i, pattern in ipairs(fields.exclude_layers or {}) do
    if type(pattern) ~= "string" or pattern:gsub("\\%p", ""):find(SPECIAL) then
      objects.fail(at, "the pattern %q in exclude_layers of Muon is not supported, only parts of names: load with "
        .. "{compile = false}", tostring(pattern))
    end
    parts[i] = pattern:gsub("\\(%p)", "%1")
  end
  fields.exclude_layers = fields.exclude_layers and parts
end

local function exclusions_to(parts)
  local patterns = {}
  for i, part in ipairs(parts) do patterns[i] = part:gsub(SPECIAL, "\\%0") end
  return patterns
end

local optimizer_from

-- A MultiOptimizer's map, or the function in its place.
local function optimizer_map_from(value, at)
  local class, config = objects.class_and_config(value)
  if class ~= "OptimizerMap" or type(config) ~= "table" then
    objects.fail(at, "the optimizer MultiOptimizer has no OptimizerMap: a function cannot be read")
  end
  local map = {}
  for key, entry in pairs(given(config.optimizer_map) or {}) do map[key] = optimizer_from(entry, at) end
  return { class_name = class, config = { optimizer_map = map,
    default_optimizer = optimizer_from(config.default_optimizer, at) } }
end

function optimizer_from(value, at)
  local class, config = objects.class_and_config(value)
  if not class or type(config) ~= "table" then objects.damaged(at, "the optimizer has no class_name or config") end
  if not known("optimizers", class) then refuse(at, "optimizer", class) end
  local fields = fields_of(config, UNUSED_OPTIMIZER)
  if fields.lr then fields.learning_rate, fields.lr = fields.lr, nil end
  for key in pairs(NONE_IS_FALSE[class] or {}) do
    if config[key] == core.null then fields[key] = false end
  end
  if class == "Muon" then exclusions_from(fields, at) end
  old_options(class, fields, at)
  if type(fields.learning_rate) == "table" then fields.learning_rate = schedule_from(fields.learning_rate, at) end
  if fields.inner_optimizer then fields.inner_optimizer = optimizer_from(fields.inner_optimizer, at) end
  if class == "MultiOptimizer" then fields.optimizer_map = optimizer_map_from(fields.optimizer_map, at) end
  return { class_name = require "mgpu.nn.optimizers"[class].class, config = fields }
end

local EMA = { use_ema = true, ema_momentum = true, ema_overwrite_frequency = true }

local optimizer_to

-- Optimizers that stand in the map twice are two in Keras's files.
local function optimizer_map_to(config)
  local map = {}
  local function entry_of(entry) return optimizer_to(entry.same_as and config.optimizer_map[entry.same_as] or entry) end
  for key, entry in pairs(config.optimizer_map) do map[key] = entry_of(entry) end
  return objects.object("OptimizerMap", { optimizer_map = map, default_optimizer = entry_of(config.default_optimizer) },
    "keras.optimizers")
end

-- Without averages their options are left out: the older optimizers of Keras 2, which it makes of .h5 files, do not
-- know them.
function optimizer_to(optimizer)
  local config = fields_of(optimizer.config, not optimizer.config.use_ema and EMA or nil)
  config.exclude_from_weight_decay = nil
  for key in pairs(NONE_IS_FALSE[optimizer.class_name] or {}) do
    if config[key] == false then config[key] = core.null end
  end
  if config.exclude_layers then config.exclude_layers = exclusions_to(config.exclude_layers) end
  if type(config.learning_rate) == "table" then
    config.learning_rate = objects.object(config.learning_rate.class_name, config.learning_rate.config,
      "keras.optimizers.schedules")
  end
  if config.inner_optimizer then config.inner_optimizer = optimizer_to(config.inner_optimizer) end
  if config.optimizer_map then config.optimizer_map = optimizer_map_to(config.optimizer_map.config) end
  return objects.object(optimizer.class_name, config, "keras.optimizers")
end

-- ---- the whole ----------------------------------------------------------------------------------

-- The entry of output i of Keras's loss, loss_weights, ...: one for all, an array, or an object by names.
local function of_output(value, i, names, is_one)
  value = given(value)
  if value == nil or #names == 1 and is_one(value) then return value end
  if type(value) ~= "table" or is_one(value) then return value end
  if value[names[i]] ~= nil then return value[names[i]] end
  return value[i]
end

local function is_object(value) return type(value) ~= "table" or value.class_name ~= nil end

-- Whether the value is the list of metrics of one output.
local function is_metrics(value)
  if type(value) ~= "table" or value.class_name then return true end
  return value[1] ~= nil and is_object(value[1])
end

--- from_keras(model, config, tensors, names, at) -> {config =, tensors =} for compiled_state.restore; nil if the
--- configuration has no optimizer.
-- ARGS tensors: the optimizer's variables as Keras had them; names: their names, or nil; at: see objects.lua.
-- Errors: classes that we do not have.
function M.from_keras(model, config, tensors, names, at)
  local output_names = model.output_names or { "output" }
  local saved = given(config.optimizer_config) or given(config.optimizer)
  if not saved then return nil end
  local optimizer = optimizer_from(saved, at)
  local outputs, several = {}, #output_names > 1
  for i, name in ipairs(output_names) do
    local function metrics(list)
      return metrics_from(of_output(list, i, output_names, is_metrics), several and name .. "_" or "", at)
    end
    local weight = of_output(config.loss_weights, i, output_names, is_object)
    outputs[i] = { name = name, loss = trained_loss(of_output(config.loss, i, output_names, is_object), at),
      weight = type(weight) == "number" and weight or nil, metrics = metrics(config.metrics),
      weighted_metrics = metrics(config.weighted_metrics) }
  end
  local steps = given(config.steps_per_execution)
  local state
  state, optimizer = optimizer_state.from_keras(model, optimizer, tensors, names, at)
  if not state and not optimizer_state.is_untrained(tensors) then
    require "mgpu.say"("load_model: %s: the state of the optimizer %s has another form and is ignored: it starts "
      .. "anew\n", at.path, optimizer.class_name)
  end
  return { config = { optimizer = optimizer, outputs = outputs, run_eagerly = given(config.run_eagerly),
    steps_per_execution = type(steps) == "number" and steps or nil }, tensors = state or {} }
end

--- read(model, config, tensors, names, at) -> what from_keras RETURNS; whatever is wrong with the configuration is an
--- error that names the file.
function M.read(model, config, tensors, names, at)
  return model_config.guarded(at.path, M.from_keras, model, config, tensors, names, at)
end

-- Says that a Keras file does not hold compile's lr_scale, if it has changed the rate.
local function tell_of_scale(compiled)
  local scale = compiled.config.lr_scale and compiled.tensors["optimizer/lr_scale"]:item() or 1
  if scale == 1 then return end
  require "mgpu.say"("save: a Keras file has no lr_scale: training that goes on from it has the learning rate before "
    .. "it is multiplied by %g\n", scale)
end

-- The parts that both forms share. A single output has no lists.
local function compile_config(compiled)
  tell_of_scale(compiled)
  local config, single = compiled.config, #compiled.config.outputs == 1
  local loss, loss_weights, metrics, weighted = {}, {}, {}, {}
  for i, output in ipairs(config.outputs) do
    local function list(of)
      local entries = {}
      for k, metric in ipairs(of or {}) do entries[k] = metric_to(metric, output) end
      return #entries > 0 and entries or core.empty_array
    end
    loss[i], loss_weights[i] = loss_to(output.loss), output.weight or core.null
    metrics[i], weighted[i] = list(output.metrics), list(output.weighted_metrics)
  end
  local function whole(list) return single and list[1] or list end
  return { loss = whole(loss), loss_weights = single and core.null or loss_weights, metrics = whole(metrics),
    weighted_metrics = whole(weighted), run_eagerly = config.run_eagerly or false,
    steps_per_execution = config.steps_per_execution or 1, jit_compile = false }
end

-- JSON text of a configuration. Keras refuses these numbers without a decimal point.
local function encode(config)
  local text = objects.encode(config)
  for _, name in ipairs { "learning_rate", "momentum", "beta", "threshold" } do
    text = text:gsub(('("%s":%%-?%%d+)([,}])'):format(name), "%1.0%2")
  end
  return text
end

--- to_training_config(compiled) -> the text that .h5 files hold.
function M.to_training_config(compiled)
  local config = compile_config(compiled)
  config.jit_compile, config.optimizer_config = nil, optimizer_to(compiled.config.optimizer)
  return encode(config)
end

--- to_config(entry, compiled) -> the text of config.json in a .keras file, from Keras's form of the model.
function M.to_config(entry, compiled)
  if compiled then
    entry.compile_config = compile_config(compiled)
    entry.compile_config.optimizer = optimizer_to(compiled.config.optimizer)
  end
  return encode(entry)
end

return M
