--- KLDivergence {reduction =, name =}, also kl_divergence and kld: sum of y_true log(y_true / y_pred) over the last
--- axis, with both clipped to [1e-7, 1], as in Keras.
-- y_true and y_pred {rows, ..., n}, probabilities -> {rows, ...}.
-- Example:
--     local p, q = mgpu.tensor { { 0.5, 0.5 } }, mgpu.tensor { { 0.25, 0.75 } }
--     print(("%.3f %.3f"):format(mgpu.losses.kld(p, q):item(), mgpu.losses.kld(p, p):item()))  --> 0.144 0.000
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
