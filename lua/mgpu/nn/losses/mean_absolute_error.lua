-- Mean of |y_pred - y_true| over the last axis. y_true and y_pred have one shape.

local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "mean_absolute_error",
  class = "MeanAbsoluteError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.abs(y_pred - y_true)) end,
}
