-- The mean of (y_pred - y_true)^2 over the last axis, averaged over the samples.

local Metric = require "mgpu.nn.metrics.metric"
local loss = require "mgpu.nn.losses.mean_squared_error"

return Metric.define {
  name = "mean_squared_error",
  class = "MeanSquaredError",
  values = function(_, y_true, y_pred) return loss.per_sample(y_true, y_pred) end,
}
