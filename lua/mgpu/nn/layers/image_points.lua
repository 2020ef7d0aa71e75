--- Reading images at computed places: through a projective map, or at a place of its own for each pixel.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- ---- one map for each image -----------------------------------------------------------------------

--- read_map(layer, x, entries) -> x, whose pixel (x, y), from 0, is read at ((a x + b y + c) / k, (d x + e y + f) / k),
--- k = g x + h y + 1.
-- entries: {a, b, c, d, e, f, g = 0, h = 0}, each a number or {n} of a number for each image. The layer's fields
-- interpolation, fill_mode and fill_value are those of affine_transform.
function M.read_map(layer, x, entries)
  local columns, n = {}, x:shape()[1]
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

-- ---- a place for each pixel -----------------------------------------------------------------------

-- Whole places, float32, folded into 0 .. size - 1, by fill mode.
local FOLDS = {
  constant = function(i, size) return i:clip(0, size - 1) end,
  nearest = function(i, size) return i:clip(0, size - 1) end,
  wrap = function(i, size) return i:mod(size) end,
  reflect = function(i, size) -- d c b a | a b c d | d c b a
    local place = i:mod(2 * size)
    return place:minimum(2 * size - 1 - place)
  end,
  mirror = function(i, size) -- d c b | a b c d | c b a
    local edge = size - 1
    if edge == 0 then return i * 0 end
    return edge - (i:mod(2 * edge) - edge):abs()
  end,
}

-- The pixels along an axis that make the value at the places `at` {n, rows, columns}: a list of {place, weight},
-- weights nil for 1.
local function neighbors(at, interpolation)
  if interpolation == "nearest" then return { { at:round() } } end
  local low = at:floor()
  local rest = at - low
  return { { low, 1 - rest }, { low + 1, rest } }
end

-- RETURNS the pixels of t at whole places, which may lie outside.
local function pixels_at(layer, t, row, column)
  local n, rows, columns, channels = unpack(t:shape())
  local fold = FOLDS[layer.fill_mode]
  local function whole(i, size) return ops.cast(fold(i, size), { dtype = "int32" }) end
  local ids = whole(row, rows) * columns + whole(column, columns)
  local shape = row:shape()
  local y = ops.take_along_axis(t:reshape { n, rows * columns, channels }, ids:reshape { n, shape[2] * shape[3], 1 },
    { axis = 2 })
  y = y:reshape { n, shape[2], shape[3], channels }
  if layer.fill_mode ~= "constant" then return y end
  local function inside(i, size) return ops.logical_and(ops.ge(i, 0), ops.lt(i, size)) end
  local valid = ops.logical_and(inside(row, rows), inside(column, columns)):reshape { n, shape[2], shape[3], 1 }
  return ops.where(valid, y, layer.fill_value)
end

--- read_at(layer, t, rows, columns) -> t {n, h, w, channels} read at these places, float32 {n, height, width} each.
-- The layer's fields: interpolation "bilinear" or "nearest"; fill_mode for pixels outside "constant" (fill_value),
-- "nearest", "wrap", "reflect" or "mirror". Source: SciPy's map_coordinates of order 1 or 0, in which "constant" and
-- "wrap" are "grid-constant" and "grid-wrap".
function M.read_at(layer, t, rows, columns)
  local sum
  for _, down in ipairs(neighbors(rows, layer.interpolation)) do
    for _, across in ipairs(neighbors(columns, layer.interpolation)) do
      local y = pixels_at(layer, t, down[1], across[1])
      if down[2] then
        local shape = rows:shape()
        local weight = (down[2] * across[2]):reshape { shape[1], shape[2], shape[3], 1 }
        y = y * ops.cast(weight, { dtype = t:dtype() })
      end
      sum = sum and sum + y or y
    end
  end
  return sum
end

return M
