--- Poisson {name =}: the mean of the loss poisson. As a name, "poisson" in compile means it too.
-- y_true and y_pred have one shape.
-- Example:
--     local metric = mgpu.metrics.Poisson {}
--     metric:update(mgpu.tensor { { 0 }, { 0 } }, mgpu.tensor { { 1 }, { 3 } })
--     print(metric:result())  --> 2
local loss = require "mgpu.nn.losses.poisson"
local Metric = require "mgpu.nn.metrics.metric"

return Metric.define {
  name = "poisson",
  class = "Poisson",
  direction = "min",
  values = function(_, y_true, y_pred) return loss.per_sample(y_true, y_pred) end,
}
