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
local Metric = require "mgpu.nn.metrics.metric"

return Metric.define {
  name = "mean",
  class = "Mean",
  update = function(self, value, weight) self:add(value, weight) end,
}
