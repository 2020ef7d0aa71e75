--- Activation {activation}: any activation, by name or as a function; see mgpu.activations.
-- x of any shape -> the same shape (softmax and the like: as the function says). Errors: an unknown name.
-- Example:
--     local model = mgpu.Sequential { L.Activation { "relu" }, L.Activation { function(x) return x * x end } }
--     print(model(mgpu.tensor { { -3, 3 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{0, 9}}
local activations = require "mgpu.nn.activations"
local Layer = require "mgpu.nn.layer"

local Activation = Layer:extend("Activation", { positional = 1,
  { "activation", "activation", required = true } })

Activation.supports_masking = true

function Activation:init() self.activate = activations.get(self.activation, tostring(self)) end

function Activation:call(x) return self.activate(x) end

--- shape_after(layer, shape) -> the shape that the layer's own activation makes of `shape`: glu halves an axis, and a
--- function may do anything.
function Activation.shape_after(layer, shape)
  if layer.activate ~= activations.glu and type(layer.activation) ~= "function" then return shape end
  return Activation { layer.activation, name = layer.name }:output_shape(shape)
end

return Activation
