--- GaussianNoise {stddev, seed =}: adds normal noise of mean 0 in training; at inference it does nothing.
-- x of any shape and a floating dtype -> the same. The noise is a function of seed, layer name, step and element,
-- hence the same on any number of devices. Errors: stddev below 0; x of integers.
-- Example:
--     local noise = L.GaussianNoise { 0.1 }
--     local y = noise(mgpu.zeros { 100, 100 }, { training = true })
--     print(("%.1f"):format(y:std():item()))  --> 0.1
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local GaussianNoise = Layer:extend("GaussianNoise", { positional = 1,
  { "stddev", "number", min = 0, required = true },
  { "seed", "integer", min = 0 },
})

GaussianNoise.supports_masking = true

function GaussianNoise:build()
  self.stream = self:own_stream(self.seed)
end

function GaussianNoise:output_shape(shape) return shape end -- luacheck: no self

function GaussianNoise:call(x, training)
  if not training or self.stddev == 0 then return x end
  if not x:dtype():find "float" then
    self:fail("noise can be added to floating dtypes only, the input is %s", x:dtype())
  end
  return x + core.ops.random { shape = x:shape(), kind = "normal", a = 0, b = self.stddev,
    dtype = x:dtype(), stream = self.stream }
end

return GaussianNoise
