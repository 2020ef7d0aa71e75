--- RandomBrightness {factor, value_range = {0, 255}, seed =}: makes images brighter or darker in training.
-- x + f * (value_range[2] - value_range[1]) with f from lower to upper for each image, clipped to value_range. factor:
-- {lower, upper} from -1 to 1, or a number v for {-v, v}.
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local layer = L.RandomBrightness { { 0.2, 0.2 }, value_range = { 0, 1 } } -- always by 20 %
--     print(layer(mgpu.zeros { 1, 2, 2, 1 }, { training = true }):mean():item() > 0.19)  --> true
local image_draws = require "mgpu.nn.layers.image_draws"
local images = require "mgpu.nn.layers.images"

local RandomBrightness = image_draws.extend("RandomBrightness", { positional = 1,
  { "factor", "number|table", required = true },
  { "value_range", "table", default = { 0, 255 } },
  image_draws.seed, images.data_format,
}, function(layer, n) return image_draws.uniform(layer, n, layer.span) end)

function RandomBrightness:init()
  local range = image_draws.range(self, "factor", -1, 1)
  self.values = image_draws.range(self, "value_range", -math.huge, math.huge)
  local width = self.values[2] - self.values[1]
  self.span = { range[1] * width, range[2] * width }
end

--- layer:transform(x, deltas) -> x plus the delta of each image, {batch}.
function RandomBrightness:transform(x, deltas)
  return (x + image_draws.each(x, deltas)):clip(self.values[1], self.values[2])
end

return RandomBrightness
