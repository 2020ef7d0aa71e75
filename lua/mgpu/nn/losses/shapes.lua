--- Checks that targets, predictions and weights fit each other, for losses and metrics.
--
-- Errors name both shapes. Where only an axis of size 1 at the end differs, tensors are reshaped silently, as in
-- Keras.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

--- show(shape) -> "{2, 3}".
function M.show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

--- same(a, b): whether two shapes are equal.
function M.same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

--- product(shape, from = 1) -> the product of the sizes from axis `from` on.
function M.product(shape, from)
  local count = 1
  for i = from or 1, #shape do count = count * shape[i] end
  return count
end

--- fits(actual, expected): whether the shapes are equal, up to one axis of size 1 at the end.
function M.fits(actual, expected)
  if M.same(actual, expected) then return true end
  local wider = { unpack(expected) }
  wider[#wider + 1] = 1
  if M.same(actual, wider) then return true end
  if expected[#expected] ~= 1 then return false end
  return M.same(actual, { unpack(expected, 1, #expected - 1) })
end

--- check(who, actual, prediction, expected, remedy): raises unless `actual`, the shape of y, fits `expected`.
-- ARGS who: begins the message; prediction: the shape to show; remedy: what the user can do.
function M.check(who, actual, prediction, expected, remedy)
  if M.fits(actual, expected) then return end
  core.fail("usage", ("%s: y has shape %s but predictions of shape %s need %s: %s"):format(who,
    M.show(actual), M.show(prediction), M.show(expected), remedy or "the last layer and y must agree"))
end

--- target(who, y, y_pred, labels) -> y in the shape of the predictions; with `labels` (class ids) without their last
--- axis. Errors: as check.
function M.target(who, y, y_pred, labels)
  local prediction = y_pred:shape()
  local expected = { unpack(prediction, 1, #prediction - (labels and 1 or 0)) }
  if labels and #prediction == 0 then
    core.fail("usage", who .. ": the predictions must have an axis of classes, but are one number")
  end
  M.check(who, y:shape(), prediction, expected)
  return M.same(y:shape(), expected) and y or ops.reshape(y, { shape = expected })
end

--- axis(who, axis, rank) -> the axis as a position from 1. Errors: out of range; 1, the batch.
function M.axis(who, axis, rank)
  local at = axis < 0 and axis + rank + 1 or axis
  if axis ~= -1 and (at < 2 or at > rank) or at < 1 then
    core.fail("usage", ("%s: axis %d is out of range for predictions with %d axes (the batch is 1)"):format(who,
      axis, rank))
  end
  return at
end

--- axis_last(x, axis) -> x with the axis moved to the end.
function M.axis_last(x, axis)
  local rank, order = x:rank(), {}
  if axis == rank then return x end
  for i = 1, rank do
    if i ~= axis then order[#order + 1] = i end
  end
  order[rank] = axis
  return ops.permute(x, { order = order })
end

--- weight(who, weight, shape, dtype) -> sample weights as a tensor that broadcasts against values of that shape.
-- A weight counts for one value, or for all values that share its first axes: {rows} and {rows, 1} weight rows.
-- ARGS weight: a number, table or tensor; nil gives nil. Errors: weights that do not fit.
function M.weight(who, weight, shape, dtype)
  if weight == nil then return nil end
  if type(weight) ~= "userdata" then weight = core.tensor(weight, { dtype = dtype }) end
  local given = weight:shape()
  local wide = { unpack(given) }
  while #wide > #shape and wide[#wide] == 1 do wide[#wide] = nil end
  local fits = #wide <= #shape
  for axis = 1, #shape do
    wide[axis] = wide[axis] or 1
    fits = fits and (wide[axis] == shape[axis] or wide[axis] == 1)
  end
  if not fits then
    core.fail("usage", ("%s: sample_weight has shape %s, but the values it weighs have %s: give one weight a row"):
      format(who, M.show(given), M.show(shape)))
  end
  weight = ops.cast(weight, { dtype = dtype })
  return M.same(given, wide) and weight or ops.reshape(weight, { shape = wide })
end

return M
