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
      return #list > 1 and list or list[1]
    end,
  }
end

--- Precision {thresholds = 0.5, top_k =, class_id =, name =}, also precision: true positives / (true positives +
--- false positives), 0 if there are none.
-- y_true of 0 and 1, y_pred of the same shape in 0..1. Options: see confusion.lua. result() is a number, or an array
-- for several thresholds. Errors: thresholds outside 0..1; top_k or class_id beyond the classes.
-- Example:
--     local precision = mgpu.metrics.Precision {}
--     precision:update(mgpu.tensor { 1, 0, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1 })
--     -- 2 of the 3 predictions above 0.5 are right
--     print(("%.3f"):format(precision:result()))  --> 0.667
M.Precision = define_ratio("Precision", "false_positives", 2)

--- Recall {thresholds = 0.5, top_k =, class_id =, name =}, also recall: true positives / (true positives + false
--- negatives), 0 if there are none.
-- y_true of 0 and 1, y_pred of the same shape in 0..1. Options: see confusion.lua. result() is a number, or an array
-- for several thresholds. Errors: thresholds outside 0..1; top_k or class_id beyond the classes.
-- Example:
--     local recall = mgpu.metrics.Recall { thresholds = { 0.5, 0.75 } }
--     recall:update(mgpu.tensor { 1, 0, 1, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1, 0.2 })
--     -- 2 of the 4 positives, then 1 of them
--     print(unpack(recall:result()))  --> 0.5 0.25
M.Recall = define_ratio("Recall", "false_negatives", 3)

-- ---- single counts ------------------------------------------------------------------------------

-- A class of metrics: the count number `nth` of M.counts.
local function define_count(class, name, nth)
  return Metric.define {
    name = name,
    class = class,
    direction = (nth == 1 or nth == 4) and "max" or "min",
    declared = { { "thresholds", "number|table" } },
    state = { "accumulator" },
    init = function(self) self.limits = M.thresholds(class, self.options) end,
    size = function(self) return { #self.limits } end,
    observe = function(self, y_true, y_pred, weight)
      self:add_to("accumulator", (select(nth, M.counts(self.name, y_true, y_pred, weight, self.limits, {}))))
    end,
    result = function(self)
      local list = self.accumulator:value():totable()
      return #list == 1 and list[1] or list
    end,
  }
end

--- TruePositives {thresholds = 0.5, name =}, also true_positives: the (weighted) number of predictions above the
--- threshold whose target is not 0. result() is a number, or an array for several thresholds.
-- Example:
--     local metric = mgpu.metrics.TruePositives {}
--     metric:update(mgpu.tensor { 0, 1, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1 })
--     print(metric:result())  --> 2
M.TruePositives = define_count("TruePositives", "true_positives", 1)

--- FalsePositives {thresholds = 0.5, name =}, also false_positives: the (weighted) number of predictions above the
--- threshold whose target is 0. result() is a number, or an array for several thresholds.
-- Example:
--     local metric = mgpu.metrics.FalsePositives { thresholds = { 0.5, 0.95 } }
--     metric:update(mgpu.tensor { 0, 1, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1 })
--     print(unpack(metric:result()))  --> 1 0
M.FalsePositives = define_count("FalsePositives", "false_positives", 2)

--- FalseNegatives {thresholds = 0.5, name =}, also false_negatives: the (weighted) number of predictions up to the
--- threshold whose target is not 0. result() is a number, or an array for several thresholds.
-- Example:
--     local metric = mgpu.metrics.FalseNegatives {}
--     metric:update(mgpu.tensor { 0, 1, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1 })
--     print(metric:result())  --> 1
M.FalseNegatives = define_count("FalseNegatives", "false_negatives", 3)

--- TrueNegatives {thresholds = 0.5, name =}, also true_negatives: the (weighted) number of predictions up to the
--- threshold whose target is 0. result() is a number, or an array for several thresholds.
-- Example:
--     local metric = mgpu.metrics.TrueNegatives {}
--     metric:update(mgpu.tensor { 0, 0, 1, 1 }, mgpu.tensor { 0.9, 0.2, 0.7, 0.1 })
--     print(metric:result())  --> 1
M.TrueNegatives = define_count("TrueNegatives", "true_negatives", 4)

-- ---- one rate where another one is good enough --------------------------------------------------

local function ratio(a, b) return a + b > 0 and a / (a + b) or 0 end

local RATES = {
  sensitivity = function(tp, _, fn) return ratio(tp, fn) end,
  specificity = function(_, fp, _, tn) return ratio(tn, fp) end,
  precision = function(tp, fp) return ratio(tp, fp) end,
  recall = function(tp, _, fn) return ratio(tp, fn) end,
}

-- As Keras: both ends of 0 .. 1 are thresholds; a single one is 0.5.
local function even_thresholds(n)
  if n == 1 then return { 0.5 } end
  local list = {}
  for i = 0, n - 1 do list[i + 1] = i / (n - 1) end
  return list
end

-- A class of metrics: the largest rate `wanted` at thresholds where the rate `bound` is at least the option `bound`.
local function define_at(class, name, wanted, bound)
  return Metric.define {
    name = name,
    class = class,
    direction = "max",
    declared = { { bound, "number", required = true, min = 0, max = 1 },
      { "num_thresholds", "integer", default = 200, min = 1 }, { "class_id", "integer", min = 0 } },
    state = { "true_positives", "false_positives", "false_negatives", "true_negatives" },
    init = function(self) self.limits = even_thresholds(self.options.num_thresholds) end,
    size = function(self) return { #self.limits } end,
    observe = function(self, y_true, y_pred, weight)
      local counts = { M.counts(self.name, y_true, y_pred, weight, self.limits, { class_id = self.options.class_id }) }
      for i, v in ipairs(self.state) do v:assign(ops.add(v, counts[i])) end
    end,
    result = function(self)
      local tp, fp, fn, tn = unpack(self:totals())
      local best = 0
      for i = 1, #tp do
        if RATES[bound](tp[i], fp[i], fn[i], tn[i]) >= self.options[bound] then
          best = math.max(best, RATES[wanted](tp[i], fp[i], fn[i], tn[i]))
        end
      end
      return best
    end,
  }
end

--- SensitivityAtSpecificity {specificity =, num_thresholds = 200, class_id =, name =}, also
--- sensitivity_at_specificity: the largest share of positives found at a threshold where at least the share
--- `specificity` of the negatives is found; 0 if there is none. y_true of 0 and 1, y_pred of the same shape in 0..1.
-- Example:
--     local metric = mgpu.metrics.SensitivityAtSpecificity { specificity = 0.5 }
--     metric:update(mgpu.tensor { 0, 0, 0, 1, 1 }, mgpu.tensor { 0, 0.3, 0.8, 0.3, 0.8 })
--     print(metric:result())  --> 0.5
M.SensitivityAtSpecificity = define_at("SensitivityAtSpecificity", "sensitivity_at_specificity", "sensitivity",
  "specificity")

--- SpecificityAtSensitivity {sensitivity =, num_thresholds = 200, class_id =, name =}, also
--- specificity_at_sensitivity: the largest share of negatives found at a threshold where at least the share
--- `sensitivity` of the positives is found; 0 if there is none.
-- Example:
--     local metric = mgpu.metrics.SpecificityAtSensitivity { sensitivity = 0.5 }
--     metric:update(mgpu.tensor { 0, 0, 0, 1, 1 }, mgpu.tensor { 0, 0.3, 0.8, 0.3, 0.8 })
--     print(("%.3f"):format(metric:result()))  --> 0.667
M.SpecificityAtSensitivity = define_at("SpecificityAtSensitivity", "specificity_at_sensitivity", "specificity",
  "sensitivity")

--- PrecisionAtRecall {recall =, num_thresholds = 200, class_id =, name =}, also precision_at_recall: the largest
--- precision at a threshold whose recall is at least `recall`; 0 if there is none.
-- Example:
--     local metric = mgpu.metrics.PrecisionAtRecall { recall = 0.5 }
--     metric:update(mgpu.tensor { 0, 0, 0, 1, 1 }, mgpu.tensor { 0, 0.3, 0.8, 0.3, 0.8 })
--     print(metric:result())  --> 0.5
M.PrecisionAtRecall = define_at("PrecisionAtRecall", "precision_at_recall", "precision", "recall")

--- RecallAtPrecision {precision =, num_thresholds = 200, class_id =, name =}, also recall_at_precision: the largest
--- recall at a threshold whose precision is at least `precision`; 0 if there is none.
-- Example:
--     local metric = mgpu.metrics.RecallAtPrecision { precision = 0.8 }
--     metric:update(mgpu.tensor { 0, 0, 1, 1 }, mgpu.tensor { 0, 0.5, 0.3, 0.9 })
--     print(metric:result())  --> 0.5
M.RecallAtPrecision = define_at("RecallAtPrecision", "recall_at_precision", "recall", "precision")

return M
