--- Conv1D {filters, kernel_size, strides = 1, padding = "valid", dilation_rate = 1, groups = 1, activation =, ...}
-- Cross-correlation along the steps, as in Keras. Padding "same" keeps ceil(steps / stride) steps; "causal" pads
-- before the first step only, so that no output sees later steps.
-- x {batch, steps, channels} (or channels_first) -> {batch, steps', filters}, in the dtype of x.
-- Weights: kernel {kernel_size, channels / groups, filters}, bias {filters}.
-- Options: data_format, use_bias = true, kernel_initializer = "glorot_uniform", bias_initializer = "zeros",
-- kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint.
-- Errors: strides and dilation_rate both above 1; groups that do not divide filters and channels; a kernel larger
-- than the input.
-- Example:
--     local sum = L.Conv1D { 1, 3, padding = "causal", kernel_initializer = "ones" }
--     print(sum(mgpu.arange(1, 6):reshape { 1, 5, 1 }):reshape { -1 }) -- each step and the two before it
--     --> tensor {5} float32 cpu:0
--     --> { 1,  3,  6,  9, 12}
local Activation = require "mgpu.nn.layers.activation"
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"
local sequences = require "mgpu.nn.layers.sequences"

local ops = core.ops

local Conv1D = Layer:extend("Conv1D", { positional = 2,
  { "filters", "integer", min = 1, required = true },
  { "kernel_size", "single", min = 1, required = true },
  { "strides", "single", default = 1, min = 1 },
  { "padding", "string", default = "valid", values = { "valid", "same", "causal" } },
  sequences.data_format,
  { "dilation_rate", "single", default = 1, min = 1 },
  { "groups", "integer", default = 1, min = 1 },
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

function Conv1D:init()
  self.activate = activations.get(self.activation, tostring(self))
  images.check_steps(self)
  images.check_groups(self)
  self.span = (self.kernel_size - 1) * self.dilation_rate + 1
end

function Conv1D:build(shape)
  self:need_rank(shape, 3, "batch, steps, channels")
  local channels = images.channels_of(self, shape)
  images.check_groups(self, channels)
  self:output_shape(shape)
  self.channels = channels
  self.kernel = self:add_weight { name = "kernel", initializer = self.kernel_initializer,
    regularizer = self.kernel_regularizer, constraint = self.kernel_constraint,
    shape = { self.kernel_size, channels / self.groups, self.filters } }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.filters },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer, constraint = self.bias_constraint }
  end
end

function Conv1D:output_shape(shape)
  return Activation.shape_after(self, sequences.window_shape(self, shape, self.span, self.strides, self.filters,
    "kernel"))
end

function Conv1D:call(x)
  self:need_rank(x:shape(), 3, "batch, steps, channels")
  images.check_input(self, x)
  return self.activate(sequences.as_image(self, x, function(t)
    local s, kernel = t:shape(), self.kernel:shape()
    local y = ops.conv2d(t, ops.reshape(self.kernel, { shape = { 1, unpack(kernel) } }), {
      strides = { 1, self.strides }, dilations = { 1, self.dilation_rate }, groups = self.groups,
      pads = sequences.pads(self.padding, s[3], self.span, self.strides) })
    return self.bias and y + self.bias or y
  end))
end

return Conv1D
