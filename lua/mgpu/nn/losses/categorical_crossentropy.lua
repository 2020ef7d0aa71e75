--- CategoricalCrossentropy {from_logits = false, label_smoothing = 0, axis = -1, reduction =, name =}, also
--- categorical_crossentropy: -sum of y log p over the classes.
-- y_true {rows, ..., classes} one-hot or probabilities, y_pred {rows, ..., classes} -> {rows, ...}.
-- label_smoothing s: y (1 - s) + s / classes takes the place of y.
-- If y_pred comes from a softmax, the loss is computed from its logits; otherwise y_pred is normalised and clipped
-- to [1e-7, 1 - 1e-7], as in Keras. Errors: y_true of another shape (for class ids the message names the remedy).
-- Example:
--     local y_true = mgpu.one_hot(mgpu.tensor { 2, 0 }, 3)
--     local y_pred = mgpu.tensor { { 0.1, 0.1, 0.8 }, { 0.5, 0.25, 0.25 } }
--     local loss = mgpu.losses.categorical_crossentropy
--     -- the mean of -log 0.8 and -log 0.5
--     print(("%.3f"):format(loss(y_true, y_pred):item()))  --> 0.458
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
