-- The loops of fit, evaluate and predict over a source of batches.
--
-- A step runs compute, then guards, then commit, so a step that raises has changed nothing. What it
-- raises is raised again with the place: the epoch and step in the user's counting.

local core = require "mgpu.core"
local batches = require "mgpu.batches"
local Callback = require "mgpu.callbacks.callback"
local Compiled = require "mgpu.compiled"
local History = require "mgpu.callbacks.history"
local logs = require "mgpu.logs"
local Progress = require "mgpu.progress"

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
  for _, what in ipairs { Compiled.BAD_LOSS, Compiled.BAD_GRADIENT } do
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

-- ---- evaluate -----------------------------------------------------------------------------------

-- Loss and metrics over the source, as logs. The running sums of an epoch in progress are kept.
local function run_test(model, source, given, prefix, place, progress)
  local compiled = model.compiled
  local step, key = compiled:step("test", model), compiled.key(model)
  local steps = batches.steps(source, given.batch_size)
  local saved, at = compiled:save(), 0
  compiled:reset()
  if progress then progress:begin(steps) end
  local read = function() return compiled:read() end
  guarded(function() return place(at) end, function()
    for i = 1, steps do
      at = i
      local x, y, weight, order, first, rows = batches.batch(source, given.batch_size, i)
      step(x, y, weight, order, first, rows, key)
      if progress then progress:step(i, read) end
    end
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
  guarded(function() return kind .. "_on_batch" end, step, source.x, source.y, source.weight,
    nil, nil, source.rows, key)
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

function M.predict(model, source, given)
  local step = model.predict_step
  if not step then
    step = core.jit(function(x, order, first, rows, key) -- luacheck: no unused
      return model((Compiled.take(x, nil, nil, order, first, rows)))
    end)
    model.predict_step = step
  end
  local parts, at, key = {}, 0, Compiled.key(model)
  return guarded(function() return ("predict: step %d"):format(at) end, function()
    for i = 1, batches.steps(source, given.batch_size) do
      at = i
      local x, _, _, order, first, rows = batches.batch(source, given.batch_size, i)
      parts[i] = step(x, order, first, rows, key)
    end
    return concat(parts)
  end)
end

-- ---- callbacks ----------------------------------------------------------------------------------

-- The callbacks as one: call(method, ...), and has(method).
local function callback_list(model, given, history)
  local list = { history }
  local callbacks = given.callbacks or {}
  if callbacks.new == nil and #callbacks > 0 then
    for _, callback in ipairs(callbacks) do list[#list + 1] = callback end
  elseif next(callbacks) then
    list[#list + 1] = callbacks
  end
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
  -- Passes over the data are numbered from the optimizer's step count, so that a fit that goes on
  -- (after another fit, or from a checkpoint) shuffles as an uninterrupted one.
  local done = tonumber(model.compiled.optimizer.iterations:item())
  run.passes_before = math.max(math.floor(done / run.steps_a_pass),
    math.floor(given.initial_epoch * run.steps / run.steps_a_pass))
  return run
end

-- The source of the given pass (from 0), in its order.
local function source_of_pass(run, pass)
  if run.pass ~= pass then
    run.pass = pass
    run.source = run.given.shuffle and batches.shuffled(run.train, run.passes_before + pass)
      or run.train
  end
  return run.source
end

-- Runs step number run.step of this epoch. Steps go on through the data from epoch to epoch, so
-- steps_per_epoch need not divide a pass.
local function train_batch(run, step, key)
  local number = (run.epoch - run.given.initial_epoch - 1) * run.steps + run.step - 1
  local source = source_of_pass(run, math.floor(number / run.steps_a_pass))
  local x, y, weight, order, first, rows =
    batches.batch(source, run.given.batch_size, number % run.steps_a_pass + 1)
  step(x, y, weight, order, first, rows, key)
end

local function place_of(run) return ("fit: epoch %d, step %d"):format(run.epoch, run.step) end

local function train_epoch(run)
  local compiled, callbacks = run.compiled, run.callbacks
  local step, key = compiled:step("train", run.model), compiled.key(run.model)
  local place = function() return place_of(run) end
  local read = function() return compiled:read() end
  for i = 1, run.steps do
    run.step = i
    callbacks.call("on_train_batch_begin", i)
    guarded(place, train_batch, run, step, key)
    if run.reads_batches then callbacks.call("on_train_batch_end", i, read()) end
    guarded(place, run.progress.step, run.progress, i, read)
    if run.model.stop_training then break end
  end
  return guarded(place, read)
end

local function validate(run, values)
  local place = function(step)
    return ("fit: epoch %d, validation step %d"):format(run.epoch, step)
  end
  run.callbacks.call "on_test_begin"
  local found = run_test(run.model, run.validation, run.given, "val_", place)
  for name, value in logs.each(found) do values[name] = value end
  run.callbacks.call("on_test_end", found)
end

local function run_epochs(run)
  local given = run.given
  run.progress:header(run.train.rows, run.validation and run.validation.rows)
  run.callbacks.call "on_train_begin"
  for epoch = given.initial_epoch + 1, given.epochs do
    run.epoch = epoch
    run.compiled:reset()
    run.callbacks.call("on_epoch_begin", epoch)
    run.progress:begin(run.steps, ("Epoch %d/%d"):format(epoch, given.epochs))
    local values = train_epoch(run)
    if run.validation then validate(run, values) end
    run.progress:finish(values)
    run.callbacks.call("on_epoch_end", epoch, values)
    if run.model.stop_training then break end
  end
  run.callbacks.call "on_train_end"
end

-- ARGS train, validation (or nil): sources; given: fit's checked options
-- RETURNS the history
function M.fit(model, train, validation, given)
  model.stop_training = false
  local run = new_run(model, train, validation, given)
  local ok, message = pcall(run_epochs, run)
  run.progress:close()
  -- Ctrl-C may also hit between the steps.
  if not ok then explain(message, place_of(run)) end
  return run.history
end

M.callback_methods = Callback.METHODS

return M
