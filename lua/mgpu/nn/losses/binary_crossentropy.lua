--- BinaryCrossentropy {from_logits = false, label_smoothing = 0, axis = -1, reduction =, name =}, also
--- binary_crossentropy and bce: -y log p - (1 - y) log(1 - p), averaged over an axis.
-- y_true {rows, ..., n} in 0..1, y_pred likewise -> one value per row and further axis. The axis cannot be 1, the
-- batch. label_smoothing s: y (1 - s) + s / 2 takes the place of y.
-- If y_pred comes from a sigmoid, the loss is computed from its logits; otherwise y_pred is clipped to
-- [1e-7, 1 - 1e-7], as in Keras. Errors: y_true of another shape.
-- Example:
--     local bce = mgpu.losses.BinaryCrossentropy {}
--     local labels, sure = mgpu.tensor { { 1 }, { 0 } }, mgpu.tensor { { 0.99 }, { 0.01 } }
--     print(("%.2f"):format(bce(labels, sure):item()))  --> 0.01
--     -- log 2: no better than guessing
--     print(("%.2f"):format(bce(labels, mgpu.full({ 2, 1 }, 0.5)):item()))  --> 0.69
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"
local logits_of = require "mgpu.nn.losses.logits"

local ops = core.ops

local last_mean = Loss.last_mean

return Loss.define {
  name = "binary_crossentropy",
  class = "BinaryCrossentropy",
  declared = {
    { "from_logits", "boolean", default = false },
    { "label_smoothing", "number", default = 0, min = 0, max = 1 },
    { "axis", "integer", default = -1 },
  },
  values = function(y_true, y_pred, options)
    local smoothing = options.label_smoothing
    if smoothing > 0 then y_true = y_true * (1 - smoothing) + 0.5 * smoothing end
    local logits = options.from_logits and y_pred or logits_of(y_pred, "sigmoid")
    -- -y log s(x) - (1-y) log(1 - s(x)) = softplus(x) - x y
    if logits then return last_mean(ops.softplus(logits) - logits * y_true, options.axis) end
    local p = ops.minimum(ops.maximum(y_pred, Loss.EPSILON), 1 - Loss.EPSILON)
    return last_mean(-(y_true * ops.log(p) + (1 - y_true) * ops.log(1 - p)), options.axis)
  end,
}
