--- MeanSquaredError {name =}, also mean_squared_error and mse: (y_pred - y_true)^2, averaged over all elements.
-- y_true and y_pred have one shape.
-- Example:
--     local mse = mgpu.metrics.MeanSquaredError {}
--     mse:update(mgpu.tensor { 1, 2, 3 }, mgpu.tensor { 1, 2, 6 })
--     print(mse:result())  --> 3
--     mse:reset()
local Metric = require "mgpu.nn.metrics.metric"
local loss = require "mgpu.nn.losses.mean_squared_error"

return Metric.define {
  name = "mean_squared_error",
  class = "MeanSquaredError",
  direction = "min",
  values = function(_, y_true, y_pred) return (loss:unreduced(y_true, y_pred)) end,
}
