-- Huber's loss, averaged over the last axis: e^2 / 2 where |e| <= delta, delta |e| - delta^2 / 2 elsewhere.
-- Option: delta = 1.

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
