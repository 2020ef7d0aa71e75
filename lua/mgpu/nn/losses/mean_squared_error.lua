--- MeanSquaredError {reduction =, name =}, also mean_squared_error and mse: (y_pred - y_true)^2, averaged over the
--- last axis. y_true and y_pred {rows, ..., n} -> {rows, ...}.
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "mean_squared_error",
  class = "MeanSquaredError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.square(y_pred - y_true)) end,
}
