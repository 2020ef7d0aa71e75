--- BinaryAccuracy {threshold = 0.5, name =}, also binary_accuracy: how often y_pred > threshold agrees with
--- y_true. y_true of 0 and 1 and y_pred of one shape; averaged over all elements.
-- Example:
--     local accuracy = mgpu.metrics.BinaryAccuracy { threshold = 0.4 }
--     accuracy:update(mgpu.tensor { { 1 }, { 1 }, { 0 }, { 0 } }, mgpu.tensor { { 0.9 }, { 0.45 }, { 0.45 }, { 0.1 } })
--     print(accuracy:result())  --> 0.75
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

local ops = core.ops

return Metric.define {
  name = "binary_accuracy",
  class = "BinaryAccuracy",
  direction = "max",
  declared = { { "threshold", "number", default = 0.5 } },
  values = function(self, y_true, y_pred)
    y_true = self:fit(y_true, y_pred)
    local predicted = ops.gt(y_pred, self.options.threshold)
    return ops.eq(ops.cast(y_true, { dtype = "float32" }),
      ops.cast(predicted, { dtype = "float32" }))
  end,
}
