--- The mean and the sum of values that are given to update.
-- RETURNS the metrics by name.
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local M = {}

--- Mean {name =}: the (weighted) mean of the values given to update(value, weight).
--
--     local mean = mgpu.metrics.Mean {}
--     for x, y in batches:iter() do mean:update(step(x, y)) end
--     print(mean:result())
-- A value is a number or a tensor, whose rows count one by one: a row of several numbers counts as their mean.
-- Example:
--     local mean = mgpu.metrics.Mean {}
--     mean:update(4)
--     mean:update(mgpu.tensor { 1, 1 }) -- two values
--     print(mean:result())  --> 2
M.Mean = Metric.define {
  name = "mean",
  class = "Mean",
  update = function(self, value, weight) self:add(value, weight) end,
}

--- Sum {name =}: the (weighted) sum of the values given to update(value, weight): numbers or tensors, with one weight a
--- row or a value.
-- Example:
--     local sum = mgpu.metrics.Sum {}
--     sum:update(mgpu.tensor { 1, 3, 5 })
--     sum:update(mgpu.tensor { 1, 3 }, mgpu.tensor { 0, 2 })
--     print(sum:result())  --> 15
M.Sum = Metric.define {
  name = "sum",
  class = "Sum",
  state = { "total" },
  update = function(self, value, weight)
    value = ops.cast(self:tensor_of(value), { dtype = "float64" })
    if weight ~= nil then
      value = value * shapes.weight(self.name, self:tensor_of(weight), value:shape(), "float64")
    end
    self:add_to("total", value:rank() == 0 and value or ops.sum(value))
  end,
  result = function(self) return self.total:item() end,
}

return M
