--- SparseCategoricalCrossentropy {from_logits = false, ignore_class =, axis = -1, reduction =, name =}, also
--- sparse_categorical_crossentropy: -log p of the class that the label names.
-- y_true {rows, ...} of class ids 0 .. classes - 1, y_pred {rows, ..., classes} -> {rows, ...}. `axis` is the one of
-- the classes in y_pred. Samples labelled ignore_class (any id) have loss 0 and do not count in a mean.
-- If y_pred comes from a softmax, the loss is computed from its logits; otherwise it is clipped to
-- [1e-7, 1 - 1e-7], as in Keras. Errors: y_true of another shape; a label out of range, found when the step runs.
-- Example:
--     local labels, logits = mgpu.tensor { 2, 0 }, mgpu.tensor { { 0, 0, 9 }, { 0, 0, 0 } }
--     local loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true }
--     -- the mean of 0 and log 3
--     print(("%.3f"):format(loss(labels, logits):item()))  --> 0.549
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
