--- Layers that place the elements of a sample in another shape or order.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local M = {}

-- ---- Reshape ------------------------------------------------------------------------------------

--- Reshape {7, 7, 64}: the new shape of one sample; one size may be -1 and is computed.
-- x {batch, ...} -> {batch, 7, 7, 64}. Errors: a sample with another number of elements; several -1.
-- Example:
--     print(unpack(L.Reshape { 7, 7, -1 } (mgpu.ones { 2, 3136 }):shape()))  --> 2 7 7 64
local Reshape = Layer:extend("Reshape", { whole = "target_shape", positional = 0,
  { "target_shape", "shape", required = true } })

function Reshape:init()
  for i, size in ipairs(self.target_shape) do
    if size == -1 then
      if self.unknown then self:fail("only one size may be -1") end
      self.unknown = i + 1
    end
  end
end

local function product(shape, first)
  local n = 1
  for i = first, #shape do
    if shape[i] == -1 then return nil end
    n = n * shape[i]
  end
  return n
end

function Reshape:output_shape(shape)
  local out = { shape[1], unpack(self.target_shape) }
  local n = product(shape, 2)
  if not n then return out end -- a size is unknown
  if self.unknown then out[self.unknown] = 1 end
  local known = product(out, 2)
  if self.unknown then out[self.unknown] = known > 0 and math.floor(n / known) or 0 end
  if product(out, 2) ~= n then
    self:fail("a sample of shape %s has %d elements, which do not fit %s",
      self.shape_text { select(2, unpack(shape)) }, n, self.shape_text(self.target_shape))
  end
  return out
end

function Reshape:call(x) return core.ops.reshape(x, self:output_shape(x:shape())) end

M.Reshape = Reshape

-- ---- Flatten ------------------------------------------------------------------------------------

--- Flatten {data_format =}: x {batch, ...} -> {batch, product of the other sizes}.
-- channels_first data are flattened in channels_last order, as in Keras.
-- Example:
--     print(unpack(L.Flatten {} (mgpu.ones { 8, 7, 7, 64 }):shape()))  --> 8 3136
local Flatten = Layer:extend("Flatten", { positional = 0, images.data_format })

function Flatten:output_shape(shape) -- luacheck: no self
  local n = 1
  for i = 2, #shape do
    if shape[i] == -1 then return { shape[1], -1 } end
    n = n * shape[i]
  end
  return { shape[1], n }
end

-- channels_first data is flattened in channels_last order, as in Keras.
function Flatten:call(x)
  local rank = x:rank()
  if rank > 2 and images.is_first(self) then
    local order = { 1 }
    for i = 3, rank do order[i - 1] = i end
    order[rank] = 2
    x = core.ops.permute(x, { order = order })
  end
  return core.ops.reshape(x, self:output_shape(x:shape()))
end

M.Flatten = Flatten

-- ---- Permute ------------------------------------------------------------------------------------

--- Permute {2, 1}: the axes of a sample in another order; 1 is the first axis after the batch.
-- x {batch, a, b} -> {batch, b, a} for {2, 1}. Errors: dims that do not hold 1 .. n once each, or another n than x.
-- Example:
--     -- channels first
--     print(unpack(L.Permute { 3, 1, 2 } (mgpu.ones { 8, 28, 28, 3 }):shape()))  --> 8 3 28 28
local Permute = Layer:extend("Permute", { whole = "dims", positional = 0,
  { "dims", "shape", required = true } })

function Permute:init()
  local seen = {}
  for _, d in ipairs(self.dims) do
    if d < 1 or d > #self.dims or seen[d] then
      self:fail("dims must hold 1 to %d, each once: 1 is the first axis after the batch", #self.dims)
    end
    seen[d] = true
  end
end

function Permute:build(shape) self:output_shape(shape) end

function Permute:output_shape(shape)
  if #shape ~= #self.dims + 1 then
    self:fail("the input %s has %d axes after the batch, dims name %d", self.shape_text(shape),
      #shape - 1, #self.dims)
  end
  local out = { shape[1] }
  for i, d in ipairs(self.dims) do out[i + 1] = shape[d + 1] end
  return out
end

function Permute:call(x)
  self:output_shape(x:shape())
  local order = { 1 }
  for i, d in ipairs(self.dims) do order[i + 1] = d + 1 end
  return core.ops.permute(x, { order = order })
end

M.Permute = Permute

-- ---- RepeatVector, Identity ---------------------------------------------------------------------

--- RepeatVector {n}: x {batch, features} -> {batch, n, features}, the same features n times.
-- Example:
--     print(L.RepeatVector { 2 } (mgpu.tensor { { 1, 2 } }))
--     --> tensor {1, 2, 2} float32 cpu:0
--     --> {{{1, 2},
--     -->   {1, 2}}}
local RepeatVector = Layer:extend("RepeatVector", { positional = 1, { "n", "integer", min = 1, required = true } })

function RepeatVector:build(shape) self:need_rank(shape, 2, "batch, features") end

function RepeatVector:output_shape(shape) return { shape[1], self.n, shape[2] } end

function RepeatVector:call(x)
  local shape = x:shape()
  self:need_rank(shape, 2, "batch, features")
  local y = core.ops.reshape(x, { shape = { shape[1], 1, shape[2] } })
  return core.ops.broadcast_to(y, { shape = { shape[1], self.n, shape[2] } })
end

M.RepeatVector = RepeatVector

--- Identity {}: x of any shape and dtype -> x.
-- Example:
--     print(L.Identity {} (mgpu.tensor { 1, 2 }))
--     --> tensor {2} float32 cpu:0
--     --> {1, 2}
local Identity = Layer:extend("Identity", { positional = 0 })

Identity.supports_masking = true

function Identity:output_shape(shape) return shape end -- luacheck: no self

function Identity:call(x) return x end -- luacheck: no self

M.Identity = Identity

return M
