--- MeanAbsoluteError {reduction =, name =}, also mean_absolute_error and mae: |y_pred - y_true|, averaged over the
--- last axis. y_true and y_pred {rows, ..., n} -> {rows, ...}.
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "mean_absolute_error",
  class = "MeanAbsoluteError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.abs(y_pred - y_true)) end,
}
