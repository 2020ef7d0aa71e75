--- ReLU {max_value =, negative_slope = 0, threshold = 0}
-- f(x) = max_value where x >= max_value; x where x >= threshold; negative_slope (x - threshold) else.
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local ops = core.ops

local ReLU = Layer:extend("ReLU", { positional = 1,
  { "max_value", "number", min = 0 },
  { "negative_slope", "number", default = 0, min = 0 },
  { "threshold", "number", default = 0, min = 0 },
})

function ReLU:call(x)
  local y
  if self.negative_slope == 0 and self.threshold == 0 then
    y = ops.relu(x)
  else
    y = ops.where(ops.ge(x, self.threshold), x, (x - self.threshold) * self.negative_slope)
  end
  return self.max_value and ops.minimum(y, self.max_value) or y
end

return ReLU
