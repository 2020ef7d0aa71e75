--- Checks of targets and weights before the first step: labels in range, one weight a class or a row.
local core = require "mgpu.core"
local row_share = require "mgpu.train.row_share"

local ops = core.ops
local M = {}

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

local function fail(what, text, ...)
  core.fail("usage", ("%s: " .. text):format(what, ...))
end

local function rows_of(t) return t:shape()[1] end

-- ---- labels -------------------------------------------------------------------------------------

-- The first row (from 1) where the bool tensor `bad`, one value a row, is true.
local function first_row(bad)
  return ops.argmax(ops.cast(bad, { dtype = "int32" }), { axis = 1 }):item() + 1
end

-- Whether any value of a row is true, one value a row.
local function any_in_row(bad)
  if bad:rank() == 1 then return bad end
  local axes = {}
  for axis = 2, bad:rank() do axes[#axes + 1] = axis end
  return ops.any(bad, { axis = axes })
end

-- The first label in the given row for which wrong(label) is true.
local function label_at(y, row, wrong)
  local values = ops.gather(y, core.tensor({ row - 1 }, { dtype = "int32" }), { axis = 1 })
  for _, value in ipairs(ops.reshape(values, { shape = { -1 } }):totable()) do
    if wrong(value) then return value end
  end
end

-- Raises unless the labels are whole numbers in 0 .. classes - 1. First it asks with one bool whether all of them are:
-- null devices, which compute nothing, answer true. before: how many rows of the batch are not in y.
local function check_labels(y, classes, what, before)
  local good = ops.logical_and(ops.ge(y, 0), ops.lt(y, classes))
  local whole = y:dtype():find "float" and ops.eq(y, ops.floor(y))
  if ops.all(whole and ops.logical_and(good, whole) or good):item() then return end
  if whole and not ops.all(whole):item() then
    local row = first_row(any_in_row(ops.logical_not(whole)))
    fail(what, "the label in row %d of y is %s, but labels are whole numbers", before + row,
      tostring(label_at(y, row, function(v) return v ~= math.floor(v) end)))
  end
  local row = first_row(any_in_row(ops.logical_not(good)))
  local label = label_at(y, row, function(v) return v < 0 or v >= classes end)
  fail(what, "the label in row %d of y is %s, but the model has %d classes, numbered 0 to %d%s",
    before + row, tostring(label), classes, classes - 1,
    tonumber(label) == classes and " (labels start at 0)" or "")
end

--- check(loss, y, shape, what, window): raises unless the targets y fit the loss and predictions of that shape.
--- window: of row_share.window, the rows whose values are looked at; nil: all.
function M.check(loss, y, shape, what, window)
  if not loss or loss.custom then return end
  loss:check_shape(y:shape(), shape, what)
  if not loss.labels or window and window.count == 0 then return end
  local labels, classes = loss:counted_labels(row_share.cut(y, window)), shape[loss:axis(shape)]
  if not window then return check_labels(labels, classes, what, 0) end
  row_share.only_here(check_labels, labels, classes, what, window.first)
end

-- ---- weights ------------------------------------------------------------------------------------

-- Raises unless each label is one of the classes, which have weights.
-- before: how many rows of the batch are not among them.
local function check_class_ids(ids, classes, what, before)
  local function wrong(label) return not (label >= 0 and label < classes and label % 1 == 0) end
  local good = ops.logical_and(ops.ge(ids, 0), ops.lt(ids, classes))
  if ids:dtype():find "float" then good = ops.logical_and(good, ops.eq(ids, ops.floor(ids))) end
  if ops.all(good):item() then return end
  local row = first_row(ops.logical_not(good))
  fail(what, "class_weight has no weight for %s, the label in row %d of y: the classes are 0 to %d",
    tostring(label_at(ids, row, wrong)), before + row, classes - 1)
end

--- class_weights(weights, y, classes, what, window) -> one weight a row, a tensor. weights: {[0] = 1, [1] = 5}, by
--- class id; a class without an entry has weight 1, as in Keras. window: as for check; the weights of other rows are
--- undefined. Errors: no entry [0]; other keys; negative weights.
function M.class_weights(weights, y, classes, what, window)
  if weights[0] == nil then
    fail(what, "class_weight has no entry [0]: classes are numbered from 0, as in "
      .. "{[0] = 1, [1] = 5}")
  end
  local list = {}
  for class = 0, classes - 1 do list[class + 1] = weights[class] or 1 end
  for class, weight in pairs(weights) do
    if type(class) ~= "number" or list[class + 1] == nil or class % 1 ~= 0 then
      fail(what, "class_weight[%s]: the classes are 0 to %d", tostring(class), classes - 1)
    elseif type(weight) ~= "number" or not (weight >= 0) then
      fail(what, "class_weight[%d] must be a number >= 0, got %s", class, tostring(weight))
    end
  end
  local ids = y
  if y:rank() > 1 then
    ids = y:shape()[2] == 1 and ops.reshape(y, { shape = { rows_of(y) } })
      or ops.argmax(y, { axis = -1 })
  end
  if not window then
    check_class_ids(ids, classes, what, 0)
  elseif window.count > 0 then
    row_share.only_here(check_class_ids, row_share.cut(ids, window), classes, what, window.first)
  end
  local by_class = core.tensor(list, { device = ids:device() })
  return ops.gather(by_class, ops.cast(ids, { dtype = "int32" }), { axis = 1 })
end

--- check_weight(weight, rows, what): raises unless the sample weights are one number a row.
function M.check_weight(weight, rows, what)
  if rows_of(weight) ~= rows then
    fail(what, "x has %d rows but sample_weight has %d", rows, rows_of(weight))
  end
  if weight:rank() ~= 1 then
    fail(what, "sample_weight must hold one number a row, but its shape is %s", show(weight:shape()))
  end
end

return M
