--- SeparableConv2D {filters, kernel_size, strides = {1, 1}, padding = "valid", depth_multiplier = 1, ...}
-- A depthwise convolution, then a 1 x 1 convolution over the channels.
-- x {batch, rows, columns, channels} (or channels_first) -> {batch, rows', columns', filters}.
-- Weights: depthwise_kernel {rows, columns, channels, depth_multiplier}, pointwise_kernel {1, 1,
-- channels * depth_multiplier, filters}, bias {filters}.
-- Options: dilation_rate = {1, 1}, activation, data_format, use_bias = true, depthwise_initializer and
-- pointwise_initializer = "glorot_uniform", bias_initializer = "zeros", depthwise_regularizer,
-- pointwise_regularizer, bias_regularizer, activity_regularizer, depthwise_constraint, pointwise_constraint,
-- bias_constraint. Errors: a kernel larger than the input; another number of channels than at the first call.
-- Example:
--     local conv = L.SeparableConv2D { 64, 3 }
--     print(unpack(conv(mgpu.ones { 1, 8, 8, 32 }):shape()))  --> 1 6 6 64
--     -- 3 * 3 * 32 + 32 * 64 + 64 parameters; Conv2D has 18496
--     print((conv:count_params()))  --> 2400
local Activation = require "mgpu.nn.layers.activation"
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local convolve = require "mgpu.nn.layers.depthwise_conv2d".convolve
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local SeparableConv2D = Layer:extend("SeparableConv2D", { positional = 2,
  { "filters", "integer", min = 1, required = true },
  { "kernel_size", "pair", required = true },
  { "strides", "pair", default = { 1, 1 } },
  { "padding", "string", default = "valid", values = { "valid", "same" } },
  images.data_format,
  { "dilation_rate", "pair", default = { 1, 1 } },
  { "depth_multiplier", "integer", default = 1, min = 1 },
  { "activation", "activation" },
  { "use_bias", "boolean", default = true },
  { "depthwise_initializer", "initializer", default = "glorot_uniform" },
  { "pointwise_initializer", "initializer", default = "glorot_uniform" },
  { "bias_initializer", "initializer", default = "zeros" },
  { "depthwise_regularizer", "regularizer" },
  { "pointwise_regularizer", "regularizer" },
  { "bias_regularizer", "regularizer" },
  { "activity_regularizer", "regularizer" },
  { "depthwise_constraint", "constraint" },
  { "pointwise_constraint", "constraint" },
  { "bias_constraint", "constraint" },
})

function SeparableConv2D:init()
  self.activate = activations.get(self.activation, tostring(self))
  self.span = images.spans(self.kernel_size, self.dilation_rate)
end

function SeparableConv2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self.channels = images.channels_of(self, shape)
  self:output_shape(shape)
  self.depthwise_kernel = self:add_weight { name = "depthwise_kernel",
    initializer = self.depthwise_initializer, regularizer = self.depthwise_regularizer,
    constraint = self.depthwise_constraint,
    shape = { self.kernel_size[1], self.kernel_size[2], self.channels, self.depth_multiplier } }
  self.pointwise_kernel = self:add_weight { name = "pointwise_kernel",
    initializer = self.pointwise_initializer, regularizer = self.pointwise_regularizer,
    constraint = self.pointwise_constraint,
    shape = { 1, 1, self.channels * self.depth_multiplier, self.filters } }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.filters },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer, constraint = self.bias_constraint }
  end
end

function SeparableConv2D:output_shape(shape)
  return Activation.shape_after(self, images.window_shape(self, shape, self.span, self.strides, self.filters, "kernel"))
end

function SeparableConv2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  images.check_input(self, x)
  return self.activate(images.as_last(self, x, function(t)
    local y = convolve(t, self.depthwise_kernel, self.strides, self.dilation_rate, self.padding, self.span)
    y = ops.conv2d(y, self.pointwise_kernel, { strides = { 1, 1 } })
    return self.bias and y + self.bias or y
  end))
end

return SeparableConv2D
