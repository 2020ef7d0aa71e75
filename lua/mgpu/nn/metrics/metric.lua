--- The base of all metrics: running sums in variables on the device.
--
--     local accuracy = mgpu.metrics.CategoricalAccuracy {}
--     accuracy:update(y, model(x))            -- or update(y, model(x), weights), one weight a row
--     print(accuracy:result())
--     accuracy:reset()
--
-- A metric's file calls define with values(self, y_true, y_pred), which returns one number a sample, to be averaged
-- with the sums `total` and `count`; or with sums of its own (state), observe and result. Updates assign the sums
-- and only result reads them, so updating never waits for the device, works inside mgpu.jit, and is exact over
-- batches of any size.
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local options = require "mgpu.options"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local Metric = {}
Metric.__index = Metric
Metric.__tostring = function(self) return "metric " .. self.name end

local function zero_list(shape, axis)
  if axis > #shape then return 0 end
  local list = {}
  for i = 1, shape[axis] do list[i] = zero_list(shape, axis + 1) end
  return list
end

-- Values, not ops: a state that is reset waits for nothing.
local function zeros(shape) return core.tensor(zero_list(shape, 1), { dtype = "float64" }) end

-- The sums are float64: adding up a long epoch in float32 would round.
local function sums(name, shape)
  return core.variable(zeros(shape), { name = name, trainable = false })
end

-- A tensor, beside the sums. (A step that is traced says itself where things lie.)
local function taken(self, value)
  local t = type(value) == "userdata" and value or core.tensor(value)
  local device = self.state[1]:device()
  return (t:device() == device or core.tracing()) and t or t:to(device)
end

-- Halves as float32: what is worked out of them should not be rounded again.
local function widened(t)
  return is_half(t) and ops.cast(t, { dtype = "float32" }) or t
end

local function sum(t) return t:rank() == 0 and t or ops.sum(t) end

-- Adds values, each counted with its weight (a number, or a tensor with one weight a row).
function Metric:add(values, weight)
  values = ops.cast(taken(self, values), { dtype = "float64" })
  local count = values:count()
  if type(weight) == "number" then
    values, count = values * weight, count * weight
  elseif weight then
    weight = shapes.weight(self.name, weight, values:shape(), "float64")
    values = values * weight
    count = sum(weight) * (count / weight:count())
  end
  self.total:assign(ops.add(self.total, sum(values)))
  self.count:assign(ops.add(self.count, count))
end

--- Data of another device come to that of the sums.
function Metric:update(y_true, y_pred, weight)
  y_true, y_pred = widened(taken(self, y_true)), widened(taken(self, y_pred))
  if type(weight) == "userdata" then weight = taken(self, weight) end
  if self.observe then return self:observe(y_true, y_pred, weight) end
  self:add(self:values(y_true, y_pred), weight)
end

-- y_true in the shape of the predictions, or (labels) without their last axis; raises if it cannot be.
function Metric:fit(y_true, y_pred, labels) return shapes.target(self.name, y_true, y_pred, labels) end

-- The mean so far, as a Lua number; 0 before the first update, as in Keras.
function Metric:result()
  local count = self.count:item()
  return count == 0 and 0 or self.total:item() / count
end

function Metric:reset()
  for _, v in ipairs(self.state) do v:assign(zeros(v:shape()):to(v:device())) end
end

-- The variables of the state.
function Metric:variables() return self.state end

-- The values of the state, to be given to restore.
function Metric:save()
  local saved = {}
  for i, v in ipairs(self.state) do saved[i] = v:value() end
  return saved
end

function Metric:restore(saved)
  for i, v in ipairs(self.state) do v:assign(saved[i]) end
end

function Metric:get_config() return { name = self.name, options = self.options } end

Metric.update_state, Metric.reset_state = Metric.update, Metric.reset

-- ---- making metrics -----------------------------------------------------------------------------

-- ARGS
--   definition.name      the result's name
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them; `name` is always one
--   definition.values    function(self, y_true, y_pred) -> tensor; further fields are methods
--   definition.init      function(self): checks the options further
--   definition.state     names of sums in place of total and count; their shape is definition.size(self).
--                        Then also observe(self, y_true, y_pred, weight) and result(self)
-- RETURNS the class: called with options it makes a metric.
function Metric.define(definition)
  local class = setmetatable({ __tostring = Metric.__tostring }, {
    __index = Metric,
    __call = function(class, given) return class.new(given) end,
    __tostring = function() return "metric class " .. definition.class end,
  })
  for key, value in pairs(definition) do
    if key ~= "state" then class[key] = value end
  end
  class.__index = class
  class.declared = { { "name", "string", default = definition.name },
    unpack(definition.declared or {}) }
  function class.new(given)
    local chosen = options.check(definition.class, class.declared, given or {})
    local self = setmetatable({ name = chosen.name, options = chosen, state = {} }, class)
    if self.init then self:init() end
    local shape = definition.size and definition.size(self) or {}
    for i, name in ipairs(definition.state or { "total", "count" }) do
      self.state[i] = sums(name, shape)
      self[name] = self.state[i]
    end
    return self
  end
  return class
end

-- A user's function(y_true, y_pred), or a loss's per_sample, as a metric.
function Metric.from_function(fn, name)
  return Metric.define {
    name = name,
    class = name,
    values = function(_, y_true, y_pred) return fn(y_true, y_pred) end,
  }.new {}
end

return Metric
