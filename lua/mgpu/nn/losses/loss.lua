--- The base of all losses: a function of (y_true, y_pred) with a per-sample form.
--
--     local mse = mgpu.losses.mean_squared_error
--     mse(y, model(x))                -- the mean over the batch: the scalar to differentiate
--     mse(y, model(x), {sample_weight = w, reduction = "sum"}) -- weighted; options for this call
--     mse.per_sample(y, model(x))     -- one value a row: {rows}
--     mgpu.losses.CategoricalCrossentropy {from_logits = true} -- a loss with other options
--
-- NOT as Keras's functions of these names: mgpu.losses.mean_squared_error(y, p) is the MEAN over the batch, what
-- Keras's classes return. One value a sample, which Keras's functions return, is mean_squared_error.per_sample(y, p).
-- Where Keras 3.15 deviates from its own documentation, the documentation is followed:
--   weights {rows} weigh the rows, whatever the rank of y_pred. Keras multiplies values {rows, steps} by them along the
--   last axis, so that w[2] weighs step 2 of every row. The metrics differ from Keras's in the same place.
--
-- Every loss has the options name and reduction: "sum_over_batch_size" (default, also "mean"; the sum of the
-- weighted values divided by the number of values), "sum", "mean_with_sample_weight" (divided by the sum of the
-- weights; the weight of a row counts for each value of the row) or "none" (the weighted values). A division by 0
-- gives 0, as in Keras.
--
-- A loss's file calls define with values(y_true, y_pred, options), which may keep further axes after the first (one
-- value per pixel, say) and may return a second tensor that tells which of the values count. It is called with a
-- y_true that has been checked and given the dtype and rank to compare with, and with an options.axis (if there is
-- one) that counts from 1. A definition may replace the methods target_shape, check_shape and prepare, for targets of
-- another form. Predictions in float16 or bfloat16 become float32 first: no loss is computed in them.
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local masks = require "mgpu.nn.masks"
local options = require "mgpu.options"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local Loss = {}
Loss.__index = Loss
Loss.__tostring = function(self) return core.printable("loss " .. self.name, true) end

-- Probabilities are kept within [EPSILON, 1 - EPSILON], as in Keras.
Loss.EPSILON = 1e-7

-- ---- shapes -------------------------------------------------------------------------------------

-- What the user can do about a y of shape `actual` that does not fit, for the error message; nil if unknown.
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

--- loss:axis(prediction) -> the axis of the classes, or the one to average over, for predictions of that shape.
-- Example:
--     print(mgpu.losses.CategoricalCrossentropy { axis = -1 }:axis { 8, 5, 10 })  --> 3
function Loss:axis(prediction) return shapes.axis(self.name, self.options.axis or -1, #prediction) end

--- loss:target_shape(prediction) -> the shape that y must have.
-- Example:
--     print(unpack(mgpu.losses.sparse_categorical_crossentropy:target_shape { 32, 10 })) -- one class id a row
--     --> 32
function Loss:target_shape(prediction)
  local shape = { unpack(prediction) }
  if self.labels then table.remove(shape, self:axis(prediction)) end
  return shape
end

--- loss:counted_labels(y) -> y with 0 in place of the ignored class id, if there is one.
-- Example:
--     local loss = mgpu.losses.SparseCategoricalCrossentropy { ignore_class = 255 }
--     print(loss:counted_labels(mgpu.tensor { 3, 255 }))
--     --> tensor {2} float32 cpu:0
--     --> {3, 0}
function Loss:counted_labels(y)
  local ignored = self.options.ignore_class
  return ignored and ops.where(ops.eq(y, ignored), 0, y) or y
end

--- loss:check_shape(actual, prediction, what): raises unless y of shape `actual` fits predictions of shape
--- `prediction`, up to an axis of size 1 at its end. `what` begins the message (default: the loss's name).
-- Example:
--     print(pcall(function() mgpu.losses.mse:check_shape({ 32, 3 }, { 32, 4 }) end))
--     --> false ... mean_squared_error: y has shape {32, 3} but predictions of shape {32, 4} need {32, 4}: ...
function Loss:check_shape(actual, prediction, what)
  shapes.check(what or self.name, actual, prediction, self:target_shape(prediction),
    remedy(self, actual, prediction))
end

-- ---- the value ----------------------------------------------------------------------------------

--- rows(values) -> one value a row: the mean over all axes but the first.
-- Example:
--     print(mgpu.losses.mse.rows(mgpu.tensor { { 1, 3 }, { 5, 5 } }))
--     --> tensor {2} float32 cpu:0
--     --> {2, 5}
function Loss.rows(values)
  local rank = values:rank()
  if rank <= 1 then return values end
  local axes = {}
  for axis = 2, rank do axes[#axes + 1] = axis end
  return ops.sum(values, { axis = axes }) / shapes.product(values:shape(), 2)
end

--- last_mean(values, axis = -1) -> the mean over the axis; a scalar stays.
-- Example:
--     print(unpack(mgpu.losses.mse.last_mean(mgpu.ones { 8, 5, 3 }):shape()))  --> 8 5
function Loss.last_mean(values, axis)
  local shape = values:shape()
  if #shape == 0 then return values end
  return ops.sum(values, { axis = axis or -1 }) / shape[axis or #shape]
end

--- loss:prepare(y_true, y_pred) -> y_true in the shape and dtype that `values` expects. Errors: as check_shape.
-- Example:
--     local y = mgpu.losses.mse:prepare(mgpu.tensor({ 1, 2 }, { dtype = "int32" }), mgpu.ones { 2, 1 })
--     print(y:dtype(), unpack(y:shape()))  --> float32 2 1
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

-- t, upcast to float32 if it is float16 or bfloat16.
local function upcast(t)
  return is_half(t) and ops.cast(t, { dtype = "float32" }) or t
end

local function as_tensor(value)
  return (core.is_tensor(value) or core.is_variable(value)) and value or core.tensor(value)
end

--- loss:unreduced(y_true, y_pred) -> the values before any reduction, one a step or pixel, say; and a tensor that tells
--- which of them count (nil: all do).
-- Example:
--     print(mgpu.losses.mse:unreduced(mgpu.zeros { 1, 2, 2 }, mgpu.tensor { { { 1, 1 }, { 3, 3 } } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{1, 9}}
function Loss:unreduced(y_true, y_pred)
  y_true, y_pred = as_tensor(y_true), as_tensor(y_pred)
  y_true, y_pred = upcast(y_true), upcast(y_pred)
  if self.custom then return self.custom(y_true, y_pred) end
  if not y_pred:dtype():find "float" then
    y_pred = upcast(ops.cast(y_pred, { dtype = core.floatx() }))
  end
  local chosen = self.options
  if chosen.axis and not self.free_axes then
    chosen = setmetatable({ axis = self:axis(y_pred:shape()) }, { __index = chosen })
  end
  return self.values(self:prepare(y_true, y_pred), y_pred, chosen)
end

-- total / divisor, without a division by 0.
local function ratio(total, divisor)
  return total / ops.where(ops.eq(divisor, 0), 1, divisor)
end

--- loss:reduce(values, weight, counted) -> the values after the option `reduction`.
-- ARGS weight: see shapes.weight; counted: a tensor of their shape that tells which of them count (nil: all).
-- Example:
--     local loss = mgpu.losses.MeanSquaredError { reduction = "mean_with_sample_weight" }
--     -- (3 * 4 + 1 * 8) / (3 + 1)
--     print(loss:reduce(mgpu.tensor { 4, 8 }, mgpu.tensor { 3, 1 }):item())  --> 5
function Loss:reduce(values, weight, counted)
  local dtype, reduction = values:dtype(), self.options.reduction or "sum_over_batch_size"
  if weight and values:rank() == 0 then -- one value for the whole batch, which each row's weight multiplies
    weight = as_tensor(weight)
    values = ops.broadcast_to(values, { shape = weight:shape() })
  end
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

-- Which of the values count: those that counted says, where the predictions are not masked.
local function with_mask(self, values, counted, y_pred)
  local mask = masks.get(y_pred)
  if not mask then return counted end
  if not shapes.same(mask:shape(), values:shape()) then
    core.fail("usage", ("%s: the predictions have a mask of shape %s, but the loss has values of shape %s"):format(
      self.name, shapes.show(mask:shape()), shapes.show(values:shape())))
  end
  return counted and ops.logical_and(ops.cast(counted, { dtype = "bool" }), mask) or mask
end

--- loss:value(y_true, y_pred, weight) -> the loss as a scalar tensor (with reduction "none": the values). Values whose
--- prediction is masked (nn/masks.lua) do not count.
-- Example:
--     local y_true, y_pred = mgpu.zeros { 2, 1 }, mgpu.tensor { { 1 }, { 3 } }
--     print(mgpu.losses.mse:value(y_true, y_pred):item(), mgpu.losses.mse(y_true, y_pred):item()) -- the same
--     --> 5 5
function Loss:value(y_true, y_pred, weight)
  local values, counted = self:unreduced(y_true, y_pred)
  return self:reduce(values, weight, with_mask(self, values, counted, y_pred))
end

-- This loss with other options.
local function variant(self, given)
  local chosen = options.check(self.name, self.declared, given)
  for key, value in pairs(self.options) do
    if given[key] == nil then chosen[key] = value end
  end
  return self:with(chosen)
end

-- loss(y_true, y_pred, options) is the scalar to minimise; options, with sample_weight among them, are for this call.
-- loss(options) makes a loss with these options.
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

--- loss:get_config() -> name and options.
-- Example:
--     local config = mgpu.losses.Huber { delta = 2 }:get_config()
--     print(config.name, config.options.delta, config.options.reduction)  --> huber 2 sum_over_batch_size
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
  --- loss:with(options) -> the same loss with checked options.
  -- Example:
  --     local huber = mgpu.losses.Huber { delta = 2, name = "wide" }
  --     print(huber:with(huber.options).name)  --> wide
  self.with = function(_, other) return make(definition, other) end
  --- loss.per_sample(y_true, y_pred, options) -> one value a row.
  -- Example:
  --     print(mgpu.losses.mse.per_sample(mgpu.zeros { 2, 2 }, mgpu.tensor { { 1, 1 }, { 3, 3 } }))
  --     --> tensor {2} float32 cpu:0
  --     --> {1, 9}
  self.per_sample = function(y_true, y_pred, given)
    local loss = given and variant(self, given) or self
    return Loss.rows((loss:unreduced(y_true, y_pred)))
  end
  return self
end

--- define(definition) -> the loss with its default options; its field `new` makes one with other options.
-- ARGS
--   definition.name      its name in compile; also the field `kind` of a loss that is renamed
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them
--   definition.labels    true: y holds class ids and lacks the axis of classes of the predictions
--   definition.free_axes true: the option axis is a list of any axes, which values reads itself
--   definition.values    function(y_true, y_pred, options) -> values[, which of them count]
function Loss.define(definition)
  definition.declared = { positional = 0, unpack(definition.declared) }
  for _, option in ipairs(SHARED) do definition.declared[#definition.declared + 1] = option end
  local defaults = options.check(definition.class, definition.declared, {})
  --- new(options) -> the loss with these options.
  function definition.new(given)
    return make(definition, options.check(definition.class, definition.declared, given or {}))
  end
  return make(definition, defaults)
end

--- from_function(fn) -> a loss made of the user's function(y_true, y_pred) -> one value a sample.
-- Example:
--     local cubic = mgpu.losses.mse.from_function(function(y_true, y_pred) return (y_pred - y_true):abs() ^ 3 end)
--     -- the mean of 1 and 8
--     print(cubic(mgpu.zeros { 2, 1 }, mgpu.tensor { { 1 }, { 2 } }):item())  --> 4.5
function Loss.from_function(fn)
  local function values_of(y_true, y_pred)
    local values = fn(y_true, y_pred)
    if type(values) ~= "userdata" then
      core.fail("usage", ("loss: the function must return a tensor with one value per sample, "
        .. "got a %s"):format(type(values)))
    end
    if values:rank() == 0 or values:shape()[1] ~= y_pred:shape()[1] then
      core.fail("usage", ("loss: the function must return one value per sample, shape {%d}, "
        .. "got shape %s"):format(y_pred:shape()[1], shapes.show(values:shape())))
    end
    return values
  end
  local function with(_, chosen)
    local self = make({ name = "loss", custom = values_of, declared = { positional = 0, unpack(SHARED) } }, chosen)
    self.with = with
    return self
  end
  return with(nil, {})
end

return Loss
