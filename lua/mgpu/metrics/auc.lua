-- Area under a curve of thresholds: "ROC" (true against false positive rate) or "PR" (precision against
-- recall), by Riemann sums over num_thresholds thresholds, as in Keras.
--
-- Options: num_thresholds = 200, curve = "ROC", summation_method = "interpolation" ("minoring",
-- "majoring"), thresholds (a list in 0..1 in place of even ones), from_logits = false.

local confusion = require "mgpu.metrics.confusion"
local core = require "mgpu.core"
local Metric = require "mgpu.metrics.metric"

local ops = core.ops
local EPSILON = 1e-7

local function even(n)
  local list = {}
  for i = 1, n - 2 do list[i] = i / (n - 1) end
  return list
end

local function ratio(a, b) return b ~= 0 and a / b or 0 end

-- Davis & Goadrich 2006: between two thresholds precision is no straight line in recall.
local function interpolated_pr(tp, fp, fn)
  local area = 0
  for i = 1, #tp - 1 do
    local dtp, p, next_p = tp[i] - tp[i + 1], tp[i] + fp[i], tp[i + 1] + fp[i + 1]
    local slope = ratio(dtp, math.max(p - next_p, 0))
    local intercept = tp[i + 1] - slope * next_p
    local safe = p > 0 and next_p > 0 and p / next_p or 1
    area = area + ratio(slope * (dtp + intercept * math.log(safe)), math.max(tp[i + 1] + fn[i + 1], 0))
  end
  return area
end

local heights = {
  interpolation = function(a, b) return (a + b) / 2 end,
  minoring = math.min,
  majoring = math.max,
}

return Metric.define {
  name = "auc",
  class = "AUC",
  declared = {
    { "num_thresholds", "integer", default = 200, min = 2 },
    { "curve", "string", default = "ROC", values = { "ROC", "PR" } },
    { "summation_method", "string", default = "interpolation",
      values = { "interpolation", "minoring", "majoring" } },
    { "thresholds", "table" },
    { "from_logits", "boolean", default = false },
  },
  state = { "true_positives", "false_positives", "false_negatives", "true_negatives" },
  init = function(self)
    local inner = self.options.thresholds and { unpack(confusion.thresholds("AUC", self.options)) }
      or even(self.options.num_thresholds)
    table.sort(inner)
    table.insert(inner, 1, -EPSILON)
    inner[#inner + 1] = 1 + EPSILON
    self.limits = inner
  end,
  size = function(self) return { #self.limits } end,
  update = function(self, y_true, y_pred, weight)
    if self.options.from_logits then y_pred = ops.sigmoid(y_pred) end
    local counts = { confusion.counts("AUC", y_true, y_pred, weight, self.limits, {}) }
    for i, v in ipairs(self.state) do v:assign(ops.add(v, counts[i])) end
  end,
  result = function(self)
    local tp, fp, fn, tn = unpack((function()
      local lists = {}
      for i, v in ipairs(self.state) do lists[i] = v:value():totable() end
      return lists
    end)())
    local roc = self.options.curve == "ROC"
    if not roc and self.options.summation_method == "interpolation" then
      return interpolated_pr(tp, fp, fn)
    end
    local x, y, area = {}, {}, 0
    for i = 1, #tp do
      local recall = ratio(tp[i], tp[i] + fn[i])
      x[i] = roc and ratio(fp[i], fp[i] + tn[i]) or recall
      y[i] = roc and recall or ratio(tp[i], tp[i] + fp[i])
    end
    for i = 1, #x - 1 do
      area = area + (x[i] - x[i + 1]) * heights[self.options.summation_method](y[i], y[i + 1])
    end
    return area
  end,
}
