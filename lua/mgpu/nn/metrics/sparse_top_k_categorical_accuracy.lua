--- SparseTopKCategoricalAccuracy {k = 5, name =}, also sparse_top_k_categorical_accuracy: how often the label is
--- among the k largest predictions.
-- y_true {rows, ...} of class ids, y_pred {rows, ..., classes}. Predictions equal to the k-th are among the k. An id
-- out of range, or one whose prediction is not finite, is never among them.
-- Example:
--     local top = mgpu.metrics.SparseTopKCategoricalAccuracy { k = 2 }
--     top:update(mgpu.tensor { 2, 0 }, mgpu.tensor { { 0.5, 0.2, 0.3 }, { 0.1, 0.4, 0.5 } })
--     print(top:result())  --> 0.5
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

local ops = core.ops

--- hits(ids, y_pred, k) -> for each row, whether fewer than k classes have a higher prediction than the class ids[row].
local function hits(ids, y_pred, k)
  local shape = y_pred:shape()
  local classes = shape[#shape]
  shape[#shape] = 1
  local column = ops.reshape(ops.cast(ids, { dtype = "int32" }), { shape = shape })
  local wide = {}
  for axis = 1, #shape - 1 do wide[axis] = 1 end
  wide[#shape] = classes
  local is_target = ops.eq(column, ops.iota { shape = wide, axis = #shape, dtype = "int32" })
  local own = ops.sum(ops.where(is_target, y_pred, 0), { axis = -1, keepdims = true })
  local higher = ops.sum(ops.cast(ops.gt(y_pred, own), { dtype = "int32" }), { axis = -1 })
  local known = ops.logical_and(ops.any(is_target, { axis = -1 }),
    ops.isfinite(ops.reshape(own, { shape = higher:shape() })))
  return ops.logical_and(ops.lt(higher, k), known)
end

return Metric.define {
  name = "sparse_top_k_categorical_accuracy",
  class = "SparseTopKCategoricalAccuracy",
  direction = "max",
  declared = { { "k", "integer", default = 5, min = 1 } },
  hits = hits,
  values = function(self, y_true, y_pred)
    return hits(self:fit(y_true, y_pred, true), y_pred, self.options.k)
  end,
}
