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
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local Dense = Layer:extend("Dense", { positional = 1,
  { "units", "integer", min = 1, required = true },
  { "activation", "activation" },
  { "use_bias", "boolean", default = true },
  { "kernel_initializer", "initializer", default = "glorot_uniform" },
  { "bias_initializer", "initializer", default = "zeros" },
  { "kernel_regularizer", "regularizer" },
  { "bias_regularizer", "regularizer" },
  { "activity_regularizer", "regularizer" },
  { "kernel_constraint", "constraint" },
  { "bias_constraint", "constraint" },
})

Dense.supports_masking = true

function Dense:init() self.activate = activations.get(self.activation, tostring(self)) end

function Dense:build(shape)
  if #shape < 2 then
    self:fail("the input must have at least 2 axes (batch, features), got shape %s",
      self.shape_text(shape))
  end
  self.kernel = self:add_weight { name = "kernel", shape = { shape[#shape], self.units },
    initializer = self.kernel_initializer, regularizer = self.kernel_regularizer, constraint = self.kernel_constraint }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.units },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer, constraint = self.bias_constraint }
  end
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
