--- What RandomTranslation, RandomRotation and RandomZoom share: options, and maps from numbers for each image.
local core = require "mgpu.core"
local image_draws = require "mgpu.nn.layers.image_draws"
local images = require "mgpu.nn.layers.images"

local ops = core.ops

local M = {}

--- options(own) -> the declared options of such a layer: its own, then the common ones.
function M.options(own)
  for _, option in ipairs {
    { "fill_mode", "string", default = "reflect", values = { "reflect", "wrap", "constant", "nearest" } },
    { "interpolation", "string", default = "bilinear", values = { "bilinear", "nearest" } },
    image_draws.seed,
    { "fill_value", "number", default = 0 },
    images.data_format,
  } do own[#own + 1] = option end
  return own
end

--- sizes(layer, shape) -> the rows and columns of images.
function M.sizes(layer, shape)
  local rows, columns = image_draws.axes(layer)
  return shape[rows], shape[columns]
end

--- apply(layer, x, n, entries) -> x read at (a x + b y + c, d x + e y + f), with entries {a, b, c, d, e, f}, each a
--- number or {n} of a number for each image.
function M.apply(layer, x, n, entries)
  local columns = {}
  for i = 1, 8 do
    local v = entries[i] or 0
    columns[i] = type(v) == "number" and ops.full({ n, 1 }, v, "float32") or ops.reshape(v, { shape = { n, 1 } })
  end
  local map = ops.concat(columns, { axis = 2 })
  return images.as_last(layer, x, function(t)
    local y = ops.affine_transform(t, map, { interpolation = layer.interpolation, fill_mode = layer.fill_mode,
      fill_value = layer.fill_value })
    return y:dtype() == t:dtype() and y or ops.cast(y, { dtype = t:dtype() })
  end)
end

return M
