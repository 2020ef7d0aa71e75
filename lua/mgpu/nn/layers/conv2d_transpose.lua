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
local Activation = require "mgpu.nn.layers.activation"
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local Conv2DTranspose = Layer:extend("Conv2DTranspose", { positional = 2,
  { "filters", "integer", min = 1, required = true },
  { "kernel_size", "pair", required = true },
  { "strides", "pair", default = { 1, 1 } },
  { "padding", "string", default = "valid", values = { "valid", "same" } },
  { "output_padding", "pair0" },
  images.data_format,
  { "dilation_rate", "pair", default = { 1, 1 } },
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

function Conv2DTranspose:init()
  self.activate = activations.get(self.activation, tostring(self))
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
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self.channels = images.channels_of(self, shape)
  self:output_shape(shape)
  self.kernel = self:add_weight { name = "kernel", initializer = self.kernel_initializer,
    regularizer = self.kernel_regularizer, constraint = self.kernel_constraint,
    shape = { self.kernel_size[1], self.kernel_size[2], self.filters, self.channels } }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.filters },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer, constraint = self.bias_constraint }
  end
end

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
local function pads(self, s, rows, columns)
  if self.padding ~= "same" then return { 0, 0, 0, 0 } end
  local list = {}
  for i, out in ipairs { rows, columns } do
    local total = math.max((s[i + 1] - 1) * self.strides[i] + self.span[i] - out, 0)
    list[2 * i - 1], list[2 * i] = math.floor(total / 2), math.ceil(total / 2)
  end
  return list
end

function Conv2DTranspose:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  images.check_input(self, x)
  return self.activate(images.as_last(self, x, function(t)
    local s = t:shape()
    local rows, columns = output_size(self, s[2], 1), output_size(self, s[3], 2)
    local y = ops.conv2d_grad_input(t, self.kernel, { strides = self.strides,
      dilations = self.dilation_rate, pads = pads(self, s, rows, columns),
      input_shape = { s[1], rows, columns, self.filters } })
    return self.bias and y + self.bias or y
  end))
end

return Conv2DTranspose
