--- Poisson {reduction =, name =}, also poisson: y_pred - y_true log(y_pred + 1e-7), averaged over the last axis.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}; y_pred is the mean of a count, at least 0.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 0 }, { 2 } }, mgpu.tensor { { 1 }, { 1 } }
--     print(mgpu.losses.poisson.per_sample(y_true, y_pred):round())
--     --> tensor {2} float32 cpu:0
--     --> {1, 1}
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "poisson",
  class = "Poisson",
  declared = {},
  values = function(y_true, y_pred)
    return Loss.last_mean(y_pred - y_true * ops.log(y_pred + Loss.EPSILON))
  end,
}
