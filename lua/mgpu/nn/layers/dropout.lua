--- Noise and dropout: layers that change their input in training only.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local M = {}

-- ---- Dropout ------------------------------------------------------------------------------------

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

M.Dropout = Dropout

-- ---- SpatialDropout1D, 2D, 3D -------------------------------------------------------------------

-- A class that drops whole channels of data with `axes` axes of space.
local function define_spatial(class_name, axes, meaning, data_format)
  local Spatial = Layer:extend(class_name, { positional = 1,
    { "rate", "number", min = 0, max = 1, required = true },
    { "seed", "integer", min = 0 },
    data_format,
  })

  Spatial.supports_masking, Spatial.call = true, Dropout.call

  function Spatial:build(shape)
    self:need_rank(shape, axes + 2, meaning)
    local noise, channels = { -1 }, data_format and images.is_first(self) and 2 or axes + 2
    for axis = 2, axes + 2 do noise[axis] = axis == channels and -1 or 1 end
    self.noise_shape = noise
    Dropout.build(self, shape)
  end

  function Spatial:output_shape(shape) return shape end -- luacheck: no self

  return Spatial
end

--- SpatialDropout1D {rate, seed =}: dropout of whole channels of sequences.
-- x {batch, steps, channels} -> the same shape; else as SpatialDropout2D.
-- Example:
--     local y = L.SpatialDropout1D { 0.5 } (mgpu.ones { 1, 4, 100 }, { training = true })
--     local channels = y:mean { axis = { 2 } } -- each is all 0 or all 2
--     print(channels:eq(0):logical_or(channels:eq(2)):all():item())  --> true
M.SpatialDropout1D = define_spatial("SpatialDropout1D", 1, "batch, steps, channels")

--- SpatialDropout2D {rate, data_format =, seed =}: dropout of whole channels of images.
-- x {batch, rows, columns, channels} -> the same shape. In training each channel of each image is zero with
-- probability `rate`; the others are multiplied by 1 / (1 - rate). At inference it does nothing.
-- Errors: as Dropout. Source: Tompson et al., Efficient object localization, 2015.
-- Example:
--     local y = L.SpatialDropout2D { 0.5 } (mgpu.ones { 1, 4, 4, 100 }, { training = true })
--     local channels = y:mean { axis = { 2, 3 } } -- each is all 0 or all 2
--     print(channels:eq(0):logical_or(channels:eq(2)):all():item())  --> true
M.SpatialDropout2D = define_spatial("SpatialDropout2D", 2, "batch, rows, columns, channels", images.data_format)

--- SpatialDropout3D {rate, data_format =, seed =}: dropout of whole channels of volumes.
-- x {batch, depth, rows, columns, channels} -> the same shape; else as SpatialDropout2D.
-- Example:
--     local y = L.SpatialDropout3D { 0.5 } (mgpu.ones { 1, 2, 2, 2, 100 }, { training = true })
--     local channels = y:mean { axis = { 2, 3, 4 } } -- each is all 0 or all 2
--     print(channels:eq(0):logical_or(channels:eq(2)):all():item())  --> true
M.SpatialDropout3D = define_spatial("SpatialDropout3D", 3, "batch, depth, rows, columns, channels",
  images.data_format)

-- ---- AlphaDropout -------------------------------------------------------------------------------

--- AlphaDropout {rate, noise_shape =, seed =}: dropout for networks of selu, which keeps mean and variance.
-- x of any shape -> the same shape. In training each element becomes the lowest value of selu with probability `rate`;
-- then all are scaled and shifted. At inference it does nothing. noise_shape: as Dropout.
-- Source: Klambauer et al., Self-normalizing neural networks, 2017.
-- Example:
--     local y = L.AlphaDropout { 0.25 } (mgpu.randn { 200, 200 }, { training = true })
--     print(math.abs(y:mean():item()) < 0.05, math.abs(y:std():item() - 1) < 0.05)  --> true true
local AlphaDropout = Layer:extend("AlphaDropout", { positional = 1,
  { "rate", "number", min = 0, max = 1, required = true },
  { "noise_shape", "shape" },
  { "seed", "integer", min = 0 },
})

AlphaDropout.supports_masking, AlphaDropout.build = true, Dropout.build

function AlphaDropout:output_shape(shape) return shape end -- luacheck: no self

local LOWEST = -1.6732632423543772848 * 1.0507009873554804934 -- of selu

function AlphaDropout:call(x, training)
  if not training or self.rate == 0 then return x end
  local keep = ops.random { shape = mask_shape(self, x:shape()), kind = "bernoulli", a = 1 - self.rate,
    dtype = "bool", stream = self.stream }
  local a = ((1 - self.rate) * (1 + self.rate * LOWEST ^ 2)) ^ -0.5
  if self.rate == 1 then a = 0 end -- nothing is kept
  return ops.where(keep, x, LOWEST) * a - a * LOWEST * self.rate
end

M.AlphaDropout = AlphaDropout

-- ---- GaussianDropout ----------------------------------------------------------------------------

--- GaussianDropout {rate, seed =}: in training multiplies by normal noise of mean 1 and standard deviation
-- sqrt(rate / (1 - rate)); at inference it does nothing.
-- x of any shape and a floating dtype -> the same. Errors: a rate outside 0..1, or 1. Source: Srivastava et al.,
-- Dropout, 2014.
-- Example:
--     local y = L.GaussianDropout { 0.5 } (mgpu.ones { 200, 200 }, { training = true })
--     print(("%.1f"):format(y:std():item()))  --> 1.0
local GaussianDropout = Layer:extend("GaussianDropout", { positional = 1,
  { "rate", "number", min = 0, below = 1, required = true },
  { "seed", "integer", min = 0 },
})

GaussianDropout.supports_masking = true

function GaussianDropout:build() self.stream = self:own_stream(self.seed) end

function GaussianDropout:output_shape(shape) return shape end -- luacheck: no self

function GaussianDropout:call(x, training)
  if not training or self.rate == 0 then return x end
  return x * ops.random { shape = x:shape(), kind = "normal", a = 1, b = math.sqrt(self.rate / (1 - self.rate)),
    dtype = x:dtype(), stream = self.stream }
end

M.GaussianDropout = GaussianDropout

-- ---- GaussianNoise ------------------------------------------------------------------------------

--- GaussianNoise {stddev, seed =}: adds normal noise of mean 0 in training; at inference it does nothing.
-- x of any shape and a floating dtype -> the same. The noise is a function of seed, layer name, step and element,
-- hence the same on any number of devices. Errors: stddev below 0; x of integers.
-- Example:
--     local noise = L.GaussianNoise { 0.1 }
--     local y = noise(mgpu.zeros { 100, 100 }, { training = true })
--     print(("%.1f"):format(y:std():item()))  --> 0.1
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

M.GaussianNoise = GaussianNoise

return M
