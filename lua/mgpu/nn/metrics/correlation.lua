--- Correlations of targets and predictions along an axis.
-- RETURNS the metrics by name.
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local M = {}

-- The mean over the axis, which stays with size 1.
local function mean(t, axis) return ops.sum(t, { axis = axis, keepdims = true }) / t:shape()[axis] end

local function define(class, name, correlation)
  return Metric.define {
    name = name,
    class = class,
    direction = "max",
    declared = { { "axis", "integer", default = -1 } },
    values = function(self, y_true, y_pred)
      local axis = shapes.axis(self.name, self.options.axis, y_pred:rank())
      y_true = ops.cast(self:fit(y_true, y_pred), { dtype = y_pred:dtype() })
      return ops.sum(correlation(y_true, y_pred, axis), { axis = axis }) / y_pred:shape()[axis]
    end,
  }
end

--- PearsonCorrelation {axis = -1, name =}, also pearson_correlation: the mean of the correlations between y_true and
--- y_pred along an axis: 1 for a line upwards, -1 for one downwards, NaN where one of them is constant.
-- y_true and y_pred {rows, ..., n}. The axis cannot be 1, the batch.
-- Example:
--     local metric = mgpu.metrics.PearsonCorrelation {}
--     metric:update(mgpu.tensor { { 1, 2, 3 } }, mgpu.tensor { { 10, 20, 30 } })
--     print(("%.3f"):format(metric:result()))  --> 1.000
M.PearsonCorrelation = define("PearsonCorrelation", "pearson_correlation", function(y_true, y_pred, axis)
  local function normed(t)
    t = t - mean(t, axis)
    return t / ops.sqrt(mean(ops.square(t), axis))
  end
  return normed(y_true) * normed(y_pred)
end)

--- ConcordanceCorrelation {axis = -1, name =}, also concordance_correlation: the mean of the concordance coefficients
--- along an axis, which are 1 only where the two are equal.
-- y_true and y_pred {rows, ..., n}. The axis cannot be 1, the batch. Source: Lin, 1989; formula of Keras.
-- Example:
--     local metric = mgpu.metrics.ConcordanceCorrelation {}
--     metric:update(mgpu.tensor { { 1, 2, 3 } }, mgpu.tensor { { 1, 2, 3 } })
--     print(("%.3f"):format(metric:result()))  --> 1.000
M.ConcordanceCorrelation = define("ConcordanceCorrelation", "concordance_correlation", function(y_true, y_pred, axis)
  local mean_true, mean_pred = mean(y_true, axis), mean(y_pred, axis)
  local variances = mean(ops.square(y_true - mean_true), axis) + mean(ops.square(y_pred - mean_pred), axis)
  local covariance = (y_true - mean_pred) * (y_pred - mean_pred)
  return covariance * 2 / (variances + ops.square(mean_true - mean_pred) + 1e-7)
end)

return M
