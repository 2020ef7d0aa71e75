--- Dense {units, activation =, use_bias = true, kernel_initializer = "glorot_uniform", ...}
-- y = activation(x W + b) over the last axis: x {batch, ..., inputs} -> {batch, ..., units}, in the dtype of x.
-- Weights: kernel W {inputs, units}, bias b {units}.
-- Options: bias_initializer = "zeros", kernel_regularizer, bias_regularizer, activity_regularizer,
-- kernel_constraint, bias_constraint. Errors: x with fewer than 2 axes, or another last axis than at the first call.
-- Example:
--     local dense = L.Dense { 4, activation = "relu" }
--     print(unpack(dense(mgpu.ones { 2, 3 }):shape()))  --> 2 4
--     -- a kernel of 3 * 4 numbers and 4 biases
--     print((dense:count_params()))  --> 16
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local Dense = Layer:extend("Dense", kernels.options { positional = 1,
  { "units", "integer", min = 1, required = true },
})

Dense.supports_masking = true

function Dense:init() kernels.activate(self) end

function Dense:build(shape)
  if #shape < 2 then
    self:fail("the input must have at least 2 axes (batch, features), got shape %s",
      self.shape_text(shape))
  end
  self.kernel = kernels.add(self, "kernel", { shape[#shape], self.units })
  kernels.add_bias(self, self.units)
end

function Dense:output_shape(shape)
  if self.activate == activations.glu or type(self.activation) == "function" then
    return Layer.output_shape(self, shape) -- these activations may change the shape
  end
  local out = { unpack(shape) }
  out[#out] = self.units
  return out
end

function Dense:call(x)
  local inputs, shape = self.kernel:shape()[1], x:shape()
  if shape[#shape] ~= inputs then
    self:fail("the input has %s features, the layer was built for %d", tostring(shape[#shape]), inputs)
  end
  local y = ops.matmul(x, self.kernel)
  if self.bias then y = y + self.bias end
  return self.activate(y)
end

return Dense
