-- The methods that train a model: compile, fit, evaluate, predict and their one-batch forms.
--
-- They are mixed into models. Here options are checked and forms of arguments sorted out; the loops
-- are in fit.lua, the jitted steps in compiled.lua, the data's checks in batches.lua.

local core = require "mgpu.core"
local batches = require "mgpu.train.data_adapter"
local Compiled = require "mgpu.train.train_step"
local devices = require "mgpu.parallel.devices"
local fit = require "mgpu.train.fit"
local logs = require "mgpu.train.logs"
local LossScaleOptimizer = require "mgpu.nn.optimizers.loss_scale_optimizer"
local mixed_precision = require "mgpu.nn.mixed_precision"
local options = require "mgpu.options"
local parallel = require "mgpu.parallel"

local M = {}

-- ---- options ------------------------------------------------------------------------------------

local COMPILE = options.declare {
  { "optimizer", "any", default = "rmsprop" },
  { "loss", "any" },
  { "loss_weights", "any" },
  { "metrics", "any" },
  { "weighted_metrics", "any" },
  { "devices", "any" },
  { "strategy", "any" },
  { "accumulate", "integer", default = 1, min = 1 },
  { "steps_per_execution", "integer", default = 1, min = 1 },
  { "run_eagerly", "boolean", default = false },
  { "bn", "string", default = "sync", values = { "sync", "local" } },
  { "precision", "string|table" },
  { "auto_scale_loss", "boolean", default = true },
}

local BATCH_SIZE = { "batch_size", "integer", default = 32, min = 1 }
local VERBOSE = { "verbose", "integer", default = 1, min = 0, max = 2 }

local FIT = options.declare {
  BATCH_SIZE,
  { "epochs", "integer", default = 1, min = 0 },
  VERBOSE,
  { "style", "string", default = "keras3", values = { "keras2", "keras3" } },
  { "callbacks", "table" },
  { "validation_data", "table" },
  { "validation_split", "number", default = 0, min = 0, below = 1 },
  { "shuffle", "boolean", default = true },
  { "class_weight", "table" },
  { "sample_weight", "any" },
  { "initial_epoch", "integer", default = 0, min = 0 },
  { "steps_per_epoch", "integer", min = 1 },
  { "validation_steps", "integer", min = 1 },
  { "validation_freq", "integer", default = 1, min = 1 },
  { "validation_batch_size", "integer", min = 1 },
}

local STEPS = { "steps", "integer", min = 1 }
local EVALUATE = options.declare { BATCH_SIZE, VERBOSE, STEPS, { "sample_weight", "any" } }
local PREDICT = options.declare { BATCH_SIZE, STEPS,
  { "verbose", "integer", default = 0, min = 0, max = 2 } }
local ON_BATCH = options.declare { { "sample_weight", "any" }, { "class_weight", "table" } }

local function check(what, declared, given)
  if given ~= nil and type(given) ~= "table" then
    core.fail("usage", ("%s: options are a table, got a %s"):format(what, type(given)))
  end
  return options.check(what, declared, given or {})
end

local function compiled_model(model, what)
  if not model.compiled then
    core.fail("usage", ("%s: call model:compile {optimizer = ..., loss = ...} first"):format(what))
  end
  return model.compiled
end

-- ---- compile ------------------------------------------------------------------------------------

-- The policy, and a scaled loss for a model with layers of float16, which loses gradients below 6e-8.
local function set_precision(model, compiled, chosen)
  if chosen.precision ~= nil then mixed_precision.apply(model, chosen.precision) end
  local scaled = compiled.optimizer.skips_steps
  if chosen.auto_scale_loss and not scaled and mixed_precision.computes_in(model, "float16") then
    compiled.optimizer = LossScaleOptimizer { compiled.optimizer }
  end
end

function M:compile(given)
  local chosen = check("compile", COMPILE, given)
  if chosen.loss == nil then
    core.fail("usage", 'compile: loss is missing; give a name, as in loss = '
      .. '"categorical_crossentropy", or a function(y_true, y_pred)')
  end
  if chosen.accumulate > 1 and chosen.steps_per_execution > 1 then
    core.fail("usage", "compile: give only one of accumulate and steps_per_execution")
  end
  local compiled = Compiled.new(chosen, self.output_names or { "output" }, parallel.resolve(self, chosen))
  set_precision(self, compiled, chosen)
  self.compiled, self.optimizer, self.loss = compiled, compiled.optimizer, chosen.loss
end

--- set_devices(list): the same as compile's devices; weights, optimizer and counters stay. In a callback of
--- fit it acts from the next epoch.
function M:set_devices(list)
  local compiled = compiled_model(self, "set_devices")
  local names, weights, stages = devices.resolve("set_devices", list)
  compiled:set_devices { devices = names, weights = weights, stages = stages,
    strategy = compiled.strategy }
end

-- ---- fit ----------------------------------------------------------------------------------------

-- The validation source: given data, or rows split from the training source.
local function validation_of(model, train, given)
  local data = given.validation_data
  if data then
    if batches.is_dataset(data) then
      if given.validation_batch_size then
        core.fail("usage", "fit: validation_batch_size: a dataset has its batches already, made by :batch(n)")
      end
      return train, batches.new("fit: validation_data", model, data, nil, {})
    end
    if data[1] == nil or data[2] == nil then
      core.fail("usage", "fit: validation_data must be {x, y}, {x, y, sample_weight} or a dataset")
    end
    return train, batches.new("fit: validation_data", model, data[1], data[2],
      { sample_weight = data[3] })
  elseif given.validation_split > 0 then
    return batches.split(train, given.validation_split, "fit")
  end
  return train
end

local function has_option(declared, name)
  for _, option in ipairs(declared) do
    if option[1] == name then return true end
  end
end

-- fit(dataset, options) has no y; elsewhere options in its place are an error.
local function without_y(what, declared, x, y, given)
  if batches.is_dataset(x) then
    if given == nil then y, given = nil, y end
    if type(given) == "table" and given.batch_size ~= nil then
      core.fail("usage", what .. ": batch_size: a dataset has its batches already, made by :batch(n)")
    end
  elseif given == nil and type(y) == "table" and not getmetatable(y) and has_option(declared, next(y)) then
    core.fail("usage", ("%s: y is missing: the options come after it, as in %s(x, y, {%s = ...})"):format(what,
      what, next(y)))
  end
  return y, given
end

local function check_length(train, given)
  if train.dataset and not train.length and not given.steps_per_epoch then
    core.fail("usage", "fit: the dataset does not end: give steps_per_epoch")
  end
end

function M:fit(x, y, given)
  local compiled = compiled_model(self, "fit")
  y, given = without_y("fit", FIT, x, y, given)
  local chosen = check("fit", FIT, given)
  return compiled:on_device(self, function()
    local train, validation = validation_of(self, batches.new("fit", self, x, y, chosen), chosen)
    check_length(train, chosen)
    if not train.dataset then
      compiled.optimizer:build(self.trainable_variables)
      compiled:place_state(self)
    end
    return fit.fit(self, train, validation, chosen)
  end)
end

-- ---- evaluate, predict --------------------------------------------------------------------------

function M:evaluate(x, y, given)
  y, given = without_y("evaluate", EVALUATE, x, y, given)
  local chosen = check("evaluate", EVALUATE, given)
  return compiled_model(self, "evaluate"):on_device(self, function()
    local source = batches.new("evaluate", self, x, y, chosen)
    return logs.with_positions(fit.evaluate(self, source, chosen))
  end)
end

-- fn() on the model's device, where compile has named one.
local function where_compiled(model, fn)
  if model.compiled then return model.compiled:on_device(model, fn) end
  return fn()
end

function M:predict(x, given)
  if batches.is_dataset(x) then without_y("predict", PREDICT, x, given) end
  local chosen = check("predict", PREDICT, given)
  return where_compiled(self, function()
    return fit.predict(self, batches.inputs("predict", self, x), chosen)
  end)
end

-- ---- one batch ----------------------------------------------------------------------------------

local function on_batch(self, kind, x, y, given)
  local what = kind .. "_on_batch"
  local compiled, chosen = compiled_model(self, what), check(what, ON_BATCH, given)
  return compiled:on_device(self, function()
    local source = batches.new(what, self, x, y, chosen)
    if kind == "train" then
      compiled.optimizer:build(self.trainable_variables)
      compiled:place_state(self)
    end
    return logs.with_positions(fit.one_batch(self, kind, source))
  end)
end

function M:train_on_batch(x, y, given) return on_batch(self, "train", x, y, given) end

function M:test_on_batch(x, y, given) return on_batch(self, "test", x, y, given) end

function M:predict_on_batch(x)
  return where_compiled(self, function()
    local source = batches.inputs("predict_on_batch", self, x)
    return fit.predict(self, source, { batch_size = source.rows or 1 })
  end)
end

return M
