--- CategoricalAccuracy {name =}, also categorical_accuracy: how often the right class has the largest prediction.
-- y_true {rows, ..., classes} one-hot, y_pred likewise.
-- Example:
--     local accuracy = mgpu.metrics.CategoricalAccuracy {}
--     accuracy:update(mgpu.tensor { { 1, 0 }, { 0, 1 } }, mgpu.tensor { { 0.6, 0.4 }, { 0.7, 0.3 } })
--     print(accuracy:result())  --> 0.5
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

local ops = core.ops

return Metric.define {
  name = "categorical_accuracy",
  class = "CategoricalAccuracy",
  direction = "max",
  values = function(self, y_true, y_pred)
    y_true = self:fit(y_true, y_pred)
    return ops.eq(ops.argmax(y_true, { axis = -1 }), ops.argmax(y_pred, { axis = -1 }))
  end,
}
