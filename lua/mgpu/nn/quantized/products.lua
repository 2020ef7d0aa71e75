--- The quantized forms of Dense, EinsumDense and Conv2D: see layers.lua.
--
-- Weights of 8 bits are symmetric, with a scale for each output channel. Dense and Conv2D compute with integers
-- (conv2d_int8): under a static policy with the range of the input that calibration has found, else, as in Keras, with
-- the largest magnitude of each row. EinsumDense computes with whole numbers in float32. Weights of 4 bits become
-- float32 when they are used, as in Keras.
local activations = require "mgpu.nn.activations"
local bytes = require "mgpu.nn.quantized.bytes"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local layers = require "mgpu.nn.quantized.layers"

local ops = core.ops
local M = {}

local ONE = { 1, 1 }
local FUSED = { relu = "relu", relu6 = "relu6", linear = "linear" }
M.DEPTH = math.floor((2 ^ 31 - 1) / (255 * 127)) -- products whose sum fits into 32 bits

-- The activation that the op applies, and what is left to do after it.
local function activation_of(self)
  local fused = self.activation == nil and "linear" or FUSED[self.activation]
  return fused or "linear", fused and activations.get(nil) or self.activate
end

local function float32(t) return ops.cast(t, { dtype = "float32" }) end

-- The bias as float32, zeros if there is none.
local function bias_of(self, n, device)
  return self.bias and float32(self.bias:value()) or ops.full({ n }, 0, "float32"):to(device)
end

-- The range of the input as the op takes it: empty if each row has its own.
local function range_of(self, device)
  if self.input_range then return self.input_range:value() end
  return core.ops.full({ 0 }, 0, "float32"):to(device)
end

-- Appends those of the specs that are not nil.
local function add(list, ...)
  for i = 1, select("#", ...) do list[#list + 1] = (select(i, ...)) end
  return list
end

-- Specs of a kernel {rows, columns} of 4 bits, with blocks along its rows if q.block says so.
local function nibble_specs(self, rows, columns, bias, q)
  local list = add({ { "kernel", { rows, math.ceil(columns / 2) }, "uint8" } }, bias)
  if not q.block then return add(list, { "kernel_scale", { columns } }) end
  local groups = math.ceil(rows / q.block)
  self.groups = groups
  return add(list, { "kernel_scale", { groups, columns } }, { "kernel_zero", { groups, columns }, "uint8" },
    { "g_idx", { rows } })
end

--- block_indexes(n, block) -> float32 {n}: the block of each row.
function M.block_indexes(n, block)
  return ops.floor(ops.iota({ shape = { n }, dtype = "float32" }) / block)
end

-- The values of these weights from a float kernel {rows, columns}.
local function nibble_values(kernel, q)
  if not q.block then
    local codes, scale = bytes.abs_max(kernel, { 1 }, 4)
    return { kernel = bytes.to_nibbles(codes), kernel_scale = ops.reshape(scale, { shape = { kernel:shape()[2] } }) }
  end
  local codes, scale, zero = bytes.grouped(kernel, q.block)
  return { kernel = bytes.to_nibbles(codes), kernel_scale = scale, kernel_zero = bytes.to_bytes(zero),
    g_idx = M.block_indexes(kernel:shape()[1], q.block) }
end

-- The float kernel {rows, columns} of these weights.
local function nibble_kernel(self, columns)
  local codes, scale = bytes.nibbles(self.kernel:value(), columns), self.kernel_scale:value()
  if not self.kernel_zero then return codes / scale end
  local groups = ops.cast(self.g_idx:value(), { dtype = "int32" })
  local zero = ops.gather(bytes.codes(self.kernel_zero:value()), groups, { axis = 1 })
  return (codes - zero) * ops.gather(scale, groups, { axis = 1 })
end

M.nibble_specs, M.nibble_values, M.nibble_kernel = nibble_specs, nibble_values, nibble_kernel

local INT8 = { kernel = true, kernel_zero = true }
local function to_bytes(_, t) return bytes.to_bytes(t) end
local CHECK = {
  g_idx = function(self, t) return layers.whole(t, 0, self.groups - 1) end,
  input_range = function(_, t)
    local n = t:totable()
    local fits = n[1] > 0 and n[1] < math.huge and n[2] >= 0 and n[2] <= 255 and n[2] % 1 == 0
    return not fits and "is no range: a positive scale, and a whole number from 0 to 255" or nil
  end,
}

M.CHECK = CHECK

local function copy(t, more)
  local new = {}
  for _, from in ipairs { t, more } do
    for k, v in pairs(from) do new[k] = v end
  end
  return new
end

-- The bytes behind the end of a run must be 0: they are multiplied with a neighbour's pixels.
local function padding_fault(t, again)
  if not ops.all(ops.eq(t, again)):item() then return "has a number other than 0 in its padding" end
end

-- ---- Dense --------------------------------------------------------------------------------------

local Dense = { int8 = INT8 }
M.Dense = Dense

function Dense.applies(_, q) return q ~= nil end

function Dense.specs(self, shape, q)
  if #shape < 2 then
    self:fail("the input must have at least 2 axes (batch, features), got shape %s", self.shape_text(shape))
  end
  local inputs, bias = shape[#shape], self.use_bias and { "bias", { self.units } } or nil
  self.inputs = inputs
  if inputs < 1 then self:fail("the input's features must be known, got shape %s", self.shape_text(shape)) end
  if q.bits == 4 then return nibble_specs(self, inputs, self.units, bias, q) end
  local list = add({ { "kernel", bytes.packed_shape(ONE, inputs, self.units, ONE), "uint8" } }, bias,
    { "kernel_scale", { self.units } })
  return q.static and add(list, { "input_range", { 2 } }) or list
end

function Dense.values(self, q, range, kernel)
  kernel = kernel or float32(require "mgpu.nn.layers.lora".weight(self):value())
  if q.bits == 4 then return nibble_values(kernel, q) end
  local codes, scale = bytes.abs_max(kernel, { 1 }, 8)
  local s = kernel:shape()
  return { kernel = bytes.pack(ops.reshape(codes, { shape = { 1, 1, s[1], s[2] } }), ONE),
    kernel_scale = ops.reshape(scale, { shape = { s[2] } }), input_range = range and core.tensor(range) }
end

-- x {..., inputs} times the kernel by integers, with bias and activation.
local function by_integers(self, x, shape)
  local n, device = self.inputs, x:device()
  local activation, rest = activation_of(self)
  local rows = x:count() / n
  local y = ops.conv2d_int8(ops.reshape(float32(x), { shape = { rows, 1, 1, n } }), self.kernel:value(),
    self.kernel_scale:value(), bias_of(self, self.units, device), range_of(self, device), { activation = activation })
  shape[#shape] = self.units
  return rest(ops.cast(ops.reshape(y, { shape = shape }), { dtype = self.compute_dtype }))
end

function Dense.call(self, x)
  local shape = x:shape()
  if shape[#shape] ~= self.inputs then
    self:fail("the input has %s features, the layer was built for %d", tostring(shape[#shape]), self.inputs)
  end
  local q = self.quantization
  if q.bits == 8 and (q.static or q.activations) then return by_integers(self, x, shape) end
  local y
  if q.bits == 8 then
    y = ops.matmul(float32(x), Dense.to_file.codes(self)) / self.kernel_scale:value()
  else
    local t, steps = float32(x), nil
    if q.activations then t, steps = bytes.abs_max(t, { #shape }, 8) end
    y = ops.matmul(t, nibble_kernel(self, self.units))
    if steps then y = y / steps end
  end
  y = ops.cast(y, { dtype = self.compute_dtype })
  return self.activate(self.bias and y + self.bias or y)
end

Dense.to_file = {
  codes = function(self)
    local codes = bytes.unpack(self.kernel:value(), ONE, self.inputs, ONE)
    return ops.reshape(codes, { shape = { self.inputs, self.units } })
  end,
  kernel = function(self, t)
    return self.quantization.bits == 4 and t or bytes.to_bytes(Dense.to_file.codes(self))
  end,
}
Dense.from_file = {
  kernel = function(self, t)
    if self.quantization.bits == 4 then return bytes.to_bytes(t) end
    local s = t:shape()
    if #s ~= 2 then return t end -- is refused for its shape
    return bytes.pack(ops.reshape(t, { shape = { 1, 1, s[1], s[2] } }), ONE)
  end,
  kernel_zero = to_bytes,
}
Dense.check = copy(CHECK, { kernel = function(self, t)
  if self.quantization.bits == 4 or self.inputs % 4 == 0 then return nil end
  return padding_fault(t, bytes.pack(bytes.unpack(t, ONE, self.inputs, ONE), ONE))
end })

-- ---- Conv2D -------------------------------------------------------------------------------------

local Conv2D = { int8 = {}, to_file = {}, from_file = {} }
M.Conv2D = Conv2D

function Conv2D.applies(_, q) return q.static end

function Conv2D.specs(self, shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self.channels = images.channels_of(self, shape)
  if self.groups ~= 1 then self:fail "weights of 8 bits are for groups = 1" end
  self:output_shape(shape)
  return { { "kernel", bytes.packed_shape(self.kernel_size, self.channels, self.filters, self.dilation_rate), "uint8" },
    { "bias", { self.filters } }, { "kernel_scale", { self.filters } }, { "input_range", { 2 } } }
end

--- values(self, q, range, kernel) -> as in layers.lua; kernel: in place of the layer's own, which a norm was folded
--- into.
function Conv2D.values(self, _, range, kernel)
  kernel = kernel or float32(require "mgpu.nn.layers.lora".weight(self):value())
  local codes, scale = bytes.abs_max(kernel, { 1, 2, 3 }, 8)
  return { kernel = bytes.pack(codes, self.dilation_rate), input_range = core.tensor(range),
    kernel_scale = ops.reshape(scale, { shape = { self.filters } }) }
end

function Conv2D.call(self, x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  images.check_input(self, x)
  local activation, rest = activation_of(self)
  local y = images.as_last(self, float32(x), function(t)
    local s = t:shape()
    return ops.conv2d_int8(t, self.kernel:value(), self.kernel_scale:value(), float32(self.bias:value()),
      self.input_range:value(), { size = self.kernel_size, strides = self.strides, dilations = self.dilation_rate,
        activation = activation, pads = images.pads(self.padding, s[2], s[3], self.span, self.strides) })
  end)
  return rest(ops.cast(y, { dtype = self.compute_dtype }))
end

Conv2D.check = copy(CHECK, { kernel = function(self, t)
  local codes = bytes.unpack(t, self.kernel_size, self.channels, self.dilation_rate)
  return padding_fault(t, bytes.pack(codes, self.dilation_rate))
end })

return M
