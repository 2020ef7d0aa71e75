--- Conv2D {filters, kernel_size, strides = {1, 1}, padding = "valid", dilation_rate = {1, 1}, groups = 1, ...}
-- Cross-correlation as in Keras. Padding "same" keeps ceil(size / stride) rows and columns.
-- x {batch, rows, columns, channels} (or channels_first) -> {batch, rows', columns', filters}, in the dtype of x.
-- Weights: kernel {rows, columns, channels / groups, filters}, bias {filters}.
-- Options: activation, data_format, use_bias = true, kernel_initializer = "glorot_uniform",
-- bias_initializer = "zeros", kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
-- bias_constraint. Errors: strides and dilation_rate both above 1; groups that do not divide filters and channels;
-- a kernel larger than the input.
-- Example:
--     local conv = L.Conv2D { 32, 3, strides = 2, padding = "same", activation = "relu" }
--     print(unpack(conv(mgpu.ones { 8, 28, 28, 1 }):shape()))  --> 8 14 14 32
--     -- 32 kernels of 3 * 3 * 1 numbers, and 32 biases
--     print((conv:count_params()))  --> 320
local Activation = require "mgpu.nn.layers.activation"
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local Conv2D = Layer:extend("Conv2D", { positional = 2,
  { "filters", "integer", min = 1, required = true },
  { "kernel_size", "pair", required = true },
  { "strides", "pair", default = { 1, 1 } },
  { "padding", "string", default = "valid", values = { "valid", "same" } },
  images.data_format,
  { "dilation_rate", "pair", default = { 1, 1 } },
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

function Conv2D:init()
  self.activate = activations.get(self.activation, tostring(self))
  images.check_steps(self)
  images.check_groups(self)
  self.span = images.spans(self.kernel_size, self.dilation_rate)
end

function Conv2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  local channels = images.channels_of(self, shape)
  images.check_groups(self, channels)
  self:output_shape(shape)
  self.channels = channels
  self.kernel = self:add_weight { name = "kernel", initializer = self.kernel_initializer,
    regularizer = self.kernel_regularizer, constraint = self.kernel_constraint,
    shape = { self.kernel_size[1], self.kernel_size[2], channels / self.groups, self.filters } }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.filters },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer, constraint = self.bias_constraint }
  end
end

function Conv2D:output_shape(shape)
  return Activation.shape_after(self, images.window_shape(self, shape, self.span, self.strides, self.filters, "kernel"))
end

function Conv2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  images.check_input(self, x)
  return self.activate(images.as_last(self, x, function(t)
    local s = t:shape()
    local y = ops.conv2d(t, self.kernel, { strides = self.strides, groups = self.groups,
      dilations = self.dilation_rate,
      pads = images.pads(self.padding, s[2], s[3], self.span, self.strides) })
    return self.bias and y + self.bias or y
  end))
end

return Conv2D
