--- Further convolutions of sequences x {batch, steps, channels}, or channels_first, as in Keras: transposed, depthwise
-- and separable ones; Conv1D is in conv.lua. They have the options of kernels.lua: activation, use_bias, and
-- initializers, regularizers and constraints.
-- RETURNS the classes by name.
local Activation = require "mgpu.nn.layers.activation".Activation
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local sequences = require "mgpu.nn.layers.sequences"
local spaces = require "mgpu.nn.layers.spaces"
local transposed = require "mgpu.nn.layers.transposed"

local ops = core.ops
local M = {}

local FILTERS = { "filters", "integer", min = 1, required = true }
local KERNEL_SIZE = { "kernel_size", "single", min = 1, required = true }
local STRIDES = { "strides", "single", default = 1, min = 1 }
local PADDING = { "padding", "string", default = "valid", values = { "valid", "same" } }
local CAUSAL = { "padding", "string", default = "valid", values = { "valid", "same", "causal" } }
local DILATION_RATE = { "dilation_rate", "single", default = 1, min = 1 }
local DEPTH_MULTIPLIER = { "depth_multiplier", "integer", default = 1, min = 1 }

-- What fn returns for the checked x as an image of one row, with the bias and the activation.
local function call_on_sequence(self, x, fn)
  self:need_rank(x:shape(), 3, spaces.AXES[1])
  images.check_input(self, x)
  return self.activate(sequences.as_image(self, x, function(t)
    local y = fn(t, t:shape())
    return self.bias and y + self.bias or y
  end))
end

local function build_sequence(self, shape)
  self:need_rank(shape, 3, spaces.AXES[1])
  self.channels = images.channels_of(self, shape)
  self:output_shape(shape)
end

-- A kernel {steps, a, b} as that of an image.
local function of_image(kernel) return ops.reshape(kernel, { shape = { 1, unpack(kernel:shape()) } }) end

-- ---- Conv1DTranspose ----------------------------------------------------------------------------

--- Conv1DTranspose {filters, kernel_size, strides = 1, padding = "valid", output_padding =, dilation_rate = 1, ...}
-- The transpose of a convolution, as in Keras.
-- x {batch, steps, channels} (or channels_first) -> {batch, steps', filters}, with steps' as rows' of Conv2DTranspose.
-- Weights: kernel {kernel_size, filters, channels}, bias {filters}. Options and errors as Conv2DTranspose.
-- Example:
--     local up = L.Conv1DTranspose { 4, 3, strides = 2, padding = "same" }
--     print(unpack(up(mgpu.ones { 1, 5, 2 }):shape()))  --> 1 10 4
local Conv1DTranspose = Layer:extend("Conv1DTranspose", kernels.options { positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, PADDING, { "output_padding", "single", min = 0 }, sequences.data_format,
  DILATION_RATE })
M.Conv1DTranspose = Conv1DTranspose

function Conv1DTranspose:init()
  kernels.activate(self)
  images.check_steps(self)
  self.span = (self.kernel_size - 1) * self.dilation_rate + 1
  transposed.check(self, self.output_padding and { self.output_padding }, { self.strides })
end

function Conv1DTranspose:build(shape)
  build_sequence(self, shape)
  self.kernel = kernels.add(self, "kernel", { self.kernel_size, self.filters, self.channels })
  kernels.add_bias(self, self.filters)
end

function Conv1DTranspose:output_shape(shape)
  return Activation.shape_after(self, transposed.output_shape(self, shape, { self.span }, { self.strides },
    self.output_padding and { self.output_padding }))
end

function Conv1DTranspose:call(x)
  return call_on_sequence(self, x, function(t, s)
    local steps = transposed.output_size(self, s[3], self.span, self.strides, self.output_padding)
    local before, after = transposed.pads(self, s[3], steps, self.span, self.strides)
    return ops.conv2d_grad_input(t, of_image(self.kernel), { strides = { 1, self.strides },
      dilations = { 1, self.dilation_rate }, pads = { 0, 0, before, after },
      input_shape = { s[1], 1, steps, self.filters } })
  end)
end

-- ---- DepthwiseConv1D ----------------------------------------------------------------------------

-- The depthwise convolution of an image of one row with a kernel {steps, channels, multiplier}.
local function depthwise(self, t, kernel)
  local k = kernel:shape()
  return ops.conv2d(t, ops.reshape(kernel, { shape = { 1, k[1], 1, k[2] * k[3] } }), { groups = k[2],
    strides = { 1, self.strides }, dilations = { 1, self.dilation_rate },
    pads = sequences.pads(self.padding, t:shape()[3], self.span, self.strides) })
end

local function init_depthwise(self)
  kernels.activate(self)
  self.span = (self.kernel_size - 1) * self.dilation_rate + 1
end

local function window_shape(self, shape, channels)
  return Activation.shape_after(self, sequences.window_shape(self, shape, self.span, self.strides, channels, "kernel"))
end

--- DepthwiseConv1D {kernel_size, strides = 1, padding = "valid", depth_multiplier = 1, dilation_rate = 1, ...}
-- Convolves each channel separately, with depth_multiplier kernels each.
-- x {batch, steps, channels} (or channels_first) -> {batch, steps', channels * depth_multiplier}.
-- Weights: kernel {kernel_size, channels, depth_multiplier}, bias {channels * depth_multiplier}. Options and errors as
-- DepthwiseConv2D.
-- Example:
--     local conv = L.DepthwiseConv1D { 3, depth_multiplier = 2, padding = "same" }
--     print(unpack(conv(mgpu.ones { 1, 8, 5 }):shape()))  --> 1 8 10
local DepthwiseConv1D = Layer:extend("DepthwiseConv1D", kernels.options({ positional = 1,
  KERNEL_SIZE, STRIDES, PADDING, DEPTH_MULTIPLIER, sequences.data_format, DILATION_RATE }, { "depthwise" }))
M.DepthwiseConv1D = DepthwiseConv1D

DepthwiseConv1D.init = init_depthwise

function DepthwiseConv1D:build(shape)
  build_sequence(self, shape)
  kernels.add_depthwise(self, "kernel")
  kernels.add_bias(self, self.channels * self.depth_multiplier)
end

function DepthwiseConv1D:output_shape(shape)
  local channels = sequences.shape_last(self, shape)[3]
  return window_shape(self, shape, channels == -1 and -1 or channels * self.depth_multiplier)
end

function DepthwiseConv1D:call(x)
  return call_on_sequence(self, x, function(t) return depthwise(self, t, self.kernel) end)
end

-- ---- SeparableConv1D ----------------------------------------------------------------------------

--- SeparableConv1D {filters, kernel_size, strides = 1, padding = "valid", dilation_rate = 1, depth_multiplier = 1, ...}
-- A depthwise convolution, then one of size 1 over the channels. padding: also "causal", as Keras 2 has it.
-- x {batch, steps, channels} (or channels_first) -> {batch, steps', filters}.
-- Weights: depthwise_kernel {kernel_size, channels, depth_multiplier}, pointwise_kernel {1, channels *
-- depth_multiplier, filters}, bias {filters}. Options and errors as SeparableConv2D.
-- Example:
--     local conv = L.SeparableConv1D { 64, 3 }
--     print(unpack(conv(mgpu.ones { 1, 8, 32 }):shape()))  --> 1 6 64
local SeparableConv1D = Layer:extend("SeparableConv1D", kernels.options({ positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, CAUSAL, sequences.data_format, DILATION_RATE, DEPTH_MULTIPLIER,
}, { "depthwise", "pointwise" }))
M.SeparableConv1D = SeparableConv1D

SeparableConv1D.init = init_depthwise

function SeparableConv1D:build(shape)
  build_sequence(self, shape)
  kernels.add_separable(self)
end

function SeparableConv1D:output_shape(shape) return window_shape(self, shape, self.filters) end

function SeparableConv1D:call(x)
  return call_on_sequence(self, x, function(t)
    return ops.conv2d(depthwise(self, t, self.depthwise_kernel), of_image(self.pointwise_kernel),
      { strides = { 1, 1 } })
  end)
end

return M
