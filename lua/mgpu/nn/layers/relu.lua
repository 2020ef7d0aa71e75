--- ReLU {max_value =, negative_slope = 0, threshold = 0}
-- max_value where x >= max_value; x where x > threshold; negative_slope (x - threshold) elsewhere (Keras's formula).
-- x of any shape -> the same shape. Errors: an option below 0.
-- Example:
--     print(L.ReLU { max_value = 6 } (mgpu.tensor { -1, 3, 8 }))
--     --> tensor {3} float32 cpu:0
--     --> {0, 3, 6}
local activations = require "mgpu.nn.activations"
local Layer = require "mgpu.nn.layer"

local ReLU = Layer:extend("ReLU", { positional = 1,
  { "max_value", "number", min = 0 },
  { "negative_slope", "number", default = 0, min = 0 },
  { "threshold", "number", default = 0, min = 0 },
})

ReLU.supports_masking = true

function ReLU:output_shape(shape) return shape end -- luacheck: no self

function ReLU:call(x)
  return activations.relu(x, self.negative_slope, self.max_value, self.threshold)
end

return ReLU
