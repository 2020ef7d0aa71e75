--- Precision {thresholds = 0.5, top_k =, class_id =, name =}, also precision: true positives / (true positives +
--- false positives), 0 if there are none.
-- y_true of 0 and 1, y_pred of the same shape in 0..1. Options: see confusion.lua. result() is a number, or an array
-- for a list of thresholds. Errors: thresholds outside 0..1; top_k or class_id beyond the classes.
-- Example:
--     local precision = mgpu.metrics.Precision {}
--     precision:update(mgpu.tensor { 1, 0, 1, 1 }, mgpu.tensor { 0.9, 0.8, 0.7, 0.1 })
--     -- 2 of the 3 predictions above 0.5 are right
--     print(("%.3f"):format(precision:result()))  --> 0.667
local confusion = require "mgpu.nn.metrics.confusion"
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

return Metric.define {
  name = "precision",
  class = "Precision",
  direction = "max",
  declared = confusion.declared,
  state = { "true_positives", "false_positives" },
  init = function(self) self.limits = confusion.thresholds("Precision", self.options) end,
  size = function(self) return { #self.limits } end,
  observe = function(self, y_true, y_pred, weight)
    local tp, other = confusion.counts(self.name, y_true, y_pred, weight, self.limits,
      self.options)
    self.true_positives:assign(core.ops.add(self.true_positives, tp))
    self.false_positives:assign(core.ops.add(self.false_positives, other))
  end,
  result = function(self)
    return confusion.ratio(self.options, self.true_positives, self.false_positives)
  end,
}
