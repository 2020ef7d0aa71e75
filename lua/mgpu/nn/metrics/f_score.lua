--- Scores that balance precision and recall of each class: F-beta and F1.
-- RETURNS the metrics by name.
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops
local EPSILON = 1e-7

local M = {}

local AVERAGE = { "average", "string", values = { "micro", "macro", "weighted" } }
local THRESHOLD = { "threshold", "number", above = 0, max = 1 }

-- 1 where a prediction is positive: the largest of each row, or what is above the threshold.
local function positives(y_pred, threshold)
  if threshold then return ops.gt(y_pred, threshold) end
  local largest = ops.ge(y_pred, ops.max(y_pred, { axis = -1, keepdims = true }))
  return ops.logical_and(largest, ops.gt(ops.abs(y_pred), 1e-9))
end

local function observe(self, y_true, y_pred, weight)
  local shape = y_pred:shape()
  if #shape ~= 2 then
    core.fail("usage", ("%s: the predictions must be {rows, classes}, but have shape %s"):format(self.name,
      shapes.show(shape)))
  end
  y_true = ops.cast(self:fit(y_true, y_pred), { dtype = "float64" })
  local positive = ops.cast(positives(y_pred, self.options.threshold), { dtype = "float64" })
  weight = shapes.weight(self.name, weight, shape, "float64")
  local function add(name, hits)
    self:add_to(name, ops.sum(weight and hits * weight or hits, { axis = 1 }))
  end
  add("true_positives", positive * y_true)
  add("false_positives", positive * (1 - y_true))
  add("false_negatives", (1 - positive) * y_true)
  add("intermediate_weights", y_true)
end

local function sum(list)
  local total = 0
  for _, value in ipairs(list) do total = total + value end
  return total
end

local function score(tp, fp, fn, beta)
  local precision, recall = tp / (tp + fp + EPSILON), tp / (tp + fn + EPSILON)
  return precision * recall / (beta * beta * precision + recall + EPSILON) * (1 + beta * beta)
end

local function result(self)
  local chosen, scores = self.options, {}
  local tp, fp, fn, weights = unpack(self:totals())
  local beta = chosen.beta or 1
  if not tp then return 0 end
  if chosen.average == "micro" then return score(sum(tp), sum(fp), sum(fn), beta) end
  for i in ipairs(tp) do scores[i] = score(tp[i], fp[i], fn[i], beta) end
  if not chosen.average then return scores end
  if chosen.average == "macro" then return sum(scores) / #scores end
  local all = sum(weights) + EPSILON
  for i, value in ipairs(scores) do scores[i] = value * weights[i] / all end
  return sum(scores)
end

local function define(class, name, declared)
  return Metric.define {
    name = name,
    class = class,
    direction = "max",
    declared = declared,
    state = { "true_positives", "false_positives", "false_negatives", "intermediate_weights" },
    size = Metric.BY_PREDICTION,
    observe = observe,
    result = result,
  }
end

--- FBetaScore {average =, beta = 1, threshold =, name =}, also fbeta_score and f_beta_score:
--- (1 + beta^2) precision recall / (beta^2 precision + recall) of each class; beta > 1 favours recall.
-- y_true {rows, classes} of 0 and 1, y_pred likewise. A row's largest prediction is positive; with a threshold all
-- above it. average: not given, an array of one score a class; "macro", their mean; "weighted", their mean by the
-- number of targets; "micro", the score of all classes together. Errors: predictions with other than 2 axes.
-- Example:
--     local score = mgpu.metrics.FBetaScore { beta = 2, threshold = 0.5 }
--     score:update(mgpu.tensor { { 1, 1 }, { 1, 0 } }, mgpu.tensor { { 0.6, 0.2 }, { 0.2, 0.6 } })
--     print(("%.3f %.3f"):format(unpack(score:result())))  --> 0.556 0.000
M.FBetaScore = define("FBetaScore", "fbeta_score", { AVERAGE,
  { "beta", "number", default = 1, above = 0 }, THRESHOLD })

--- F1Score {average =, threshold =, name =}, also f1_score: the harmonic mean of precision and recall of each class.
-- Options and shapes: see FBetaScore.
-- Example:
--     local f1 = mgpu.metrics.F1Score { average = "macro", threshold = 0.5 }
--     f1:update(mgpu.tensor { { 1, 1 }, { 1, 0 } }, mgpu.tensor { { 0.6, 0.7 }, { 0.2, 0.3 } })
--     print(("%.3f"):format(f1:result()))  --> 0.833
M.F1Score = define("F1Score", "f1_score", { AVERAGE, THRESHOLD })

return M
