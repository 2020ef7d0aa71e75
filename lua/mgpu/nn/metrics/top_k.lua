--- TopK {k = 5, name =}, also top_k: top-k accuracy for class ids or for one-hot targets, by the shape of y_true.
-- Example:
--     local scores = mgpu.tensor { { 0.5, 0.2, 0.3 }, { 0.1, 0.4, 0.5 } }
--     local ids, one_hot = mgpu.metrics.TopK { k = 2 }, mgpu.metrics.TopK { k = 2 }
--     ids:update(mgpu.tensor { 2, 0 }, scores)
--     one_hot:update(mgpu.tensor { { 0, 0, 1 }, { 1, 0, 0 } }, scores)
--     print(ids:result(), one_hot:result())  --> 0.5 0.5
local Metric = require "mgpu.nn.metrics.metric"
local one_hot = require "mgpu.nn.metrics.top_k_categorical_accuracy"
local sparse = require "mgpu.nn.metrics.sparse_top_k_categorical_accuracy"

return Metric.define {
  name = "top_k",
  class = "TopK",
  direction = "max",
  declared = { { "k", "integer", default = 5, min = 1 } },
  values = function(self, y_true, y_pred)
    local shape = y_true:shape()
    local by_class = #shape > 0 and #shape == y_pred:rank() and shape[#shape] > 1
    return (by_class and one_hot or sparse).values(self, y_true, y_pred)
  end,
}
