--- The base of all metrics: running sums in variables on the device.
--
--     local accuracy = mgpu.metrics.CategoricalAccuracy {}
--     accuracy:update(y, model(x))            -- or update(y, model(x), weights), one weight a row
--     print(accuracy:result())
--     accuracy:reset()
--
-- A metric's file calls define with values(self, y_true, y_pred), which returns one number a sample, or several (one a
-- step, say), to be averaged with the sums `total` and `count`; or with sums of its own (state), observe and result.
-- Updates assign the sums and only result reads them, so updating never waits for the device, works inside mgpu.jit,
-- and is exact over batches of any size. Values whose prediction is masked (nn/masks.lua) have no weight.
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local masks = require "mgpu.nn.masks"
local methods = require "mgpu.methods"
local options = require "mgpu.options"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local Metric = {}
Metric.__index = Metric
Metric.__tostring = function(self) return core.printable("metric " .. self.name, true) end

local MEAN_SUMS = { "total", "count" } -- unless a definition says otherwise

local function zero_list(shape, axis)
  if axis > #shape then return 0 end
  local list = {}
  for i = 1, shape[axis] do list[i] = zero_list(shape, axis + 1) end
  return list
end

-- From numbers, not by an op: resetting the state must not wait for the device.
local function zeros(shape, device)
  return core.tensor(zero_list(shape, 1), { dtype = "float64", device = device })
end

-- A sum: float64, since float32 would round over a long epoch.
local function new_sum(name, shape, device)
  return core.variable(zeros(shape, device), { name = name, trainable = false })
end

-- Zeros for sum number i: those that are kept, unless the sum has moved to another device.
local function zeros_of(self, i, v)
  local device, kept = v:device(), self.zeros[i]
  return kept and kept:device() == device and kept or zeros(v:shape()):to(device)
end

local function check_type(self, value)
  local known = core.is_tensor(value) or core.is_variable(value) or type(value) == "number" or type(value) == "table"
  if not known then
    core.fail("usage", ("%s: update needs tensors or numbers, got %s"):format(self.name,
      value == nil and "nothing" or "a " .. type(value)))
  end
end

--- metric:tensor_of(value) -> a number, table, tensor or variable as a tensor on the device of the sums. (In a traced
--- step, placement is up to the step.)
-- Example:
--     print(mgpu.metrics.Mean {}:tensor_of { 1, 2 })
--     --> tensor {2} float32 cpu:0
--     --> {1, 2}
function Metric:tensor_of(value)
  check_type(self, value)
  local t = type(value) == "userdata" and value or core.tensor(value)
  local device = self.state[1] and self.state[1]:device() or t:device()
  return (t:device() == device or core.tracing()) and t or t:to(device)
end

-- t, upcast to float32 if it is float16 or bfloat16, so that the metric's own arithmetic does not round again.
local function upcast(t)
  return is_half(t) and ops.cast(t, { dtype = "float32" }) or t
end

local function sum(t) return t:rank() == 0 and t or ops.sum(t) end

-- The weights (or nil) of the values of t, 0 where t is masked.
local function unmasked(self, weight, mask, t)
  local shape = t:shape()
  if not masks.covers(mask, shape) then
    core.fail("usage", ("%s: the predictions have a mask of shape %s, but the metric has values of shape %s: it must "
      .. "give a value for each element of the mask"):format(self.name, shapes.show(mask:shape()), shapes.show(shape)))
  end
  mask = ops.cast(masks.aligned(self:tensor_of(mask), t), { dtype = "float64" })
  return weight == nil and mask or shapes.weight(self.name, weight, shape, "float64") * mask
end

--- metric:add(values, weight): adds values to total and count, each times its weight: a number, or a tensor with one
--- weight a row or a value. Masked values do not count. As in Keras a row counts as one, however many values it has.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     mean:add(mgpu.tensor { 1, 5 }, mgpu.tensor { 3, 1 }) -- 1 counts three times
--     print(mean:result())  --> 2
function Metric:add(values, weight)
  local mask = masks.get(values)
  values = ops.cast(self:tensor_of(values), { dtype = "float64" })
  if mask then weight = unmasked(self, weight, mask, values) end
  local shape = values:shape()
  local count, in_row = values:count(), shapes.product(shape, 2)
  if type(weight) == "number" then
    values, count = values * weight, count * weight
  elseif weight then
    check_type(self, weight)
    weight = shapes.weight(self.name, weight, shape, "float64")
    values = values * weight
    count = sum(weight) * (count / weight:count())
  end
  local total = sum(values)
  if in_row > 1 then total, count = total / in_row, count / in_row end
  self.total:assign(ops.add(self.total, total))
  self.count:assign(ops.add(self.count, count))
end

--- Metric.BY_PREDICTION: as definition.size, the sums have the size of the predictions' last axis.
function Metric.BY_PREDICTION(_, prediction) return prediction and { prediction[#prediction] } end

local function make_sums(self, shape, device)
  for i, name in ipairs(self.sum_names) do
    local v = new_sum(name, shape, device)
    self.state[i], self[name] = v, v
    -- On the cpu zeros are kept for resets, as making them takes longer than a small step; a GPU's recorded steps would
    -- find the sums at another address after each reset.
    if v:device():find "^cpu" and not core.tracing() then self.zeros[i] = zeros(shape, device) end
  end
end

--- metric:build(shape, device): makes the sums of a metric whose size depends on the predictions, which have that
--- shape. update does so too; sums that exist stay.
-- Example:
--     local f1 = mgpu.metrics.F1Score {}
--     f1:build { 32, 10 }
--     print(unpack(f1:variables()[1]:shape()))  --> 10
function Metric:build(shape, device)
  if not self.state[1] then make_sums(self, self:size(shape), device) end
end

--- metric:add_to(name, amount): adds to the sum of that name.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     mean:add_to("total", mgpu.tensor(6):cast "float64")
--     mean:add_to("count", mgpu.tensor(2):cast "float64")
--     print(mean:result())  --> 3
function Metric:add_to(name, amount) self[name]:assign(ops.add(self[name], amount)) end

--- metric:totals() -> the sums as numbers or arrays, in the order of variables(). Waits for the device.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     mean:update(mgpu.tensor { 4, 5 })
--     print(unpack(mean:totals()))  --> 9 2
function Metric:totals()
  local list = {}
  for i, v in ipairs(self.state) do list[i] = v:rank() == 0 and v:item() or v:value():totable() end
  return list
end

--- metric:update(y_true, y_pred, weight), also update_state: adds a batch. Data on another device are copied to the
--- device of the sums. Values whose prediction is masked (nn/masks.lua) do not count.
--- Errors: y_true that does not fit y_pred; values that the mask does not fit.
-- Example:
--     local mae = mgpu.metrics.MeanAbsoluteError {}
--     mae:update(mgpu.tensor { { 1 }, { 2 } }, mgpu.tensor { { 2 }, { 5 } }, mgpu.tensor { 1, 0 }) -- one weight a row
--     print(mae:result())  --> 1
function Metric:update(y_true, y_pred, weight)
  local mask = masks.get(y_pred)
  y_true, y_pred = upcast(self:tensor_of(y_true)), upcast(self:tensor_of(y_pred))
  if weight ~= nil then check_type(self, weight) end
  if type(weight) == "userdata" then weight = self:tensor_of(weight) end
  local values, counted
  if not self.observe then values, counted = self:values(y_true, y_pred) end
  if counted and weight ~= nil then weight = unmasked(self, weight, counted, values) end
  if mask then weight = unmasked(self, weight, mask, values or y_pred) end
  if values then return self:add(values, weight) end
  self:build(y_pred:shape(), y_pred:device())
  self:observe(y_true, y_pred, weight)
end

--- metric:fit(y_true, y_pred, labels) -> y_true in the shape of the predictions, or, for class ids, without their last
--- axis. Errors: shapes that do not fit.
-- Example:
--     local accuracy = mgpu.metrics.SparseCategoricalAccuracy {}
--     print(unpack(accuracy:fit(mgpu.zeros { 4, 1 }, mgpu.zeros { 4, 10 }, true):shape())) -- ids without the last axis
--     --> 4
function Metric:fit(y_true, y_pred, labels) return shapes.target(self.name, y_true, y_pred, labels) end

--- metric:result() -> the mean so far, a Lua number; 0 before the first update, as in Keras. Waits for the device.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     print(mean:result())  --> 0
--     mean:update(3)
--     print(mean:result())  --> 3
function Metric:result()
  local count = self.count:item()
  return count == 0 and 0 or self.total:item() / count
end

--- Metric.is_mean(metric): whether its result is the quotient of its two sums, total and count.
function Metric.is_mean(metric)
  return metric.sum_names == MEAN_SUMS and methods.inner(metric.result) == Metric.result
end

--- metric:reset(), also reset_state: starts again from nothing.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     mean:update(3)
--     mean:reset()
--     mean:update(5)
--     print(mean:result())  --> 5
function Metric:reset()
  for i, v in ipairs(self.state) do v:assign(zeros_of(self, i, v)) end
end

--- metric:variables() -> the sums, an array of variables.
-- Example:
--     -- total and count
--     print(#mgpu.metrics.Mean {}:variables())  --> 2
function Metric:variables() return self.state end

--- metric:save() -> the values of the sums, for restore.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     mean:update(3)
--     local saved = mean:save()
--     mean:update(100)
--     mean:restore(saved)
--     print(mean:result())  --> 3
function Metric:save()
  local saved = {}
  for i, v in ipairs(self.state) do saved[i] = v:value() end
  return saved
end

--- metric:restore(saved): sets the sums to what save returned.
-- Example:
--     local epoch, validation = mgpu.metrics.Mean {}, mgpu.metrics.Mean {}
--     epoch:update(3)
--     validation:restore(epoch:save())
--     print(validation:result())  --> 3
function Metric:restore(saved)
  if not saved[1] then return self:reset() end -- saved before the sums were made
  self:build(saved[1]:shape(), saved[1]:device())
  for i, v in ipairs(self.state) do v:assign(saved[i]) end
end

--- metric:get_config() -> name and options.
-- Example:
--     local config = mgpu.metrics.BinaryAccuracy { threshold = 0.25, name = "quarter" }:get_config()
--     print(config.name, config.options.threshold)  --> quarter 0.25
function Metric:get_config() return { name = self.name, options = self.options } end

Metric.update_state, Metric.reset_state = Metric.update, Metric.reset

-- Methods that users call: with a colon.
local USED = { "update", "result", "reset" }

-- Makes the methods of the class refuse a call with a dot.
local function want_colons(class)
  methods.want_colons(class, "metric", "state", USED)
  class.update_state, class.reset_state = class.update, class.reset
end

-- ---- making metrics -----------------------------------------------------------------------------

--- define(definition) -> a class of metrics, to be called with options.
-- ARGS
--   definition.name      the result's name
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them; `name` is always one
--   definition.direction "max" or "min": which values are better, for callbacks; nil: not known
--   definition.values    function(self, y_true, y_pred) -> tensor[, which of the values a weight multiplies];
--                        further fields are methods
--   definition.init      function(self): checks the options further, if there is more to check
--   definition.state     names of sums that replace total and count; their shape is definition.size(self). If that
--                        is nil, the first update gives it, definition.size(self, the predictions' shape): see
--                        Metric.BY_PREDICTION. Then also observe(self, y_true, y_pred, weight) and result(self)
function Metric.define(definition)
  local class = setmetatable({ __tostring = Metric.__tostring }, {
    __index = Metric,
    __call = options.construct,
    __tostring = function() return "metric class " .. definition.class end,
  })
  for key, value in pairs(definition) do
    if key ~= "state" then class[key] = value end
  end
  class.sum_names = definition.state or MEAN_SUMS
  want_colons(class)
  class.__index = class
  class.declared = { { "name", "string", default = definition.name },
    unpack(definition.declared or {}) }
  --- new(options) -> a metric of the class; the same as calling the class.
  function class.new(given)
    local chosen = options.check(definition.class, class.declared, given or {})
    local self = setmetatable({ name = chosen.name, options = chosen, state = {}, zeros = {} }, class)
    if self.init then self:init() end
    local shape = {}
    if definition.size then shape = definition.size(self) end
    if shape then make_sums(self, shape) end
    return self
  end
  return class
end

--- from_function(fn, name) -> a metric made of function(y_true, y_pred) -> one number a sample, or several.
function Metric.from_function(fn, name)
  local metric = Metric.define {
    name = name,
    class = name,
    values = function(_, y_true, y_pred) return fn(y_true, y_pred) end,
  }.new {}
  metric.made_of = "function" -- which cannot be saved
  return metric
end

--- from_loss(loss, name) -> a metric made of a loss: the mean of its values.
function Metric.from_loss(loss, name)
  local metric = Metric.from_function(function(...) return (loss:unreduced(...)) end, name)
  metric.made_of, metric.direction = loss, "min"
  return metric
end

return Metric
