--- Counts of true and false positives and negatives at thresholds; precision and recall.
--
-- A prediction is positive if it is above the threshold, a target if it is not 0. Options of precision and recall:
-- thresholds (a number or a list, default 0.5), top_k (only the k largest of each row can be positive; of equal ones
-- the first), class_id (from 0: only this class counts).
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops
local M = {}

local DECLARED = {
  { "thresholds", "number|table" },
  { "top_k", "integer", min = 1 },
  { "class_id", "integer", min = 0 },
}

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

--- thresholds(who, chosen) -> the checked thresholds: an array. With top_k alone it is -infinity, as in Keras.
function M.thresholds(who, chosen)
  local given = chosen.thresholds
  if given == nil then return { chosen.top_k and -math.huge or 0.5 } end
  local list = type(given) == "table" and given or { given }
  if #list == 0 then fail(who, 'option "thresholds" is empty') end
  for _, t in ipairs(list) do
    if type(t) ~= "number" or not (t >= 0 and t <= 1) then
      fail(who, 'option "thresholds" must be from 0 to 1, got %s', tostring(t))
    end
  end
  return list
end

-- p with -infinity for all but the k largest of each row.
local function only_top(who, p, k)
  local shape = p:shape()
  local n = shape[#shape]
  if not n or k > n then
    fail(who, 'option "top_k" is %d, but the predictions have shape %s', k, shapes.show(shape))
  end
  if k == n then return p end
  local column = { unpack(shape) }
  for axis = 1, #shape - 1 do shape[axis] = 1 end
  column[#column] = 1
  local ids, rest, top = ops.iota { shape = shape, axis = #shape, dtype = "int32" }, p, nil
  for _ = 1, k do
    local largest = ops.cast(ops.argmax(rest, { axis = -1 }), { dtype = "int32" })
    local here = ops.eq(ids, ops.reshape(largest, { shape = column }))
    top = top and ops.logical_or(top, here) or here
    rest = ops.where(here, -math.huge, rest)
  end
  return ops.where(top, p, -math.huge)
end

-- The column of class `id`.
local function one_class(who, t, id)
  local shape = t:shape()
  if #shape < 2 or id >= shape[#shape] then
    fail(who, 'option "class_id" is %d, but the predictions have shape %s: classes are numbered from 0', id,
      shapes.show(shape))
  end
  return ops.gather(t, core.tensor({ id }, { dtype = "int32" }):to(t:device()), { axis = -1 })
end

-- t {n, labels} as {1, n, labels}, to broadcast against the thresholds.
local function with_threshold_axis(t, labels)
  return ops.reshape(t, { shape = { 1, t:count() / labels, labels } })
end

--- counts(who, y_true, y_pred, weight, thresholds, chosen) -> the weighted counts of true positives, false positives,
--- false negatives and true negatives, each {thresholds}, or {thresholds, labels} with `labels`.
-- ARGS chosen: {top_k =, class_id =, labels = columns to count separately, label_weights = one a column}; each may be
--   nil.
function M.counts(who, y_true, y_pred, weight, thresholds, chosen)
  y_true = shapes.target(who, y_true, y_pred)
  if chosen.top_k then y_pred = only_top(who, y_pred, chosen.top_k) end
  if chosen.class_id then
    y_true, y_pred = one_class(who, y_true, chosen.class_id), one_class(who, y_pred, chosen.class_id)
  end
  local shape, labels = y_pred:shape(), chosen.labels or 1
  weight = shapes.weight(who, weight, shape, "float64")
  if chosen.label_weights then
    local columns = core.tensor(chosen.label_weights, { dtype = "float64" }):to(y_pred:device())
    weight = weight and weight * columns or columns
  end
  if weight then weight = with_threshold_axis(ops.broadcast_to(weight, { shape = shape }), labels) end
  local dtype = y_pred:dtype() == "float64" and "float64" or "float32"
  local p = with_threshold_axis(ops.cast(y_pred, { dtype = dtype }), labels)
  local limits = core.tensor(thresholds, { dtype = dtype }):reshape { #thresholds, 1, 1 }
  local actual = with_threshold_axis(ops.ne(y_true, 0), labels)
  local positive = ops.gt(p, limits:to(p:device()))
  local function count(where)
    local ones = ops.cast(where, { dtype = "float64" })
    local sums = ops.sum(weight and ones * weight or ones, { axis = 2 })
    return chosen.labels and sums or ops.reshape(sums, { shape = { -1 } })
  end
  local no, never = ops.logical_not(positive), ops.logical_not(actual)
  return count(ops.logical_and(positive, actual)), count(ops.logical_and(positive, never)),
    count(ops.logical_and(no, actual)), count(ops.logical_and(no, never))
end

-- ---- precision and recall -----------------------------------------------------------------------

-- A class of metrics: true positives / (true positives + the counts named `other`, result number `nth` of M.counts); a
-- number, or an array if the option thresholds is a list. 0 where nothing was counted.
local function define_ratio(class, other, nth)
  return Metric.define {
    name = class:lower(),
    class = class,
    direction = "max",
    declared = DECLARED,
    state = { "true_positives", other },
    init = function(self) self.limits = M.thresholds(class, self.options) end,
    size = function(self) return { #self.limits } end,
    observe = function(self, y_true, y_pred, weight)
      local counts = { M.counts(self.name, y_true, y_pred, weight, self.limits, self.options) }
      self.true_positives:assign(ops.add(self.true_positives, counts[1]))
      self[other]:assign(ops.add(self[other], counts[nth]))
    end,
    result = function(self)
      local list, below = self.true_positives:value():totable(), self[other]:value():totable()
      for i, n in ipairs(list) do list[i] = n + below[i] > 0 and n / (n + below[i]) or 0 end
      return type(self.options.thresholds) == "table" and list or list[1]
    end,
  }
end

--- Precision {thresholds = 0.5, top_k =, class_id =, name =}, also precision: true positives / (true positives +
--- false positives), 0 if there are none.
-- y_true of 0 and 1, y_pred of the same shape in 0..1. Options: see confusion.lua. result() is a number, or an array
-- for a list of thresholds. Errors: thresholds outside 0..1; top_k or class_id beyond the classes.
-- Example:
--     local precision = mgpu.metrics.Precision {}
--     precision:update(mgpu.tensor { 1, 0, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1 })
--     -- 2 of the 3 predictions above 0.5 are right
--     print(("%.3f"):format(precision:result()))  --> 0.667
M.Precision = define_ratio("Precision", "false_positives", 2)

--- Recall {thresholds = 0.5, top_k =, class_id =, name =}, also recall: true positives / (true positives + false
--- negatives), 0 if there are none.
-- y_true of 0 and 1, y_pred of the same shape in 0..1. Options: see confusion.lua. result() is a number, or an array
-- for a list of thresholds. Errors: thresholds outside 0..1; top_k or class_id beyond the classes.
-- Example:
--     local recall = mgpu.metrics.Recall { thresholds = { 0.5, 0.75 } }
--     recall:update(mgpu.tensor { 1, 0, 1, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1, 0.2 })
--     -- 2 of the 4 positives, then 1 of them
--     print(unpack(recall:result()))  --> 0.5 0.25
M.Recall = define_ratio("Recall", "false_negatives", 3)

return M
