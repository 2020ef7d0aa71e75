-- The (weighted) mean of the values given to it.
--
--     local mean = mgpu.metrics.Mean {}
--     for x, y in batches:iter() do mean:update(step(x, y)) end
--     print(mean:result())

local Metric = require "mgpu.nn.metrics.metric"

local Mean = Metric.define { name = "mean", class = "Mean" }

function Mean:update(value, weight) self:add(value, weight) end

Mean.update_state = Mean.update

return Mean
