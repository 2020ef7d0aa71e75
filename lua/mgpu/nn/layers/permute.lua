--- Permute {2, 1}: the axes of a sample in another order; 1 is the first axis after the batch.
-- x {batch, a, b} -> {batch, b, a} for {2, 1}. Errors: dims that do not hold 1 .. n once each, or another n than x.
-- Example:
--     -- channels first
--     print(unpack(L.Permute { 3, 1, 2 } (mgpu.ones { 8, 28, 28, 3 }):shape()))  --> 8 3 28 28
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

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

return Permute
