-- How often the largest prediction is that of the class id in y_true {rows, ...} or {rows, ..., 1}.

local core = require "mgpu.core"
local Metric = require "mgpu.metrics.metric"

local ops = core.ops

return Metric.define {
  name = "sparse_categorical_accuracy",
  class = "SparseCategoricalAccuracy",
  values = function(_, y_true, y_pred)
    local found = ops.argmax(y_pred, { axis = -1 })
    if y_true:rank() == y_pred:rank() then
      y_true = ops.reshape(y_true, { shape = found:shape() })
    end
    return ops.eq(ops.cast(y_true, { dtype = found:dtype() }), found)
  end,
}
