--- LeakyReLU {negative_slope = 0.3}: x where x > 0, negative_slope * x elsewhere (Keras's formula).
-- x of any shape -> the same shape.
-- Example:
--     print(L.LeakyReLU { 0.5 } (mgpu.tensor { -2, 0, 2 }))
--     --> tensor {3} float32 cpu:0
--     --> {-1,  0,  2}
local activations = require "mgpu.nn.activations"
local Layer = require "mgpu.nn.layer"

local LeakyReLU = Layer:extend("LeakyReLU", { positional = 1,
  { "negative_slope", "number", default = 0.3, min = 0 } })

LeakyReLU.supports_masking = true

function LeakyReLU:output_shape(shape) return shape end -- luacheck: no self

function LeakyReLU:call(x) return activations.leaky_relu(x, self.negative_slope) end

return LeakyReLU
