--- Recurrent layers over sequences of images, of volumes or of sequences: LSTMs whose products are convolutions.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local gates = require "mgpu.nn.layers.recurrent.gates"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"
local RNN = require "mgpu.nn.layers.recurrent.rnn"
local spaces = require "mgpu.nn.layers.spaces"
local volumes = require "mgpu.nn.layers.volumes"

local ops = core.ops
local M = {}

-- The convolution of images {batch, rows, columns, channels}.
local function over_images(t, kernel, strides, dilations, padding)
  local s, k = t:shape(), kernel:shape()
  return ops.conv2d(t, kernel, { strides = strides, dilations = dilations,
    pads = images.pads(padding, s[2], s[3], images.spans({ k[1], k[2] }, dilations), strides) })
end

-- Of sequences {batch, rows, channels}, as images of one row.
local function over_sequences(t, kernel, strides, dilations, padding)
  local s, k = t:shape(), kernel:shape()
  t = ops.reshape(t, { shape = { s[1], 1, s[2], s[3] } })
  local y = over_images(t, ops.reshape(kernel, { shape = { 1, unpack(k) } }), { 1, strides[1] }, { 1, dilations[1] },
    padding)
  s = y:shape()
  return ops.reshape(y, { shape = { s[1], s[3], s[4] } })
end

-- Of volumes {batch, depth, rows, columns, channels}.
local function over_volumes(t, kernel, strides, dilations, padding)
  return volumes.conv(t, core.is_tensor(kernel) and kernel or kernel:value(),
    { strides = strides, dilations = dilations, padding = padding })
end

-- What depends on the number of axes of an image: its options and axes, and the convolution with the channels last.
local KINDS = {
  { size = "single", one = 1, axes = "batch, steps, rows, channels", convolve = over_sequences },
  { size = "pair", one = { 1, 1 }, axes = "batch, steps, rows, columns, channels", convolve = over_images },
  { size = "triple", one = { 1, 1, 1 }, axes = "batch, steps, depth, rows, columns, channels",
    convolve = over_volumes },
}

local function as_list(sizes) return type(sizes) == "table" and sizes or { sizes } end

local function options_of(rank)
  local kind = KINDS[rank]
  return gates.options({ positional = 2,
    { "filters", "integer", min = 1, required = true },
    { "kernel_size", kind.size, min = 1, required = true },
    { "strides", kind.size, min = 1, default = kind.one },
    { "padding", "string", default = "valid", values = { "valid", "same" } },
    images.data_format,
    { "dilation_rate", kind.size, min = 1, default = kind.one },
    { "activation", "activation", default = "tanh" },
    { "recurrent_activation", "activation", default = "sigmoid" },
  }, { { "unit_forget_bias", "boolean", default = true } })
end

-- The convolution of t, in the cell's data format, with a kernel.
local function convolve(cell, t, kernel, strides, dilations, padding)
  return spaces.as_last(cell, t, function(x)
    return KINDS[cell.rank].convolve(x, kernel, strides, dilations, padding)
  end)
end

-- The parts of t along its channels.
local function channel_parts(cell, t, n)
  return t:split(n, images.is_first(cell) and 2 or -1)
end

-- The products of all gates, side by side in the channels.
local function product(cell, x, kernel, masks, strides, dilations, padding)
  local function multiply(t, part) return convolve(cell, t, part, strides, dilations, padding) end
  return gates.product(x, kernel, masks, multiply, images.is_first(cell) and 2 or -1)
end

-- x {steps, batch, ...} as {batch * steps, ...}, fn of it, and back; the batch stays in front, so that it can be split
-- over devices.
local function over_steps(x, rank, fn)
  if x:rank() == rank then return fn(x) end
  local order, s = { 2, 1 }, x:shape()
  for axis = 3, #s do order[axis] = axis end
  local y = fn(ops.reshape(ops.permute(x, { order = order }), { shape = { s[1] * s[2], unpack(s, 3) } }))
  y = ops.reshape(y, { shape = { s[2], s[1], unpack(y:shape(), 2) } })
  return ops.permute(y, { order = order })
end

-- The size of an axis after the convolution.
local function output_sizes(cell, sizes)
  local out = {}
  for i, size in ipairs(sizes) do
    out[i] = images.output_size(size, cell.spans[i], cell.all_strides[i], cell.padding)
    if out[i] < 1 then
      cell:fail("the kernel does not fit into an input of size %d: pad it or use a smaller one", size)
    end
  end
  return out
end

-- The class of cells for images of `rank` axes. It is no public layer, as in Keras.
local function cell_class(rank)
  local Cell = Layer:extend("ConvLSTMCell", options_of(rank))
  local in_loop, ones = {}, as_list(KINDS[rank].one)
  Cell.rank, Cell.gates, Cell.in_loop = rank, 4, in_loop

  function Cell:init()
    gates.start(self)
    images.check_steps(self)
    self.all_strides, self.all_dilations = as_list(self.strides), as_list(self.dilation_rate)
    self.sizes = as_list(self.kernel_size)
    self.spans = images.spans(self.sizes, self.all_dilations)
  end

  function Cell:build(shape)
    local first = images.is_first(self)
    local channels = shape[first and 2 or #shape]
    local sizes = { unpack(shape, first and 3 or 2, first and #shape or #shape - 1) }
    for _, size in ipairs { channels, unpack(sizes) } do
      if size == -1 then self:fail("the sizes of the images must be known, got shape %s", self.shape_text(shape)) end
    end
    sizes = output_sizes(self, sizes)
    table.insert(sizes, first and 1 or #sizes + 1, self.filters)
    self.state_shape = sizes
    local kernel, recurrent = { unpack(self.sizes) }, { unpack(self.sizes) }
    for list, inputs in pairs { [kernel] = channels, [recurrent] = self.filters } do
      list[#list + 1], list[#list + 2] = inputs, 4 * self.filters
    end
    gates.add_weights(self, kernel, recurrent, { 4 * self.filters })
  end

  function in_loop.state_shapes(self) return { self.state_shape, self.state_shape } end

  function in_loop.draw(self, shape, dtype, training) -- each gate has its masks, as in Keras
    local constants = gates.draw(self, shape, dtype, training, 4)
    if self.bias and images.is_first(self) then
      local sizes = { 4 * self.filters }
      for _ = 1, rank do sizes[#sizes + 1] = 1 end
      constants.bias = ops.reshape(self.bias, { shape = sizes })
    else
      constants.bias = self.bias
    end
    return constants
  end

  function in_loop.project(self, x, constants)
    local function convolved(t, part)
      return over_steps(t, rank + 2, function(merged)
        return convolve(self, merged, part, self.all_strides, self.all_dilations, self.padding)
      end)
    end
    local y = gates.product(x, self.kernel, constants.input, convolved, images.is_first(self) and -1 - rank or -1)
    return constants.bias and y + constants.bias or y
  end

  function in_loop.step(self, x, states, constants)
    local z = x + product(self, states[1], self.recurrent_kernel, constants.recurrent, ones, ones, "same")
    local i, f, g, o = unpack(channel_parts(self, z, 4))
    local c = self.gate(f) * states[2] + self.gate(i) * self.activate(g)
    local h = self.gate(o) * self.activate(c)
    return h, { h, c }
  end

  return Cell
end

local function layer_class(rank)
  local class = RNN.of_cell(("ConvLSTM%dD"):format(rank), cell_class(rank), options_of(rank))
  class.rank, class.axes = rank + 3, KINDS[rank].axes
  return class
end

--- ConvLSTM1D {filters, kernel_size, strides = 1, padding = "valid", return_sequences = false, ...}
-- An LSTM over sequences of sequences, whose products with kernels are convolutions. x {batch, steps, rows, channels}
-- (or channels_first: {batch, steps, channels, rows}) -> {batch, rows', filters}, with return_sequences {batch, steps,
-- rows', filters}. Weights: kernel {kernel_size, channels, 4 filters}, recurrent_kernel {kernel_size, filters,
-- 4 filters}, bias {4 filters}. The state is convolved with padding "same". Options and errors: as ConvLSTM2D.
-- Example:
--     print(unpack(L.ConvLSTM1D { 4, 3 } (mgpu.ones { 2, 5, 8, 1 }):shape()))  --> 2 6 4
M.ConvLSTM1D = layer_class(1)

--- ConvLSTM2D {filters, kernel_size, strides = {1, 1}, padding = "valid", return_sequences = false, ...}
-- An LSTM over sequences of images, whose products with kernels are convolutions. x {batch, steps, rows, columns,
-- channels} (or channels_first: {batch, steps, channels, rows, columns}) -> {batch, rows', columns', filters}, with
-- return_sequences {batch, steps, rows', columns', filters}. The state is convolved with padding "same".
-- Weights: kernel {rows, columns, channels, 4 filters}, recurrent_kernel {rows, columns, filters, 4 filters}, bias
-- {4 filters}. Options: data_format, dilation_rate = {1, 1}, and those of LSTM. Errors: sizes of images that are not
-- known; strides and dilation_rate both above 1; a kernel larger than the image.
-- Source: Shi et al., Convolutional LSTM network, 2015.
-- Example:
--     local film = L.ConvLSTM2D { 4, 3, padding = "same", return_sequences = true }
--     print(unpack(film(mgpu.ones { 2, 5, 8, 8, 1 }):shape()))  --> 2 5 8 8 4
M.ConvLSTM2D = layer_class(2)

--- ConvLSTM3D {filters, kernel_size, strides = {1, 1, 1}, padding = "valid", return_sequences = false, ...}
-- An LSTM over sequences of volumes, whose products with kernels are convolutions. x {batch, steps, depth, rows,
-- columns, channels} (or channels_first: {batch, steps, channels, depth, rows, columns}) -> {batch, depth', rows',
-- columns', filters}, with return_sequences {batch, steps, depth', rows', columns', filters}.
-- Weights: kernel {depth, rows, columns, channels, 4 filters}, recurrent_kernel {depth, rows, columns, filters,
-- 4 filters}, bias {4 filters}. Options and errors: as ConvLSTM2D.
-- Example:
--     print(unpack(L.ConvLSTM3D { 2, 3 } (mgpu.ones { 1, 2, 4, 5, 6, 1 }):shape()))  --> 1 2 3 4 2
M.ConvLSTM3D = layer_class(3)

return M
