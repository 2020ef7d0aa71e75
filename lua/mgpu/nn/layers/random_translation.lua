--- RandomTranslation {height_factor, width_factor, fill_mode = "reflect", interpolation = "bilinear", ...}
-- Moves images in training, each by its own share of the rows (down) and columns (to the right).
-- height_factor, width_factor: {lower, upper} from -1 to 1, or a number v for {-v, v}. fill_mode: what comes in:
-- "reflect", "wrap", "constant" (fill_value = 0) or "nearest". interpolation: "bilinear" or "nearest"; seed.
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     -- always half a width to the right
--     local move = L.RandomTranslation { { 0, 0 }, { 0.5, 0.5 }, fill_mode = "constant" }
--     print(move(mgpu.tensor { 1, 2, 3, 4 }:reshape { 1, 1, 4, 1 }, { training = true }):reshape { -1 })
--     --> tensor {4} float32 cpu:0
--     --> {0, 0, 1, 2}
local image_draws = require "mgpu.nn.layers.image_draws"
local random_affine = require "mgpu.nn.layers.random_affine"

local RandomTranslation = image_draws.extend("RandomTranslation", random_affine.options { positional = 2,
  { "height_factor", "number|table", required = true },
  { "width_factor", "number|table", required = true },
}, function(layer, n, shape)
  local rows, columns = random_affine.sizes(layer, shape)
  return image_draws.uniform(layer, n, layer.down) * rows, image_draws.uniform(layer, n, layer.right) * columns
end)

function RandomTranslation:init()
  self.down = image_draws.range(self, "height_factor", -1, 1)
  self.right = image_draws.range(self, "width_factor", -1, 1)
end

--- layer:transform(x, down, right) -> x with each image moved by these numbers of pixels, {batch} each.
function RandomTranslation:transform(x, down, right)
  return random_affine.apply(self, x, x:shape()[1], { 1, 0, -right, 0, 1, -down })
end

return RandomTranslation
