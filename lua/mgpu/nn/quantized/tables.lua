--- The quantized forms of Embedding and ReversibleEmbedding: see layers.lua.
--
-- As in Keras, a row of the table has a scale (a scale and a zero point for each block, with 4 bits in blocks). Only
-- the rows that are looked up become float32. Scores of ReversibleEmbedding are computed with whole numbers in float32.
local bytes = require "mgpu.nn.quantized.bytes"
local core = require "mgpu.core"
local layers = require "mgpu.nn.quantized.layers"
local products = require "mgpu.nn.quantized.products"

local ops = core.ops
local M = {}

local function transposed(t) return ops.permute(t, { order = { 2, 1 } }) end
local function flat(t) return ops.reshape(t, { shape = { t:count() } }) end
local function groups_of(self) return ops.cast(self.g_idx:value(), { dtype = "int32" }) end

-- ---- Embedding ----------------------------------------------------------------------------------

local Embedding = { int8 = { embeddings = true, embeddings_zero = true } }
M.Embedding = Embedding

function Embedding.specs(self, _, q)
  local rows, n = self.input_dim, self.output_dim
  local list = { { "embeddings", { rows, q.bits == 4 and math.ceil(n / 2) or n }, "uint8" } }
  if q.bits == 8 or not q.block then
    list[2] = { "embeddings_scale", { rows } }
    return list
  end
  self.groups = math.ceil(n / q.block)
  list[2] = { "embeddings_scale", { rows, self.groups } }
  list[3] = { "embeddings_zero", { rows, self.groups }, "uint8" }
  list[4] = { "g_idx", { n } }
  return list
end

function Embedding.values(self, q)
  local t = ops.cast(require "mgpu.nn.layers.lora".weight(self):value(), { dtype = "float32" })
  if q.bits == 4 and q.block then
    local codes, scale, zero = bytes.grouped(transposed(t), q.block)
    return { embeddings = bytes.to_nibbles(transposed(codes)), embeddings_scale = transposed(scale),
      embeddings_zero = bytes.to_bytes(transposed(zero)), g_idx = products.block_indexes(self.output_dim, q.block) }
  end
  local codes, scale = bytes.abs_max(t, { 2 }, q.bits)
  return { embeddings = q.bits == 4 and bytes.to_nibbles(codes) or bytes.to_bytes(codes),
    embeddings_scale = flat(scale) }
end

-- Rows of codes with their scales and zero points as floats; nil for no zero points.
local function as_floats(self, codes, scale, zero)
  if not zero then
    local shape = scale:shape()
    shape[#shape + 1] = 1
    return codes / ops.reshape(scale, { shape = shape })
  end
  local groups, axis = groups_of(self), { axis = #scale:shape() }
  return (codes - ops.gather(bytes.codes(zero), groups, axis)) * ops.gather(scale, groups, axis)
end

function Embedding.call(self, x)
  local ids = require "mgpu.nn.layers.basic".ids(self, x)
  local function rows(v) return ops.gather(v:value(), ids, { axis = 1 }) end
  local found = rows(self.embeddings)
  local codes = self.quantization.bits == 4 and bytes.nibbles(found, self.output_dim) or bytes.codes(found)
  local y = as_floats(self, codes, rows(self.embeddings_scale), self.embeddings_zero and rows(self.embeddings_zero))
  return ops.cast(y, { dtype = self.compute_dtype })
end

local function to_bytes(_, t) return bytes.to_bytes(t) end
Embedding.from_file = { embeddings = to_bytes, embeddings_zero = to_bytes, reverse_embeddings = to_bytes }
Embedding.check = { g_idx = function(self, t) return layers.whole(t, 0, self.groups - 1) end }

-- ---- ReversibleEmbedding ------------------------------------------------------------------------

local Reversible = { int8 = { embeddings = true, embeddings_zero = true, reverse_embeddings = true },
  from_file = Embedding.from_file, check = Embedding.check }
M.ReversibleEmbedding = Reversible

function Reversible.specs(self, shape, q)
  local list = Embedding.specs(self, shape, q)
  if self.tie_weights then return list end
  local rows, n, block = self.output_dim, self.input_dim, q.bits == 4 and q.block
  local groups = block and math.ceil(rows / block)
  list[#list + 1] = { "reverse_embeddings", { q.bits == 4 and math.ceil(rows / 2) or rows, n }, "uint8" }
  list[#list + 1] = { "reverse_embeddings_scale", block and { groups, n } or { n } }
  if block then list[#list + 1] = { "reverse_embeddings_zero", { groups, n } } end
  return list
end

function Reversible.values(self, q)
  local values = Embedding.values(self, q)
  if self.tie_weights then return values end
  local t = ops.cast(self.reverse_embeddings:value(), { dtype = "float32" })
  local codes, scale, zero
  if q.bits == 4 and q.block then
    codes, scale, zero = bytes.grouped(t, q.block)
    values.reverse_embeddings_scale, values.reverse_embeddings_zero = scale, zero
  else
    codes, scale = bytes.abs_max(t, { 1 }, q.bits)
    values.reverse_embeddings_scale = flat(scale)
  end
  values.reverse_embeddings = q.bits == 4 and transposed(bytes.to_nibbles(transposed(codes))) or bytes.to_bytes(codes)
  return values
end

-- The codes {output_dim, input_dim} that x is multiplied with, and their scale: {input_dim}; or, in
-- blocks, the numbers themselves and no scale.
local function reverse_codes(self)
  local tied, four = self.tie_weights, self.quantization.bits == 4
  local table = tied and self.embeddings:value() or self.reverse_embeddings:value()
  local codes
  if four then
    codes = transposed(bytes.nibbles(tied and table or transposed(table), self.output_dim))
  else
    codes = bytes.codes(tied and transposed(table) or table)
  end
  local scale = (tied and self.embeddings_scale or self.reverse_embeddings_scale):value()
  if not self.embeddings_zero then return codes, scale end
  local zero
  if tied then
    zero = transposed(bytes.codes(self.embeddings_zero:value()))
  else
    zero = self.reverse_embeddings_zero:value()
  end
  if tied then scale = transposed(scale) end
  local function spread(t) return ops.gather(t, groups_of(self), { axis = 1 }) end
  return (codes - spread(zero)) * spread(scale), nil
end

function Reversible.call(self, x, options)
  if not options.reverse then return Embedding.call(self, x) end
  self:output_shape(x:shape(), nil, options)
  local codes, scale = reverse_codes(self)
  local t, steps = ops.cast(x, { dtype = "float32" }), nil
  if self.quantization.activations then t, steps = bytes.abs_max(t, { t:rank() }, 8) end
  local y = ops.matmul(t, codes)
  local divisor = steps and scale and steps * scale or steps or scale
  if divisor then y = y / divisor end
  y = ops.cast(y, { dtype = self.compute_dtype })
  local cap = self.logit_soft_cap
  return cap and ops.tanh(y * (1 / cap)) * cap or y
end

return M
