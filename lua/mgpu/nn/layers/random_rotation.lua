--- RandomRotation {factor, fill_mode = "reflect", interpolation = "bilinear", seed =, fill_value = 0, data_format =}
-- Turns images about their centers in training, each by its own angle.
-- factor: a share of a full turn, {lower, upper} from -1 to 1, or a number v for {-v, v}; positive turns go
-- counterclockwise. fill_mode and interpolation as in RandomTranslation.
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local turn = L.RandomRotation { { 0.25, 0.25 } } -- always a quarter turn
--     print(turn(mgpu.arange(4):reshape { 1, 2, 2, 1 }, { training = true }):round():reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 3},
--     -->  {0, 2}}
local image_draws = require "mgpu.nn.layers.image_draws"
local random_affine = require "mgpu.nn.layers.random_affine"

local RandomRotation = image_draws.extend("RandomRotation", random_affine.options { positional = 1,
  { "factor", "number|table", required = true },
}, function(layer, n) return image_draws.uniform(layer, n, layer.degrees) end)

function RandomRotation:init()
  local range = image_draws.range(self, "factor", -1, 1)
  self.degrees = { range[1] * 360, range[2] * 360 }
end

--- layer:transform(x, angles) -> x with each image turned by its angle in degrees, {batch}.
function RandomRotation:transform(x, angles)
  local rows, columns = random_affine.sizes(self, x:shape())
  local cx, cy = (columns - 1) / 2, (rows - 1) / 2
  local radians = angles * (math.pi / 180)
  local cos, sin = radians:cos(), radians:sin()
  return random_affine.apply(self, x, x:shape()[1],
    { cos, -sin, sin * cy - cos * cx + cx, sin, cos, cy - sin * cx - cos * cy })
end

return RandomRotation
