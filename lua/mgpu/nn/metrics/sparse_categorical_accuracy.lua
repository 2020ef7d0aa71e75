--- SparseCategoricalAccuracy {name =}, also sparse_categorical_accuracy: how often the class of the id has the largest
--- prediction. y_true {rows, ...} or {rows, ..., 1} of ids from 0, y_pred {rows, ..., classes}.
-- Example:
--     local accuracy = mgpu.metrics.SparseCategoricalAccuracy {}
--     accuracy:update(mgpu.tensor { 0, 1 }, mgpu.tensor { { 0.6, 0.4 }, { 0.7, 0.3 } })
--     print(accuracy:result())  --> 0.5
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
