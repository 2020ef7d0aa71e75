--- The jitted steps of a compiled model: one batch of training, of testing, of prediction.
--
-- A step is a function of the data's tensors under core.jit, nothing a user could not write: forward, loss,
-- gradients, optimizer, metrics. It returns nothing; loss and metrics add up in variables (running_metrics.lua).
--
-- step(count, rows, layout, key, first, order, tensors...) runs `count` batches of `rows` rows each. The rows are
-- those that order[first], order[first + 1], ... name (from 0); without an order the tensors are the batch.
-- `layout` says which tensor is which (batch_layout.lua). `key` is not used by the step: what a plan depends on
-- besides its tensors must be among the arguments, see plan_key.
local batch_layout = require "mgpu.train.batch_layout"
local call_fields = require "mgpu.nn.call_fields"
local core = require "mgpu.core"
local device_scope = require "mgpu.nn.device_scope"
local masks = require "mgpu.nn.masks"
local Optimizer = require "mgpu.nn.optimizers.optimizer"
local structure = require "mgpu.nn.structure"

local ops = core.ops
local M = {}

-- The messages of a step that met a NaN or infinity; step_errors.lua adds epoch and step.
M.BAD_LOSS = "the loss is not finite (NaN or infinite)"
M.BAD_GRADIENT = "a gradient is not finite (NaN or infinite)"
M.BAD_SUM = "the sum of a gradient over the ranks is not finite (NaN or infinite)"
M.BAD_HALF_SUM = "the sum of a gradient over the ranks is not finite: float16 holds numbers up to 65504"

-- ---- the batch ----------------------------------------------------------------------------------

local function gather_rows(t, index) return ops.gather(t, index, { axis = 1 }) end

-- The rows of the batch that begins at order[first]. On several devices each gets its shard of the rows.
local function batch_rows(tensors, order, first, rows)
  local list = {}
  if not order then
    for i, t in ipairs(tensors) do list[i] = ops.shard(t) end
    return list
  end
  local index = ops.shard(gather_rows(order,
    ops.add(ops.iota { shape = { rows }, axis = 1, dtype = "int32" }, first)))
  for i, t in ipairs(tensors) do list[i] = gather_rows(t, index) end
  return list
end

-- RETURNS the results of fn, at most two. What it computes bears the name of this part of the step in profiles, unless
-- a layer computes it.
local function as_part(name, fn, ...)
  local outer = core.set_layer(name)
  local a, b = fn(...)
  core.set_layer(outer)
  return a, b
end

-- The model's predictions as an array. A model with several inputs takes them as an array. What its part on the host
-- makes is in x already.
local function predict(model, x, options)
  local y = model.body(#x == 1 and x[1] or x, options)
  return type(y) == "table" and y or { y }
end

-- ---- loss and gradients -------------------------------------------------------------------------

-- The scalar to minimise: each output's mean loss times its loss weight, plus the losses that layers add
-- (regularizers). As in Keras, the weighted losses of the rows are divided by the number of rows, not by the
-- sum of the weights. RETURNS it and the loss of each output.
local function total_loss(compiled, model, y, predictions, weight)
  local total, each = nil, {}
  for i, output in ipairs(compiled.outputs) do
    if output.loss then
      local where = predictions[i]:device()
      local w = weight[i] and core.place(weight[i], where)
      each[i] = output.loss:value(core.place(y[i], where), predictions[i], w)
      local share = output.weight == 1 and each[i] or each[i] * output.weight
      total = total and total + share or share
    end
  end
  for _, extra in ipairs(model:losses()) do total = total + extra end
  return total, each
end

-- The tensors (entries that are false are left out) as one array for each device, in the order of the tensors: all
-- ranks must trace the same.
local function by_device(tensors)
  local lists, of = {}, {}
  for _, t in ipairs(tensors) do
    if t then
      local device = t:device()
      if not of[device] then
        of[device] = {}
        lists[#lists + 1] = of[device]
      end
      table.insert(of[device], t)
    end
  end
  return lists
end

-- Makes the step fail, before anything is committed, if the loss or a gradient is not finite. An optimizer with loss
-- scaling skips a step with such gradients instead.
local function guard_finite(optimizer, loss, grads)
  if optimizer.skips_steps then return end
  core.guard_finite({ loss }, M.BAD_LOSS)
  for _, list in ipairs(by_device(grads)) do core.guard_finite(list, M.BAD_GRADIENT) end
end

-- Whether all variables that hold floating point numbers are finite: a jitted function.
local function finite_step(variables)
  return core.jit(function()
    local values, finite = {}, {}
    for _, v in ipairs(variables) do
      if v:dtype():find "float" then values[#values + 1] = v:value() end
    end
    for _, list in ipairs(by_device(values)) do
      for first = 1, #list, 200 do -- a call takes 255 inputs
        finite[#finite + 1] = ops.all_finite { unpack(list, first, math.min(first + 199, #list)) }
      end
    end
    return finite
  end)
end

--- bad_variable(model) -> the name of the first variable of the model that holds a NaN or infinity, or nil.
function M.bad_variable(model)
  local steps = model.compiled.steps
  steps.finite = steps.finite or finite_step(model.variables)
  local good = true
  for _, finite in ipairs(steps.finite()) do good = good and finite:item() end
  if good then return nil end
  for _, v in ipairs(model.variables) do
    if v:dtype():find "float" and not ops.all_finite({ v:value() }):item() then return v.name end
  end
end

--- gradients(compiled, model, order, first, rows, layout, tensors) -> {grads, loss, each, y, weight, predictions,
--- masks, rows}: forward and backward of one batch. The gradients are of the scaled loss (optimizer:scale_loss); an
--- unconnected variable has false. Asynchronous training runs this on each device.
function M.gradients(compiled, model, order, first, rows, layout, tensors)
  local x, y, weight = batch_layout.unpack(layout, as_part("batch", batch_rows, tensors, order, first, rows))
  local optimizer = compiled.optimizer
  local predictions, loss, each
  local _, grads = core.value_and_grad(function()
    predictions = predict(model, x, { training = true })
    loss, each = as_part("loss", total_loss, compiled, model, y, predictions, weight)
    return optimizer:scale_loss(loss)
  end, model.trainable_variables)()
  as_part("guards", guard_finite, optimizer, loss, grads)
  return { grads = grads, loss = loss, each = each, y = y, weight = weight, predictions = predictions,
    masks = masks.of(predictions), rows = x[1]:shape()[1] }
end

-- ---- gradient accumulation (compile's option accumulate) ------------------------------------------

--- make_sums(compiled, variables): makes compiled.sums[variable], the sum of its gradients since the last update, and
--- compiled.sum_rows, the number of rows, where they are missing.
function M.make_sums(compiled, variables)
  compiled.sums = compiled.sums or {}
  for _, v in ipairs(variables) do
    compiled.sums[v] = compiled.sums[v] or core.variable(ops.full(v:shape(), 0, v:dtype()):to(v:device()),
      { name = "sum", trainable = false })
  end
  compiled.sum_rows = compiled.sum_rows
    or core.variable(core.tensor(0, { dtype = "float64" }), { name = "rows", trainable = false })
end

-- Zeros like t on the device of t: an op without inputs would make them on the default device.
local function zeros_like(t)
  local zeros = ops.full(t:shape(), 0, t:dtype())
  return zeros:device() == t:device() and zeros or core.place(zeros, t:device())
end

-- Adds the gradients of a batch to the sums. With `update` it clears the sums and RETURNS the mean over all rows
-- since the last update, which is what one large batch would have given.
local function accumulate(compiled, grads, variables, rows, update)
  local total, means = ops.add(compiled.sum_rows, rows), {}
  for i, v in ipairs(variables) do
    local sum = compiled.sums[v]
    local more = sum:value()
    if grads[i] then more = more + grads[i] * rows end
    means[i] = grads[i] and update and more / ops.cast(total, { dtype = more:dtype() })
    sum:assign(update and zeros_like(more) or more)
  end
  compiled.sum_rows:assign(update and core.tensor(0, { dtype = "float64" }) or total)
  return means
end

-- ---- the steps ----------------------------------------------------------------------------------

local kinds = {}

-- The gradients are checked already.
local function apply(optimizer, grads, variables) optimizer:apply_unscaled(optimizer:unscale(grads), variables) end

local function train_batch(compiled, model, batch, update)
  local variables, grads = model.trainable_variables, batch.grads
  if #variables > 0 then
    if compiled.accumulate > 1 then grads = accumulate(compiled, grads, variables, batch.rows, update) end
    if update then as_part("optimizer", apply, compiled.optimizer, grads, variables) end
  end
  as_part("metrics", compiled.metrics.update, compiled.metrics, batch)
  as_part("guards", core.guard_variables, model.variables, Optimizer.BAD_UPDATE)
end

function kinds.train(compiled, model, ...)
  train_batch(compiled, model, M.gradients(compiled, model, ...), true)
end

-- Adds up gradients and leaves the weights alone.
function kinds.accumulate(compiled, model, ...)
  train_batch(compiled, model, M.gradients(compiled, model, ...), false)
end

function kinds.test(compiled, model, order, first, rows, layout, tensors)
  local x, y, weight = batch_layout.unpack(layout, batch_rows(tensors, order, first, rows))
  local predictions = predict(model, x)
  local loss, each = total_loss(compiled, model, y, predictions, weight)
  compiled.metrics:update { loss = loss, each = each, rows = x[1]:shape()[1], y = y, predictions = predictions,
    masks = masks.of(predictions), weight = weight }
end

-- fn, run (that is, traced) with the device groups of the compiled model, if it has any.
local function with_groups(compiled, fn)
  local groups = compiled.groups
  if not groups then return fn end
  return function(...) return device_scope.with_stages(groups, fn, ...) end
end

local MANY_TRACES = "fit: many training steps have been compiled, since the shapes of batches, or what is trained, "
  .. "keep changing: this takes time, so pad the batches to few shapes"

--- make(compiled, model, kind, spread) -> a new step of kind "train", "accumulate" or "test". spread: the devices, as
--- core.jit takes them.
function M.make(compiled, model, kind, spread)
  local function step(count, rows, layout, key, first, order, ...) -- luacheck: no unused
    local tensors = { ... }
    local position = order and not first and M.position(compiled, kind).row
    local from = position and position:value() or first
    for _ = 1, count do
      kinds[kind](compiled, model, order, from, rows, layout, tensors)
      from = order and as_part("batch", ops.add, from, rows)
    end
    if position then position:assign(from) end
  end
  if compiled.eager then return step end
  local how = { many_traces = kind ~= "test" and MANY_TRACES or nil }
  for name, value in pairs(spread or {}) do how[name] = value end
  return core.jit(with_groups(compiled, step), how)
end

-- A step of kind "train" or "test" on all rows of its tensors, called as BATCH_KINDS says.
local function make_batch_step(compiled, model, kind)
  return core.jit(function(rows, layout, key, ...) -- luacheck: no unused
    local metrics, sums = compiled.metrics, {}
    local saved = metrics:save()
    metrics:reset()
    kinds[kind](compiled, model, nil, nil, rows, layout, { ... })
    metrics:each(function(metric)
      for _, v in ipairs(metric:variables()) do sums[#sums + 1] = v:value() end
    end)
    metrics:restore(saved) -- so the step assigns none of them
    return unpack(sums)
  end)
end

-- Step kinds for one batch by itself: step(rows, layout, key, tensors...) RETURNS the sums of loss and metrics over the
-- batch, in the order of the metrics, whose own sums stay as they are. On one device, with jit.
local BATCH_KINDS = { train_batch = "train", test_batch = "test" }

--- get(compiled, kind, model, key) -> the step of kind "train", "accumulate" or "test", made once; or of kind
--- "train_batch" or "test_batch", which is called otherwise: see BATCH_KINDS.
-- key: the result of plan_key. When it changes, other weights may be trained, whose gradients need sums as well.
function M.get(compiled, kind, model, key)
  local steps = compiled.steps
  if not steps[kind] then
    local alone = BATCH_KINDS[kind]
    steps[kind] = alone and make_batch_step(compiled, model, alone) or M.make(compiled, model, kind, compiled.spread)
  end
  if kind ~= "test" and compiled.accumulate > 1 and compiled.sums_key ~= key then
    M.make_sums(compiled, model.trainable_variables)
    compiled.sums_key = key
  end
  return compiled.steps[kind]
end

--- position(compiled, kind) -> where in the order the next step begins: {row = a variable that the step itself
--- advances, so that it needs nothing from the host, at = its value after the steps submitted so far, start = on the
--- cpu, 0 as a tensor}. nil on several devices and without jit: there the argument `first` says it. Training steps
--- share one position.
function M.position(compiled, kind)
  if compiled.eager or compiled.spread then return nil end
  if kind == "accumulate" then kind = "train" end
  if not compiled.positions[kind] then
    local start = core.tensor(0, { dtype = "int32" })
    compiled.positions[kind] = { row = core.variable(start, { name = "position", trainable = false }),
      start = start:device():find "^cpu" and start }
  end
  return compiled.positions[kind]
end

--- predict_step(model) -> a jitted function (rows, layout, key, first, order, tensors...) that RETURNS the
--- outputs. The model need not be compiled.
function M.predict_step(model)
  local compiled = model.compiled or {}
  local function step(rows, layout, key, first, order, ...) -- luacheck: no unused
    local x = batch_layout.unpack(layout, batch_rows({ ... }, order, first, rows))
    local outputs = predict(model, x)
    for i, y in ipairs(outputs) do outputs[i] = core.place(y, x[1]:device()) end
    return unpack(outputs)
  end
  if compiled.eager then return step end
  local how = { frozen = true }
  for name, value in pairs(compiled.spread or {}) do how[name] = value end
  return core.jit(with_groups(compiled, step), how)
end

local function new_plan_key(model)
  local parts, trained = {}, {}
  model:each_layer(function(layer)
    parts[#parts + 1] = ("%s %s%s%s"):format(layer.name, layer.stream_name, layer.trainable and "+" or "-",
      layer.dtype_policy.name)
  end)
  for _, v in ipairs(model.trainable_variables) do trained[v] = true end
  for _, v in ipairs(model.variables) do parts[#parts + 1] = trained[v] and "+" or "-" end
  local text, hash = table.concat(parts, " "), 0
  for i = 1, #text do hash = (hash * 33 + text:byte(i)) % 2 ^ 47 end
  return hash
end

-- Whether nothing has changed that the key depends on.
local function is_known(model, known)
  return structure.is_same(known.structure) and call_fields.is_same(model, known.fields)
end

--- plan_key(model) -> a number that changes with what a plan depends on besides its tensors: the layers, their random
--- streams and dtype policies, and which weights are trained. As an argument of the step it makes jit trace again.
function M.plan_key(model)
  local known = rawget(model, "known_key")
  if known and is_known(model, known) then return known.key end
  known = { key = new_plan_key(model), structure = model.built and structure.of(model) }
  known.fields = known.structure and call_fields.of(model)
  rawset(model, "known_key", known.fields and known or nil)
  return known.key
end

return M
