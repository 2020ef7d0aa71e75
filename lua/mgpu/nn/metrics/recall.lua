--- Recall {thresholds = 0.5, top_k =, class_id =, name =}, also recall: true positives / (true positives + false
--- negatives), 0 if there are none.
-- y_true of 0 and 1, y_pred of the same shape in 0..1. Options: see confusion.lua. result() is a number, or an array
-- for a list of thresholds. Errors: thresholds outside 0..1; top_k or class_id beyond the classes.
-- Example:
--     local recall = mgpu.metrics.Recall { thresholds = { 0.5, 0.75 } }
--     recall:update(mgpu.tensor { 1, 0, 1, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1, 0.2 })
--     -- 2 of the 4 positives, then 1 of them
--     print(unpack(recall:result()))  --> 0.5 0.25
local confusion = require "mgpu.nn.metrics.confusion"
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

return Metric.define {
  name = "recall",
  class = "Recall",
  direction = "max",
  declared = confusion.declared,
  state = { "true_positives", "false_negatives" },
  init = function(self) self.limits = confusion.thresholds("Recall", self.options) end,
  size = function(self) return { #self.limits } end,
  observe = function(self, y_true, y_pred, weight)
    local tp, _, other = confusion.counts(self.name, y_true, y_pred, weight, self.limits,
      self.options)
    self.true_positives:assign(core.ops.add(self.true_positives, tp))
    self.false_negatives:assign(core.ops.add(self.false_negatives, other))
  end,
  result = function(self)
    return confusion.ratio(self.options, self.true_positives, self.false_negatives)
  end,
}
