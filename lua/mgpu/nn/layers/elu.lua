--- ELU {alpha = 1}: x where x > 0, alpha (e^x - 1) elsewhere. x of any shape -> the same shape.
-- Source: Clevert et al., Exponential linear units, 2016.
-- Example:
--     print((L.ELU { 0.5 } (mgpu.tensor { -100, -1, 2 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-50, -32, 200}
local activations = require "mgpu.nn.activations"
local Layer = require "mgpu.nn.layer"

local ELU = Layer:extend("ELU", { positional = 1, { "alpha", "number", default = 1 } })

ELU.supports_masking = true

function ELU:output_shape(shape) return shape end -- luacheck: no self

function ELU:call(x) return activations.elu(x, self.alpha) end

return ELU
