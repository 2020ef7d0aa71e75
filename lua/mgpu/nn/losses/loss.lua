--- The base of all losses: a function of (y_true, y_pred) with a per-sample form.
--
--     local mse = mgpu.losses.mean_squared_error
--     mse(y, model(x))                -- the mean over the batch: the scalar to differentiate
--     mse(y, model(x), {sample_weight = w, reduction = "sum"}) -- weighted; options for this call
--     mse.per_sample(y, model(x))     -- one value a row: {rows}
--     mgpu.losses.CategoricalCrossentropy {from_logits = true} -- a loss with other options
--
-- Every loss has the options name and reduction: "sum_over_batch_size" (default, also "mean"; the sum of the
-- weighted values divided by the number of values), "sum", "mean_with_sample_weight" (divided by the sum of the
-- weights; the weight of a row counts for each value of the row) or "none" (the weighted values). A division by 0
-- gives 0, as in Keras.
--
-- A loss's file calls define with values(y_true, y_pred, options), which may keep further axes after the first (one
-- value per pixel, say) and may return a second tensor that tells which of the values count. It is called with a
-- y_true that has been checked and given the dtype and rank to compare with, and with an options.axis (if there is
-- one) that counts from 1. Predictions in float16 or bfloat16 become float32 first: no loss is computed in them.
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local options = require "mgpu.options"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local Loss = {}
Loss.__index = Loss
Loss.__tostring = function(self) return "loss " .. self.name end

-- Bounds probabilities away from 0 and 1, as Keras's epsilon does.
Loss.EPSILON = 1e-7

-- ---- shapes -------------------------------------------------------------------------------------

-- What to do about a y of shape `actual` that does not fit.
local function remedy(loss, actual, prediction)
  local classes = prediction[#prediction]
  if loss.kind == "categorical_crossentropy" and shapes.product(actual) * classes
    == shapes.product(prediction) then
    return ("make it one-hot with mgpu.to_categorical(y, %d), or use "
      .. "sparse_categorical_crossentropy"):format(classes)
  elseif loss.labels and #actual == #prediction and actual[#actual] == classes then
    return "y looks one-hot: use categorical_crossentropy, or y:argmax(-1)"
  end
end

-- The axis of the classes, or the one to average over, in predictions of that shape.
function Loss:axis(prediction) return shapes.axis(self.name, self.options.axis or -1, #prediction) end

-- The shape that y must have, given the shape of the predictions.
function Loss:target_shape(prediction)
  local shape = { unpack(prediction) }
  if self.labels then table.remove(shape, self:axis(prediction)) end
  return shape
end

-- y with 0 in place of the class id that the loss ignores, if there is one.
function Loss:counted_labels(y)
  local ignored = self.options.ignore_class
  return ignored and ops.where(ops.eq(y, ignored), 0, y) or y
end

-- Whether y of shape `actual` fits predictions of shape `prediction`, as it is or by an axis of
-- length 1 at its end; if not, raises.
function Loss:check_shape(actual, prediction, what)
  shapes.check(what or self.name, actual, prediction, self:target_shape(prediction),
    remedy(self, actual, prediction))
end

-- ---- the value ----------------------------------------------------------------------------------

-- One value a row: the mean over all axes but the first.
function Loss.rows(values)
  local rank = values:rank()
  if rank <= 1 then return values end
  local axes = {}
  for axis = 2, rank do axes[#axes + 1] = axis end
  return ops.sum(values, { axis = axes }) / shapes.product(values:shape(), 2)
end

-- The mean over an axis (the last), where there is one besides the rows.
function Loss.last_mean(values, axis)
  local shape = values:shape()
  if #shape == 0 then return values end
  return ops.sum(values, { axis = axis or -1 }) / shape[axis or #shape]
end

-- y_true in the shape and dtype that the loss compares y_pred with.
function Loss:prepare(y_true, y_pred)
  local prediction = y_pred:shape()
  self:check_shape(y_true:shape(), prediction)
  local expected = self:target_shape(prediction)
  if not shapes.same(y_true:shape(), expected) then
    y_true = ops.reshape(y_true, { shape = expected })
  end
  if self.labels or y_true:dtype() == y_pred:dtype() then return y_true end
  return ops.cast(y_true, { dtype = y_pred:dtype() })
end

-- A tensor of halves as float32.
local function widened(t)
  return is_half(t) and ops.cast(t, { dtype = "float32" }) or t
end

-- The values before any reduction, and which of them count (nil: all).
local function values_of(self, y_true, y_pred)
  if type(y_pred) ~= "userdata" then y_pred = core.tensor(y_pred) end
  if type(y_true) ~= "userdata" then y_true = core.tensor(y_true) end
  y_true, y_pred = widened(y_true), widened(y_pred)
  if self.custom then return self.per_sample(y_true, y_pred) end
  if not y_pred:dtype():find "float" then
    y_pred = widened(ops.cast(y_pred, { dtype = core.floatx() }))
  end
  local chosen = self.options
  if chosen.axis then
    chosen = setmetatable({ axis = self:axis(y_pred:shape()) }, { __index = chosen })
  end
  return self.values(self:prepare(y_true, y_pred), y_pred, chosen)
end

-- total / divisor, 0 where the divisor is 0.
local function ratio(total, divisor)
  return total / ops.where(ops.eq(divisor, 0), 1, divisor)
end

--- The unreduced values as the chosen reduction of them; weight: see shapes.weight; counted: a tensor
--- of their shape, which of them count (nil: all).
function Loss:reduce(values, weight, counted)
  local dtype, reduction = values:dtype(), self.options.reduction or "sum_over_batch_size"
  weight = shapes.weight(self.name, weight, values:shape(), dtype)
  counted = counted and ops.cast(counted, { dtype = dtype })
  local of_row = weight and values:count() / weight:count()
  if weight and counted then weight, of_row = weight * counted, 1 end
  weight = weight or counted
  if weight then values = values * weight end
  if reduction == "none" then return values end
  local total = ops.sum(values)
  if reduction == "sum" then return total end
  if reduction == "mean_with_sample_weight" and weight then
    return ratio(total, ops.sum(weight) * (of_row or 1))
  end
  return counted and ratio(total, ops.sum(counted)) or total / values:count()
end

--- The loss as one number (reduction "none": the values), weighted by weight if it is given.
function Loss:value(y_true, y_pred, weight)
  local values, counted = values_of(self, y_true, y_pred)
  return self:reduce(values, weight, counted)
end

-- This loss with further options.
local function variant(self, given)
  local chosen = options.check(self.name, self.declared, given)
  for key, value in pairs(self.options) do
    if given[key] == nil then chosen[key] = value end
  end
  return self:with(chosen)
end

-- The scalar to minimise. A table of options alone makes a loss with these options; as a third
-- argument they are for this call, among them sample_weight.
function Loss:__call(y_true, y_pred, given)
  if y_pred == nil then
    if self.new and (y_true == nil or type(y_true) == "table") then return self.new(y_true) end
    core.fail("usage", self.name .. ": the predictions are missing; call it with (y_true, y_pred)")
  end
  if given == nil then return self:value(y_true, y_pred) end
  if type(given) ~= "table" then
    core.fail("usage", self.name .. ": the third argument is a table of options, as in "
      .. "{sample_weight = w}")
  end
  local rest, weight = {}, given.sample_weight
  for key, value in pairs(given) do
    if key ~= "sample_weight" then rest[key] = value end
  end
  if next(rest) ~= nil then self = variant(self, rest) end
  return self:value(y_true, y_pred, weight)
end

function Loss:get_config() return { name = self.name, options = self.options } end

-- ---- making losses ------------------------------------------------------------------------------

local SHARED = {
  { "reduction", "string", default = "sum_over_batch_size",
    values = { "sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none" } },
  { "name", "string" },
}

local function make(definition, chosen)
  local self = setmetatable({}, Loss)
  for key, value in pairs(definition) do self[key] = value end
  self.options = chosen
  self.kind = definition.name
  self.name = chosen.name or definition.name
  self.with = function(_, other) return make(definition, other) end
  self.per_sample = function(y_true, y_pred, given)
    local loss = given and variant(self, given) or self
    return Loss.rows((values_of(loss, y_true, y_pred)))
  end
  return self
end

-- ARGS
--   definition.name      as it is written in compile; the loss's field kind, also if it is renamed
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them
--   definition.labels    true: y holds class ids and lacks the axis of classes of the predictions
--   definition.values    function(y_true, y_pred, options) -> values[, which of them count]
-- RETURNS the loss with its default options; its field `new` makes one with other options.
function Loss.define(definition)
  definition.declared = { positional = 0, unpack(definition.declared) }
  for _, option in ipairs(SHARED) do definition.declared[#definition.declared + 1] = option end
  local defaults = options.check(definition.class, definition.declared, {})
  function definition.new(given)
    return make(definition, options.check(definition.class, definition.declared, given or {}))
  end
  return make(definition, defaults)
end

-- A user's function(y_true, y_pred) as a loss. It returns one value a sample.
function Loss.from_function(fn)
  local function per_sample(y_true, y_pred)
    local values = fn(y_true, y_pred)
    if type(values) ~= "userdata" then
      core.fail("usage", ("loss: the function must return a tensor with one value per sample, "
        .. "got a %s"):format(type(values)))
    end
    if values:rank() == 0 or values:shape()[1] ~= y_pred:shape()[1] then
      core.fail("usage", ("loss: the function must return one value per sample, shape {%d}, "
        .. "got shape %s"):format(y_pred:shape()[1], shapes.show(values:shape())))
    end
    return Loss.rows(values)
  end
  local function with(_, chosen)
    local self = make({ name = "loss", custom = fn, declared = { positional = 0, unpack(SHARED) } }, chosen)
    self.per_sample, self.with = per_sample, with
    return self
  end
  return with(nil, {})
end

return Loss
