-- Cross-entropy between one-hot (or soft) targets and predicted class probabilities.
--
-- y_true {rows, ..., classes}, y_pred likewise. Options: from_logits, label_smoothing (mixes the
-- targets with the uniform distribution over the classes), axis = -1 (of the classes). Probabilities
-- that come from a softmax are computed from its logits; others are normalised and clipped, as in Keras.

local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"
local logits_of = require "mgpu.nn.losses.logits"
local axis_last = require "mgpu.nn.losses.shapes".axis_last

local ops = core.ops

return Loss.define {
  name = "categorical_crossentropy",
  class = "CategoricalCrossentropy",
  declared = {
    { "from_logits", "boolean", default = false },
    { "label_smoothing", "number", default = 0, min = 0, max = 1 },
    { "axis", "integer", default = -1 },
  },
  values = function(y_true, y_pred, options)
    local smoothing, axis = options.label_smoothing, options.axis
    if smoothing > 0 then y_true = y_true * (1 - smoothing) + smoothing / y_pred:shape()[axis] end
    local logits = options.from_logits and y_pred or logits_of(y_pred, "softmax", axis)
    if logits then return ops.softmax_cross_entropy(axis_last(logits, axis), axis_last(y_true, axis)) end
    local p = y_pred / ops.sum(y_pred, { axis = axis, keepdims = true })
    return -ops.sum(y_true * ops.log(ops.minimum(ops.maximum(p, Loss.EPSILON), 1 - Loss.EPSILON)), { axis = axis })
  end,
}
