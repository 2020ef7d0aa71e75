--- RandomContrast {factor, value_range = {0, 255}, seed =, data_format =}: changes the contrast of images in training.
-- (x - mean) * c + mean with the mean of each channel of each image and c from 1 - lower to 1 + upper, clipped to
-- value_range. factor: {lower, upper} or one number for both, from 0 to 1.
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local images = mgpu.rand { 8, 16, 16, 3 }
--     local layer = L.RandomContrast { 0.5, value_range = { 0, 1 } }
--     print(unpack(layer(images, { training = true }):shape()))  --> 8 16 16 3
--     -- at inference
--     print((layer(images) - images):abs():max():item())  --> 0
local image_draws = require "mgpu.nn.layers.image_draws"
local images = require "mgpu.nn.layers.images"

local RandomContrast = image_draws.extend("RandomContrast", { positional = 1,
  { "factor", "number|table", required = true },
  { "value_range", "table", default = { 0, 255 } },
  image_draws.seed, images.data_format,
}, function(layer, n) return image_draws.uniform(layer, n, layer.span) end)

function RandomContrast:init()
  local both = type(self.factor) == "number"
  local range = image_draws.range(self, "factor", 0, 1)
  self.span = { 1 - (both and range[2] or range[1]), 1 + range[2] }
  self.values = image_draws.range(self, "value_range", -math.huge, math.huge)
end

--- layer:transform(x, factors) -> x with the contrast of each image multiplied by its factor, {batch}.
function RandomContrast:transform(x, factors)
  local rows, columns = image_draws.axes(self)
  local mean = x:mean({ rows, columns }, true)
  return ((x - mean) * image_draws.each(x, factors) + mean):clip(self.values[1], self.values[2])
end

return RandomContrast
