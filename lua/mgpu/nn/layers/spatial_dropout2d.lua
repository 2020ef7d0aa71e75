--- SpatialDropout2D {rate, data_format =, seed =}: dropout of whole channels of images.
-- x {batch, rows, columns, channels} -> the same shape. In training each channel of each image is zero with
-- probability `rate`; the others are multiplied by 1 / (1 - rate). At inference it does nothing.
-- Errors: as Dropout. Source: Tompson et al., Efficient object localization, 2015.
-- Example:
--     local y = L.SpatialDropout2D { 0.5 } (mgpu.ones { 1, 4, 4, 100 }, { training = true })
--     local channels = y:mean { axis = { 2, 3 } } -- each is all 0 or all 2
--     print(channels:eq(0):logical_or(channels:eq(2)):all():item())  --> true
local Dropout = require "mgpu.nn.layers.dropout"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local SpatialDropout2D = Layer:extend("SpatialDropout2D", { positional = 1,
  { "rate", "number", min = 0, max = 1, required = true },
  images.data_format,
  { "seed", "integer", min = 0 },
})

SpatialDropout2D.supports_masking = true

SpatialDropout2D.call = Dropout.call

function SpatialDropout2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self.noise_shape = images.is_first(self) and { -1, -1, 1, 1 } or { -1, 1, 1, -1 }
  Dropout.build(self, shape)
end

function SpatialDropout2D:output_shape(shape) return shape end -- luacheck: no self

return SpatialDropout2D
