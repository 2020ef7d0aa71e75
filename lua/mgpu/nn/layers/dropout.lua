--- Dropout {rate, noise_shape =, seed =}: sets elements to zero at random in training.
-- x of any shape -> the same shape. Each element is zero with probability `rate`; the others are multiplied by
-- 1 / (1 - rate), so that the mean stays. At inference it does nothing.
-- noise_shape: the sizes of the mask, batch included: -1 is the size of x; along an axis of size 1 all elements
-- share one decision. The mask is a function of seed, layer name, step and element, hence the same on any number
-- of devices. Errors: a rate outside 0..1; a noise_shape that does not fit x.
-- Source: Srivastava et al., Dropout, 2014.
-- Example:
--     local drop = L.Dropout { 0.25 }
--     local y = drop(mgpu.ones { 100, 100 }, { training = true })
--     print(("%.3f"):format(y:max():item()), math.abs(y:mean():item() - 1) < 0.05)  --> 1.333 true
--     -- at inference
--     print(drop(mgpu.ones { 100, 100 }):sum():item())  --> 10000
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local Dropout = Layer:extend("Dropout", { positional = 1,
  { "rate", "number", min = 0, max = 1, required = true },
  { "noise_shape", "shape" },
  { "seed", "integer", min = 0 },
})

Dropout.supports_masking = true

-- The mask's shape for an input's.
local function mask_shape(self, shape)
  local noise = self.noise_shape
  if not noise then return shape end
  local sizes = {}
  for i, size in ipairs(noise) do
    sizes[i] = size == -1 and shape[i] or size
    if sizes[i] ~= 1 and sizes[i] ~= shape[i] and shape[i] ~= -1 or #noise ~= #shape then
      self:fail("noise_shape %s does not fit the input %s: it takes one size for each axis, -1, 1 or the "
        .. "input's", self.shape_text(noise), self.shape_text(shape))
    end
  end
  return sizes
end

function Dropout:build(shape)
  mask_shape(self, shape)
  self.stream = self:own_stream(self.seed)
end

function Dropout:output_shape(shape) return shape end -- luacheck: no self

function Dropout:call(x, training)
  if not training or self.rate == 0 then return x end
  local keep = ops.random { shape = mask_shape(self, x:shape()), kind = "bernoulli", a = 1 - self.rate,
    dtype = "bool", stream = self.stream }
  return ops.where(keep, self.rate < 1 and x * (1 / (1 - self.rate)) or x, 0)
end

return Dropout
