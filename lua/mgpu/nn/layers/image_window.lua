--- Cutting and resizing images in layers, as Keras's smart_resize and resize do. Images are channels-last here.
local core = require "mgpu.core"

local M = {}

--- crop(x, row, column, height, width) -> the part of the images that begins at row and column, from 0.
function M.crop(x, row, column, height, width)
  local s = x:shape()
  if row == 0 and column == 0 and height == s[2] and width == s[3] then return x end
  return core.ops.slice(x, { start = { 0, row, column, 0 }, stop = { s[1], row + height, column + width, s[4] } })
end

--- resize(x, height, width, interpolation = "bilinear", antialias) -> the images with this size, in the dtype of x.
function M.resize(x, height, width, interpolation, antialias)
  local s = x:shape()
  if s[2] == height and s[3] == width then return x end
  local y = core.ops.image_resize(x, { size = { height, width }, interpolation = interpolation or "bilinear",
    antialias = antialias or false })
  return y:dtype() == x:dtype() and y or core.ops.cast(y, { dtype = x:dtype() })
end

-- The sizes that rows and columns have in a window of the wanted aspect, as wide or as high as the image.
local function sizes_of_aspect(x, height, width)
  local s = x:shape()
  return s[2], s[3], math.floor(s[3] * height / width), math.floor(s[2] * width / height)
end

--- crop_to_aspect(x, height, width) -> the largest part in the middle whose aspect is height : width.
function M.crop_to_aspect(x, height, width)
  local rows, columns, h, w = sizes_of_aspect(x, height, width)
  h, w = math.max(math.min(rows, h), 1), math.max(math.min(columns, w), 1)
  return M.crop(x, math.floor((rows - h) / 2), math.floor((columns - w) / 2), h, w)
end

--- pad_to_aspect(x, height, width, value) -> x with equal margins of the value, so that its aspect is about height :
--- width.
function M.pad_to_aspect(x, height, width, value)
  local rows, columns, h, w = sizes_of_aspect(x, height, width)
  local y = math.floor((math.max(rows, h) - rows) / 2)
  local z = math.floor((math.max(columns, w) - columns) / 2)
  local margins = { 0, y, z, 0 }
  return core.ops.pad(x, { before = margins, after = margins, value = value })
end

--- smart_resize(x, height, width) -> the largest part in the middle with the wanted aspect, resized.
function M.smart_resize(x, height, width) return M.resize(M.crop_to_aspect(x, height, width), height, width) end

--- output_shape(layer, shape) -> the shape with the layer's height and width.
function M.output_shape(layer, shape)
  local images = require "mgpu.nn.layers.images"
  local s = images.shape_last(layer, shape)
  return images.shape_back(layer, { s[1], layer.height, layer.width, s[4] })
end

return M
