--- LogCoshError {name =}: the mean of the loss log_cosh, called "logcosh" as in Keras.
-- y_true and y_pred have one shape.
-- Example:
--     local metric = mgpu.metrics.LogCoshError {}
--     metric:update(mgpu.zeros { 2, 1 }, mgpu.tensor { { 0 }, { 100 } })
--     print(metric.name, ("%.2f"):format(metric:result()))  --> logcosh 49.65
local loss = require "mgpu.nn.losses.log_cosh"
local Metric = require "mgpu.nn.metrics.metric"

return Metric.define {
  name = "logcosh",
  class = "LogCoshError",
  direction = "min",
  values = function(_, y_true, y_pred) return loss.per_sample(y_true, y_pred) end,
}
