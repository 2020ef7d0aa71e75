--- The loops of evaluate and predict over a source of batches, and the one-batch forms of fit and evaluate.
local batch_cursor = require "mgpu.train.batch_cursor"
local CallbackList = require "mgpu.train.callback_list"
local core = require "mgpu.core"
local data_adapter = require "mgpu.train.data_adapter"
local inference = require "mgpu.train.inference"
local logs = require "mgpu.train.logs"
local Progress = require "mgpu.train.progress"
local step_errors = require "mgpu.train.step_errors"
local train_step = require "mgpu.train.train_step"
local world = require "mgpu.parallel.world"

local M = {}

-- RETURNS fn(). Attached prompts run their commands inside where core.visit is called, and nowhere else.
local function between_steps(fn)
  local scope = core.visit_scope()
  core.visit_scope(scope + 1)
  local ok, result = pcall(fn)
  core.visit_scope(scope)
  if not ok then error(result, 0) end
  return result
end

-- Runs fn with the sums of loss and metrics at zero and RETURNS their values. Then, also after an error, it restores
-- the sums of before.
local function with_own_sums(metrics, fn)
  local saved = metrics:save()
  metrics:reset()
  local ok, result = pcall(between_steps, function()
    fn()
    return metrics:read()
  end)
  metrics:restore(saved)
  if not ok then error(result, 0) end
  return result
end

-- ---- evaluate -----------------------------------------------------------------------------------

--- run(model, source, options) -> loss and metrics over the source, as logs; nil if it was stopped. The running sums of
--- an epoch in progress are kept.
-- ARGS options: batch_size, steps (nil: a whole pass), callbacks (a CallbackList), place(step) -> where we are for
--   errors, progress (nil: prints nothing), stopped() -> whether to stop (nil: never), fit: the one that validates.
function M.run(model, source, options)
  local compiled, progress, callbacks = model.compiled, options.progress, options.callbacks
  local metrics, limit = compiled.metrics, compiled.steps_per_execution
  local key = train_step.plan_key(model)
  local step = train_step.get(compiled, "test", model, key)
  local steps = options.steps or data_adapter.steps(source, options.batch_size)
  local begins, ends = callbacks:has "on_test_batch_begin", callbacks:has "on_test_batch_end"
  local at, stopped = 0, options.stopped or function() end
  local place = { kind = "evaluate", model = model, compiled = compiled, metrics = metrics, steps = steps,
    fit = options.fit }
  model.stop_evaluating = false
  callbacks:call("on_test_begin", logs.new())
  if progress then progress:begin(steps) end
  local read = function() return metrics:read() end
  local function run_batches()
    local cursor = batch_cursor.new(source, options.batch_size, false, train_step.position(compiled, "test"))
    cursor:start(0)
    while (not steps or at < steps) and not model.stop_evaluating and not stopped() do
      local batch = cursor:take(math.min(limit, (steps or math.huge) - at))
      if not batch then break end
      if begins then callbacks:call("on_test_batch_begin", at + 1, logs.new()) end
      at = at + batch.count
      step(batch.count, batch.rows, batch.layout, key, batch.first, batch.order, unpack(batch.tensors))
      if ends then callbacks:call("on_test_batch_end", at, metrics:lazy()) end
      if progress then progress:step(at, read) end
      place.step = at
      core.visit(place)
    end
    world.meet()
    if at == 0 and not stopped() then data_adapter.no_batch(source) end
  end
  local values = with_own_sums(metrics, function()
    step_errors.guarded(function() return options.place(at) end, run_batches)
  end)
  if stopped() then return nil end
  callbacks:call("on_test_end", values)
  if progress then progress:finish(values, at) end
  return values
end

-- The callbacks of evaluate or predict, with the parameters that fit gives its callbacks.
local function callbacks_of(what, model, source, given)
  local compiled = model.compiled
  return CallbackList.new(what, model, given.callbacks, { epochs = 1, batch_size = given.batch_size,
    steps = given.steps or data_adapter.steps(source, given.batch_size), verbose = given.verbose,
    samples = source.rows, metrics = compiled and compiled.metrics:names() or {} })
end

--- evaluate(model, source, given) -> logs; `given`: evaluate's checked options.
function M.evaluate(model, source, given)
  return M.run(model, source, { batch_size = given.batch_size, steps = given.steps,
    callbacks = callbacks_of("evaluate", model, source, given),
    place = function(step) return ("evaluate: step %d"):format(step) end,
    progress = Progress.new(given.verbose) })
end

-- ---- one batch ----------------------------------------------------------------------------------

--- one_batch(model, kind, source) -> the logs of one step ("train" or "test") on all rows of the source.
function M.one_batch(model, kind, source)
  local compiled = model.compiled
  local key = train_step.plan_key(model)
  local step = train_step.get(compiled, kind, model, key)
  local values = with_own_sums(compiled.metrics, function()
    step_errors.guarded(function() return kind .. "_on_batch", model end, step, 1, source.rows, source.layout, key, nil,
      nil, unpack(source.tensors))
  end)
  if core.visit_wanted() then core.visit { kind = kind .. "_on_batch", model = model, compiled = compiled } end
  return values
end

-- ---- predict ------------------------------------------------------------------------------------

-- The parts one after another. A call takes a bounded number of arguments, hence the rounds.
local function concat_rows(parts)
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

-- The model's predict step. It is kept beside the other steps, so that set_devices drops it too.
local function predict_step_of(model)
  local kept = model.compiled and model.compiled.steps or model
  kept.prediction = kept.prediction or train_step.predict_step(model)
  return kept.prediction
end

-- Whether the output has a number of rows that the batch does not change, as the states of a graph of ONNX may.
local function has_own_rows(model, i)
  if not model.order or model.inputs[1]:shape()[1] ~= -1 then return false end
  return (model.outputs[i]:shape()[1] or -1) ~= -1
end

-- Raises for outputs of several batches that cannot be joined: not so many rows, or multiples of them, as the batch.
local function check_rows(model, outputs, rows)
  for i, t in ipairs(outputs) do
    local made = t:shape()[1] or 0
    if made % rows ~= 0 or made == 0 and rows > 0 or has_own_rows(model, i) then
      model:fail("predict: output %d has %d rows for a batch of %d, so the outputs of several batches cannot be "
        .. "joined: give a batch_size for all rows, or call model(x)", i, made, rows)
    end
  end
end

-- Whether all rows are one batch: then the step takes the tensors as they are.
local function is_whole(model, source, given)
  local spread = model.compiled and model.compiled.spread
  return source.order and source.rows <= given.batch_size and not spread
end

-- Runs the step on one batch after another. RETURNS for each output the array of its parts.
local function predict_batches(model, source, given, at)
  local step, key = predict_step_of(model), train_step.plan_key(model)
  local callbacks, progress, parts = callbacks_of("predict", model, source, given), Progress.new(given.verbose), {}
  local begins, ends = callbacks:has "on_predict_batch_begin", callbacks:has "on_predict_batch_end"
  local cursor = batch_cursor.new(source, given.batch_size)
  local first, first_rows
  local whole = is_whole(model, source, given)
  local place = { kind = "predict", model = model, steps = given.steps or data_adapter.steps(source, given.batch_size) }
  model.stop_predicting = false
  callbacks:call("on_predict_begin", logs.new())
  progress:begin(given.steps or data_adapter.steps(source, given.batch_size))
  cursor:start(0)
  while at.step ~= given.steps and not model.stop_predicting do
    local batch = cursor:take(1)
    if not batch then break end
    if begins then callbacks:call("on_predict_batch_begin", at.step + 1, logs.new()) end
    at.step = at.step + 1
    local outputs = { step(batch.rows, batch.layout, key, not whole and batch.first or nil,
      not whole and batch.order or nil, unpack(batch.tensors)) }
    if at.step == 2 then check_rows(model, first, first_rows) end
    if at.step > 1 then check_rows(model, outputs, batch.rows) end
    first, first_rows = first or outputs, first_rows or batch.rows
    for i, t in ipairs(outputs) do
      parts[i] = parts[i] or {}
      parts[i][at.step] = t
    end
    if ends then
      local values = logs.new()
      values.outputs = model.several and outputs or outputs[1]
      callbacks:call("on_predict_batch_end", at.step, values)
    end
    progress:step(at.step, logs.new)
    place.step = at.step
    core.visit(place)
  end
  if model.compiled then world.meet() end -- else each rank predicts for itself
  if at.step == 0 then data_adapter.no_batch(source) end
  callbacks:call("on_predict_end", logs.new())
  progress:finish(logs.new(), at.step)
  return parts
end

-- Notes what a further call for tensors like x can use: see inference.again.
local function remember(model, x, source, given)
  local compiled = rawget(model, "compiled")
  if not is_whole(model, source, given) or compiled and (compiled.devices or compiled.eager) or world.size() > 1 then
    return
  end
  inference.remember(model, x, source, { step = predict_step_of(model), key = train_step.plan_key(model),
    layout = source.layout, compiled = compiled, device = core.default_device() })
end

--- predict(model, source, given, x) -> the outputs for all rows: a tensor, or an array of them where the model has
--- several outputs. `given`: batch_size, steps (nil: a whole pass), callbacks, verbose (nil: 0). x: what the source is
--- made of, where further calls with the like of it are to be faster.
function M.predict(model, source, given, x)
  local at = { step = 0 }
  return step_errors.guarded(function() return ("predict: step %d"):format(at.step) end, function()
    local parts = between_steps(function() return predict_batches(model, source, given, at) end)
    for i, list in ipairs(parts) do parts[i] = concat_rows(list) end
    if x then remember(model, x, source, given) end
    return model.several and parts or parts[1]
  end)
end

return M
