-- Cross-entropy of independent yes/no predictions, averaged over an axis, the last.
--
-- y_true {rows, ..., n} of 0 and 1 (or between), y_pred likewise. Options: from_logits,
-- label_smoothing (draws the targets towards 1/2), axis = -1 (the batch, 1, it cannot be).
-- Probabilities that come from a sigmoid are computed from its logits; others are clipped, as in Keras.

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
