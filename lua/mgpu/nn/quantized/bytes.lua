--- Weights of 8 and 4 bits in tensors of uint8, and Keras's ways to round weights to them.
--
-- Tensors have no dtype int8, which only weights would use: their bytes (two's complement) lie in uint8. Two weights of
-- 4 bits share a byte, as in Keras: the first is in the low half. Codes are whole numbers in float32.
-- Scales are codes per unit, as in Keras: weight = code / scale.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

M.EPSILON = 1e-7 -- Keras's backend.epsilon

-- ---- bytes --------------------------------------------------------------------------------------

--- codes(t) -> the bytes of uint8 t as numbers from -128 to 127, in float32.
function M.codes(t)
  local v = ops.cast(t, { dtype = "float32" })
  return v - ops.cast(ops.ge(v, 128), { dtype = "float32" }) * 256
end

--- to_bytes(codes) -> uint8 with the bytes of whole numbers from -128 to 127, of any dtype.
function M.to_bytes(codes)
  local v = ops.cast(codes, { dtype = "float32" })
  return ops.cast(v + ops.cast(ops.lt(v, 0), { dtype = "float32" }) * 256, { dtype = "uint8" })
end

-- ---- halves of bytes ----------------------------------------------------------------------------

--- nibbles(t, n) -> the 4-bit numbers -8 to 7 of uint8 t {..., ceil(n / 2)} as float32 {..., n}.
function M.nibbles(t, n)
  local v, shape = ops.cast(t, { dtype = "float32" }), t:shape()
  local high = ops.floor(v * (1 / 16))
  shape[#shape + 1] = 1
  local both = ops.concat(ops.reshape(v - high * 16, { shape = shape }), ops.reshape(high, { shape = shape }),
    { axis = #shape })
  both = both - ops.cast(ops.ge(both, 8), { dtype = "float32" }) * 16
  shape[#shape] = nil
  shape[#shape] = 2 * shape[#shape]
  both = ops.reshape(both, { shape = shape })
  if shape[#shape] == n then return both end
  local start, size = {}, shape
  for i = 1, #shape do start[i] = 0 end
  size[#size] = n
  return ops.slice(both, { start = start, stop = size })
end

--- to_nibbles(codes) -> uint8 {..., ceil(n / 2)} of whole numbers {..., n} from -8 to 7.
function M.to_nibbles(codes)
  local shape = codes:shape()
  local n = shape[#shape]
  if n % 2 == 1 then
    local after = {}
    for i = 1, #shape do after[i] = i == #shape and 1 or 0 end
    codes = ops.pad(codes, { after = after })
  end
  shape[#shape], shape[#shape + 1] = math.ceil(n / 2), 2
  local pairs_of = ops.reshape(codes + ops.cast(ops.lt(codes, 0), { dtype = "float32" }) * 16, { shape = shape })
  local weights = ops.reshape(core.tensor { 1, 16 }:to(codes:device()), { shape = { 2 } })
  return ops.cast(ops.sum(pairs_of * weights, { axis = { #shape } }), { dtype = "uint8" })
end

-- ---- rounding -----------------------------------------------------------------------------------

local function clip(x, low, high) return ops.minimum(ops.maximum(x, low), high) end

--- abs_max(x, axes, bits) -> codes and their scale (with axes of size 1): Keras's AbsMaxQuantizer. The codes are -127
--- to 127 for 8 bits, -8 to 7 for 4.
function M.abs_max(x, axes, bits)
  local low, high = -127, 127
  if bits == 4 then low, high = -8, 7 end
  local scale = ops.div(high, ops.max(ops.abs(x), { axis = axes, keepdims = true }) + M.EPSILON)
  return clip(ops.round(x * scale), low, high), scale
end

--- grouped(x, block) -> codes -8 to 7, scale and zero point {groups, n} of x {m, n}, whose rows are taken `block` at a
--- time: Keras's abs_max_quantize_grouped_with_zero_point. weight = (code - zero) * scale.
function M.grouped(x, block)
  local shape = x:shape()
  local m, n = shape[1], shape[2]
  local groups = math.ceil(m / block)
  local padded = groups * block > m and ops.pad(x, { after = { groups * block - m, 0 } }) or x
  local blocks = ops.reshape(padded, { shape = { groups, block, n } })
  local least = ops.min(blocks, { axis = { 2 }, keepdims = true })
  local scale = (ops.max(blocks, { axis = { 2 }, keepdims = true }) - least + M.EPSILON) / 15
  local zero = clip(ops.round(-least / scale) - 8, -8, 7)
  local codes = clip(ops.round(blocks / scale) + zero, -8, 7)
  codes = ops.slice(ops.reshape(codes, { shape = { groups * block, n } }), { start = { 0, 0 }, stop = { m, n } })
  return codes, ops.reshape(scale, { shape = { groups, n } }), ops.reshape(zero, { shape = { groups, n } })
end

-- ---- the order that conv2d_int8 reads -----------------------------------------------------------

-- Whether a run of the image holds all columns of a window (runtime/ops/int8_formulas.h).
local function whole_rows(size, dilations) return dilations[2] == 1 or size[2] == 1 end

--- packed_shape(size, channels, filters, dilations) -> {runs, quads, filters, 4}.
function M.packed_shape(size, channels, filters, dilations)
  local whole = whole_rows(size, dilations)
  local run = whole and size[2] * channels or channels
  return { whole and size[1] or size[1] * size[2], math.ceil(run / 4), filters, 4 }
end

--- pack(codes, dilations) -> uint8 {runs, quads, filters, 4} of codes {rows, columns, channels, filters}.
function M.pack(codes, dilations)
  local s = codes:shape()
  local shape = M.packed_shape(s, s[3], s[4], dilations)
  local run = s[1] * s[2] * s[3] / shape[1]
  local t = ops.reshape(codes, { shape = { shape[1], run, s[4] } })
  if run % 4 > 0 then t = ops.pad(t, { after = { 0, 4 - run % 4, 0 } }) end
  t = ops.reshape(t, { shape = { shape[1], shape[2], 4, s[4] } })
  return M.to_bytes(ops.permute(t, { order = { 1, 2, 4, 3 } }))
end

--- unpack(t, size, channels, dilations) -> codes {rows, columns, channels, filters}: undoes pack.
function M.unpack(t, size, channels, dilations)
  local s = t:shape()
  local whole = whole_rows(size, dilations)
  local run = whole and size[2] * channels or channels
  local v = ops.reshape(ops.permute(M.codes(t), { order = { 1, 2, 4, 3 } }), { shape = { s[1], 4 * s[2], s[3] } })
  v = ops.slice(v, { start = { 0, 0, 0 }, stop = { s[1], run, s[3] } })
  return ops.reshape(v, { shape = { size[1], size[2], channels, s[3] } })
end

return M
