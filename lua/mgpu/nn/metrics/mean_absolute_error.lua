--- MeanAbsoluteError {name =}, also mean_absolute_error and mae: |y_pred - y_true|, averaged over all elements.
-- y_true and y_pred have one shape.
-- Example:
--     local mae = mgpu.metrics.MeanAbsoluteError {}
--     mae:update(mgpu.tensor { 1, 2 }, mgpu.tensor { 2, 2 }) -- one batch
--     mae:update(mgpu.tensor { 3, 4 }, mgpu.tensor { 3, 7 }) -- and another
--     print(mae:result())  --> 1
local Metric = require "mgpu.nn.metrics.metric"
local loss = require "mgpu.nn.losses.mean_absolute_error"

return Metric.define {
  name = "mean_absolute_error",
  class = "MeanAbsoluteError",
  direction = "min",
  values = function(_, y_true, y_pred) return (loss:unreduced(y_true, y_pred)) end,
}
