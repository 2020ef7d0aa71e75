-- The loops of fit, evaluate and predict over a source of batches.
--
-- A step runs compute, then guards, then commit, so a step that raises has changed nothing. What it
-- raises is raised again with the place: the epoch and step in the user's counting.

local core = require "mgpu.core"
local batches = require "mgpu.train.data_adapter"
local Callback = require "mgpu.train.callbacks.callback"
local Compiled = require "mgpu.train.train_step"
local History = require "mgpu.train.callbacks.history"
local logs = require "mgpu.train.logs"
local LossScale = require "mgpu.nn.optimizers.loss_scale_optimizer"
local Progress = require "mgpu.train.progress"

local M = {}

-- ---- errors -------------------------------------------------------------------------------------

local REMEDY = "the weights are those before this step; lower the learning rate or look for bad "
  .. "values in the data"

-- Raises the message again; one that a step itself gave becomes one with the place. The error code
-- alone does not tell: it may be left from an error caught before.
local function explain(message, place)
  if type(message) ~= "string" then error(message, 0) end
  local code = core.error_code()
  if code == "interrupted" and message:find "interrupted!?$" then
    core.fail(code, place .. ": interrupted; the model can be used and trained on")
  end
  if (code == "device" or code == "comm") and not message:find(place, 1, true) then
    core.fail(code, ("%s: %s"):format(place, (message:gsub("^[^:]*:%d+: ", ""))))
  end
  for _, what in ipairs { Compiled.BAD_LOSS, Compiled.BAD_GRADIENT, LossScale.BAD_SCALE } do
    if code == "nonfinite" and message:sub(-#what) == what then
      core.fail(code, ("%s: %s: %s"):format(place, what, REMEDY))
    end
  end
  error(message, 0)
end

-- Runs fn(...) on the device; `place` is a function that says where we are.
local function guarded(place, fn, ...)
  local ok, result = pcall(fn, ...)
  if not ok then explain(result, place()) end
  return result
end

-- Runs a step on what a cursor gave.
local function run_step(step, batch, key)
  step(batch.count, batch.rows, batch.shape, key, batch.first, batch.order, unpack(batch.tensors))
end

-- ---- evaluate -----------------------------------------------------------------------------------

-- Loss and metrics over the source, as logs. The running sums of an epoch in progress are kept.
local function run_test(model, source, given, prefix, place, progress)
  local compiled = model.compiled
  local step, key = compiled:step("test", model), compiled.key(model)
  local steps = given.steps or batches.steps(source, given.batch_size)
  local saved, at, limit = compiled:save(), 0, compiled.steps_per_execution
  compiled:reset()
  if progress then progress:begin(steps) end
  local read = function() return compiled:read() end
  guarded(function() return place(at) end, function()
    local cursor = batches.cursor(source, given.batch_size, false, compiled:position "test")
    cursor:start(0)
    while not steps or at < steps do
      local batch = cursor:take(math.min(limit, (steps or math.huge) - at))
      if not batch then break end
      at = at + batch.count
      run_step(step, batch, key)
      if progress then progress:step(at, read) end
    end
    if at == 0 then batches.no_batch(source) end
  end)
  local values = compiled:read(prefix)
  compiled:restore(saved)
  if progress then progress:finish(values) end
  return values
end

function M.evaluate(model, source, given)
  local place = function(step) return ("evaluate: step %d"):format(step) end
  return run_test(model, source, given, "", place, Progress.new(given.verbose))
end

-- ---- one batch ----------------------------------------------------------------------------------

-- One step ("train" or "test") on all rows of the source; its loss and metrics as logs.
function M.one_batch(model, kind, source)
  local compiled = model.compiled
  local step, key = compiled:step(kind, model), compiled.key(model)
  local saved = compiled:save()
  compiled:reset()
  guarded(function() return kind .. "_on_batch" end, run_step, step,
    { count = 1, rows = source.rows, shape = source.shape, tensors = source.tensors }, key)
  local values = compiled:read()
  compiled:restore(saved)
  return values
end

-- ---- predict ------------------------------------------------------------------------------------

-- The parts one after another. A call takes a bounded number of arguments, hence the rounds.
local function concat(parts)
  while #parts > 1 do
    local wider = {}
    for first = 1, #parts, 250 do
      local some = { unpack(parts, first, math.min(first + 249, #parts)) }
      some[#some + 1] = { axis = 1 }
      wider[#wider + 1] = core.ops.concat(unpack(some))
    end
    parts = wider
  end
  core.eval(parts[1])
  return parts[1]
end

--- The outputs for all rows: a tensor, or an array of them where the model has several.
function M.predict(model, source, given)
  local steps = model.compiled and model.compiled.steps or model
  local step = steps.predict_step or Compiled.predict_step(model)
  steps.predict_step = step
  local parts, at, key = {}, 0, Compiled.key(model)
  return guarded(function() return ("predict: step %d"):format(at) end, function()
    local cursor = batches.cursor(source, given.batch_size)
    cursor:start(0)
    for batch in function() return at ~= given.steps and cursor:take(1) or nil end do
      at = at + 1
      local outputs = { step(batch.rows, batch.shape, key, batch.first, batch.order,
        unpack(batch.tensors)) }
      for i, t in ipairs(outputs) do
        parts[i] = parts[i] or {}
        parts[i][at] = t
      end
    end
    if at == 0 then batches.no_batch(source) end
    for i, list in ipairs(parts) do parts[i] = concat(list) end
    return model.several and parts or parts[1]
  end)
end

-- ---- callbacks ----------------------------------------------------------------------------------

local IS_METHOD = {}
for _, name in ipairs(Callback.METHODS) do IS_METHOD[name] = true end

-- Whether the callback, or a class it is of, has a method; one that is called nearly so is an error.
local function has_method(callback, label)
  local found = false
  for key in pairs(callback) do
    found = found or IS_METHOD[key]
    if type(key) == "string" and key:find "^on_" and not IS_METHOD[key] then
      local near = core.nearest(key, Callback.METHODS)
      core.fail("usage", ("fit: %s has a function %q, which nobody calls%s; there are %s"):format(label, key,
        near and (" (did you mean %q?)"):format(near) or "", table.concat(Callback.METHODS, ", ")))
    end
  end
  local meta = getmetatable(callback)
  local class = type(meta) == "table" and meta.__index
  if type(class) == "table" and class ~= callback then found = has_method(class, label) or found end
  return found
end

local function check_callback(callback, label)
  if type(callback) ~= "table" then
    core.fail("usage", ("fit: %s must be made by mgpu.callbacks or be a table of functions such as "
      .. "on_epoch_end, got %s"):format(label, type(callback) == "string" and ("%q"):format(callback)
      or "a " .. type(callback)))
  elseif rawget(callback, "new") then
    core.fail("usage", ("fit: %s is a class: call it, as in %s {}"):format(label, callback.class or "Class"))
  end
  local some = has_method(callback, label)
  if not some and not getmetatable(callback) then
    core.fail("usage", ("fit: %s has none of the functions %s"):format(label,
      table.concat(Callback.METHODS, ", ")))
  end
end

-- The callbacks given: one, or an array of them.
local function given_callbacks(given)
  if given == nil or next(given) == nil and not getmetatable(given) then return {} end
  if getmetatable(given) or #given == 0 then
    check_callback(given, "callbacks")
    return { given }
  end
  for key, callback in pairs(given) do
    if type(key) ~= "number" then
      core.fail("usage", ("fit: callbacks is an array, but has an entry %q: put functions into a table of "
        .. "their own"):format(tostring(key)))
    end
    check_callback(callback, ("callbacks[%d]"):format(key))
  end
  return given
end

-- The callbacks as one: call(method, ...), and has(method).
local function callback_list(model, given, history)
  local list = { history, unpack(given_callbacks(given.callbacks)) }
  for _, callback in ipairs(list) do callback.model, callback.params = model, history.params end
  local self = {}
  function self.has(method)
    for _, callback in ipairs(list) do
      if callback[method] then return true end
    end
  end
  function self.call(method, ...)
    for _, callback in ipairs(list) do
      local fn = callback[method]
      if fn then fn(callback, ...) end
    end
  end
  return self
end

-- ---- fit ----------------------------------------------------------------------------------------

-- What it takes to train on the devices as they are.
local function use_devices(run)
  local compiled = run.compiled
  run.async = compiled.strategy == "async" and compiled.spread
    and require "mgpu.parallel.asynchronous".new(compiled, run.model) or nil
end

-- set_devices, called by a callback, acts from the next epoch: weights, data and steps go there.
local function change_devices(run)
  local compiled = run.compiled
  if run.within or not compiled:settle_devices() then return end
  run.default = run.default or core.default_device()
  if compiled.home then core.default_device(compiled.home) end
  compiled:place_state(run.model)
  if compiled.device then batches.move({ run.train, run.validation }, compiled.device) end
  run.cursor:settle(compiled.device, compiled:position "train")
  use_devices(run)
end

-- The run of one fit: what its parts share.
local function new_run(model, train, validation, given)
  local run = { model = model, compiled = model.compiled, train = train, validation = validation,
    given = given, epoch = 0, step = 0 }
  run.steps_a_pass = batches.steps(train, given.batch_size)
  run.steps = given.steps_per_epoch or run.steps_a_pass
  run.history = History {}
  run.history.params = { epochs = given.epochs, steps = run.steps, batch_size = given.batch_size,
    verbose = given.verbose, samples = train.rows }
  run.callbacks = callback_list(model, given, run.history)
  run.progress = Progress.new(given.verbose, given.style)
  run.reads_batches = run.callbacks.has "on_train_batch_end"
  run.cursor = batches.cursor(train, given.batch_size, given.shuffle,
    run.compiled:position "train")
  use_devices(run)
  run.within, run.compiled.fitting = run.compiled.fitting, true -- within: another fit's callback
  -- Passes over the data are numbered from the optimizer's step count, so that a fit that goes on
  -- (after another fit, or from a checkpoint) shuffles as an uninterrupted one.
  local done = model.compiled.optimizer:steps_taken() * run.compiled.accumulate
  local a_pass = run.steps_a_pass or math.huge
  run.pass = math.max(math.floor(done / a_pass),
    math.floor(given.initial_epoch * (run.steps or 0) / a_pass))
  return run
end

-- The next batches, at most `limit`. Steps go on through the data from epoch to epoch, so
-- steps_per_epoch need not divide a pass; nil at the end of an epoch that is a pass.
local function next_batch(run, limit)
  local batch = run.started and run.cursor:take(limit)
  if not batch then
    if run.started and not run.given.steps_per_epoch and run.given_out > 0 then
      run.started, run.ended = false, true
      return nil
    end
    run.cursor:start(run.pass)
    run.pass, run.started = run.pass + 1, true
    batch = run.cursor:take(limit)
    if not batch then batches.no_batch(run.train) end
  end
  run.callbacks.call("on_train_batch_begin", run.given_out + 1)
  run.given_out = run.given_out + batch.count
  return batch
end

local function place_of(run) return ("fit: epoch %d, step %d"):format(run.epoch, run.step) end

-- How many batches the next call of a step may take, and which step it is: with accumulate, the
-- weights change with each so-manieth batch and with the last of an epoch.
local function next_call(run)
  local compiled, left = run.compiled, (run.steps or math.huge) - run.step
  if compiled.accumulate == 1 then return "train", math.min(compiled.steps_per_execution, left) end
  local full = (run.step + 1) % compiled.accumulate == 0
  return (full or left == 1) and "train" or "gather", 1
end

-- Gives batches to the devices without work and takes one device's gradients: a step is an update, and a
-- batch ends with its own. False when the epoch's are all taken.
local function train_batch_async(run)
  run.step = run.step + 1
  local function goes_on()
    return not run.ended and run.given_out ~= run.steps
      and (run.given_out == 0 or not run.model.stop_training)
  end
  while goes_on() and run.async:is_idle() do
    local batch = next_batch(run, 1)
    if batch then run.async:submit(batch) end
  end
  if run.async:take() then return true end
  run.step = run.step - 1
  return false
end

-- Runs the next call of a step; false at the end of the epoch.
local function train_batch(run, key)
  if run.async then return train_batch_async(run) end
  if run.step == run.steps then return false end
  local kind, limit = next_call(run)
  local batch = next_batch(run, limit)
  if not batch then return false end
  run.step = run.given_out
  run_step(run.compiled:step(kind, run.model), batch, key)
  run.pending = kind == "gather"
  return true
end

local function train_epoch(run)
  local compiled, callbacks = run.compiled, run.callbacks
  local key = compiled.key(run.model)
  local place = function() return place_of(run) end
  local read = function() return compiled:read() end
  run.step, run.given_out, run.ended = 0, 0, false -- given_out: batches, done or at work
  while guarded(place, train_batch, run, key) do
    if run.reads_batches and run.async then compiled:place_state(run.model) end
    if run.reads_batches then callbacks.call("on_train_batch_end", run.step, read()) end
    guarded(place, run.progress.step, run.progress, run.step, read)
    if run.model.stop_training and not run.async then break end -- devices at work finish first
  end
  if not run.steps then run.steps = run.step end
  local values = guarded(place, read)
  if run.async then values.staleness_mean, values.staleness_max = run.async:report() end
  return values
end

local function validate(run, values)
  local place = function(step)
    return ("fit: epoch %d, validation step %d"):format(run.epoch, step)
  end
  run.callbacks.call "on_test_begin"
  local found = run_test(run.model, run.validation, run.validation_given, "val_", place)
  for name, value in logs.each(found) do values[name] = value end
  run.callbacks.call("on_test_end", found)
end

local function run_epochs(run)
  local given = run.given
  run.validation_given = { batch_size = given.validation_batch_size or given.batch_size,
    steps = given.validation_steps }
  run.progress:header(run.train.rows, run.validation and run.validation.rows)
  run.callbacks.call "on_train_begin"
  for epoch = given.initial_epoch + 1, given.epochs do
    run.epoch = epoch
    change_devices(run)
    run.compiled:reset()
    run.callbacks.call("on_epoch_begin", epoch)
    run.progress:begin(run.steps, ("Epoch %d/%d"):format(epoch, given.epochs))
    local values = train_epoch(run)
    if run.validation and epoch % given.validation_freq == 0 then validate(run, values) end
    run.progress:finish(values)
    run.callbacks.call("on_epoch_end", epoch, values)
    if run.model.stop_training then break end
  end
  local optimizer = run.compiled.optimizer
  if optimizer.finalize_variable_values and given.epochs > given.initial_epoch then
    optimizer:finalize_variable_values(run.model.trainable_variables)
  end
  run.callbacks.call "on_train_end"
end

--- ARGS train, validation (or nil): sources; given: fit's checked options
--- RETURNS the history
function M.fit(model, train, validation, given)
  model.stop_training = false
  local run = new_run(model, train, validation, given)
  local ok, message = pcall(run_epochs, run)
  if run.async then
    run.async:abandon()
    run.compiled:place_state(model) -- what the last device changed comes home
  end
  run.compiled.fitting = run.within
  if not run.within then run.compiled:settle_devices() end
  if run.default then pcall(core.default_device, run.default) end -- a lost one is refused
  run.progress:close()
  -- Ctrl-C may also hit between the steps.
  if not ok then explain(message, place_of(run)) end
  return run.history
end

M.callback_methods = Callback.METHODS

return M
