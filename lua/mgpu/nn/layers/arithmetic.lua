--- Arithmetic {operator, number =, reversed = false}: what x * 2, 1 / x, -x and x / y make of symbolic tensors.
-- operator: "add", "sub", "mul", "div", "mod", "pow" or "neg". With a number x {batch, ...} -> x * number, or
-- number * x with reversed, of the same shape; without one it is called with two inputs, {a, b} -> a / b, which
-- broadcast. The dtype stays. Errors: an operator that wants a number or a second input.
-- Example:
--     local x = mgpu.Input { 2 }
--     -- the same as outputs = L.Arithmetic { "sub", number = 1, reversed = true } (x)
--     local model = mgpu.Model { inputs = x, outputs = 1 - x }
--     print(model(mgpu.tensor { { 0.25, 3 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{ 0.75, -2}}
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local Arithmetic = Layer:extend("Arithmetic", { positional = 2,
  { "operator", "string", required = true, values = { "add", "sub", "mul", "div", "mod", "pow", "neg" } },
  { "number", "number" },
  { "reversed", "boolean", default = false },
})

function Arithmetic:init()
  if self.operator == "neg" and self.number then self:fail 'the operator "neg" takes no number' end
end

function Arithmetic:build(shape)
  local pair = type(shape[1]) == "table"
  if (self.number or self.operator == "neg") and pair then self:fail("takes one input, got %d", #shape) end
  if not self.number and self.operator ~= "neg" and (not pair or #shape ~= 2) then
    self:fail "without a number it takes two inputs, as in layer {a, b}"
  end
end

function Arithmetic:output_shape(shape)
  if type(shape[1]) == "table" then return Layer.output_shape(self, shape) end
  return shape
end

function Arithmetic:call(x)
  local operate = core.ops[self.operator]
  if self.operator == "neg" then return operate(x) end
  if not self.number then return operate(x[1], x[2]) end
  if self.reversed then return operate(self.number, x) end
  return operate(x, self.number)
end

return Arithmetic
