--- Convolutions of volumes x {batch, depth, rows, columns, channels}, or channels_first, as in Keras. They have the
-- options of kernels.lua: activation, use_bias, and initializers, regularizers and constraints.
-- RETURNS the classes by name.
local Activation = require "mgpu.nn.layers.activation".Activation
local images = require "mgpu.nn.layers.images"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local lora = require "mgpu.nn.layers.lora"
local spaces = require "mgpu.nn.layers.spaces"
local transposed = require "mgpu.nn.layers.transposed"
local volumes = require "mgpu.nn.layers.volumes"

local M = {}

local FILTERS = { "filters", "integer", min = 1, required = true }
local KERNEL_SIZE = { "kernel_size", "triple", required = true }
local STRIDES = { "strides", "triple", default = { 1, 1, 1 } }
local PADDING = { "padding", "string", default = "valid", values = { "valid", "same" } }
local DILATION_RATE = { "dilation_rate", "triple", default = { 1, 1, 1 } }

-- What fn returns for the checked x as channels_last, with the bias and the activation.
local function call_on_volume(self, x, fn)
  self:need_rank(x:shape(), 5, spaces.AXES[3])
  images.check_input(self, x)
  return self.activate(spaces.as_last(self, x, function(t)
    local y = fn(t)
    return self.bias and y + self.bias or y
  end))
end

-- ---- Conv3D -------------------------------------------------------------------------------------

--- Conv3D {filters, kernel_size, strides = {1, 1, 1}, padding = "valid", dilation_rate = {1, 1, 1}, groups = 1, ...}
-- Cross-correlation as in Keras. Padding "same" keeps ceil(size / stride) planes, rows and columns.
-- x {batch, depth, rows, columns, channels} (or channels_first) -> {batch, depth', rows', columns', filters}.
-- Weights: kernel {depth, rows, columns, channels / groups, filters}, bias {filters}. Options and errors as Conv2D.
-- Example:
--     local conv = L.Conv3D { 8, 3, strides = 2, padding = "same" }
--     print(unpack(conv(mgpu.ones { 1, 6, 8, 8, 2 }):shape()))  --> 1 3 4 4 8
local Conv3D = Layer:extend("Conv3D", lora.options(kernels.options { positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, PADDING, images.data_format, DILATION_RATE,
  { "groups", "integer", default = 1, min = 1 } }))
M.Conv3D = Conv3D

function Conv3D:init()
  kernels.activate(self)
  images.check_steps(self)
  images.check_groups(self)
  self.span = images.spans(self.kernel_size, self.dilation_rate)
end

function Conv3D:build(shape)
  self:need_rank(shape, 5, spaces.AXES[3])
  local channels, k = images.channels_of(self, shape), self.kernel_size
  images.check_groups(self, channels)
  self:output_shape(shape)
  self.channels = channels
  self.kernel = kernels.add(self, "kernel", { k[1], k[2], k[3], channels / self.groups, self.filters })
  kernels.add_bias(self, self.filters)
end

lora.adapt(Conv3D, "kernel")

function Conv3D:output_shape(shape)
  return Activation.shape_after(self,
    spaces.window_shape(self, shape, self.span, self.strides, self.filters, "kernel"))
end

function Conv3D:call(x)
  return call_on_volume(self, x, function(t)
    return volumes.conv(t, lora.weight(self):value(), { strides = self.strides, dilations = self.dilation_rate,
      padding = self.padding, groups = self.groups })
  end)
end

-- ---- Conv3DTranspose ----------------------------------------------------------------------------

--- Conv3DTranspose {filters, kernel_size, strides = {1, 1, 1}, padding = "valid", output_padding =, ...}
-- The transpose of a convolution, as in Keras.
-- x {batch, depth, rows, columns, channels} (or channels_first) -> {batch, depth', rows', columns', filters}, with
-- sizes as those of Conv2DTranspose.
-- Weights: kernel {depth, rows, columns, filters, channels}, bias {filters}. Options and errors as Conv2DTranspose.
-- Example:
--     local up = L.Conv3DTranspose { 4, 3, strides = 2, padding = "same" }
--     print(unpack(up(mgpu.ones { 1, 3, 4, 4, 8 }):shape()))  --> 1 6 8 8 4
local Conv3DTranspose = Layer:extend("Conv3DTranspose", kernels.options { positional = 2,
  FILTERS, KERNEL_SIZE, STRIDES, PADDING, { "output_padding", "triple0" }, images.data_format, DILATION_RATE })
M.Conv3DTranspose = Conv3DTranspose

function Conv3DTranspose:init()
  kernels.activate(self)
  images.check_steps(self)
  self.span = images.spans(self.kernel_size, self.dilation_rate)
  transposed.check(self, self.output_padding, self.strides)
end

function Conv3DTranspose:build(shape)
  self:need_rank(shape, 5, spaces.AXES[3])
  local k = self.kernel_size
  self.channels = images.channels_of(self, shape)
  self:output_shape(shape)
  self.kernel = kernels.add(self, "kernel", { k[1], k[2], k[3], self.filters, self.channels })
  kernels.add_bias(self, self.filters)
end

function Conv3DTranspose:output_shape(shape)
  return Activation.shape_after(self, transposed.output_shape(self, shape, self.span, self.strides,
    self.output_padding))
end

function Conv3DTranspose:call(x)
  return call_on_volume(self, x, function(t)
    local s, sizes, before = t:shape(), {}, {}
    for i = 1, 3 do
      local padding = self.output_padding and self.output_padding[i]
      sizes[i] = transposed.output_size(self, s[i + 1], self.span[i], self.strides[i], padding)
      before[i] = transposed.pads(self, s[i + 1], sizes[i], self.span[i], self.strides[i])
    end
    return volumes.transpose(t, self.kernel:value(), { strides = self.strides, dilations = self.dilation_rate,
      sizes = sizes, before = before })
  end)
end

return M
