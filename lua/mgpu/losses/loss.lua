-- What every loss is: a function of (y_true, y_pred) with a per-sample form.
--
--     local mse = mgpu.losses.mean_squared_error
--     mse(y, model(x))                -- the mean over the batch: the scalar to differentiate
--     mse.per_sample(y, model(x))     -- one value a row: {rows}
--     mgpu.losses.CategoricalCrossentropy {from_logits = true} -- one with options of its own
--
-- Every loss has the options name and reduction: "sum_over_batch_size" (default, also "mean"; with
-- weights the sum of the weighted values divided by the number of rows), "sum",
-- "mean_with_sample_weight" (divided by the sum of the weights) or "none".
--
-- A loss's file defines values(y_true, y_pred, options), which may keep further axes after the
-- first (one value per pixel, say); they are averaged here. Before it is called, y_true has the
-- dtype and rank that the loss compares with, checked with a message that names the remedy.

local core = require "mgpu.core"
local options = require "mgpu.options"

local ops = core.ops

local Loss = {}
Loss.__index = Loss
Loss.__tostring = function(self) return "loss " .. self.name end

-- Bounds probabilities away from 0 and 1, as Keras's epsilon does.
Loss.EPSILON = 1e-7

-- ---- shapes -------------------------------------------------------------------------------------

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function product(shape, from)
  local count = 1
  for i = from, #shape do count = count * shape[i] end
  return count
end

-- What to do about a y of shape `actual` where `expected` is needed.
local function remedy(loss, actual, expected)
  local classes = expected[#expected]
  if loss.name == "categorical_crossentropy" and product(actual, 1) * classes
    == product(expected, 1) then
    return ("make it one-hot with mgpu.to_categorical(y, %d), or use "
      .. "sparse_categorical_crossentropy"):format(classes)
  elseif loss.labels and #actual == #expected and actual[#actual] == classes then
    return "y looks one-hot: use categorical_crossentropy, or y:argmax(-1)"
  end
  return "the last layer and y must agree"
end

-- The shape that y must have, given the shape of the predictions.
function Loss:target_shape(prediction)
  local shape = { unpack(prediction) }
  if self.labels then shape[#shape] = nil end
  return shape
end

-- Whether y of shape `actual` fits predictions of shape `prediction`, as it is or by an axis of
-- length 1 at its end; if not, raises.
function Loss:check_shape(actual, prediction, what)
  local expected = self:target_shape(prediction)
  if same(actual, expected) then return end
  local wider = { unpack(expected) }
  wider[#wider + 1] = 1
  if same(actual, wider) then return end
  if expected[#expected] == 1 then
    expected[#expected] = nil
    if same(actual, expected) then return end
    expected[#expected + 1] = 1
  end
  core.fail("usage", ("%s: y has shape %s but predictions of shape %s need %s: %s"):format(
    what or self.name, show(actual), show(prediction), show(expected),
    remedy(self, actual, prediction)))
end

-- ---- the value ----------------------------------------------------------------------------------

-- One value a row: the mean over all axes but the first.
function Loss.rows(values)
  local rank = values:rank()
  if rank <= 1 then return values end
  local axes = {}
  for axis = 2, rank do axes[#axes + 1] = axis end
  return ops.sum(values, { axis = axes }) / product(values:shape(), 2)
end

-- The mean over the last axis, where there is one besides the rows.
function Loss.last_mean(values)
  local shape = values:shape()
  if #shape == 0 then return values end
  return ops.sum(values, { axis = -1 }) / shape[#shape]
end

-- y_true in the shape and dtype that the loss compares y_pred with.
function Loss:prepare(y_true, y_pred)
  local prediction = y_pred:shape()
  if type(y_true) ~= "userdata" then y_true = core.tensor(y_true) end
  self:check_shape(y_true:shape(), prediction)
  local expected = self:target_shape(prediction)
  if not same(y_true:shape(), expected) then y_true = ops.reshape(y_true, { shape = expected }) end
  if self.labels or y_true:dtype() == y_pred:dtype() then return y_true end
  return ops.cast(y_true, { dtype = y_pred:dtype() })
end

local SHARED = {
  { "reduction", "string", default = "sum_over_batch_size",
    values = { "sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none" } },
  { "name", "string" },
}

--- The per-sample values as one number; `weight` (or nil) holds one a row.
function Loss:reduce(values, weight)
  local reduction = self.options.reduction or "sum_over_batch_size"
  if weight then values = values * ops.cast(weight, { dtype = values:dtype() }) end
  if reduction == "none" then return values end
  local total = ops.sum(values)
  if reduction == "sum" then return total end
  if reduction == "mean_with_sample_weight" and weight then
    return total / ops.maximum(ops.sum(ops.cast(weight, { dtype = values:dtype() })), 1e-300)
  end
  return total / values:count()
end

local function per_sample(self, y_true, y_pred, given)
  local chosen = given and self.declared and options.check(self.name, self.declared, given)
    or self.options
  if type(y_pred) ~= "userdata" then y_pred = core.tensor(y_pred) end
  return Loss.rows(self.values(self:prepare(y_true, y_pred), y_pred, chosen))
end

-- The mean over the batch, a scalar. A table of options alone makes a loss with these options.
function Loss:__call(y_true, y_pred, given)
  if y_pred == nil then
    if self.new and (y_true == nil or type(y_true) == "table") then return self.new(y_true) end
    core.fail("usage", self.name .. ": the predictions are missing; call it with (y_true, y_pred)")
  end
  local weight
  if type(given) == "table" and given.sample_weight ~= nil then
    weight, given = given.sample_weight, { unpack(given) }
    if type(weight) == "table" then weight = core.tensor(weight) end
    if next(given) == nil then given = nil end
  end
  return self:reduce(self.per_sample(y_true, y_pred, given), weight)
end

function Loss:get_config() return { name = self.name, options = self.options } end

-- ---- making losses ------------------------------------------------------------------------------

local function make(definition, chosen)
  local self = setmetatable({}, Loss)
  for key, value in pairs(definition) do self[key] = value end
  self.options = chosen
  self.name = chosen.name or self.name
  self.per_sample = function(...) return per_sample(self, ...) end
  return self
end

-- ARGS
--   definition.name      as it is written in compile
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them
--   definition.labels    true: y holds class ids and lacks the last axis of the predictions
--   definition.values    function(y_true, y_pred, options)
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
  local self = make({ name = "loss", custom = fn }, {})
  self.per_sample = function(y_true, y_pred)
    local values = fn(y_true, y_pred)
    if type(values) ~= "userdata" then
      core.fail("usage", ("loss: the function must return a tensor with one value per sample, "
        .. "got a %s"):format(type(values)))
    end
    if values:rank() == 0 or values:shape()[1] ~= y_pred:shape()[1] then
      core.fail("usage", ("loss: the function must return one value per sample, shape {%d}, "
        .. "got shape %s"):format(y_pred:shape()[1], show(values:shape())))
    end
    return Loss.rows(values)
  end
  return self
end

return Loss
