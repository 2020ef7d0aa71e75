-- How often the target's prediction is among the k largest (ties count as among them). y_true is one-hot.
-- Option: k = 5.

local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local hits = require "mgpu.nn.metrics.sparse_top_k_categorical_accuracy".hits

return Metric.define {
  name = "top_k_categorical_accuracy",
  class = "TopKCategoricalAccuracy",
  declared = { { "k", "integer", default = 5, min = 1 } },
  values = function(self, y_true, y_pred)
    y_true = core.ops.argmax(self:fit(y_true, y_pred), { axis = -1 })
    return hits(y_true, y_pred, self.options.k)
  end,
}
