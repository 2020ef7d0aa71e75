--- Layers that distort images in training: by perspective, or each pixel by its own shift.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_blur = require "mgpu.nn.layers.image_blur"
local image_parts = require "mgpu.nn.layers.image_parts"
local image_points = require "mgpu.nn.layers.image_points"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- ---- RandomPerspective --------------------------------------------------------------------------

--- RandomPerspective {factor = 1, scale = 1, interpolation = "bilinear", fill_value = 0, seed =, data_format =}
-- Shows images in training as planes seen from the side: each coordinate of their corners is multiplied by a number
-- from 1 - scale / 2 to 1 + scale / 2, so that the first corner, which is 0, stays, as in Keras.
-- factor: the probability, {lower, upper} from 0 to 1, from which each image draws its own, or a number v for {0, v}.
-- interpolation: "bilinear" or "nearest"; outside of an image is fill_value.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Errors: images of one row or column.
-- Example:
--     local tilt = L.RandomPerspective { scale = 0.3 }
--     print(unpack(tilt(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 32 32 3
local RandomPerspective = image_parts.extend("RandomPerspective", { positional = 2,
  { "factor", "number|table", default = 1 },
  { "scale", "number", default = 1, min = 0, max = 1 },
  image_parts.interpolation,
  { "fill_value", "number", default = 0 },
  image_parts.seed, images.data_format,
}, function(layer, n)
  local numbers = image_parts.uniform(layer, 8 * n, { 1 - layer.scale / 2, 1 + layer.scale / 2 })
  return image_parts.chosen(layer, n), numbers:reshape { n, 4, 2 }
end)

function RandomPerspective:init() self.span = image_parts.range(self, "factor", 0, 1) end

-- The entries of the projective map that takes the unit square to the quadrangle with the corners x[i], y[i], of (0,
-- 0), (1, 0), (0, 1), (1, 1). Source: Heckbert, Fundamentals of texture mapping and image warping, 1989.
local function map_of_square(x, y)
  local sum_x, sum_y = x[1] - x[2] + x[4] - x[3], y[1] - y[2] + y[4] - y[3]
  local ax, bx, ay, by = x[2] - x[4], x[3] - x[4], y[2] - y[4], y[3] - y[4]
  local area = ax * by - bx * ay
  local g, h = (sum_x * by - bx * sum_y) / area, (ax * sum_y - sum_x * ay) / area
  return x[2] - x[1] + g * x[2], x[3] - x[1] + h * x[3], x[1],
    y[2] - y[1] + g * y[2], y[3] - y[1] + h * y[3], y[1], g, h
end

-- The map that takes the quadrangle to the rectangle of this width and height: the inverse of map_of_square, scaled.
local function map_to_rectangle(x, y, width, height)
  local a, b, c, d, e, f, g, h = map_of_square(x, y)
  local i = a * e - b * d
  return { (e - f * h) * width / i, (c * h - b) * width / i, (b * f - c * e) * width / i,
    (f * g - d) * height / i, (a - c * g) * height / i, (c * d - a * f) * height / i,
    (d * h - e * g) / i, (b * g - a * h) / i }
end

--- layer:transform(x, chosen, factors) -> x; where the bool {batch} is true, the corners of an image, of the first row
--- and of the last one, lie at their coordinates (x, y) times the factors {batch, 4, 2}.
function RandomPerspective:transform(x, chosen, factors)
  local shape, row, column = x:shape(), image_parts.axes(self)
  local width, height = shape[column] - 1, shape[row] - 1
  if width < 1 or height < 1 then
    self:fail("images must have at least two rows and columns, got shape %s", self.shape_text(shape))
  end
  local xs, ys = {}, {}
  for i = 1, 4 do
    local function coordinate(axis, far)
      local part = ops.slice(factors, { start = { 0, i - 1, axis - 1 }, stop = { shape[1], i, axis } })
      return part:reshape { shape[1] } * far
    end
    xs[i], ys[i] = coordinate(1, i % 2 == 0 and width or 0), coordinate(2, i > 2 and height or 0)
  end
  local y = image_points.read_map(self, x, map_to_rectangle(xs, ys, width, height))
  return image_parts.pick(chosen, y, x)
end

M.RandomPerspective = RandomPerspective

-- ---- RandomElasticTransform ---------------------------------------------------------------------

--- RandomElasticTransform {factor = 1, scale = 1, interpolation = "bilinear", fill_mode = "reflect", ...}
-- Distorts images in training like a sheet of rubber (Simard et al. 2003): normal noise, blurred, shifts each pixel.
-- factor: the probability, {lower, upper} from 0 to 1, from which each image draws its own, or a number v for {0, v}.
-- scale: {lower, upper} from 0 to 1, or a number v for {0, v}, from which each batch draws s: noise and kernel have the
-- standard deviation 0.05 s min(rows, columns), the kernel ends after three of them, as in Keras with JAX, and the
-- shift is 0.1 s max(rows, columns) times the blurred noise, as in Keras the same along rows and columns.
-- interpolation: "bilinear" or "nearest"; fill_mode: what comes in: "reflect", "mirror" (the edge is not repeated),
-- "wrap", "nearest" or "constant" (fill_value = 0). Results are clipped to value_range = {0, 255}; seed, data_format.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local bend = L.RandomElasticTransform { scale = 0.5 }
--     print(unpack(bend(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 32 32 3
local RandomElasticTransform = image_parts.extend("RandomElasticTransform", { positional = 2,
  { "factor", "number|table", default = 1 },
  { "scale", "number|table", default = 1 },
  image_parts.interpolation,
  { "fill_mode", "string", default = "reflect", values = { "reflect", "mirror", "wrap", "constant", "nearest" } },
  { "fill_value", "number", default = 0 },
  image_parts.value_range, image_parts.seed, images.data_format,
}, function(layer, n, shape)
  local row, column = image_parts.axes(layer)
  local noise = ops.random { shape = { n, shape[row], shape[column] }, kind = "normal", a = 0, b = 1,
    dtype = "float32", stream = layer.stream }
  return image_parts.chosen(layer, n), image_parts.uniform(layer, 1, layer.scales), noise
end)

function RandomElasticTransform:init()
  self.span, self.scales = image_parts.range(self, "factor", 0, 1), image_parts.range(self, "scale", 0, 1)
  self.values = image_parts.values(self)
end

-- The shifts {n, rows, columns} of pixels that the noise of this shape makes. The kernel's size is that of the largest
-- scale; its weights are those of the scale that was drawn.
local function shifts_of(layer, scale, noise)
  local n, rows, columns = unpack(noise:shape())
  local least, most = 0.05 * math.min(rows, columns), 0.1 * math.max(rows, columns)
  local sigma = (scale * least):maximum(1e-6)
  local reach = math.floor(math.floor(6 * least * layer.scales[2]) / 2)
  local weights = image_blur.gaussian(2 * reach + 1, sigma, ((sigma * 6):floor() / 2):floor())
  local blurred = image_blur.blurred((noise * sigma):reshape { n, rows, columns, 1 }, weights, weights)
  return blurred:reshape { n, rows, columns } * (scale * most)
end

--- layer:transform(x, chosen, scale, noise) -> x, distorted by noise {batch, rows, columns} with this scale, {1}, where
--- the bool {batch} is true.
function RandomElasticTransform:transform(x, chosen, scale, noise)
  if self.span[2] == 0 or self.scales[2] == 0 then return x end -- not even clipped
  local shape, shifts = noise:shape(), shifts_of(self, scale, noise)
  local y = images.as_last(self, x, function(t)
    return image_points.read_at(self, t, shifts + ops.iota(shape, 2, "float32"), shifts + ops.iota(shape, 3, "float32"))
  end)
  return image_parts.pick(chosen, y, x):clip(self.values[1], self.values[2])
end

M.RandomElasticTransform = RandomElasticTransform

return M
