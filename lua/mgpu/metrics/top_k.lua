-- "top_k": top-k accuracy by class ids or one-hot targets, whichever y is. Option: k = 5.

local core = require "mgpu.core"
local Metric = require "mgpu.metrics.metric"
local hits = require "mgpu.metrics.sparse_top_k_categorical_accuracy".hits

return Metric.define {
  name = "top_k",
  class = "TopK",
  declared = { { "k", "integer", default = 5, min = 1 } },
  values = function(self, y_true, y_pred)
    local shape = y_true:shape()
    local one_hot = y_true:rank() == y_pred:rank() and shape[#shape] > 1
    return hits(one_hot and core.ops.argmax(y_true, { axis = -1 }) or y_true, y_pred, self.options.k)
  end,
}
