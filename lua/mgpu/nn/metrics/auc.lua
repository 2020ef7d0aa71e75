--- AUC {num_thresholds = 200, curve = "ROC", summation_method = "interpolation", ...}, also auc: the area under
--- a curve of thresholds by Riemann sums, as in Keras.
-- curve: "ROC" (true positive rate over false positive rate), "PR" (precision over recall) or "PRGAIN" (both as
-- gains over always saying yes). summation_method: "interpolation", "minoring" or "majoring". y_true of 0 and 1,
-- y_pred of the same shape in 0..1.
-- Options: thresholds (a list in 0..1 that replaces the num_thresholds even ones), from_logits = false (applies a
-- sigmoid), multi_label = false (true: one area for each of the num_labels columns of y_pred {rows, num_labels},
-- then their mean; without num_labels the first predictions tell how many), label_weights (one a column, of that
-- mean; without multi_label of the samples).
-- Errors: predictions that do not fit num_labels or label_weights.
-- Source: Davis & Goadrich, The relationship between precision-recall and ROC curves, 2006, for "PR".
-- Example:
--     local auc = mgpu.metrics.AUC {}
--     auc:update(mgpu.tensor { 0, 0, 1, 1 }, mgpu.tensor { 0.1, 0.4, 0.35, 0.8 })
--     -- 3 of the 4 pairs are in order
--     print(("%.2f"):format(auc:result()))  --> 0.75
local confusion = require "mgpu.nn.metrics.confusion"
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops
local EPSILON = 1e-7

-- n - 2 thresholds evenly between 0 and 1.
local function even_thresholds(n)
  local list = {}
  for i = 1, n - 2 do list[i] = i / (n - 1) end
  return list
end

local function ratio(a, b) return b ~= 0 and a / b or 0 end

-- ---- the area, from the counts at each threshold ------------------------------------------------

-- Davis & Goadrich, 2006: between two thresholds precision is not linear in recall, but the counts are.
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

-- RETURNS the point (x, y) of the curve at a threshold.
local curves = {
  ROC = function(tp, fp, fn, tn) return ratio(fp, fp + tn), ratio(tp, tp + fn) end,
  PR = function(tp, fp, fn) return ratio(tp, tp + fn), ratio(tp, tp + fp) end,
  PRGAIN = function(tp, fp, fn, tn)
    if tp == 0 then return 0, 1 end
    local scale = ratio(tp + fn, tn + fp)
    return math.max(1 - scale * fn / tp, 0), 1 - scale * fp / tp
  end,
}

local heights = {
  interpolation = function(a, b) return (a + b) / 2 end,
  minoring = math.min,
  majoring = math.max,
}

-- The area, from the counts at each threshold: arrays.
local function area_of(chosen, tp, fp, fn, tn)
  if chosen.curve == "PR" and chosen.summation_method == "interpolation" then
    return interpolated_pr(tp, fp, fn)
  end
  local point, height, area = curves[chosen.curve], heights[chosen.summation_method], 0
  local x, y = point(tp[1], fp[1], fn[1], tn[1])
  for i = 2, #tp do
    local next_x, next_y = point(tp[i], fp[i], fn[i], tn[i])
    area = area + (x - next_x) * height(y, next_y)
    x, y = next_x, next_y
  end
  return area
end

-- ---- options ------------------------------------------------------------------------------------

local function fail(self, message, ...) core.fail("usage", ("AUC %q: "):format(self.name) .. message:format(...)) end

local function check_labels(self)
  local chosen = self.options
  if chosen.num_labels and not chosen.multi_label then
    fail(self, 'option "num_labels" goes with multi_label = true only')
  end
  if not chosen.label_weights then return end
  for i, weight in ipairs(chosen.label_weights) do
    if type(weight) ~= "number" or not (weight >= 0) then
      fail(self, 'option "label_weights": number %d must be at least 0, got %s', i, tostring(weight))
    end
  end
  if chosen.num_labels and #chosen.label_weights ~= chosen.num_labels then
    fail(self, 'option "label_weights" has %d numbers for %d labels', #chosen.label_weights, chosen.num_labels)
  end
end

-- The number of columns of the predictions with multi_label; nil before it is known.
local function labels_of(self)
  local counts = self.state[1]
  return self.options.num_labels or self.options.multi_label and counts and counts:shape()[2] or nil
end

-- Raises unless predictions of that shape fit num_labels and label_weights.
local function check_columns(self, shape)
  local chosen, labels = self.options, labels_of(self)
  if chosen.multi_label and (#shape ~= 2 or labels and shape[2] ~= labels) then
    fail(self, "multi_label wants predictions {rows, labels}%s, got %s", labels and (" with %d labels"):format(labels)
      or "", shapes.show(shape))
  elseif chosen.label_weights and shape[#shape] ~= #chosen.label_weights then
    fail(self, 'option "label_weights" has %d numbers, but the predictions have shape %s', #chosen.label_weights,
      shapes.show(shape))
  end
end

return Metric.define {
  name = "auc",
  class = "AUC",
  direction = "max",
  declared = {
    { "num_thresholds", "integer", default = 200, min = 2 },
    { "curve", "string", default = "ROC", values = { "ROC", "PR", "PRGAIN" } },
    { "summation_method", "string", default = "interpolation",
      values = { "interpolation", "minoring", "majoring" } },
    { "thresholds", "table" },
    { "multi_label", "boolean", default = false },
    { "num_labels", "integer", min = 1 },
    { "label_weights", "table" },
    { "from_logits", "boolean", default = false },
  },
  state = { "true_positives", "false_positives", "false_negatives", "true_negatives" },
  init = function(self)
    check_labels(self)
    local inner = self.options.thresholds
      and { unpack(confusion.thresholds(("AUC %q"):format(self.name), self.options)) }
      or even_thresholds(self.options.num_thresholds)
    table.sort(inner)
    table.insert(inner, 1, -EPSILON)
    inner[#inner + 1] = 1 + EPSILON
    self.limits = inner
  end,
  size = function(self, prediction)
    local labels = self.options.num_labels
    if not self.options.multi_label or labels then return { #self.limits, labels } end
    if not prediction then return nil end -- the first update tells
    check_columns(self, prediction)
    return { #self.limits, prediction[2] }
  end,
  observe = function(self, y_true, y_pred, weight)
    local chosen = self.options
    check_columns(self, y_pred:shape())
    if chosen.from_logits then y_pred = ops.sigmoid(y_pred) end
    y_pred = ops.minimum(ops.maximum(y_pred, 0), 1)
    local counts = { confusion.counts(self.name, y_true, y_pred, weight, self.limits, {
      labels = labels_of(self), label_weights = not chosen.multi_label and chosen.label_weights or nil }) }
    for i, v in ipairs(self.state) do v:assign(ops.add(v, counts[i])) end
  end,
  result = function(self)
    local counts, sum, weights = {}, 0, 0
    for i, v in ipairs(self.state) do counts[i] = v:value():totable() end
    if not self.options.multi_label then return area_of(self.options, unpack(counts)) end
    for label = 1, labels_of(self) or 0 do
      local own = {}
      for i, count in ipairs(counts) do
        own[i] = {}
        for t, at in ipairs(count) do own[i][t] = at[label] end
      end
      local weight = self.options.label_weights and self.options.label_weights[label] or 1
      sum, weights = sum + weight * area_of(self.options, unpack(own)), weights + weight
    end
    return ratio(sum, weights)
  end,
}
