--- Changes of a box in each image, at a random place, in training only.
-- RETURNS the classes by name, and what a layer needs to make such boxes.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- ---- boxes --------------------------------------------------------------------------------------

--- draw_span(layer, n, size, shares) -> where boxes that are `shares` {n} of `size` pixels long begin and end, {n}
--- each: at random places inside.
function M.draw_span(layer, n, size, shares)
  local length = shares * size
  local first = image_parts.uniform(layer, n, { 0, 1 }) * (size - length)
  return first, first + length
end

-- Whether pixel i of `size` lies in the span of each image, bool {n, size, 1, 1} with size at the axis.
local function inside(span, size, axis)
  local n, shape = span[1]:shape()[1], { 1, 1, 1, 1 }
  shape[axis] = size
  local pixels = ops.iota({ size }, 1, "float32"):reshape(shape)
  local function each(t) return t:reshape { n, 1, 1, 1 } end
  return ops.logical_and(ops.ge(pixels, each(span[1])), ops.lt(pixels, each(span[2])))
end

--- inside_boxes(layer, x, across, down) -> which pixels of x lie in the boxes of its images, bool {n, rows, columns, 1}
--- in the layer's data format. across, down: {first, last} of each image, {n} each.
function M.inside_boxes(layer, x, across, down)
  local shape, rows, columns = x:shape(), image_parts.axes(layer)
  return ops.logical_and(inside(across, shape[columns], columns), inside(down, shape[rows], rows))
end

-- ---- RandomErasing ------------------------------------------------------------------------------

--- RandomErasing {factor = 1, scale = {0.02, 0.33}, fill_value =, value_range = {0, 255}, seed =, data_format =}
-- Fills a box of images in training.
-- factor: the probability, {lower, upper} from 0 to 1, from which each image draws its own, or a number v for {0, v}.
-- scale: {lower, upper} from 0 to 1, or a number v for {0, v}: rows and columns each draw s, and the box has the share
-- sqrt(s) of them; as in Keras, a box that is not the whole image leaves the first row and
-- column. fill_value: a number, or three for the channels; nil: normal numbers times value_range[2]; clipped to
-- value_range.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local x = mgpu.ones { 4, 8, 8, 3 }
--     local all = L.RandomErasing { { 1, 1 }, { 1, 1 }, fill_value = 7 } -- all of each image
--     print(all(x, { training = true }):min():item())  --> 7
local RandomErasing = image_parts.extend("RandomErasing", { positional = 2,
  { "factor", "number|table", default = 1 },
  { "scale", "number|table", default = { 0.02, 0.33 } },
  { "fill_value", "number|table" },
  image_parts.value_range,
  image_parts.seed, images.data_format,
}, function(layer, n, shape)
  local rows, columns = image_parts.axes(layer)
  local function share() return image_parts.uniform(layer, n, layer.areas):sqrt() end
  local across = { M.draw_span(layer, n, shape[columns], share()) }
  local down = { M.draw_span(layer, n, shape[rows], share()) }
  return image_parts.chosen(layer, n), across, down
end)

function RandomErasing:init()
  self.span, self.areas = image_parts.range(self, "factor", 0, 1), image_parts.range(self, "scale", 0, 1)
  self.values = image_parts.values(self)
  local fill = self.fill_value
  if type(fill) == "table" then
    for i = 1, math.max(3, #fill) do
      if i > 3 or type(fill[i]) ~= "number" then
        self:fail("option \"fill_value\" must be a number or a list of three numbers")
      end
    end
  end
end

--- layer:check(shape): raises unless the images have as many channels as a list fill_value has numbers.
function RandomErasing:check(shape)
  if type(self.fill_value) == "table" then
    image_parts.need_channels(self, shape, { 3 }, "a fill_value of three numbers needs")
  end
end

-- What the boxes of x are filled with.
local function filling(layer, x)
  local fill, shape = layer.fill_value, x:shape()
  if fill == nil then
    local noise = ops.random { shape = shape, kind = "normal", a = 0, b = 1, dtype = "float32", stream = layer.stream }
    fill = ops.cast(noise, { dtype = x:dtype() }) * layer.values[2]
  elseif type(fill) == "number" then
    fill = ops.full({ 1, 1, 1, 1 }, fill, x:dtype())
  else
    local channels = { 1, 1, 1, 1 }
    channels[images.channels_axis(layer)] = 3
    fill = core.tensor(fill, { dtype = x:dtype(), device = x:device() }):reshape(channels)
  end
  return fill:clip(layer.values[1], layer.values[2])
end

--- layer:transform(x, chosen, across, down) -> x with a box filled where the bool {batch} is true. across, down:
--- {first, last}, in pixels, {batch} each: pixels from the first to before the last.
function RandomErasing:transform(x, chosen, across, down)
  return image_parts.pick(chosen, ops.where(M.inside_boxes(self, x, across, down), filling(self, x), x), x)
end

M.RandomErasing = RandomErasing

return M
