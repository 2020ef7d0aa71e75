--- Reshape {7, 7, 64}: one sample's new shape; one size may be -1.
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local Reshape = Layer:extend("Reshape", { whole = "target_shape", positional = 0,
  { "target_shape", "shape", required = true } })

function Reshape:output_shape(shape)
  local n, known, unknown = 1, 1, nil
  local out = { shape[1], unpack(self.target_shape) }
  for i = 2, #shape do n = n * shape[i] end
  for i = 2, #out do
    if out[i] == -1 then
      if unknown then self:fail("only one size may be -1") end
      unknown = i
    else
      known = known * out[i]
    end
  end
  if unknown then out[unknown] = n / known end
  if known * (unknown and out[unknown] or 1) ~= n or (unknown and out[unknown] % 1 ~= 0) then
    self:fail("a sample of shape %s has %d elements, which do not fit %s",
      self.shape_text { select(2, unpack(shape)) }, n, self.shape_text(self.target_shape))
  end
  return out
end

function Reshape:call(x) return core.ops.reshape(x, self:output_shape(x:shape())) end

return Reshape
