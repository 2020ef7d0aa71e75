--- MeanAbsoluteError {reduction =, name =}, also mean_absolute_error and mae: |y_pred - y_true|, averaged over the
--- last axis. y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 2, 2 }, { 3, 0 } }
--     print(mgpu.losses.mae(y_true, y_pred):item())  --> 1.25
--     print(mgpu.losses.mae.per_sample(y_true, y_pred)) -- one value a row
--     --> tensor {2} float32 cpu:0
--     --> {0.5, 2}
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "mean_absolute_error",
  class = "MeanAbsoluteError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.abs(y_pred - y_true)) end,
}
