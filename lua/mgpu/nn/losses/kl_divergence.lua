-- Kullback-Leibler divergence of y_pred from y_true, both clipped to [1e-7, 1], summed over the last axis:
-- sum y_true log(y_true / y_pred).

local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local function clipped(p) return ops.minimum(ops.maximum(p, Loss.EPSILON), 1) end

return Loss.define {
  name = "kl_divergence",
  class = "KLDivergence",
  declared = {},
  values = function(y_true, y_pred)
    y_true, y_pred = clipped(y_true), clipped(y_pred)
    return ops.sum(y_true * ops.log(y_true / y_pred), { axis = -1 })
  end,
}
