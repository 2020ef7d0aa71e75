--- Conv2D {filters, kernel_size, strides =, padding =, dilation_rate =, groups =, activation =, ...}
-- Cross-correlation as in Keras; kernel {rows, columns, channels / groups, filters}.
-- x {batch, rows, columns, channels} (or channels_first) -> {batch, rows', columns', filters}.
local activations = require "mgpu.activations"
local core = require "mgpu.core"
local images = require "mgpu.layers.images"
local Layer = require "mgpu.layer"

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
})

function Conv2D:init()
  self.activate = activations.get(self.activation, tostring(self))
  images.check_steps(self)
  if self.filters % self.groups ~= 0 then
    self:fail("%d filters cannot be dealt out to %d groups", self.filters, self.groups)
  end
end

-- What the kernel spans, dilation included.
local function windows(self)
  local k, d = self.kernel_size, self.dilation_rate
  return { (k[1] - 1) * d[1] + 1, (k[2] - 1) * d[2] + 1 }
end

function Conv2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  local channels = images.shape_last(self, shape)[4]
  if channels % self.groups ~= 0 then
    self:fail("%d channels cannot be dealt out to %d groups", channels, self.groups)
  end
  self:output_shape(shape)
  self.channels = channels
  self.kernel = self:add_weight { name = "kernel", initializer = self.kernel_initializer,
    regularizer = self.kernel_regularizer,
    shape = { self.kernel_size[1], self.kernel_size[2], channels / self.groups, self.filters } }
  if self.use_bias then
    self.bias = self:add_weight { name = "bias", shape = { self.filters },
      initializer = self.bias_initializer, regularizer = self.bias_regularizer }
  end
end

function Conv2D:output_shape(shape)
  local s, w, out = images.shape_last(self, shape), windows(self), {}
  for i = 1, 2 do
    out[i] = images.output_size(s[i + 1], w[i], self.strides[i], self.padding)
    if out[i] < 1 and s[i + 1] ~= -1 then
      self:fail("the kernel {%d, %d} does not fit into the input %s: pad it or use a smaller kernel",
        self.kernel_size[1], self.kernel_size[2], self.shape_text(shape))
    end
  end
  return images.shape_back(self, { s[1], out[1], out[2], self.filters })
end

function Conv2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  return images.as_last(self, x, function(t)
    local s = t:shape()
    if s[4] ~= self.channels then
      self:fail("the input has %d channels, the layer was built for %d", s[4], self.channels)
    end
    local y = ops.conv2d(t, self.kernel, { strides = self.strides, groups = self.groups,
      dilations = self.dilation_rate,
      pads = images.pads(self.padding, s[2], s[3], windows(self), self.strides) })
    if self.bias then y = y + self.bias end
    return self.activate(y)
  end)
end

return Conv2D
