--- Reshape {7, 7, 64}: the new shape of one sample; one size may be -1 and is computed.
-- x {batch, ...} -> {batch, 7, 7, 64}. Errors: a sample with another number of elements; several -1.
-- Example:
--     print(unpack(L.Reshape { 7, 7, -1 } (mgpu.ones { 2, 3136 }):shape()))  --> 2 7 7 64
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

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

return Reshape
