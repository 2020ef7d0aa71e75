-- Cross-entropy between class ids (0 .. classes - 1) and predicted class probabilities.
--
-- y_true {rows, ...} of whole numbers, y_pred {rows, ..., classes}. Options: from_logits, axis = -1 (of the
-- classes in y_pred), ignore_class (samples with this id, which may lie outside the classes, have loss 0
-- and do not count in a mean). Probabilities that come from a softmax are computed from its logits; others
-- are clipped and normalised, as in Keras. A label out of range is an error, not a silent zero.

local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"
local logits_of = require "mgpu.nn.losses.logits"
local axis_last = require "mgpu.nn.losses.shapes".axis_last

local ops = core.ops

local function logits_for(y_pred, from_logits, axis)
  local logits = from_logits and y_pred or logits_of(y_pred, "softmax", axis)
  return logits or ops.log(ops.minimum(ops.maximum(y_pred, Loss.EPSILON), 1 - Loss.EPSILON))
end

return Loss.define {
  name = "sparse_categorical_crossentropy",
  class = "SparseCategoricalCrossentropy",
  declared = {
    { "from_logits", "boolean", default = false },
    { "ignore_class", "integer" },
    { "axis", "integer", default = -1 },
  },
  labels = true,
  values = function(y_true, y_pred, options)
    local axis, counted = options.axis, nil
    local classes = y_pred:shape()[axis]
    if options.ignore_class then
      counted = ops.ne(y_true, options.ignore_class)
      y_true = Loss.counted_labels({ options = options }, y_true)
    end
    local good = ops.logical_and(ops.ge(y_true, 0), ops.lt(y_true, classes))
    if y_true:dtype():find "float" then good = ops.logical_and(good, ops.eq(y_true, ops.floor(y_true))) end
    core.guard(ops.all(good), "data",
      ("sparse_categorical_crossentropy: a label is not in 0 .. %d"):format(classes - 1))
    local logits = axis_last(logits_for(y_pred, options.from_logits, axis), axis)
    local values = ops.sparse_softmax_cross_entropy(logits, ops.cast(y_true, { dtype = "int32" }))
    return counted and ops.where(counted, values, 0) or values, counted
  end,
}
