--- Means of losses as metrics.
-- RETURNS the metrics by name.
local Metric = require "mgpu.nn.metrics.metric"
local regression = require "mgpu.nn.losses.regression"

local M = {}

-- The metric `class`, called `name`: the mean of a loss.
local function define(class, name, loss)
  return Metric.define { name = name, class = class, direction = "min",
    values = function(_, y_true, y_pred) return (loss:unreduced(y_true, y_pred)) end }
end

--- MeanAbsoluteError {name =}, also mean_absolute_error and mae: |y_pred - y_true|, averaged over all elements.
-- y_true and y_pred have one shape.
-- Example:
--     local mae = mgpu.metrics.MeanAbsoluteError {}
--     mae:update(mgpu.tensor { 1, 2 }, mgpu.tensor { 2, 2 }) -- one batch
--     mae:update(mgpu.tensor { 3, 4 }, mgpu.tensor { 3, 7 }) -- and another
--     print(mae:result())  --> 1
M.MeanAbsoluteError = define("MeanAbsoluteError", "mean_absolute_error", regression.MeanAbsoluteError)

--- MeanSquaredError {name =}, also mean_squared_error and mse: (y_pred - y_true)^2, averaged over all elements.
-- y_true and y_pred have one shape.
-- Example:
--     local mse = mgpu.metrics.MeanSquaredError {}
--     mse:update(mgpu.tensor { 1, 2, 3 }, mgpu.tensor { 1, 2, 6 })
--     print(mse:result())  --> 3
--     mse:reset()
M.MeanSquaredError = define("MeanSquaredError", "mean_squared_error", regression.MeanSquaredError)

--- LogCoshError {name =}: the mean of the loss log_cosh, called "logcosh" as in Keras.
-- y_true and y_pred have one shape.
-- Example:
--     local metric = mgpu.metrics.LogCoshError {}
--     metric:update(mgpu.zeros { 2, 1 }, mgpu.tensor { { 0 }, { 100 } })
--     print(metric.name, ("%.2f"):format(metric:result()))  --> logcosh 49.65
M.LogCoshError = define("LogCoshError", "logcosh", regression.LogCosh)

--- Poisson {name =}: the mean of the loss poisson. As a name, "poisson" in compile means it too.
-- y_true and y_pred have one shape.
-- Example:
--     local metric = mgpu.metrics.Poisson {}
--     metric:update(mgpu.tensor { { 0 }, { 0 } }, mgpu.tensor { { 1 }, { 3 } })
--     print(metric:result())  --> 2
M.Poisson = define("Poisson", "poisson", regression.Poisson)

return M
