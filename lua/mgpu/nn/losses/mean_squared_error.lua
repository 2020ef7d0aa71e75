--- MeanSquaredError {reduction =, name =}, also mean_squared_error and mse: (y_pred - y_true)^2, averaged over the
--- last axis. y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1 }, { 3 } }, mgpu.tensor { { 2 }, { 0 } }
--     print(mgpu.losses.mse(y_true, y_pred):item())  --> 5
--     print(mgpu.losses.MeanSquaredError { reduction = "sum" } (y_true, y_pred):item())  --> 10
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "mean_squared_error",
  class = "MeanSquaredError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.square(y_pred - y_true)) end,
}
