--- Huber {delta = 1, reduction =, name =}, also huber: averaged over the last axis, with e = y_pred - y_true,
--- e^2 / 2 where |e| <= delta, delta |e| - delta^2 / 2 elsewhere.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}. Source: Huber, Robust estimation of a location parameter, 1964.
-- Example:
--     local huber = mgpu.losses.Huber { delta = 1 }
--     print(huber.per_sample(mgpu.zeros { 3, 1 }, mgpu.tensor { { 0.5 }, { 1 }, { 10 } })) -- quadratic, then linear
--     --> tensor {3} float32 cpu:0
--     --> {0.125, 0.5,   9.5}
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

return Loss.define {
  name = "huber",
  class = "Huber",
  declared = { { "delta", "number", default = 1, min = 0 } },
  values = function(y_true, y_pred, options)
    local delta, size = options.delta, ops.abs(y_pred - y_true)
    local small = ops.square(size) * 0.5
    return Loss.last_mean(ops.where(ops.le(size, delta), small, size * delta - 0.5 * delta * delta))
  end,
}
