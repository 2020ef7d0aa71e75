--- R2Score {class_aggregation = "uniform_average", num_regressors = 0, name =}, also r2_score: the share of the
--- targets' variance that the predictions explain, 1 at best.
-- y_true and y_pred {rows, outputs}. class_aggregation: "uniform_average", "variance_weighted_average", or "none" for
-- an array with one score an output (Keras's None). num_regressors: the number of inputs, for the adjusted score; it is
-- not adjusted while there are too few rows. Errors: predictions with another number of axes than 2.
-- Example:
--     local r2 = mgpu.metrics.R2Score {}
--     r2:update(mgpu.tensor { { 1 }, { 2 }, { 3 } }, mgpu.tensor { { 1 }, { 2 }, { 4 } })
--     print(r2:result())  --> 0.5
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

-- As in Keras: what divides by 0 counts as 0, unless it is 0 / 0.
local function score(residual, total)
  local value = 1 - residual / total
  return (value == math.huge or value == -math.huge) and 0 or value
end

local function adjusted(value, chosen, samples)
  local regressors = chosen.num_regressors
  if regressors == 0 or regressors >= samples - 1 then return value end
  return 1 - (1 - value) * (samples - 1) / (samples - regressors - 1)
end

return Metric.define {
  name = "r2_score",
  class = "R2Score",
  direction = "max",
  declared = {
    { "class_aggregation", "string", default = "uniform_average",
      values = { "uniform_average", "variance_weighted_average", "none" } },
    { "num_regressors", "integer", default = 0, min = 0 },
  },
  state = { "squared_sum", "sum", "residual", "count", "num_samples" },
  size = Metric.BY_PREDICTION,
  observe = function(self, y_true, y_pred, weight)
    local shape = y_pred:shape()
    if #shape ~= 2 then
      core.fail("usage", ("%s: the predictions must be {rows, outputs}, but have shape %s"):format(self.name,
        shapes.show(shape)))
    end
    y_true = ops.cast(self:fit(y_true, y_pred), { dtype = "float64" })
    y_pred = ops.cast(y_pred, { dtype = "float64" })
    weight = shapes.weight(self.name, weight, shape, "float64")
    local function add(name, values)
      self:add_to(name, ops.sum(weight and values * weight or values, { axis = 1 }))
    end
    local ones = y_true * 0 + 1
    add("sum", y_true)
    add("squared_sum", ops.square(y_true))
    add("residual", ops.square(y_true - y_pred))
    add("count", ones)
    self:add_to("num_samples", ops.sum(ones, { axis = 1 }))
  end,
  result = function(self)
    local squares, sums, residuals, counts, samples = unpack(self:totals())
    if not squares then return 0 end
    local scores, of_all, weighted, variance, seen = {}, 0, 0, 0, 0
    for i, s in ipairs(sums) do
      local total = counts[i] == 0 and 0 or squares[i] - s * s / counts[i]
      scores[i] = counts[i] == 0 and 0 or score(residuals[i], total)
      of_all, weighted, variance = of_all + scores[i], weighted + total * scores[i], variance + total
      seen = seen + samples[i]
    end
    if seen == 0 then variance = 1 end
    local how = self.options.class_aggregation
    if how == "none" then
      for i, value in ipairs(scores) do scores[i] = adjusted(value, self.options, seen) end
      return scores
    end
    return adjusted(how == "uniform_average" and of_all / #scores or weighted / variance, self.options, seen)
  end,
}
