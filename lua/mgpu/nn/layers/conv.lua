--- Convolutions of sequences and images, depthwise, separable and transposed ones, as in Keras.
--
-- An image is x {batch, rows, columns, channels}, a sequence x {batch, steps, channels}, or channels_first. All have
-- the options of kernels.lua: activation, use_bias, and initializers, regularizers and constraints.
-- RETURNS the classes by name.
local Activation = require "mgpu.nn.layers.activation".Activation
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local lora = require "mgpu.nn.layers.lora"
local products = require "mgpu.nn.quantized.products"
local quantized = require "mgpu.nn.quantized.layers"
local sequences = require "mgpu.nn.layers.sequences"

local ops = core.ops

local M = {}

local IMAGE_AXES, SEQUENCE_AXES = "batch, rows, columns, channels", "batch, steps, channels"
local FILTERS = { "filters", "integer", min = 1, required = true }
local KERNEL_SIZE = { "kernel_size", "pair", required = true }
local STRIDES = { "strides", "pair", default = { 1, 1 } }
local PADDING = { "padding", "string", default = "valid", values = { "valid", "same" } }
local DILATION_RATE = { "dilation_rate", "pair", default = { 1, 1 } }
local DEPTH_MULTIPLIER = { "depth_multiplier", "integer", default = 1, min = 1 }
local GROUPS = { "groups", "integer", default = 1, min = 1 }

-- The shape of windows over an image, with `channels`, after the layer's activation.
local function window_shape(self, shape, channels)
  return Activation.shape_after(self, images.window_shape(self, shape, self.span, self.strides, channels, "kernel"))
end

-- What fn returns for the checked image x as channels_last, with the bias and the activation.
local function call_on_image(self, x, fn)
  self:need_rank(x:shape(), 4, IMAGE_AXES)
  images.check_input(self, x)
  return self.activate(images.as_last(self, x, function(t)
    local y = fn(t, t:shape())
    return self.bias and y + self.bias or y
  end))
end

-- Checks the shape of an image, and notes its channels.
local function build_image(self, shape)
  self:need_rank(shape, 4, IMAGE_AXES)
  self.channels = images.channels_of(self, shape)
  self:output_shape(shape)
end

-- ---- Conv1D -------------------------------------------------------------------------------------

--- Conv1D {filters, kernel_size, strides = 1, padding = "valid", dilation_rate = 1, groups = 1, activation =, ...}
-- Cross-correlation along the steps, as in Keras. Padding "same" keeps ceil(steps / stride) steps; "causal" pads
-- before the first step only, so that no output sees later steps.
-- x {batch, steps, channels} (or channels_first) -> {batch, steps', filters}, in the dtype of x.
-- Weights: kernel {kernel_size, channels / groups, filters}, bias {filters}.
-- Options: data_format, use_bias = true, kernel_initializer = "glorot_uniform", bias_initializer = "zeros",
-- kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint, lora_rank and
-- lora_alpha (see enable_lora). Errors: strides and dilation_rate both above 1; groups that do not divide filters and
-- channels; a kernel larger than the input.
-- Example:
--     local sum = L.Conv1D { 1, 3, padding = "causal", kernel_initializer = "ones" }
--     print(sum(mgpu.arange(1, 6):reshape { 1, 5, 1 }):reshape { -1 }) -- each step and the two before it
--     --> tensor {5} float32 cpu:0
--     --> { 1,  3,  6,  9, 12}
local Conv1D = Layer:extend("Conv1D", lora.options(kernels.options { positional = 2,
  FILTERS,
  { "kernel_size", "single", min = 1, required = true },
  { "strides", "single", default = 1, min = 1 },
  { "padding", "string", default = "valid", values = { "valid", "same", "causal" } },
  sequences.data_format,
  { "dilation_rate", "single", default = 1, min = 1 },
  GROUPS,
}))
M.Conv1D = Conv1D

function Conv1D:init()
  kernels.activate(self)
  images.check_steps(self)
  images.check_groups(self)
  self.span = (self.kernel_size - 1) * self.dilation_rate + 1
end

function Conv1D:build(shape)
  self:need_rank(shape, 3, SEQUENCE_AXES)
  local channels = images.channels_of(self, shape)
  images.check_groups(self, channels)
  self:output_shape(shape)
  self.channels = channels
  self.kernel = kernels.add(self, "kernel", { self.kernel_size, channels / self.groups, self.filters })
  kernels.add_bias(self, self.filters)
end

lora.adapt(Conv1D, "kernel")

function Conv1D:output_shape(shape)
  return Activation.shape_after(self, sequences.window_shape(self, shape, self.span, self.strides, self.filters,
    "kernel"))
end

function Conv1D:call(x)
  self:need_rank(x:shape(), 3, SEQUENCE_AXES)
  images.check_input(self, x)
  return self.activate(sequences.as_image(self, x, function(t)
    local s, kernel = t:shape(), self.kernel:shape()
    local y = ops.conv2d(t, ops.reshape(lora.weight(self):value(), { shape = { 1, unpack(kernel) } }), {
      strides = { 1, self.strides }, dilations = { 1, self.dilation_rate }, groups = self.groups,
      pads = sequences.pads(self.padding, s[3], self.span, self.strides) })
    return self.bias and y + self.bias or y
  end))
end

-- ---- Conv2D -------------------------------------------------------------------------------------

--- Conv2D {filters, kernel_size, strides = {1, 1}, padding = "valid", dilation_rate = {1, 1}, groups = 1, ...}
-- Cross-correlation as in Keras. Padding "same" keeps ceil(size / stride) rows and columns.
-- x {batch, rows, columns, channels} (or channels_first) -> {batch, rows', columns', filters}, in the dtype of x.
-- Weights: kernel {rows, columns, channels / groups, filters}, bias {filters}.
-- Options: activation, data_format, use_bias = true, kernel_initializer = "glorot_uniform",
-- bias_initializer = "zeros", kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
-- bias_constraint, lora_rank and lora_alpha (see enable_lora). Errors: strides and dilation_rate both above 1; groups
-- that do not divide filters and channels; a kernel larger than the input.
-- Example:
--     local conv = L.Conv2D { 32, 3, strides = 2, padding = "same", activation = "relu" }
--     print(unpack(conv(mgpu.ones { 8, 28, 28, 1 }):shape()))  --> 8 14 14 32
--     -- 32 kernels of 3 * 3 * 1 numbers, and 32 biases
--     print((conv:count_params()))  --> 320
local Conv2D = Layer:extend("Conv2D", lora.options(kernels.options { positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, PADDING, images.data_format, DILATION_RATE, GROUPS }))
M.Conv2D = Conv2D

function Conv2D:init()
  kernels.activate(self)
  images.check_steps(self)
  images.check_groups(self)
  self.span = images.spans(self.kernel_size, self.dilation_rate)
end

function Conv2D:build(shape)
  self:need_rank(shape, 4, IMAGE_AXES)
  images.check_groups(self, images.channels_of(self, shape))
  build_image(self, shape)
  self.kernel = kernels.add(self, "kernel",
    { self.kernel_size[1], self.kernel_size[2], self.channels / self.groups, self.filters })
  kernels.add_bias(self, self.filters)
end

lora.adapt(Conv2D, "kernel")

function Conv2D:output_shape(shape) return window_shape(self, shape, self.filters) end

function Conv2D:call(x)
  return call_on_image(self, x, function(t, s)
    return ops.conv2d(t, lora.weight(self):value(), { strides = self.strides, groups = self.groups,
      dilations = self.dilation_rate, pads = images.pads(self.padding, s[2], s[3], self.span, self.strides) })
  end)
end

quantized.adapt(Conv2D, products.Conv2D)

-- ---- Conv2DTranspose ----------------------------------------------------------------------------

--- Conv2DTranspose {filters, kernel_size, strides = {1, 1}, padding = "valid", output_padding =, ...}
-- The transpose of a convolution, as in Keras.
-- x {batch, rows, columns, channels} (or channels_first) -> {batch, rows', columns', filters} with rows' =
-- rows * stride ("same"), rows * stride + max(kernel - stride, 0) ("valid"), or, with output_padding p,
-- (rows - 1) * stride + kernel - 2 * pad + p; columns' likewise.
-- Weights: kernel {rows, columns, filters, channels}, bias {filters}.
-- Options: dilation_rate = {1, 1}, activation, data_format, use_bias = true, kernel_initializer = "glorot_uniform",
-- bias_initializer = "zeros", kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
-- bias_constraint. Errors: strides and dilation_rate both above 1; output_padding not below the stride; an empty
-- output.
-- Example:
--     local up = L.Conv2DTranspose { 16, 3, strides = 2, padding = "same" }
--     print(unpack(up(mgpu.ones { 8, 7, 7, 64 }):shape()))  --> 8 14 14 16
local Conv2DTranspose = Layer:extend("Conv2DTranspose", kernels.options { positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, PADDING, { "output_padding", "pair0" }, images.data_format, DILATION_RATE })
M.Conv2DTranspose = Conv2DTranspose

function Conv2DTranspose:init()
  kernels.activate(self)
  images.check_steps(self)
  self.span = images.spans(self.kernel_size, self.dilation_rate)
  for i, p in ipairs(self.output_padding or {}) do
    if p >= self.strides[i] then
      self:fail("output_padding {%d, %d} must be below the strides {%d, %d}", self.output_padding[1],
        self.output_padding[2], self.strides[1], self.strides[2])
    end
  end
end

function Conv2DTranspose:build(shape)
  build_image(self, shape)
  self.kernel = kernels.add(self, "kernel",
    { self.kernel_size[1], self.kernel_size[2], self.filters, self.channels })
  kernels.add_bias(self, self.filters)
end

-- The size that axis i of an image of this size is brought to.
local function output_size(self, size, i)
  if size == -1 then return -1 end
  local stride, span = self.strides[i], self.span[i]
  if self.output_padding then
    local pad = self.padding == "same" and math.floor(span / 2) or 0
    return (size - 1) * stride + span - 2 * pad + self.output_padding[i]
  end
  return size * stride + (self.padding == "valid" and math.max(span - stride, 0) or 0)
end

function Conv2DTranspose:output_shape(shape)
  local s, out = images.shape_last(self, shape), {}
  for i = 1, 2 do
    out[i] = output_size(self, s[i + 1], i)
    if out[i] < 1 and s[i + 1] ~= -1 then
      self:fail("the output for the input %s would be empty: give a larger output_padding, or none",
        self.shape_text(shape))
    end
  end
  return Activation.shape_after(self, images.shape_back(self, { s[1], out[1], out[2], self.filters }))
end

-- The padding of the convolution whose transpose this layer is; that one goes from rows x columns to the input's size.
local function transpose_pads(self, s, rows, columns)
  if self.padding ~= "same" then return { 0, 0, 0, 0 } end
  local list = {}
  for i, out in ipairs { rows, columns } do
    local total = math.max((s[i + 1] - 1) * self.strides[i] + self.span[i] - out, 0)
    list[2 * i - 1], list[2 * i] = math.floor(total / 2), math.ceil(total / 2)
  end
  return list
end

function Conv2DTranspose:call(x)
  return call_on_image(self, x, function(t, s)
    local rows, columns = output_size(self, s[2], 1), output_size(self, s[3], 2)
    return ops.conv2d_grad_input(t, self.kernel, { strides = self.strides, dilations = self.dilation_rate,
      pads = transpose_pads(self, s, rows, columns), input_shape = { s[1], rows, columns, self.filters } })
  end)
end

-- ---- DepthwiseConv2D ----------------------------------------------------------------------------

local function depthwise(self, t, kernel)
  return images.depthwise(t, kernel, self.strides, self.dilation_rate, self.padding, self.span)
end

local function init_depthwise(self)
  kernels.activate(self)
  self.span = images.spans(self.kernel_size, self.dilation_rate)
end

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
local DepthwiseConv2D = Layer:extend("DepthwiseConv2D", kernels.options({ positional = 1,
  KERNEL_SIZE, STRIDES, PADDING, DEPTH_MULTIPLIER, images.data_format, DILATION_RATE }, { "depthwise" }))
M.DepthwiseConv2D = DepthwiseConv2D

DepthwiseConv2D.init = init_depthwise

function DepthwiseConv2D:build(shape)
  build_image(self, shape)
  kernels.add_depthwise(self, "kernel")
  kernels.add_bias(self, self.channels * self.depth_multiplier)
end

function DepthwiseConv2D:output_shape(shape)
  local channels = images.shape_last(self, shape)[4]
  return window_shape(self, shape, channels == -1 and -1 or channels * self.depth_multiplier)
end

function DepthwiseConv2D:call(x)
  return call_on_image(self, x, function(t) return depthwise(self, t, self.kernel) end)
end

-- ---- SeparableConv2D ----------------------------------------------------------------------------

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
local SeparableConv2D = Layer:extend("SeparableConv2D", kernels.options({ positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, PADDING, images.data_format, DILATION_RATE, DEPTH_MULTIPLIER,
}, { "depthwise", "pointwise" }))
M.SeparableConv2D = SeparableConv2D

SeparableConv2D.init = init_depthwise

function SeparableConv2D:build(shape)
  build_image(self, shape)
  kernels.add_separable(self)
end

function SeparableConv2D:output_shape(shape) return window_shape(self, shape, self.filters) end

function SeparableConv2D:call(x)
  return call_on_image(self, x, function(t)
    return ops.conv2d(depthwise(self, t, self.depthwise_kernel), self.pointwise_kernel, { strides = { 1, 1 } })
  end)
end

return M
