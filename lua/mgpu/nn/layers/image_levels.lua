--- Layers that give pixels other values: contrast, histogram equalization, inversion, posterization.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

local BYTES = { 0, 255 }

-- x with the range `from` stretched to the range `to`, by Keras's steps.
local function stretched(x, from, to)
  if from[1] == to[1] and from[2] == to[2] then return x end
  return (x - from[1]) / (from[2] - from[1]) * (to[2] - to[1]) + to[1]
end

-- ---- AutoContrast -------------------------------------------------------------------------------

--- AutoContrast {value_range = {0, 255}, data_format =}: stretches each channel of each image to the whole value_range.
-- A channel whose pixels are all the same keeps them. With channels_first it is, as in Keras, each column of an image
-- that is stretched, not each channel.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating; in training and at inference.
-- Example:
--     print(L.AutoContrast {} (mgpu.tensor { 10, 20, 30, 60 }:reshape { 1, 2, 2, 1 }):reshape { 4 })
--     --> tensor {4} float32 cpu:0
--     --> {  0,  51, 102, 255}
local AutoContrast = image_parts.layer("AutoContrast", { positional = 1, image_parts.value_range, images.data_format })

function AutoContrast:init() self.values = image_parts.values(self) end

--- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
function AutoContrast:change(x)
  local bytes = stretched(x, self.values, BYTES)
  local low, high = bytes:min({ 2, 3 }, true), bytes:max({ 2, 3 }, true)
  local differ = ops.gt(high, low)
  local spread = (bytes - low) / ops.where(differ, high - low, 1) * 255 -- fits float16 at each step
  return ops.where(differ, stretched(spread, BYTES, self.values), x)
end

M.AutoContrast = AutoContrast

-- ---- Equalization -------------------------------------------------------------------------------

--- Equalization {value_range = {0, 255}, bins = 256, data_format =}: spreads the values of each channel evenly over
--- value_range, in training.
-- A value becomes the share of the channel's pixels in bins up to its own, without those in the first bin: of all
-- images in the batch together, as in Keras. A channel whose pixels are all in one bin keeps them. No gradient flows
-- to x where it is spread.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local x = mgpu.tensor { 10, 11, 12, 13, 14, 15 }:reshape { 1, 2, 3, 1 }
--     print(L.Equalization {} (x, { training = true }):reshape { 6 })
--     --> tensor {6} float32 cpu:0
--     --> {  0,  51, 102, 153, 204, 255}
local Equalization = image_parts.layer("Equalization", { positional = 2,
  image_parts.value_range, { "bins", "integer", default = 256, min = 1 }, images.data_format,
})

function Equalization:init() self.values = image_parts.values(self) end

-- x * a + b, which takes the range `from` to the range `to`.
local function mapped(x, from, to)
  local scale = (to[2] - to[1]) / (from[2] - from[1])
  return x * scale + (to[1] - from[1] * scale)
end

-- RETURNS from counts {channels, bins} the new values of the bins, the same shape, and which channels have pixels in
-- several bins, {channels}.
local function spread(counts)
  local sums = ops.cumsum(counts, { axis = 2 })
  local total = ops.max(sums, { axis = 2, keepdims = true })
  local first = ops.min(ops.where(ops.gt(sums, 0), sums, total), { axis = 2, keepdims = true })
  local shares = ops.cast((sums - first) * 255, { dtype = "float32" }) / (total - first):maximum(1)
  return shares:round(), ops.gt(total, first):reshape { -1 }
end

-- x {batch, rows, columns, channels} with its channels spread; computed in float32, since halves cannot count bins.
local function equalized(layer, x)
  local bytes = mapped(ops.cast(x, { dtype = "float32" }), layer.values, BYTES)
  local bins, channels = layer.bins, x:shape()[4]
  local function places(scaled) -- of pixels in {channels, bins} in a row
    local ids = ops.cast(scaled:clip(0, bins - 1), { dtype = "int32" })
    return (ids + ops.iota({ channels }, 1, "int32") * bins):reshape { -1 }
  end
  local ones = ops.full({ x:count() }, 1, "int64")
  local counts = ops.scatter_add(ones, places(bytes * (bins - 1) / 255), { axis = 1, size = channels * bins })
  local values, several = spread(counts:reshape { channels, bins })
  local y = ops.gather(values:reshape { -1 }, places(bytes / 255 * (bins - 1)), { axis = 1 })
  y = ops.cast(mapped(y, BYTES, layer.values), { dtype = x:dtype() })
  return ops.where(several, y:reshape(x:shape()), x)
end

--- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
function Equalization:change(x, training)
  if not training then return x end
  return images.as_last(self, x, function(t) return equalized(self, t) end)
end

M.Equalization = Equalization

-- ---- ContrastLimitedAdaptiveHistogramEqualization -------------------------------------------------

--- ContrastLimitedAdaptiveHistogramEqualization {value_range = {0, 255}, clip_limit = 4, tile_grid_size = {8, 8}, ...}
-- Spreads the values of each channel over value_range in each part of an image on its own, in training and at
-- inference (Pizer et al. 1987).
-- The image is divided into tile_grid_size {rows, columns} tiles, mirrored at the end where they do not fit. A value
-- becomes the share of its tile's pixels that are not larger, mixed bilinearly from the four nearest tiles. A count of
-- equal pixels above clip_limit times the average is cut off and given to all values, unless clip_limit is 0.
-- data_format. No gradient flows to x.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating.
-- Example:
--     local equalize = L.ContrastLimitedAdaptiveHistogramEqualization { tile_grid_size = { 1, 1 }, clip_limit = 0 }
--     print(equalize(mgpu.tensor { 10, 11, 12, 13 }:reshape { 1, 2, 2, 1 }):round():reshape { 4 })
--     --> tensor {4} float32 cpu:0
--     --> { 64, 128, 191, 255}
local Adaptive = image_parts.layer("ContrastLimitedAdaptiveHistogramEqualization", { positional = 3,
  image_parts.value_range,
  { "clip_limit", "number", default = 4 },
  { "tile_grid_size", "pair", default = { 8, 8 } },
  images.data_format,
})

function Adaptive:init() self.values = image_parts.values(self) end

-- Of an axis of `size` pixels in `count` tiles: the pixels of a tile, and the place of each pixel of all tiles, which
-- mirrors those behind the end.
local function tiles_of(size, count)
  local length, places = math.ceil(size / count), {}
  for i = 0, length * count - 1 do
    local place = i % (2 * size)
    places[i + 1] = math.min(place, 2 * size - 1 - place)
  end
  return length, places
end

-- For the pixels of an axis the two nearest of `count` tiles, from 0, and the weight of the second.
local function nearest_tiles(size, length, count)
  local first, second, weights = {}, {}, {}
  for i = 1, size do
    local at = (i - 1) / length - 0.5
    local low = math.floor(at)
    weights[i] = at - low
    first[i], second[i] = math.max(low, 0), math.min(low + 1, count - 1)
  end
  return first, second, weights
end

-- New values {n, tiles, channels, 256} of the bytes in each tile, from the counts of this shape of `area` pixels each.
local function spread_limited(counts, area, clip_limit)
  if clip_limit > 0 then
    local clipped = counts:minimum(clip_limit * area / 256)
    counts = clipped + (counts - clipped):sum(4, true) / 256
  end
  local sums = ops.cumsum(counts, { axis = 4 })
  local least = sums:min(4, true)
  local rest = area - least
  return ((sums - least) * 255 / ops.where(ops.eq(rest, 0), 1, rest)):clip(0, 255)
end

-- t {n, rows, columns, channels} of bytes as float32, equalized.
local function adapted(t, grid, clip_limit)
  local n, h, w, channels = unpack(t:shape())
  local device = t:device()
  local function constant(list, shape, dtype)
    return core.tensor(list, { dtype = dtype or "int32", device = device }):reshape(shape)
  end
  local bytes = ops.cast(t:clip(0, 255), { dtype = "int32" })
  local of_channel = ops.iota({ channels }, 1, "int32") * 256

  -- where a byte of the tile in row y and column x, for each channel, has its place among the values of an image
  local function places(values, y, x)
    local ids = ((y * grid[2] + x) * (channels * 256) + of_channel) + values
    local shape = ids:shape()
    return ids:reshape { n, shape[2] * shape[3] * channels }
  end

  local height, rows = tiles_of(h, grid[1])
  local width, columns = tiles_of(w, grid[2])
  local whole = ops.gather(bytes, constant(rows, { #rows }), { axis = 2 })
  whole = ops.gather(whole, constant(columns, { #columns }), { axis = 3 })
  local function tile_of(count, length, shape)
    return ops.floordiv(ops.iota({ count }, 1, "int32"), length):reshape(shape)
  end
  local ids = places(whole, tile_of(#rows, height, { #rows, 1, 1 }), tile_of(#columns, width, { #columns, 1 }))
  local size = grid[1] * grid[2] * channels * 256
  local counts = ops.scatter_along_axis(ops.full(ids:shape(), 1, "float32"), ids, { axis = 2, size = size })
  local values = spread_limited(counts:reshape { n, grid[1] * grid[2], channels, 256 }, height * width, clip_limit)
  values = values:reshape { n, size }

  local top, bottom, down = nearest_tiles(h, height, grid[1])
  local left, right, across = nearest_tiles(w, width, grid[2])
  local function values_in(y, x)
    local found = places(bytes, constant(y, { h, 1, 1 }), constant(x, { w, 1 }))
    return ops.take_along_axis(values, found, { axis = 2 }):reshape { n, h, w, channels }
  end
  local function mixed(a, b, weights) return a * (1 - weights) + b * weights end
  down, across = constant(down, { h, 1, 1 }, "float32"), constant(across, { w, 1 }, "float32")
  return mixed(mixed(values_in(top, left), values_in(top, right), across),
    mixed(values_in(bottom, left), values_in(bottom, right), across), down)
end

--- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
function Adaptive:change(x)
  return images.as_last(self, x, function(t)
    local bytes = stretched(ops.cast(t, { dtype = "float32" }), self.values, BYTES)
    local y = adapted(bytes, self.tile_grid_size, self.clip_limit)
    return ops.cast(stretched(y, BYTES, self.values), { dtype = t:dtype() })
  end)
end

M.ContrastLimitedAdaptiveHistogramEqualization = Adaptive

-- ---- RandomInvert -------------------------------------------------------------------------------

--- RandomInvert {factor = 1, value_range = {0, 255}, seed =, data_format =}: inverts images in training at random.
-- An inverted image is value_range[2] - x. factor: the probability, {lower, upper} from 0 to 1, from which each image
-- draws its own, or a number v for {0, v}: the default 1 inverts half of the images.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local always = L.RandomInvert { { 1, 1 } }
--     print(always(mgpu.tensor { 0, 55, 255 }:reshape { 1, 1, 3, 1 }, { training = true }):reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {255, 200,   0}
local RandomInvert = image_parts.extend("RandomInvert", { positional = 1,
  { "factor", "number|table", default = 1 }, image_parts.value_range, image_parts.seed, images.data_format,
}, image_parts.chosen)

function RandomInvert:init()
  self.span = image_parts.range(self, "factor", 0, 1)
  self.values = image_parts.values(self)
end

--- layer:transform(x, chosen) -> x, inverted where the bool {batch} is true.
function RandomInvert:transform(x, chosen)
  return image_parts.pick(chosen, self.values[2] - x, x)
end

M.RandomInvert = RandomInvert

-- ---- RandomPosterization ------------------------------------------------------------------------

--- RandomPosterization {factor, value_range = {0, 255}, data_format =, seed =}: keeps the upper bits of values only,
--- in training.
-- Values become bytes, 0 to 255 over value_range, of which each image keeps its own number of bits. factor: the
-- numbers {lower, upper} from 1 to 8, without upper itself unless they are equal; a number v is {1, v}.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local x = mgpu.tensor { 10, 100, 130, 255 }:reshape { 1, 2, 2, 1 }
--     print(L.RandomPosterization { { 2, 2 } } (x, { training = true }):reshape { 4 }) -- two bits: multiples of 64
--     --> tensor {4} float32 cpu:0
--     --> {  0,  64, 128, 192}
local RandomPosterization = image_parts.extend("RandomPosterization", { positional = 1,
  { "factor", "number|table", required = true }, image_parts.value_range, images.data_format, image_parts.seed,
}, function(layer, n)
  local lower, upper = layer.bits[1], layer.bits[2]
  if lower == upper then return ops.full({ n }, lower, "float32") end
  return image_parts.uniform(layer, n, layer.bits):floor():minimum(upper - 1)
end)

function RandomPosterization:init()
  self.bits = image_parts.range(self, "factor", 1, 8)
  for _, bits in ipairs(self.bits) do
    if bits % 1 ~= 0 then self:fail("option \"factor\" counts bits: it must be whole, got %g", bits) end
  end
  self.values = image_parts.values(self)
end

--- layer:transform(x, bits) -> x with so many bits of each image, {batch}.
function RandomPosterization:transform(x, bits)
  local powers = core.tensor({ 128, 64, 32, 16, 8, 4, 2, 1 }, { device = x:device() })
  local steps = image_parts.each(x, ops.gather(powers, ops.cast(bits - 1, { dtype = "int32" }), { axis = 1 }))
  local bytes = stretched(x, self.values, BYTES):clip(0, 255):floor()
  return stretched((bytes / steps):floor() * steps, BYTES, self.values)
end

M.RandomPosterization = RandomPosterization

return M
