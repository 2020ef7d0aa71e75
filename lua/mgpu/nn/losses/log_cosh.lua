--- LogCosh {reduction =, name =}, also log_cosh and logcosh: log(cosh(y_pred - y_true)), averaged over the last axis. It
--- is e^2 / 2 for a small difference e, and |e| - log 2 for a large one.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     local y_pred = mgpu.tensor { { 0 }, { 1000 } } -- cosh(1000) would be infinite
--     print(mgpu.losses.log_cosh.per_sample(mgpu.zeros { 2, 1 }, y_pred):round())
--     --> tensor {2} float32 cpu:0
--     --> {  0, 999}
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "log_cosh",
  class = "LogCosh",
  declared = {},
  values = function(y_true, y_pred)
    local e = y_pred - y_true
    return Loss.last_mean(e + ops.softplus(e * -2) - math.log(2))
  end,
}
