--- Input {28, 28, 1}: the shape of one sample, without the batch.
-- The first entry of a Sequential, or the start of a functional model (symbolic_tensor.lua).
-- Options: shape (the sizes; -1 is unknown), dtype (default floatx: integer data are cast to it), name, batch_size
-- (accepted as in Keras and ignored: any batch fits). RETURNS a symbolic tensor {-1, sizes...}.
-- Example:
--     local x = mgpu.Input { 28, 28, 1 }
--     local model = mgpu.Model { inputs = x, outputs = L.Dense { 10 } (L.Flatten {} (x)) }
--     print(unpack(model(mgpu.zeros { 2, 28, 28, 1 }):shape()))  --> 2 10
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"

local Input = Layer:extend("Input", { whole = "shape", positional = 0,
  { "shape", "shape", required = true },
  { "batch_size", "integer", min = 1 },
})

function Input:init()
  self.autocast = false
  self.is_input = true
  self.built = true
end

function Input:call(x) return x end -- luacheck: no self

function Input:output_shape(shape) return shape end -- luacheck: no self

local make = Input.new

--- new {sizes...} -> the symbolic tensor of the input; the same as calling Input.
function Input.new(given)
  local layer = make(given)
  local dtype = layer.states_policy and layer.compute_dtype or core.floatx()
  return symbolic_tensor.input(layer, { -1, unpack(layer.shape) }, dtype)
end

return Input
