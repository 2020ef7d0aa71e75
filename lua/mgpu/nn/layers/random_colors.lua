--- Random changes of the colors of images, each image by its own numbers (image_parts.lua), in training only.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local hsv = require "mgpu.nn.layers.hsv"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- The options of a layer that draws a factor and has a range of values, as in Keras.
local function with_factor()
  return { positional = 2, { "factor", "number|table", required = true }, image_parts.value_range, images.data_format,
    image_parts.seed }
end

local function draw_factors(layer, n) return image_parts.uniform(layer, n, layer.span) end

-- init of such a layer: factor is from `least` to 1.
local function init_factor(least)
  return function(self)
    self.span = image_parts.range(self, "factor", least, 1)
    self.values = image_parts.values(self)
  end
end

--- layer:check(shape): raises unless the images have three channels.
local function need_colors(layer, shape) image_parts.need_channels(layer, shape, { 3 }) end

--- layer:check(shape): raises unless the images have three channels, or one, which is gray.
local function need_colors_or_gray(layer, shape) image_parts.need_channels(layer, shape, { 1, 3 }) end

local function gray_of(layer, x) return image_parts.gray(x, images.channels_axis(layer)) end

-- ---- RandomGrayscale ----------------------------------------------------------------------------

--- RandomGrayscale {factor = 0.5, data_format =, seed =}: makes images gray in training, each with probability factor.
-- x {batch, rows, columns, 3} or one image -> the same shape, floating; all channels of a gray image are 0.2989 red +
-- 0.587 green + 0.114 blue. One channel is gray already. At inference it does nothing.
-- Example:
--     local gray = L.RandomGrayscale { 1 } (mgpu.tensor { 1, 0, 0 }:reshape { 1, 1, 1, 3 }, { training = true })
--     print(gray:reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {0.2989..., 0.2989..., 0.2989...}
local RandomGrayscale = image_parts.extend("RandomGrayscale", { positional = 1,
  { "factor", "number", default = 0.5, min = 0, max = 1 },
  images.data_format, image_parts.seed,
}, function(layer, n) return image_parts.uniform(layer, n, { 0, 1 }):lt(layer.factor) end)

RandomGrayscale.check = need_colors_or_gray

--- layer:transform(x, chosen) -> x, gray where the bool {batch} is true.
function RandomGrayscale:transform(x, chosen)
  return image_parts.pick(chosen, gray_of(self, x), x)
end

M.RandomGrayscale = RandomGrayscale

-- ---- Solarization -------------------------------------------------------------------------------

--- Solarization {addition_factor = 0, threshold_factor = 0, value_range = {0, 255}, seed =, data_format =}
-- Adds a number to all pixels of an image and inverts those that are not below a threshold, in training.
-- Of the width of value_range: addition_factor and threshold_factor, {lower, upper} from 0 to 1, or a number v for
-- {0, v}; each image has its own numbers. As in Keras, only the upper end is a share of the width: the lower one is
-- divided by 255, too. Sums are clipped to value_range.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local x = mgpu.tensor { 0, 100, 200, 255 }:reshape { 1, 2, 2, 1 }
--     print(L.Solarization { 0, 0 } (x, { training = true }):reshape { 4 })
--     --> tensor {4} float32 cpu:0
--     --> {255, 155,  55,   0}
local Solarization = image_parts.extend("Solarization", { positional = 2,
  { "addition_factor", "number|table", default = 0 },
  { "threshold_factor", "number|table", default = 0 },
  image_parts.value_range, image_parts.seed, images.data_format,
}, function(layer, n)
  return image_parts.uniform(layer, n, layer.additions), image_parts.uniform(layer, n, layer.thresholds)
end)

function Solarization:init()
  local range = image_parts.values(self)
  self.low, self.high = range[1], range[2]
  for name, span in pairs { addition_factor = "additions", threshold_factor = "thresholds" } do
    if type(self[name]) == "number" then self[name] = { 0, self[name] } end
    local given = image_parts.range(self, name, 0, 1)
    self[span] = { given[1] / 255 * (range[2] - range[1]), given[2] * (range[2] - range[1]) }
  end
end

--- layer:transform(x, additions, thresholds) -> x, solarized by these numbers of each image, {batch} each.
function Solarization:transform(x, additions, thresholds)
  local sum = (x + image_parts.each(x, additions)):clip(self.low, self.high)
  local low = image_parts.each(x, thresholds) + self.low
  return ops.where(ops.lt(sum, low), sum, self.low + self.high - sum)
end

M.Solarization = Solarization

-- ---- RandomColorDegeneration --------------------------------------------------------------------

--- RandomColorDegeneration {factor, value_range = {0, 255}, data_format =, seed =}: takes color from images, in
--- training.
-- x + f (gray - x), clipped to value_range, with the gray of RandomGrayscale and f drawn for each image: 1 is gray, and
-- what is below 0 adds color. factor: {lower, upper} from -1 to 1, or a number v for {-v, v}.
-- x {batch, rows, columns, 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local half = L.RandomColorDegeneration { { 0.5, 0.5 } }
--     print(half(mgpu.tensor { 200, 0, 0 }:reshape { 1, 1, 1, 3 }, { training = true }):round():reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {130,  30,  30}
local RandomColorDegeneration = image_parts.extend("RandomColorDegeneration", with_factor(), draw_factors)

RandomColorDegeneration.init, RandomColorDegeneration.check = init_factor(-1), need_colors_or_gray

--- layer:transform(x, factors) -> x, of each image this share of the way to gray, {batch}.
function RandomColorDegeneration:transform(x, factors)
  return (x + image_parts.each(x, factors) * (gray_of(self, x) - x)):clip(self.values[1], self.values[2])
end

M.RandomColorDegeneration = RandomColorDegeneration

-- ---- RandomSaturation ---------------------------------------------------------------------------

--- RandomSaturation {factor, value_range = {0, 255}, data_format =, seed =}: changes how colored images are, in
--- training.
-- The saturation of each pixel, from 0 to 1, times f / (1 - f) with f drawn for each image: 0 makes gray, 0.5 changes
-- nothing. As in Keras it is the saturation that is clipped to value_range: {0, 1} keeps colors valid where f may be
-- above 0.5. factor: {lower, upper} from -1 to 1, or a number v for {-v, v}; what is below 0 makes gray.
-- x {batch, rows, columns, 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local gray = L.RandomSaturation { { 0, 0 } }
--     print(gray(mgpu.tensor { 200, 100, 0 }:reshape { 1, 1, 1, 3 }, { training = true }):reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {200, 200, 200}
local RandomSaturation = image_parts.extend("RandomSaturation", with_factor(), draw_factors)

RandomSaturation.init, RandomSaturation.check = init_factor(-1), need_colors

local EPSILON = 1e-7 -- Keras's epsilon()

--- layer:transform(x, factors) -> x with the saturation changed by the factor of each image, {batch}.
function RandomSaturation:transform(x, factors)
  return images.as_last(self, x, function(t)
    local hue, saturation, value = hsv.planes(t)
    local wide = ops.cast(saturation, { dtype = "float32" }) -- the quotient may be 1e7
    local changed = (wide * image_parts.each(wide, factors / (1 - factors + EPSILON))):clip(unpack(self.values))
    return hsv.rgb(hue, ops.cast(changed, { dtype = t:dtype() }), value)
  end)
end

M.RandomSaturation = RandomSaturation

-- ---- RandomHue ----------------------------------------------------------------------------------

--- RandomHue {factor, value_range = {0, 255}, data_format =, seed =}: turns the hue of images in training.
-- Each image draws f and a sign, and its hue turns by this share of half a circle. Computed in float32. factor: {lower,
-- upper} from 0 to 1, or a number v for {0, v}.
-- x {batch, rows, columns, 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local turn = L.RandomHue { { 1, 1 } } -- half a circle: red becomes cyan
--     print(turn(mgpu.tensor { 255, 0, 0 }:reshape { 1, 1, 1, 3 }, { training = true }):round():reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {  0, 255, 255}
local RandomHue = image_parts.extend("RandomHue", with_factor(), function(layer, n)
  local back = image_parts.uniform(layer, n, { 0, 1 }):gt(0.5)
  local turns = image_parts.uniform(layer, n, layer.span) * 0.5
  return ops.where(back, -turns, turns)
end)

RandomHue.init, RandomHue.check = init_factor(0), need_colors

--- layer:transform(x, turns) -> x with the hue of each image turned by this share of a circle, {batch}.
function RandomHue:transform(x, turns)
  local low, width = self.values[1], self.values[2] - self.values[1]
  return images.as_last(self, x, function(t)
    local hue, saturation, value = hsv.planes((ops.cast(t, { dtype = "float32" }) - low) / width)
    hue = hue + image_parts.each(hue, turns)
    hue = ops.where(ops.gt(hue, 1), hue - 1, hue)
    hue = ops.where(ops.lt(hue, 0), hue + 1, hue)
    return ops.cast(hsv.rgb(hue, saturation, value):clip(0, 1) * width + low, { dtype = t:dtype() })
  end)
end

M.RandomHue = RandomHue

-- ---- RandomSharpness ----------------------------------------------------------------------------

--- RandomSharpness {factor, value_range = {0, 255}, data_format =, seed =}: blurs or sharpens images in training.
-- x + (1 - 2 f) (smooth - x), clipped to value_range, with f drawn for each image: 0 is smooth, 0.5 changes nothing, 1
-- sharpens. smooth: the mean of each pixel with weight 5 and the 8 around it with weight 1; outside of an image are
-- zeros. factor: {lower, upper} from 0 to 1, or a number v for {0, v}.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local smooth = L.RandomSharpness { { 0, 0 } }
--     print(smooth(mgpu.tensor { 0, 130, 0 }:reshape { 1, 1, 3, 1 }, { training = true }):round():reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {10, 50, 10}
local RandomSharpness = image_parts.extend("RandomSharpness", with_factor(), draw_factors)

RandomSharpness.init = init_factor(0)

--- layer:transform(x, factors) -> x, smoother or sharper by the factor of each image, {batch}.
function RandomSharpness:transform(x, factors)
  return images.as_last(self, x, function(t)
    local near, own = 1 / 13, 5 / 13
    local weights = core.tensor({ near, near, near, near, own, near, near, near, near },
      { dtype = t:dtype(), device = t:device() })
    local kernel = weights:reshape { 3, 3, 1, 1 }:broadcast_to { 3, 3, t:shape()[4], 1 }
    local smooth = images.depthwise(t, kernel, { 1, 1 }, { 1, 1 }, "same", { 3, 3 })
    return (t + image_parts.each(t, 1 - 2 * factors) * (smooth - t)):clip(self.values[1], self.values[2])
  end)
end

M.RandomSharpness = RandomSharpness

return M
