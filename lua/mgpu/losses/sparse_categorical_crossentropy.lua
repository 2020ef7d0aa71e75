-- Cross-entropy between class ids (0 .. classes - 1) and predicted class probabilities.
--
-- y_true {rows, ...} of whole numbers, y_pred {rows, ..., classes}. Option: from_logits.
-- Probabilities that come from a softmax are computed from its logits; others are clipped and
-- normalised, as in Keras. A label out of range is an error, not a silent zero.

local core = require "mgpu.core"
local Loss = require "mgpu.losses.loss"
local logits_of = require "mgpu.losses.logits"

local ops = core.ops

local function log_probabilities(y_pred, from_logits)
  local logits = from_logits and y_pred or logits_of(y_pred, "softmax")
  if not logits then
    logits = ops.log(ops.minimum(ops.maximum(y_pred, Loss.EPSILON), 1 - Loss.EPSILON))
  end
  return ops.log_softmax(logits, { axis = -1 })
end

return Loss.define {
  name = "sparse_categorical_crossentropy",
  class = "SparseCategoricalCrossentropy",
  declared = { { "from_logits", "boolean", default = false } },
  labels = true,
  values = function(y_true, y_pred, options)
    local shape, rank = y_pred:shape(), y_pred:rank()
    local classes = shape[rank]
    core.guard(ops.all(ops.logical_and(ops.ge(y_true, 0), ops.lt(y_true, classes))), "data",
      ("sparse_categorical_crossentropy: a label is not in 0 .. %d"):format(classes - 1))
    shape[rank] = 1
    local labels = ops.reshape(ops.cast(y_true, { dtype = "int32" }), { shape = shape })
    for axis = 1, rank - 1 do shape[axis] = 1 end
    shape[rank] = classes
    local ids = ops.iota { shape = shape, axis = rank, dtype = "int32" }
    local log_p = log_probabilities(y_pred, options.from_logits)
    return -ops.sum(ops.where(ops.eq(labels, ids), log_p, 0), { axis = -1 })
  end,
}
