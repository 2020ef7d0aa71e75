--- RandomZoom {height_factor, width_factor =, fill_mode = "reflect", interpolation = "bilinear", seed =, ...}
-- Makes images smaller (positive factors) or larger about their centers in training, each by its own factors.
-- height_factor: {lower, upper} from -1 to 1, or a number v for {-v, v}: 0.2 shows 120 % of the rows.
-- width_factor: the same for the columns; nil: as for the rows. fill_mode, interpolation, fill_value, data_format as
-- in RandomTranslation.
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local augment = mgpu.Sequential { L.RandomFlip { "horizontal" }, L.RandomZoom { 0.2 } }
--     print(unpack(augment(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 32 32 3
local image_draws = require "mgpu.nn.layers.image_draws"
local random_affine = require "mgpu.nn.layers.random_affine"

local RandomZoom = image_draws.extend("RandomZoom", random_affine.options { positional = 2,
  { "height_factor", "number|table", required = true },
  { "width_factor", "number|table" },
}, function(layer, n)
  local rows = image_draws.uniform(layer, n, layer.rows)
  return rows, layer.columns and image_draws.uniform(layer, n, layer.columns) or rows
end)

local function span(self, name)
  local range = image_draws.range(self, name, -1, 1)
  return { 1 + range[1], 1 + range[2] }
end

function RandomZoom:init()
  self.rows = span(self, "height_factor")
  self.columns = self.width_factor ~= nil and span(self, "width_factor") or nil
end

--- layer:transform(x, rows, columns) -> x, zoomed to show `rows` times its rows and `columns` times its columns,
--- {batch} each.
function RandomZoom:transform(x, rows, columns)
  local h, w = random_affine.sizes(self, x:shape())
  return random_affine.apply(self, x, x:shape()[1],
    { columns, 0, (1 - columns) * ((w - 1) / 2), 0, rows, (1 - rows) * ((h - 1) / 2) })
end

return RandomZoom
