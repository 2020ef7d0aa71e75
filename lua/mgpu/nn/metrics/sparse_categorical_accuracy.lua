--- SparseCategoricalAccuracy {name =}, also sparse_categorical_accuracy: how often the largest prediction is that
--- of the class id. y_true {rows, ...} or {rows, ..., 1} of ids from 0, y_pred {rows, ..., classes}.
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

local ops = core.ops

return Metric.define {
  name = "sparse_categorical_accuracy",
  class = "SparseCategoricalAccuracy",
  direction = "max",
  values = function(self, y_true, y_pred)
    y_true = self:fit(y_true, y_pred, true)
    local found = ops.argmax(y_pred, { axis = -1 })
    return ops.eq(ops.cast(y_true, { dtype = found:dtype() }), found)
  end,
}
