--- TopKCategoricalAccuracy {k = 5, name =}, also top_k_categorical_accuracy: how often the class is among the k
--- largest predictions (predictions equal to the k-th count). y_true {rows, ..., classes} one-hot, y_pred likewise.
-- Example:
--     local top = mgpu.metrics.TopKCategoricalAccuracy { k = 2 }
--     top:update(mgpu.tensor { { 0, 0, 1 }, { 1, 0, 0 } }, mgpu.tensor { { 0.5, 0.2, 0.3 }, { 0.1, 0.4, 0.5 } })
--     print(top:result())  --> 0.5
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local hits = require "mgpu.nn.metrics.sparse_top_k_categorical_accuracy".hits

return Metric.define {
  name = "top_k_categorical_accuracy",
  class = "TopKCategoricalAccuracy",
  direction = "max",
  declared = { { "k", "integer", default = 5, min = 1 } },
  values = function(self, y_true, y_pred)
    y_true = core.ops.argmax(self:fit(y_true, y_pred), { axis = -1 })
    return hits(y_true, y_pred, self.options.k)
  end,
}
