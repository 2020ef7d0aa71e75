-- How much of what there is is predicted: true positives / (true positives + false negatives).
--
-- Options: thresholds (a number or a list; 0.5), top_k, class_id: see confusion.lua. result gives a number,
-- or an array for a list of thresholds.

local confusion = require "mgpu.nn.metrics.confusion"
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

return Metric.define {
  name = "recall",
  class = "Recall",
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
