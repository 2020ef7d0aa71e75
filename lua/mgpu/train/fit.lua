--- The training loop of model:fit.
--
-- One batch takes this way: the cursor of the data says which rows come next, the train step (one jitted function:
-- forward, loss, gradients, optimizer, metrics) runs on them, then callbacks and progress bar are told. The step
-- returns nothing, so the loop runs ahead of an asynchronous device; reading loss and metrics waits for it.
-- Epochs and steps count from 1, as the user counts them.
local Backup = require "mgpu.train.checkpoint.backup"
local batch_cursor = require "mgpu.train.batch_cursor"
local CallbackList = require "mgpu.train.callback_list"
local core = require "mgpu.core"
local data_adapter = require "mgpu.train.data_adapter"
local decisions = require "mgpu.train.decisions"
local evaluate = require "mgpu.train.evaluate"
local History = require "mgpu.train.callbacks.history"
local logs = require "mgpu.train.logs"
local placement = require "mgpu.train.placement"
local Progress = require "mgpu.train.progress"
local proving = require "mgpu.parallel.proving"
local rate_scale = require "mgpu.train.rate_scale"
local step_errors = require "mgpu.train.step_errors"
local strategies = require "mgpu.parallel.strategies"
local train_step = require "mgpu.train.train_step"
local world = require "mgpu.parallel.world"

-- ---- the run ------------------------------------------------------------------------------------

-- Passes are counted from the optimizer's step count, so that a fit that continues an earlier fit or a saved model
-- shuffles as one uninterrupted fit would.
local function first_pass(run)
  local done = run.compiled.optimizer:steps_taken() * run.compiled.accumulate
  local a_pass = run.steps_a_pass or math.huge
  return math.max(math.floor(done / a_pass),
    math.floor(run.given.initial_epoch * (run.steps or 0) / a_pass))
end

-- How often an epoch has values of the validation data: "always", "sometimes", or nil for never.
local function validated(given, validation)
  if not validation then return nil end
  local first = math.ceil((given.initial_epoch + 1) / given.validation_freq) * given.validation_freq
  return given.validation_freq == 1 and "always" or first <= given.epochs and "sometimes" or nil
end

-- The callbacks of the fit, checked; History is the last.
local function new_callbacks(run)
  local given, measured, when = run.given, run.compiled.metrics:names(), validated(run.given, run.validation)
  local names = { unpack(measured) }
  for _, name in ipairs(when and measured or {}) do names[#names + 1] = "val_" .. name end
  local callbacks = CallbackList.new("fit", run.model, given.callbacks, { epochs = given.epochs, steps = run.steps,
    batch_size = run.train.rows and given.batch_size, verbose = given.verbose, samples = run.train.rows,
    metrics = names }, run.history, run.recorder)
  callbacks:check_fit(measured, when, run.trainer and run.trainer.reports or {})
  return callbacks
end

-- Callbacks run on rank 0 for all, so ranks that are not in step cannot call them after a batch.
local function check_in_step(run)
  if not (run.trainer and world.is_joint()) or run.trainer.in_step then return end
  for _, when in ipairs { "on_train_batch_begin", "on_train_batch_end" } do
    if run.callbacks:has(when) then
      core.fail("usage", ("fit: with strategy %q the ranks do not take their steps together, so no callback can have "
        .. "%s: use on_epoch_end"):format(run.compiled.strategy, when))
    end
  end
end

-- What shows the fit on the page of a dashboard (dashboard/run.lua), or nil.
local function new_board(run)
  local wanted = run.given.dashboard
  if wanted == false or wanted == nil and not package.loaded["mgpu.dashboard"] then return nil end
  return require "mgpu.dashboard".begin_run(run, wanted)
end

-- The state of one fit:
--   model, compiled, given (fit's checked options), train, validation (sources), cursor, history, callbacks, progress
--   trainer        what trains in place of the jitted step (parallel/strategies.lua), or nil
--   begins_batches, ends_batches   whether a callback has on_train_batch_begin, on_train_batch_end
--   steps          batches of an epoch; nil until the first epoch ends, for a dataset of unknown length
--   steps_a_pass   batches of a pass over the data; nil if unknown. steps_per_epoch makes the two differ
--   epoch, step    where the training is
--   pass, started  the number of the next pass; whether the cursor is within one
--   submitted      batches of this epoch given to the devices; ended: the epoch's data are used up
--   within         whether the epoch has begun and has not ended; trained: its training has, validation may follow
--   recorder       what records the fit in a folder (runs/recorder.lua), or nil
--   backup         what saves checkpoints (checkpoint/backup.lua), or nil
--   board          what shows it on the page of a dashboard (dashboard/run.lua), or nil
--   depth          of its span
--   kind           "fit": of the places where an attached prompt runs commands (attach/view.lua)
--   joint          whether several ranks share the steps
--   stopping       whether it ends after this epoch; decisions: those that wait for its end (decisions.lua)
--   outer          whether this fit runs inside a callback of another fit of the model
--   default        the default device before a callback changed the devices; nil if none did
local function new_run(model, train, validation, given, recorder)
  local compiled = model.compiled
  local run = { model = model, compiled = compiled, train = train, validation = validation, given = given,
    recorder = recorder, epoch = 0, step = 0, kind = "fit", joint = world.is_joint() }
  run.steps_a_pass = data_adapter.steps(train, given.batch_size)
  run.steps = given.steps_per_epoch or run.steps_a_pass
  run.history, run.trainer = History {}, strategies.trainer(compiled, model)
  run.history:keep_settings(given)
  run.callbacks = new_callbacks(run)
  run.begins_batches = run.callbacks:has "on_train_batch_begin"
  run.ends_batches = run.callbacks:has "on_train_batch_end"
  check_in_step(run)
  run.progress = Progress.new(given.verbose, given.style)
  run.cursor = batch_cursor.new(train, given.batch_size, given.shuffle, train_step.position(compiled, "train"))
  run.outer = compiled.fitting
  run.backup = Backup.new(run)
  run.board = new_board(run)
  if recorder then recorder:begin(run.backup and run.backup.dir) end
  compiled.fitting = true
  run.pass = first_pass(run)
  if compiled.restored then run.cursor:skip_passes(run.pass) end
  return run
end

local function place_of(run) return ("fit: epoch %d, step %d"):format(run.epoch, run.step) end

-- Devices that a callback set (model:set_devices) take effect between two epochs: weights, data and steps move.
local function change_devices(run)
  local compiled = run.compiled
  if run.outer or not placement.settle_devices(compiled) then return end
  run.default = run.default or core.default_device()
  if compiled.home then core.default_device(compiled.home) end
  placement.place_state(compiled, run.model)
  if compiled.device then data_adapter.move({ run.train, run.validation }, compiled.device) end
  run.cursor:settle(compiled.device, train_step.position(compiled, "train"))
  run.trainer = strategies.trainer(compiled, run.model)
end

-- ---- one batch ----------------------------------------------------------------------------------

-- The next batches from the data, at most `limit`. Steps go on through the data from epoch to epoch, so
-- steps_per_epoch need not divide a pass; nil at the end of an epoch that is one pass.
local function next_batch(run, limit)
  local batch = run.started and run.cursor:take(limit)
  if not batch then
    if run.started and not run.given.steps_per_epoch and run.submitted > 0 then
      run.started, run.ended = false, true
      return nil
    end
    run.cursor:start(run.pass)
    run.pass, run.started = run.pass + 1, true
    batch = run.cursor:take(limit)
    if not batch then data_adapter.no_batch(run.train) end
  end
  if run.begins_batches then run.callbacks:call("on_train_batch_begin", run.submitted + 1, logs.new()) end
  run.submitted = run.submitted + batch.count
  return batch
end

-- Which step comes next, and of how many batches at most. With compile's `accumulate = n` the weights change after
-- every n-th batch and after the last of an epoch; the batches between only add up gradients.
local function next_step(run)
  local compiled, left = run.compiled, (run.steps or math.huge) - run.step
  if compiled.accumulate == 1 then return "train", math.min(compiled.steps_per_execution, left) end
  local full = (run.step + 1) % compiled.accumulate == 0
  return (full or left == 1) and "train" or "accumulate", 1
end

-- Whether a signal has asked to save a checkpoint and stop.
local function is_stopping(run) return run.backup and run.backup.stop_requested() end

-- The next batch for a trainer; nil if no more of them is to begin.
local function take_batch(run)
  if run.ended or run.submitted == run.steps or is_stopping(run) then return nil end
  if run.submitted > 0 and run.model.stop_training then return nil end
  return next_batch(run, 1)
end

-- A step of a trainer. RETURNS false when it has trained all batches of the epoch.
local function train_by_trainer(run, key)
  run.step = run.step + 1
  local more = run.trainer:train_batch(function() return take_batch(run) end, key)
  if run.trainer.takes_all then
    run.step = run.submitted
  elseif not more then
    run.step = run.step - 1
  end
  return more
end

local function call(backup, step, ...)
  if backup then return backup:run_step(step, ...) end
  step(...)
end

-- Runs the next step; false at the end of the epoch.
local function train_batch(run, key)
  if run.trainer then return train_by_trainer(run, key) end
  if run.step == run.steps then return false end
  local kind, limit = next_step(run)
  local batch = next_batch(run, limit)
  if not batch then return false end
  run.step = run.submitted
  local step = train_step.get(run.compiled, kind, run.model, key)
  call(run.backup, step, batch.count, batch.rows, batch.layout, key, batch.first, batch.order, unpack(batch.tensors))
  return true
end

-- ---- epochs -------------------------------------------------------------------------------------

-- RETURNS fn(...). A loss or gradient that is not finite ends the training instead of raising, if a callback handles
-- it (TerminateOnNaN); then it RETURNS nil.
local function attempt(run, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then return result end
  if step_errors.is_nonfinite(result) and run.callbacks:has "handle_nonfinite" then
    run.callbacks:call("handle_nonfinite", run.step)
    run.model.stop_training, run.nonfinite = true, true
    return nil
  end
  step_errors.raise(result, place_of(run), run.model)
end

-- Between two steps: an attached prompt may run commands here.
local function be_visited(run)
  if not core.visit_wanted() then return end
  if run.trainer then placement.place_state(run.compiled, run.model) end
  core.visit(run)
end

-- One step, and what follows it; false at the end of the epoch.
local function step_once(run, key, read)
  local before = run.step
  if not attempt(run, train_batch, run, key) then return false end
  if run.ends_batches then
    if run.trainer then placement.place_state(run.compiled, run.model) end
    run.callbacks:call("on_train_batch_end", run.step, run.compiled.metrics:lazy())
  end
  attempt(run, run.progress.step, run.progress, run.step, read)
  if run.board then attempt(run, run.board.step, run.board, run.step, read) end
  if run.backup then run.backup:after_step(run, run.step - before) end
  if proving.after_step then proving.after_step(run.model) end
  be_visited(run)
  return not run.model.stop_training or run.trainer -- which may have batches to finish
end

local function run_step(run, key, read)
  local depth = core.span("script", "batch", run.step + 1)
  local more = step_once(run, key, read)
  core.span_end(depth)
  return more
end

-- RETURNS the logs of the epoch.
local function train_epoch(run)
  local key, metrics = train_step.plan_key(run.model), run.compiled.metrics
  local read = function()
    local values = metrics:read()
    core.visit_note { loss = values.loss }
    return values
  end
  while not run.trained and run_step(run, key, read) do end
  if run.trainer then attempt(run, run.trainer.end_epoch, run.trainer) end
  world.meet()
  if run.trainer and is_stopping(run) and not run.ended and run.step ~= run.steps then run.backup:stop(run) end
  run.trained, run.steps = true, run.steps or run.step
  local values = attempt(run, read) or read()
  if not run.nonfinite then step_errors.check_weights(run.model, place_of(run)) end
  if run.trainer then run.trainer:report(values) end
  return values
end

-- Evaluates the validation data and adds the results to the epoch's logs.
local function validate(run, values)
  local given = run.given
  local found = evaluate.run(run.model, run.validation, { steps = given.validation_steps,
    batch_size = given.validation_batch_size or given.batch_size, callbacks = run.callbacks, fit = run,
    stopped = run.backup and run.backup.stop_requested,
    place = function(step) return ("fit: epoch %d, validation step %d"):format(run.epoch, step) end })
  if not found then run.backup:stop(run) end
  for name, value in logs.each(found) do values["val_" .. name] = value end
end

local function begin_epoch(run, epoch)
  core.span_end(run.depth + 1) -- the epoch before
  core.span("script", "epoch", epoch)
  run.epoch, run.step, run.submitted, run.ended = epoch, 0, 0, false
  run.within, run.trained = true, false
  change_devices(run)
  run.compiled.metrics:reset()
  if run.board then run.board:begin_epoch(epoch) end
  run.callbacks:call("on_epoch_begin", epoch, logs.new())
  run.progress:begin(run.steps, epoch, run.given.epochs)
  core.visit_note { epochs = run.given.epochs, steps = run.steps or 0, device = run.compiled.device }
end

-- RETURNS the epoch to begin with, and whether a checkpoint is to be restored after the beginning of that epoch: its
-- callbacks must not change what is restored. A checkpoint of a complete epoch is restored here.
local function first_epoch(run)
  local backup, given = run.backup, run.given
  local epoch, within
  if backup then epoch, within = backup:load(run) end
  local later = within and epoch <= given.epochs
  if epoch and not later then backup:restore(run) end
  if backup then backup:begin(run) end
  return epoch or given.initial_epoch + 1, later
end

local function run_epochs(run)
  local given, callbacks = run.given, run.callbacks
  run.progress:header(run.train.rows, run.validation and run.validation.rows)
  local values = logs.new()
  callbacks:call("on_train_begin", values)
  local first, restore = first_epoch(run)
  for epoch = first, given.epochs do
    begin_epoch(run, epoch)
    if restore and epoch == first then run.backup:restore(run) end
    if epoch == first then rate_scale.begin(run.compiled, given.verbose) end
    values = train_epoch(run)
    if run.validation and epoch % given.validation_freq == 0 then validate(run, values) end
    run.within = false
    logs.seal(values)
    callbacks:call("on_epoch_end", epoch, values)
    run.progress:finish(values, run.step)
    decisions.settle(run)
    if run.board then run.board:end_epoch(run.step, values) end
    if run.backup then run.backup:after_epoch(run) end
    if run.model.stop_training then break end
  end
  local optimizer = run.compiled.optimizer
  if optimizer.finalize_variable_values and given.epochs > given.initial_epoch then
    optimizer:finalize_variable_values(run.model.trainable_variables)
  end
  callbacks:call("on_train_end", values)
end

-- Leaves model and devices usable, after an error too.
local function finish(run, completed)
  if run.backup then run.backup:finish(completed) end
  if run.trainer then
    run.trainer:abandon()
    pcall(placement.place_state, run.compiled, run.model) -- moves the weights home, unless home was lost
  end
  run.compiled.fitting = run.outer
  if not run.outer then placement.settle_devices(run.compiled) end
  if run.default then pcall(core.default_device, run.default) end -- fails if that device was lost
  run.progress:close()
end

-- What records the fit; nil without the option run. outer: whether it runs inside another fit.
local function recorder_of(given, outer)
  if given.run == nil and not os.getenv "MGPU_TRIAL" then return nil end
  return require "mgpu.runs.recorder".of(given, outer)
end

--- fit(model, train, validation, given) -> the history
-- ARGS train, validation (or nil): sources of data_adapter; given: fit's checked options.
return function(model, train, validation, given)
  model.stop_training = false
  local depth = core.span("script", "fit")
  local recorder = recorder_of(given, model.compiled.fitting)
  local made, run = pcall(new_run, model, train, validation, given, recorder)
  if not made then
    if recorder then recorder:finish(false, run) end
    error(run, 0)
  end
  run.depth = depth
  local scope = core.visit_scope()
  core.visit_scope(scope + 1)
  local ok, message = pcall(run_epochs, run)
  core.visit_scope(scope)
  core.visit_note { epochs = 0, steps = 0 }
  finish(run, ok)
  if run.board then run.board:finish(ok, message) end
  if recorder then recorder:finish(ok, message, run.history) end
  core.span_end(depth)
  if not ok then step_errors.raise(message, place_of(run)) end -- Ctrl-C may come between two steps, too
  if proving.after_fit then proving.after_fit(model) end
  return run.history
end
