-- What compile makes of its options: optimizer, losses and metrics, and the jitted steps they need.
--
-- The steps are nothing a user could not write: functions of the data's tensors under core.jit.
-- They return no loss; loss and metrics add up in variables on the device, to be read when somebody
-- wants to see them.
--
-- A step takes (count, rows, shape, key, first, order, tensors...): `count` batches of `rows` rows, the
-- first from row `first` of the order, are rows of the tensors: inputs, targets and weights, as shape
-- says. Without an order the tensors are the batch. What is not a tensor is part of the
-- plan's signature, hence packed into numbers and strings.

local compile_options = require "mgpu.train.compile_options"
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local logs = require "mgpu.train.logs"

local ops = core.ops

local Compiled = {}
Compiled.__index = Compiled

-- What a step that met a NaN says; fit adds where.
Compiled.BAD_LOSS = "the loss is not finite (NaN or infinite)"
Compiled.BAD_GRADIENT = "a gradient is not finite (NaN or infinite)"

-- ---- the batch ----------------------------------------------------------------------------------

local function rows_at(t, index) return ops.gather(t, index, { axis = 1 }) end

-- The rows of the order from `first`, or the tensors themselves without an order: dealt out over the
-- devices, if there are several.
local function take(tensors, order, first, rows)
  local list = {}
  if not order then
    for i, t in ipairs(tensors) do list[i] = ops.shard(t) end
    return list
  end
  local index = ops.shard(rows_at(order,
    ops.add(ops.iota { shape = { rows }, axis = 1, dtype = "int32" }, first)))
  for i, t in ipairs(tensors) do list[i] = rows_at(t, index) end
  return list
end

-- The parts of a batch: x, an array; y and weight, by output.
local function parts_of(shape, tensors)
  local x, y, weight, at = {}, {}, {}, shape.x
  for i = 1, shape.x do x[i] = tensors[i] end
  for i = 1, #shape.y do y[shape.y[i]] = tensors[at + i] end
  at = at + #shape.y
  for i = 1, #shape.w do weight[shape.w[i]] = tensors[at + i] end
  return x, y, weight
end

-- Several inputs go in as an array.
local function inputs_of(x) return #x == 1 and x[1] or x end

-- Predictions as an array, whatever the model returned.
local function outputs_of(y) return type(y) == "table" and y or { y } end

-- ---- the loss -----------------------------------------------------------------------------------

-- The scalar to minimise: the outputs' weighted means over the batch plus the layers' own losses. As
-- in Keras, a weighted sum is divided by the number of rows, not by the sum of the weights.
-- RETURNS it, and the losses of the outputs
function Compiled:total_loss(model, y, predictions, weight)
  local total, each = nil, {}
  for i, output in ipairs(self.outputs) do
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

-- Adds to the running means of the losses and to the metrics.
function Compiled:count(loss, each, rows, y, predictions, weight)
  self.mean:update(loss, rows)
  for i, output in ipairs(self.outputs) do
    if output.mean and each[i] then output.mean:update(each[i], rows) end
    if y[i] then
      predictions[i] = core.place(predictions[i], y[i]:device())
      for _, metric in ipairs(output.metrics) do metric:update(y[i], predictions[i]) end
      for _, metric in ipairs(output.weighted_metrics) do
        metric:update(y[i], predictions[i], weight[i])
      end
    end
  end
end

-- ---- gradients ----------------------------------------------------------------------------------

-- The sums of gradients, each beside its variable, and of rows, that wait for the next update.
local function accumulators(self, variables)
  self.sums = self.sums or {}
  for _, v in ipairs(variables) do
    self.sums[v] = self.sums[v] or core.variable(ops.full(v:shape(), 0, v:dtype()):to(v:device()),
      { name = "sum", trainable = false })
  end
  self.sum_rows = self.sum_rows
    or core.variable(core.tensor(0, { dtype = "float64" }), { name = "rows", trainable = false })
end

-- Zeros beside t: what is made of nothing would lie on the default device.
local function zeros_by(t)
  local zeros = ops.full(t:shape(), 0, t:dtype())
  return zeros:device() == t:device() and zeros or core.place(zeros, t:device())
end

-- Adds the gradients of a batch; in an update, RETURNS the mean over all rows since the last one.
-- A mean over rows is what one large batch would have given.
local function accumulate(self, grads, variables, rows, update)
  local total, means = ops.add(self.sum_rows, rows), {}
  for i, v in ipairs(variables) do
    local sum = self.sums[v]
    local more = sum:value()
    if grads[i] then more = more + grads[i] * rows end
    means[i] = grads[i] and update and more / ops.cast(total, { dtype = more:dtype() })
    sum:assign(update and zeros_by(more) or more)
  end
  self.sum_rows:assign(update and core.tensor(0, { dtype = "float64" }) or total)
  return means
end

-- Nothing commits where loss or gradients are not finite, unless the optimizer then skips the step.
local function guard(optimizer, loss, grads)
  if optimizer.skips_steps then return end
  core.guard_finite({ loss }, Compiled.BAD_LOSS)
  local by_device = {}
  for _, g in ipairs(grads) do
    if g then
      local list = by_device[g:device()] or {}
      by_device[g:device()], list[#list + 1] = list, g
    end
  end
  for _, list in pairs(by_device) do core.guard_finite(list, Compiled.BAD_GRADIENT) end
end

-- ---- the steps ----------------------------------------------------------------------------------

-- One batch of training. `update`: whether the variables change, or the gradients only add up.
local function train(self, model, x, y, weight, update)
  local variables, optimizer = model.trainable_variables, self.optimizer
  local predictions, loss, each
  local _, grads = core.value_and_grad(function()
    predictions = outputs_of(model(inputs_of(x), { training = true }))
    loss, each = self:total_loss(model, y, predictions, weight)
    return optimizer:scale_loss(loss)
  end, variables)()
  guard(optimizer, loss, grads)
  local rows = x[1]:shape()[1]
  if #variables > 0 then
    if self.accumulate > 1 then grads = accumulate(self, grads, variables, rows, update) end
    if update then optimizer:apply(grads, variables) end
  end
  self:count(loss, each, rows, y, predictions, weight)
end

local function test(self, model, x, y, weight)
  local predictions = outputs_of(model(inputs_of(x)))
  local loss, each = self:total_loss(model, y, predictions, weight)
  self:count(loss, each, x[1]:shape()[1], y, predictions, weight)
end

-- "2;1,2;1" <-> {x = 2, y = {1, 2}, w = {1}}: a shape as a string, so that a plan is for one.
function Compiled.pack(shape)
  return ("%d;%s;%s"):format(shape.x, table.concat(shape.y, ","), table.concat(shape.w, ","))
end

local function unpack_shape(text)
  local x, y, w = text:match "^(%d+);([%d,]*);([%d,]*)$"
  local shape = { x = tonumber(x), y = {}, w = {} }
  for n in y:gmatch "%d+" do shape.y[#shape.y + 1] = tonumber(n) end
  for n in w:gmatch "%d+" do shape.w[#shape.w + 1] = tonumber(n) end
  return shape
end

-- fn, with the layers knowing the device groups while it runs (that is, is traced).
function Compiled:on_groups(fn)
  local groups = self.groups
  if not groups then return fn end
  return function(...)
    local before = Layer.groups
    Layer.groups = groups
    local results = { pcall(fn, ...) }
    Layer.groups = before
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2)
  end
end

-- A step of a kind: see the top. `key` only tells plans apart: see Compiled.key.
local function step_of(self, model, kind, fn)
  local function step(count, rows, shape, key, first, order, ...) -- luacheck: no unused
    local unpacked, all = unpack_shape(shape), { ... }
    local position = order and not first and self:position(kind).row
    local from = position and position:value() or first
    for _ = 1, count do
      fn(self, model, parts_of(unpacked, take(all, order, from, rows)))
      from = order and ops.add(from, rows)
    end
    if position then position:assign(from) end
  end
  return self.eager and step or core.jit(self:on_groups(step), self.spread)
end

-- What asynchronous training is made of too.
Compiled.take, Compiled.inputs_of, Compiled.outputs_of, Compiled.guard = take, inputs_of, outputs_of, guard
function Compiled.parts_of(shape, tensors) return parts_of(unpack_shape(shape), tensors) end

local makers = {}

function makers.train(self, model)
  return step_of(self, model, "train",
    function(_, _, x, y, weight) train(self, model, x, y, weight, true) end)
end

-- Adds up gradients and leaves the weights alone.
function makers.gather(self, model)
  return step_of(self, model, "train",
    function(_, _, x, y, weight) train(self, model, x, y, weight, false) end)
end

function makers.test(self, model) return step_of(self, model, "test", test) end

--- Where in the order the next step of a kind ("train", "test") begins: {row = a variable that the step
--- itself moves on, so that it needs nothing from the host, at = what that is after the steps given so
--- far}; nil on several devices and without jit, where `first` says it.
function Compiled:position(kind)
  if self.eager or self.spread then return nil end
  if not self.positions[kind] then
    self.positions[kind] = { row = core.variable(core.tensor(0, { dtype = "int32" }),
      { name = "position", trainable = false }) }
  end
  return self.positions[kind]
end

--- The step of a kind ("train", "gather", "test"), made once.
function Compiled:step(kind, model)
  if kind ~= "test" and self.accumulate > 1 then accumulators(self, model.trainable_variables) end
  if not self.steps[kind] then self.steps[kind] = makers[kind](self, model) end
  return self.steps[kind]
end

--- A jitted function (rows, shape, key, first, order, tensors...) -> the model's outputs.
function Compiled.predict_step(model)
  local compiled = model.compiled or {}
  local function step(rows, shape, key, first, order, ...) -- luacheck: no unused
    local x = parts_of(unpack_shape(shape), take({ ... }, order, first, rows))
    local outputs = outputs_of(model(inputs_of(x)))
    for i, y in ipairs(outputs) do outputs[i] = core.place(y, x[1]:device()) end
    return unpack(outputs)
  end
  return compiled.eager and step or core.jit(Compiled.on_groups(compiled, step), compiled.spread)
end

--- What a plan depends on besides its arguments, as a number: the layers with their policies, and which
--- are trained.
function Compiled.key(model)
  local parts, trained = {}, {}
  model:each_layer(function(layer)
    parts[#parts + 1] = layer.name .. (layer.trainable and "+" or "-") .. layer.dtype_policy.name
  end)
  for _, v in ipairs(model.trainable_variables) do trained[v] = true end
  for _, v in ipairs(model.variables) do parts[#parts + 1] = trained[v] and "+" or "-" end
  local text, hash = table.concat(parts, " "), 0
  for i = 1, #text do hash = (hash * 33 + text:byte(i)) % 2 ^ 47 end
  return hash
end

-- ---- loss and metrics ---------------------------------------------------------------------------

-- fn(metric, name in the logs) for the loss, the outputs' losses and the metrics.
function Compiled:each_metric(fn)
  local several = #self.outputs > 1
  fn(self.mean, "loss")
  for _, output in ipairs(self.outputs) do
    if output.mean then fn(output.mean, output.name .. "_loss") end
  end
  for _, output in ipairs(self.outputs) do
    for _, list in ipairs { output.metrics, output.weighted_metrics } do
      for _, metric in ipairs(list) do
        fn(metric, several and output.name .. "_" .. metric.name or metric.name)
      end
    end
  end
end

function Compiled:reset()
  self:each_metric(function(metric) metric:reset() end)
end

--- The values so far, as logs; each name is preceded by `prefix`.
function Compiled:read(prefix)
  local values = logs.new()
  self:each_metric(function(metric, name) values[(prefix or "") .. name] = metric:result() end)
  return values
end

--- The state of loss and metrics, so that an evaluation inside an epoch leaves it as it was.
function Compiled:save()
  local saved = {}
  self:each_metric(function(metric) saved[#saved + 1] = metric:save() end)
  return saved
end

function Compiled:restore(saved)
  local i = 0
  self:each_metric(function(metric)
    i = i + 1
    metric:restore(saved[i])
  end)
end

-- ---- the device ---------------------------------------------------------------------------------

-- A plan on several devices keeps copies on the others by itself.
local function move(variables, devices)
  for _, v in ipairs(variables) do
    local there = false
    for _, device in ipairs(devices) do there = there or v:device() == device end
    if not there then v:assign(v:value():to(devices[1])) end
  end
end

-- The one device that the scopes around the making of the model's layers named, if nothing else places a
-- layer: where the model was built. Not so where layers say a device themselves, or scopes several: that
-- is a model parallel one.
local function built_on(model)
  local name
  model:each_layer(function(layer)
    local device = rawget(layer, "device")
    if not device then return end
    local scoped = rawget(layer, "scoped") and (name == nil or name == device)
    name = scoped and device or false
  end)
  return type(name) == "string" and name or nil
end

-- Compiled for several devices, a model built in one scope lies on those: a template's place ends here.
local function leave_scope(model)
  if not built_on(model) then return end
  model:each_layer(function(layer) layer.device, layer.scoped = nil, nil end)
end

-- The devices that may hold the variables of layers with a device of their own: variable -> names.
local function staged(self, model)
  local where, several = {}, self.devices and #self.devices > 1
  if several then leave_scope(model) end
  model:each_layer(function(layer)
    local device = rawget(layer, "device")
    if not device then return end
    if type(device) == "string" and several then
      layer:fail("device = %q names one device, but the model is compiled for several: give groups, as in "
        .. "devices = {{\"cuda:0\", \"cuda:1\"}, ...}, and device = 2", device)
    elseif type(device) == "number" and not (self.groups and self.groups[device]) then
      layer:fail("device = %d needs device groups of at least %d in compile, as in devices = "
        .. "{{\"cuda:0\", \"cuda:1\"}}", device, device)
    end
    for _, v in ipairs(layer.weights) do
      where[v] = { type(device) == "string" and device or self.groups[device] }
    end
  end)
  return where
end

-- Brings to each variable what the optimizer and the sums of gradients keep for it, and the rest home.
local function place_kept(self, where, homes)
  local beside = {}
  for v, own in pairs(self.optimizer.slots) do
    for _, slot in pairs(own) do beside[slot] = where[v] or homes end
  end
  for v, sum in pairs(self.sums or {}) do beside[sum] = where[v] or homes end
  for kept, there in pairs(beside) do move({ kept }, there) end
  for _, v in ipairs(self.optimizer:variables()) do
    if not beside[v] then move({ v }, homes) end
  end
  if self.sum_rows then move({ self.sum_rows }, homes) end
end

--- Brings weights, metrics and the optimizer's state to where they belong.
function Compiled:place_state(model)
  if not self.devices then return end
  local central = self.spread and self.spread.keeper or self.groups or self.strategy == "async"
  local homes = central and { self.home } or self.devices
  local where = staged(self, model)
  for _, v in ipairs(model.variables) do move({ v }, where[v] or homes) end
  place_kept(self, where, homes)
  self:each_metric(function(metric) move(metric:variables(), homes) end)
end

--- Runs fn() with the first of the chosen devices as the default one and all state on them.
function Compiled:on_device(model, fn)
  if not self.devices then return fn() end
  self:place_state(model)
  local before = core.default_device()
  core.default_device(self.home)
  local ok, result = pcall(fn)
  pcall(core.default_device, before) -- a lost one is refused: then the new one stays
  if not ok then error(result, 0) end
  return result
end

local function check_devices(self, where)
  if not where.devices or #where.devices == 1 then return end
  if self.eager then
    core.fail("usage", "compile: run_eagerly works on one device only: leave it out")
  end
  if where.strategy ~= "async" then return end
  if where.stages or self.accumulate > 1 or self.steps_per_execution > 1 then
    core.fail("usage", "compile: async goes without device groups, accumulate and steps_per_execution")
  elseif where.weights then
    core.fail("usage", "compile: async gives a device whole batches, as it is ready for one, so shares "
      .. "of the rows mean nothing to it: give a list of devices")
  end
end

local function use_devices(self, where)
  local names = where.devices
  self.devices, self.strategy, self.steps, self.spread = names, where.strategy, {}, nil
  self.groups, self.positions = nil, {}
  self.home = names and names[1] -- where eager work is done
  self.device = names and #names == 1 and names[1] or nil -- where data must lie
  if names and #names > 1 then
    self.spread = { devices = names, weights = where.weights, local_norm = self.bn == "local",
      keeper = where.strategy == "central" and (where.home or "cpu:0") or nil, stages = where.stages }
    if where.strategy == "async" then self.home = where.home or self.home end
    if where.stages then
      self.groups = {}
      for s = 1, where.stages do self.groups[s] = names[(s - 1) * (#names / where.stages) + 1] end
    end
    self.home = self.spread.keeper or self.home
  end
end

--- where = {devices = names (nil: wherever things lie), weights = of the rows, strategy =, stages =, home =};
--- steps are made anew. Within a fit it waits for the next epoch: see settle_devices.
function Compiled:set_devices(where)
  check_devices(self, where)
  if self.fitting then self.next_devices = where else use_devices(self, where) end
end

--- Lets devices that were set within a fit count. RETURNS whether there were any.
function Compiled:settle_devices()
  local where = self.next_devices
  if where then use_devices(self, where) end
  self.next_devices = nil
  return where ~= nil
end

--- ARGS
---   chosen   optimizer, loss, loss_weights, metrics, weighted_metrics, accumulate, run_eagerly,
---            steps_per_execution and bn as the user gave them
---   names    of the model's outputs
---   where    see set_devices
function Compiled.new(chosen, names, where)
  local outputs, Mean = compile_options.outputs(chosen, names), require "mgpu.nn.metrics.mean"
  for _, output in ipairs(outputs) do
    output.mean = #outputs > 1 and output.loss and Mean.new { name = "loss" } or nil
  end
  local self = setmetatable({
    optimizer = compile_options.optimizer(chosen.optimizer),
    outputs = outputs,
    mean = Mean.new { name = "loss" },
    eager = chosen.run_eagerly,
    accumulate = chosen.accumulate,
    steps_per_execution = chosen.steps_per_execution,
    bn = chosen.bn,
  }, Compiled)
  self:set_devices(where)
  return self
end

return Compiled
