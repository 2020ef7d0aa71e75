--- Accuracy {name =}, also accuracy and acc: the accuracy that fits the shapes, by the rule of Keras 3.
-- BinaryAccuracy if y_pred has one column; SparseCategoricalAccuracy if y_true has no axis of classes or one of size 1;
-- CategoricalAccuracy otherwise, whatever the loss: several labels a row, trained with binary_crossentropy, want
-- "binary_accuracy" by name. (Keras 2 chose by the loss.)
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, activation = "softmax" } }
--     model:compile { loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
--     local logs = model:evaluate(mgpu.zeros { 4, 4 }, mgpu.tensor { 0, 0, 0, 1 }, { verbose = 0 }) -- it answers 0
--     print(("%.2f"):format(logs.accuracy))  --> 0.75
local Metric = require "mgpu.nn.metrics.metric"
local binary = require "mgpu.nn.metrics.binary_accuracy"
local categorical = require "mgpu.nn.metrics.categorical_accuracy"
local sparse = require "mgpu.nn.metrics.sparse_categorical_accuracy"

local function kind(y_true, y_pred)
  if y_pred:rank() == 0 then return binary end
  local classes = y_pred:shape()[y_pred:rank()]
  if classes == 1 then return binary end
  if y_true:rank() < y_pred:rank() then return sparse end
  if y_true:shape()[y_true:rank()] == 1 then return sparse end
  return categorical
end

return Metric.define {
  name = "accuracy",
  class = "Accuracy",
  direction = "max",
  values = function(self, y_true, y_pred)
    local chosen = kind(y_true, y_pred)
    local stand_in = { name = self.name, fit = Metric.fit, options = { threshold = 0.5 } }
    return chosen.values(stand_in, y_true, y_pred)
  end,
}
