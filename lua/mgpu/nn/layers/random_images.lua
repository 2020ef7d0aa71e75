--- Random changes of images, each image by its own numbers (image_parts.lua), in training only.
--
-- x {batch, rows, columns, channels}, or channels_first; one image is an x without the batch.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local image_points = require "mgpu.nn.layers.image_points"
local images = require "mgpu.nn.layers.images"

local ops = core.ops

local M = {}

-- ---- RandomBrightness ---------------------------------------------------------------------------

--- RandomBrightness {factor, value_range = {0, 255}, seed =}: makes images brighter or darker in training.
-- x + f * (value_range[2] - value_range[1]) with f from lower to upper for each image, clipped to value_range. factor:
-- {lower, upper} from -1 to 1, or a number v for {-v, v}.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local layer = L.RandomBrightness { { 0.2, 0.2 }, value_range = { 0, 1 } } -- always by 20 %
--     print(layer(mgpu.zeros { 1, 2, 2, 1 }, { training = true }):mean():item() > 0.19)  --> true
local RandomBrightness = image_parts.extend("RandomBrightness", { positional = 1,
  { "factor", "number|table", required = true },
  image_parts.value_range,
  image_parts.seed, images.data_format,
}, function(layer, n) return image_parts.uniform(layer, n, layer.span) end)

function RandomBrightness:init()
  local range = image_parts.range(self, "factor", -1, 1)
  self.values = image_parts.values(self)
  local width = self.values[2] - self.values[1]
  self.span = { range[1] * width, range[2] * width }
end

--- layer:transform(x, deltas) -> x plus the delta of each image, {batch}.
function RandomBrightness:transform(x, deltas)
  return (x + image_parts.each(x, deltas)):clip(self.values[1], self.values[2])
end

M.RandomBrightness = RandomBrightness

-- ---- RandomContrast -----------------------------------------------------------------------------

--- RandomContrast {factor, value_range = {0, 255}, seed =, data_format =}: changes the contrast of images in training.
-- (x - mean) * c + mean with the mean of each channel of each image and c from 1 - lower to 1 + upper, clipped to
-- value_range. factor: {lower, upper} or one number for both, from 0 to 1.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local images = mgpu.rand { 8, 16, 16, 3 }
--     local layer = L.RandomContrast { 0.5, value_range = { 0, 1 } }
--     print(unpack(layer(images, { training = true }):shape()))  --> 8 16 16 3
--     -- at inference
--     print((layer(images) - images):abs():max():item())  --> 0
local RandomContrast = image_parts.extend("RandomContrast", { positional = 1,
  { "factor", "number|table", required = true },
  image_parts.value_range,
  image_parts.seed, images.data_format,
}, function(layer, n) return image_parts.uniform(layer, n, layer.span) end)

function RandomContrast:init()
  local both = type(self.factor) == "number"
  local range = image_parts.range(self, "factor", 0, 1)
  self.span = { 1 - (both and range[2] or range[1]), 1 + range[2] }
  self.values = image_parts.values(self)
end

--- layer:transform(x, factors) -> x with the contrast of each image multiplied by its factor, {batch}.
function RandomContrast:transform(x, factors)
  local rows, columns = image_parts.axes(self)
  local mean = x:mean({ rows, columns }, true)
  return ((x - mean) * image_parts.each(x, factors) + mean):clip(self.values[1], self.values[2])
end

M.RandomContrast = RandomContrast

-- ---- RandomCrop ---------------------------------------------------------------------------------

--- RandomCrop {height, width, seed =, data_format =}: a random part of images in training, the same of all images in a
--- batch.
-- At inference, and where images have fewer rows or columns: the largest part in the middle with the aspect height :
-- width, resized (bilinear), as Keras documents it. (At inference Keras 3.15 returns the images as they are.)
-- x {batch, rows, columns, channels} or one image -> {batch, height, width, channels}, floating.
-- Example:
--     local crop = L.RandomCrop { 24, 24 }
--     print(unpack(crop(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 24 24 3
local RandomCrop = image_parts.layer("RandomCrop", { positional = 2,
  { "height", "integer", min = 1, required = true },
  { "width", "integer", min = 1, required = true },
  image_parts.seed, images.data_format,
})

function RandomCrop:build()
  self.stream = self:own_stream(self.seed)
end

RandomCrop.output_shape = image_parts.output_shape

-- `count` neighboring positions of `size` along the axis, which begin at a random place.
local function random_part(self, x, axis, size, count)
  if size == count then return x end
  local places = size - count + 1
  local first = (image_parts.uniform(self, 1, { 0, places })):floor():minimum(places - 1)
  local index = ops.cast(first + ops.iota({ count }, 1, "float32"), { dtype = "int32" })
  return ops.gather(x, index, { axis = axis })
end

--- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
function RandomCrop:change(x, training)
  return images.as_last(self, x, function(t)
    local s, h, w = t:shape(), self.height, self.width
    if not training or s[2] < h or s[3] < w then return image_parts.smart_resize(t, h, w) end
    return random_part(self, random_part(self, t, 2, s[2], h), 3, s[3], w)
  end)
end

M.RandomCrop = RandomCrop

-- ---- RandomFlip ---------------------------------------------------------------------------------

--- RandomFlip {mode = "horizontal_and_vertical", seed =, data_format =}: flips images in training, each with
--- probability 1/2.
-- mode: "horizontal", "vertical", or both, which are chosen independently (Keras 3 does both or neither).
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local images = mgpu.tensor { 0, 1 }:reshape { 1, 1, 2, 1 }:broadcast_to { 1000, 1, 2, 1 }
--     local flipped = L.RandomFlip { "horizontal" } (images, { training = true })
--     -- half of the images are flipped
--     print((flipped:mean(1) * 10):round():reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> {5, 5}
local RandomFlip = image_parts.extend("RandomFlip", { positional = 1,
  { "mode", "string", default = "horizontal_and_vertical",
    values = { "horizontal", "vertical", "horizontal_and_vertical" } },
  image_parts.seed, images.data_format,
}, function(layer, n)
  local unit = { 0, 1 }
  return image_parts.uniform(layer, n, unit):lt(0.5), image_parts.uniform(layer, n, unit):lt(0.5)
end)

local function flipped(x, chosen, axis) return image_parts.pick(chosen, core.ops.reverse(x, { axis = axis }), x) end

--- layer:transform(x, horizontal, vertical) -> x with the images flipped for which the bool {batch} is true.
function RandomFlip:transform(x, horizontal, vertical)
  local rows, columns = image_parts.axes(self)
  if self.mode ~= "vertical" then x = flipped(x, horizontal, columns) end
  if self.mode ~= "horizontal" then x = flipped(x, vertical, rows) end
  return x
end

M.RandomFlip = RandomFlip

-- ---- moved pixels -------------------------------------------------------------------------------

-- The declared options of a layer that moves pixels: its own, then the common ones.
local function affine_options(own)
  for _, option in ipairs {
    { "fill_mode", "string", default = "reflect", values = { "reflect", "wrap", "constant", "nearest" } },
    image_parts.interpolation, image_parts.seed,
    { "fill_value", "number", default = 0 },
    images.data_format,
  } do own[#own + 1] = option end
  return own
end

-- The rows and columns of images.
local function sizes_of(layer, shape)
  local rows, columns = image_parts.axes(layer)
  return shape[rows], shape[columns]
end

-- ---- RandomTranslation --------------------------------------------------------------------------

--- RandomTranslation {height_factor, width_factor, fill_mode = "reflect", interpolation = "bilinear", ...}
-- Moves images in training, each by its own share of the rows (down) and columns (to the right).
-- height_factor, width_factor: {lower, upper} from -1 to 1, or a number v for {-v, v}. fill_mode: what comes in:
-- "reflect", "wrap", "constant" (fill_value = 0) or "nearest". interpolation: "bilinear" or "nearest"; seed.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     -- always half a width to the right
--     local move = L.RandomTranslation { { 0, 0 }, { 0.5, 0.5 }, fill_mode = "constant" }
--     print(move(mgpu.tensor { 1, 2, 3, 4 }:reshape { 1, 1, 4, 1 }, { training = true }):reshape { -1 })
--     --> tensor {4} float32 cpu:0
--     --> {0, 0, 1, 2}
local RandomTranslation = image_parts.extend("RandomTranslation", affine_options { positional = 2,
  { "height_factor", "number|table", required = true },
  { "width_factor", "number|table", required = true },
}, function(layer, n, shape)
  local rows, columns = sizes_of(layer, shape)
  return image_parts.uniform(layer, n, layer.down) * rows, image_parts.uniform(layer, n, layer.right) * columns
end)

function RandomTranslation:init()
  self.down = image_parts.range(self, "height_factor", -1, 1)
  self.right = image_parts.range(self, "width_factor", -1, 1)
end

--- layer:transform(x, down, right) -> x with each image moved by these numbers of pixels, {batch} each.
function RandomTranslation:transform(x, down, right)
  return image_points.read_map(self, x, { 1, 0, -right, 0, 1, -down })
end

M.RandomTranslation = RandomTranslation

-- ---- RandomRotation -----------------------------------------------------------------------------

--- RandomRotation {factor, fill_mode = "reflect", interpolation = "bilinear", seed =, fill_value = 0, data_format =}
-- Turns images about their centers in training, each by its own angle.
-- factor: a share of a full turn, {lower, upper} from -1 to 1, or a number v for {-v, v}; positive turns go
-- counterclockwise. fill_mode and interpolation as in RandomTranslation.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local turn = L.RandomRotation { { 0.25, 0.25 } } -- always a quarter turn
--     print(turn(mgpu.arange(4):reshape { 1, 2, 2, 1 }, { training = true }):round():reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 3},
--     -->  {0, 2}}
local RandomRotation = image_parts.extend("RandomRotation", affine_options { positional = 1,
  { "factor", "number|table", required = true },
}, function(layer, n) return image_parts.uniform(layer, n, layer.degrees) end)

function RandomRotation:init()
  local range = image_parts.range(self, "factor", -1, 1)
  self.degrees = { range[1] * 360, range[2] * 360 }
end

--- layer:transform(x, angles) -> x with each image turned by its angle in degrees, {batch}.
function RandomRotation:transform(x, angles)
  local rows, columns = sizes_of(self, x:shape())
  local cx, cy = (columns - 1) / 2, (rows - 1) / 2
  local radians = angles * (math.pi / 180)
  local cos, sin = radians:cos(), radians:sin()
  return image_points.read_map(self, x,
    { cos, -sin, sin * cy - cos * cx + cx, sin, cos, cy - sin * cx - cos * cy })
end

M.RandomRotation = RandomRotation

-- ---- RandomShear --------------------------------------------------------------------------------

--- RandomShear {x_factor = 0, y_factor = 0, interpolation = "bilinear", fill_mode = "reflect", ...}
-- Slants images in training, each by its own factors and with a random sign: pixel (x, y), from 0, is read at
-- (x + a y, y + b x).
-- x_factor for a, y_factor for b: {lower, upper} from 0 to 1, or a number v for {-v, v}. interpolation, fill_mode,
-- fill_value = 0, data_format and seed as in RandomTranslation.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local shear = L.RandomShear { { 0, 0.2 }, fill_mode = "constant" }
--     print(unpack(shear(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 32 32 3
local RandomShear = image_parts.extend("RandomShear", affine_options { positional = 2,
  { "x_factor", "number|table", default = 0 },
  { "y_factor", "number|table", default = 0 },
}, function(layer, n)
  local back = image_parts.uniform(layer, n, { 0, 1 }):gt(0.5)
  local down, across = image_parts.uniform(layer, n, layer.down), image_parts.uniform(layer, n, layer.across)
  return ops.where(back, -across, across), ops.where(back, -down, down)
end)

-- The range of a factor, which Keras takes on both sides of 0 for a number.
local function both_sides(self, name)
  local range = image_parts.range(self, name, 0, 1)
  return type(self[name]) == "number" and { -range[2], range[2] } or range
end

function RandomShear:init() self.across, self.down = both_sides(self, "x_factor"), both_sides(self, "y_factor") end

--- layer:transform(x, across, down) -> x with each image slanted by these factors, {batch} each.
function RandomShear:transform(x, across, down)
  return image_points.read_map(self, x, { 1, across, 0, down, 1, 0 })
end

M.RandomShear = RandomShear

-- ---- RandomZoom ---------------------------------------------------------------------------------

--- RandomZoom {height_factor, width_factor =, fill_mode = "reflect", interpolation = "bilinear", seed =, ...}
-- Makes images smaller (positive factors) or larger about their centers in training, each by its own factors.
-- height_factor: {lower, upper} from -1 to 1, or a number v for {-v, v}: 0.2 shows 120 % of the rows.
-- width_factor: the same for the columns; nil: as for the rows. fill_mode, interpolation, fill_value, data_format as
-- in RandomTranslation.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local augment = mgpu.Sequential { L.RandomFlip { "horizontal" }, L.RandomZoom { 0.2 } }
--     print(unpack(augment(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 32 32 3
local RandomZoom = image_parts.extend("RandomZoom", affine_options { positional = 2,
  { "height_factor", "number|table", required = true },
  { "width_factor", "number|table" },
}, function(layer, n)
  local rows = image_parts.uniform(layer, n, layer.rows)
  return rows, layer.columns and image_parts.uniform(layer, n, layer.columns) or rows
end)

local function span(self, name)
  local range = image_parts.range(self, name, -1, 1)
  return { 1 + range[1], 1 + range[2] }
end

function RandomZoom:init()
  self.rows = span(self, "height_factor")
  self.columns = self.width_factor ~= nil and span(self, "width_factor") or nil
end

--- layer:transform(x, rows, columns) -> x, zoomed to show `rows` times its rows and `columns` times its columns,
--- {batch} each.
function RandomZoom:transform(x, rows, columns)
  local h, w = sizes_of(self, x:shape())
  return image_points.read_map(self, x,
    { columns, 0, (1 - columns) * ((w - 1) / 2), 0, rows, (1 - rows) * ((h - 1) / 2) })
end

M.RandomZoom = RandomZoom

return M
