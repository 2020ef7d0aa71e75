-- Cross-entropy between class ids (0 .. classes - 1) and predicted class probabilities.
--
-- y_true {rows, ...} of whole numbers, y_pred {rows, ..., classes}. Options: from_logits, axis = -1 (of the
-- classes in y_pred), ignore_class (samples with this id, which may lie outside the classes, have loss 0
-- and do not count in a mean). Probabilities that come from a softmax are computed from its logits; others
-- are clipped and normalised, as in Keras. A label out of range is an error, not a silent zero.

local core = require "mgpu.core"
local Loss = require "mgpu.losses.loss"
local logits_of = require "mgpu.losses.logits"

local ops = core.ops

local function log_probabilities(y_pred, from_logits, axis)
  local logits = from_logits and y_pred or logits_of(y_pred, "softmax", axis)
  if not logits then
    logits = ops.log(ops.minimum(ops.maximum(y_pred, Loss.EPSILON), 1 - Loss.EPSILON))
  end
  return ops.log_softmax(logits, { axis = axis })
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
    local shape, axis = y_pred:shape(), options.axis
    local classes, counted = shape[axis], nil
    if options.ignore_class then
      counted = ops.ne(y_true, options.ignore_class)
      y_true = Loss.counted_labels({ options = options }, y_true)
    end
    local good = ops.logical_and(ops.ge(y_true, 0), ops.lt(y_true, classes))
    if y_true:dtype():find "float" then good = ops.logical_and(good, ops.eq(y_true, ops.floor(y_true))) end
    core.guard(ops.all(good), "data",
      ("sparse_categorical_crossentropy: a label is not in 0 .. %d"):format(classes - 1))
    shape[axis] = 1
    local labels = ops.reshape(ops.cast(y_true, { dtype = "int32" }), { shape = shape })
    for i in ipairs(shape) do shape[i] = i == axis and classes or 1 end
    local ids = ops.iota { shape = shape, axis = axis, dtype = "int32" }
    local log_p = log_probabilities(y_pred, options.from_logits, axis)
    local values = -ops.sum(ops.where(ops.eq(labels, ids), log_p, 0), { axis = axis })
    return counted and ops.where(counted, values, 0) or values, counted
  end,
}
