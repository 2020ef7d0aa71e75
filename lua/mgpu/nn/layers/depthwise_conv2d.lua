--- DepthwiseConv2D {kernel_size, strides = {1, 1}, padding = "valid", depth_multiplier = 1, ...}
-- Convolves each channel separately, with depth_multiplier kernels each.
-- x {batch, rows, columns, channels} (or channels_first) -> {batch, rows', columns', channels * depth_multiplier}.
-- Weights: kernel {rows, columns, channels, depth_multiplier}, bias {channels * depth_multiplier}.
-- Options: dilation_rate = {1, 1}, activation, data_format, use_bias = true,
-- depthwise_initializer = "glorot_uniform", bias_initializer = "zeros", depthwise_regularizer, bias_regularizer,
-- activity_regularizer, depthwise_constraint, bias_constraint. Errors: a kernel larger than the input; another
-- number of channels than at the first call.
-- Example:
--     local conv = L.DepthwiseConv2D { 3, depth_multiplier = 2, padding = "same" }
--     print(unpack(conv(mgpu.ones { 1, 8, 8, 5 }):shape()))  --> 1 8 8 10
local Activation = require "mgpu.nn.layers.activation"
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local DepthwiseConv2D = Layer:extend("DepthwiseConv2D", { positional = 1,
  { "kernel_size", "pair", required = true },
  { "strides", "pair", default = { 1, 1 } },
  { "padding", "string", default = "valid", values = { "valid", "same" } },
  { "depth_multiplier", "integer", default = 1, min = 1 },
  images.data_format,
  { "dilation_rate", "pair", default = { 1, 1 } },
  { "activation", "activation" },
  { "use_bias", "boolean", default = true },
  { "depthwise_initializer", "initializer", default = "glorot_uniform" },
  { "bias_initializer", "initializer", default = "zeros" },
  { "depthwise_regularizer", "regularizer" },
  { "bias_regularizer", "regularizer" },
  { "activity_regularizer", "regularizer" },
  { "depthwise_constraint", "constraint" },
  { "bias_constraint", "constraint" },
})

function DepthwiseConv2D:init()
  self.activate = activations.get(self.activation, tostring(self))
  self.span = images.spans(self.kernel_size, self.dilation_rate)
end

function DepthwiseConv2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self.channels = images.channels_of(self, shape)
  self:output_shape(shape)
  self.kernel = self:add_weight { name = "kernel", initializer = self.depthwise_initializer,
    regularizer = self.depthwise_regularizer, constraint = self.depthwise_constraint,
    shape = { self.kernel_size[1], self.kernel_size[2], self.channels, self.depth_multiplier } }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.channels * self.depth_multiplier },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer, constraint = self.bias_constraint }
  end
end

function DepthwiseConv2D:output_shape(shape)
  local channels = images.shape_last(self, shape)[4]
  return Activation.shape_after(self, images.window_shape(self, shape, self.span, self.strides,
    channels == -1 and -1 or channels * self.depth_multiplier, "kernel"))
end

--- convolve(t, kernel, ...) -> the depthwise convolution of t {batch, rows, columns, channels}, without bias. It is a
--- grouped convolution with one group for each channel.
function DepthwiseConv2D.convolve(t, kernel, strides, dilations, padding, span)
  local s, k = t:shape(), kernel:shape()
  return ops.conv2d(t, ops.reshape(kernel, { shape = { k[1], k[2], 1, k[3] * k[4] } }), {
    strides = strides, dilations = dilations, groups = k[3],
    pads = images.pads(padding, s[2], s[3], span, strides) })
end

function DepthwiseConv2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  images.check_input(self, x)
  return self.activate(images.as_last(self, x, function(t)
    local y = self.convolve(t, self.kernel, self.strides, self.dilation_rate, self.padding, self.span)
    return self.bias and y + self.bias or y
  end))
end

return DepthwiseConv2D
