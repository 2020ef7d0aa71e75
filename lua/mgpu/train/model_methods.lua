--- The methods fit, evaluate and predict of models, and their one-batch forms.
--
-- nn/network.lua mixes them into models, with compile.lua. Here options are checked and the forms of arguments sorted
-- out; the loops are in fit.lua and evaluate.lua, the jitted steps in train_step.lua, the checks of the data in
-- data_adapter.lua.
local compiled_state = require "mgpu.train.compiled_state"
local core = require "mgpu.core"
local data_adapter = require "mgpu.train.data_adapter"
local evaluate = require "mgpu.train.evaluate"
local fit = require "mgpu.train.fit"
local inference = require "mgpu.train.inference"
local known_batch = require "mgpu.train.known_batch"
local logs = require "mgpu.train.logs"
local options = require "mgpu.options"
local placement = require "mgpu.train.placement"
local rate_scale = require "mgpu.train.rate_scale"

local M = {}

-- ---- options ------------------------------------------------------------------------------------

local BATCH_SIZE = { "batch_size", "integer", default = 32, min = 1 }
local VERBOSE = { "verbose", "integer|string", default = "auto", min = 0, max = 2 }
local CALLBACKS = { "callbacks", "table" }

local FIT = options.declare {
  BATCH_SIZE,
  { "epochs", "integer", default = 1, min = 0 },
  VERBOSE,
  { "style", "string", default = "keras3", values = { "keras2", "keras3" } },
  CALLBACKS,
  { "validation_data", "any" },
  { "validation_split", "number", default = 0, min = 0, below = 1 },
  { "shuffle", "boolean", default = true },
  { "class_weight", "table" },
  { "sample_weight", "any" },
  { "initial_epoch", "integer", default = 0, min = 0 },
  { "steps_per_epoch", "integer", min = 1 },
  { "validation_steps", "integer", min = 1 },
  { "validation_freq", "integer", default = 1, min = 1 },
  { "validation_batch_size", "integer", min = 1 },
  { "resume", "string" },
  { "dashboard", "boolean|integer|table" },
  { "run", "any" },
}

local STEPS = { "steps", "integer", min = 1 }
local EVALUATE = options.declare { BATCH_SIZE, VERBOSE, STEPS, CALLBACKS, { "sample_weight", "any" } }
local PREDICT = options.declare { BATCH_SIZE, STEPS, CALLBACKS,
  { "verbose", "integer|string", default = 0, min = 0, max = 2 } }
local ON_BATCH = options.declare { { "sample_weight", "any" }, { "class_weight", "table" } }

-- The checked options of a method; `what` names it in errors.
local function check(what, declared, given)
  if given ~= nil and type(given) ~= "table" then
    core.fail("usage", ("%s: options are a table, got a %s"):format(what, type(given)))
  end
  local chosen = options.check(what, declared, given or {})
  if type(chosen.verbose) == "string" then
    if chosen.verbose ~= "auto" then
      core.fail("usage", ('%s: option "verbose" must be 0, 1, 2 or "auto", got %q'):format(what, chosen.verbose))
    end
    chosen.verbose = 1
  end
  return chosen
end

-- The methods of Keras's models that users replace there. Here steps are made of compile's options alone.
local REPLACED = { "train_step", "test_step", "predict_step", "make_train_function", "make_test_function",
  "make_predict_function", "compute_loss", "compute_metrics" }

-- Raises if the model, or its class, has one of them. They are looked up in the tables themselves: a model's own lookup
-- searches for a similar name.
local function check_replaced(model, what)
  local class = require(model.class_name == "Model" and "mgpu.nn.model" or "mgpu.nn.sequential")
  for _, name in ipairs(REPLACED) do
    if rawget(model, name) ~= nil or class[name] ~= nil then
      core.fail("usage", ("%s: the model has a %s, which is not called: write a loop of your own with "
        .. "mgpu.value_and_grad, as in examples/custom_loop.lua"):format(what, name))
    end
  end
end

-- model.compiled; raises if compile has not been called.
local function compiled_model(model, what)
  check_replaced(model, what)
  if not model.compiled then
    core.fail("usage", ("%s: call model:compile {optimizer = ..., loss = ...} first"):format(what))
  end
  return model.compiled
end

-- ---- fit ----------------------------------------------------------------------------------------

-- RETURNS the training source and the validation source, which is the data given for it, the last rows of the
-- training data, or nil.
local function validation_of(model, train, given)
  local data = given.validation_data
  if data then
    if data_adapter.is_dataset(data) then
      if given.validation_batch_size then
        core.fail("usage", "fit: validation_batch_size: a dataset has its batches already, made by :batch(n)")
      end
      return train, data_adapter.new("fit: validation_data", model, data, nil, {})
    end
    if type(data) ~= "table" or data[1] == nil or data[2] == nil then
      core.fail("usage", "fit: validation_data must be {x, y}, {x, y, sample_weight}, a dataset or a generator")
    end
    return train, data_adapter.new("fit: validation_data", model, data[1], data[2],
      { sample_weight = data[3], batch_size = given.validation_batch_size or given.batch_size })
  elseif given.validation_split > 0 then
    return data_adapter.split(train, given.validation_split, "fit")
  end
  return train
end

local function has_option(declared, name)
  for _, option in ipairs(declared) do
    if option[1] == name then return true end
  end
end

-- RETURNS y and the options. fit(dataset, options) has no y; with tensors, options in the place of y raise.
local function without_y(what, declared, x, y, given)
  if data_adapter.is_dataset(x) then
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

-- Makes the optimizer's slots and puts them where their variables are. Says once if there is nothing to train.
local function build_optimizer(model)
  local compiled, variables = model.compiled, model.trainable_variables
  if #variables == 0 and not compiled.said_untrainable then
    compiled.said_untrainable = true
    require "mgpu.say"("fit: %s has no trainable weights: there is nothing to train\n", tostring(model))
  end
  compiled.optimizer:build(variables)
  placement.place_state(compiled, model)
end

-- Raises for data whose length is not known, unless the number of steps is given.
local function check_length(train, validation, given)
  data_adapter.check_steps(train, given.steps_per_epoch, "steps_per_epoch")
  if validation then data_adapter.check_steps(validation, given.validation_steps, "validation_steps") end
  if not given.steps_per_epoch then data_adapter.check_end(train) end
end

--- model:fit(x, y, options) or model:fit(dataset, options) -> history: trains the model, as Keras's fit.
--
-- x, y: tensors or nested arrays, rows first; for several inputs or outputs an array of them or a table by name.
-- dataset: one of mgpu.data, or a generator: a function or a coroutine that gives x, y and perhaps weights of a batch
-- at each call. It goes on from epoch to epoch and must be given with steps_per_epoch.
--   batch_size             32: rows of a step over all devices
--   epochs                 1: the number of the last epoch;   initial_epoch  0: epochs done before
--   validation_data        {x, y[, sample_weight]}, a dataset or a generator
--   validation_split       0: last fraction of the rows, instead
--   validation_steps, validation_freq = 1, validation_batch_size = batch_size
--   callbacks              one, or an array of them
--   shuffle                true: the order of the rows is new in each epoch, from mgpu.seed
--   class_weight           {[0] = 1, [1] = 5}, by class id;   sample_weight  one number a row
--   steps_per_epoch        batches of an epoch; required for a dataset of unknown length
--   resume                 a folder: saves a checkpoint there after each epoch, and continues from the newest one, as
--                          the callback BackupAndRestore with delete_checkpoint = false
--   dashboard              true, a port, or {port =, name =, histogram_freq = 0, runs =, save =}: a page that shows the
--                          training while it runs (mgpu.dashboard); false: not on the page that is open
--   run                    a folder, or {folder, name =, ...}: records the run there (lua/manual/experiments.md)
--   verbose                1 or "auto" progress bar, 2 one line an epoch, 0 silent;   style  "keras3" or "keras2"
-- RETURNS {history = {loss = {...}, ...}, epoch = {...}, params = {...}}.
-- Errors: data that do not fit the model, labels out of range, a loss or gradient that is not finite (the weights
-- are then those before the step).
-- Example:
--     local x = mgpu.rand { 256, 2 }
--     local y = x:sum { axis = 2, keepdims = true } -- what the model is to learn
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.Adam { 0.05 }, loss = "mse" }
--     local h = model:fit(x, y, { epochs = 20, batch_size = 32, validation_split = 0.25, verbose = 0 })
--     print(#h.history.loss, h.history.val_loss[20] < 0.01)  --> 20 true
function M:fit(x, y, given)
  local compiled = compiled_model(self, "fit")
  y, given = without_y("fit", FIT, x, y, given)
  local chosen = check("fit", FIT, given)
  return placement.on_device(compiled, self, function()
    local train, validation = validation_of(self, data_adapter.new("fit", self, x, y, chosen), chosen)
    check_length(train, validation, chosen)
    compiled_state.continue_random(compiled)
    if not train.dataset then build_optimizer(self) end
    return fit(self, train, validation, chosen)
  end)
end

-- ---- evaluate, predict --------------------------------------------------------------------------

--- model:evaluate(x, y, options) or model:evaluate(dataset, options) -> {loss =, accuracy =, ...}
--
-- The values can be read by position too: local loss, acc = unpack(model:evaluate(x, y)).
-- Options: batch_size = 32, sample_weight =, steps = (all batches), callbacks =, verbose = "auto".
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1, kernel_initializer = "zeros" } }
--     model:compile { loss = "mse", metrics = { "mae" } }
--     local logs = model:evaluate(mgpu.ones { 8, 2 }, mgpu.full({ 8, 1 }, 3), { verbose = 0 })
--     print(logs.mae)  --> 3
--     print(logs)      --> {loss = 9, mae = 3}
function M:evaluate(x, y, given)
  y, given = without_y("evaluate", EVALUATE, x, y, given)
  local chosen = check("evaluate", EVALUATE, given)
  return placement.on_device(compiled_model(self, "evaluate"), self, function()
    local source = data_adapter.new("evaluate", self, x, y, chosen)
    data_adapter.check_steps(source, chosen.steps, "steps")
    return logs.with_positions(evaluate.evaluate(self, source, chosen))
  end)
end

-- RETURNS fn(), run on the model's devices if compile named any.
local function where_compiled(model, fn)
  if model.compiled then return placement.on_device(model.compiled, model, fn) end
  return fn()
end

--- model:predict(x, options) or model:predict(dataset, options) -> the outputs for all rows: a tensor, or an array
--- of tensors where the model has several outputs. The model need not be compiled.
--
-- Options: batch_size = 32, steps = (all batches), callbacks =, verbose = 0.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3, activation = "softmax" } }
--     local p = model:predict(mgpu.rand { 100, 2 }, { batch_size = 32 })
--     print(unpack(p:shape()))  --> 100 3
--     local classes = p:argmax(2) -- the likeliest one of each row
function M:predict(x, given)
  check_replaced(self, "predict")
  local known = inference.again(self, x, given)
  if known ~= nil then return known end
  if data_adapter.is_dataset(x) then without_y("predict", PREDICT, x, given) end
  local chosen = check("predict", PREDICT, given)
  return where_compiled(self, function()
    local source = data_adapter.inputs("predict", self, x, chosen)
    data_adapter.check_steps(source, chosen.steps, "steps")
    local plain = not chosen.callbacks and not chosen.steps and chosen.verbose == 0
    return evaluate.predict(self, source, chosen, plain and x or nil)
  end)
end

-- ---- one batch ----------------------------------------------------------------------------------

-- Raises for data that are not one batch.
local function check_one_batch(what, x, instead)
  if not data_adapter.is_dataset(x) then return end
  core.fail("usage", ("%s: x is the tensors of one batch, not a dataset or generator: use model:%s"):format(what,
    instead))
end

local ANY_SIZE = { batch_size = 2 ^ 31 }

local function on_batch(self, kind, x, y, given)
  local what = kind .. "_on_batch"
  check_one_batch(what, x, kind == "train" and "fit" or "evaluate")
  local compiled = compiled_model(self, what)
  if given == nil then
    local values = known_batch.again(self, kind, x, y)
    if values then return logs.with_positions(values) end
  end
  local chosen = check(what, ON_BATCH, given)
  return placement.on_device(compiled, self, function()
    local source = data_adapter.new(what, self, x, y, chosen)
    if kind == "train" then
      compiled_state.continue_random(compiled)
      build_optimizer(self)
      rate_scale.begin_batches(compiled)
    end
    local values = evaluate.one_batch(self, kind, source)
    if given == nil then known_batch.remember(self, kind, x, y, source) end
    return logs.with_positions(values)
  end)
end

--- model:train_on_batch(x, y, {sample_weight =, class_weight =}) -> {loss =, accuracy =, ...}: one step on all rows.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1, kernel_initializer = "zeros" } }
--     model:compile { optimizer = "sgd", loss = "mse" }
--     local x, y = mgpu.ones { 8, 2 }, mgpu.ones { 8, 1 }
--     print(model:train_on_batch(x, y).loss > model:train_on_batch(x, y).loss)  --> true
function M:train_on_batch(x, y, given) return on_batch(self, "train", x, y, given) end

--- model:test_on_batch(x, y, {sample_weight =}) -> {loss =, accuracy =, ...} of these rows.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1, kernel_initializer = "zeros" } }
--     model:compile { loss = "mse" }
--     print(model:test_on_batch(mgpu.ones { 8, 2 }, mgpu.full({ 8, 1 }, 2)).loss)  --> 4
function M:test_on_batch(x, y, given) return on_batch(self, "test", x, y, given) end

--- model:predict_on_batch(x) -> the outputs for these rows, computed in one step.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1, kernel_initializer = "ones" } }
--     print(model:predict_on_batch(mgpu.tensor { { 1, 2 } }):item())  --> 3
function M:predict_on_batch(x)
  check_one_batch("predict_on_batch", x, "predict")
  local known = inference.again(self, x, ANY_SIZE)
  if known ~= nil then return known end
  return where_compiled(self, function()
    local source = data_adapter.inputs("predict_on_batch", self, x)
    return evaluate.predict(self, source, { batch_size = source.rows or 1, verbose = 0 }, x)
  end)
end

return M
