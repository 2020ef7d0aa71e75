--- Hinge {reduction =, name =}, also hinge: max(1 - y_true y_pred, 0), averaged over the last axis. Where the two are
-- equal, the gradient is that of 1 - y_true y_pred, as in Keras.
-- y_true {rows, ..., n} of -1 and 1, y_pred likewise -> {rows, ...}. If all targets are 0 or 1, they are read as
-- -1 and 1, as in Keras.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1 }, { 1 }, { -1 } }, mgpu.tensor { { 2 }, { 0.5 }, { 0.5 } }
--     print(mgpu.losses.hinge.per_sample(y_true, y_pred)) -- right with margin 1, right without it, wrong
--     --> tensor {3} float32 cpu:0
--     --> {0,   0.5, 1.5}
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local function signs(y_true)
  local binary = ops.all(ops.logical_or(ops.eq(y_true, 0), ops.eq(y_true, 1)))
  return ops.where(binary, y_true * 2 - 1, y_true)
end

return Loss.define {
  name = "hinge",
  class = "Hinge",
  declared = {},
  values = function(y_true, y_pred)
    local margin = 1 - signs(y_true) * y_pred
    return Loss.last_mean(ops.where(ops.lt(margin, 0), 0, margin))
  end,
}
