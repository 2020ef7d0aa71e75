--- What the layers of images share: windows of an image, and random draws for each image.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local M = {}

-- ---- windows ------------------------------------------------------------------------------------

-- Cutting and resizing images in layers, as Keras's smart_resize and resize do. Images are channels-last here.

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
  M.need_images(layer, shape)
  local out, rows, columns = { unpack(shape) }, M.axes(layer, #shape)
  out[rows], out[columns] = layer.height, layer.width
  return out
end

-- ---- draws --------------------------------------------------------------------------------------

-- What the layers that change images at random share: options, and one random number for each image.

M.seed = { "seed", "integer", min = 0 }
M.value_range = { "value_range", "table", default = { 0, 255 } }
M.interpolation = { "interpolation", "string", default = "bilinear", values = { "bilinear", "nearest" } }

--- in_floats(layer, x) -> x in the dtype that the layer computes in, as Keras does with integer images.
function M.in_floats(layer, x)
  return x:dtype() == layer.compute_dtype and x or core.ops.cast(x, { dtype = layer.compute_dtype })
end

--- need_images(layer, shape): raises unless this is the shape of images, or of one image without the batch. -1 as the
--- first of three sizes is a batch.
function M.need_images(layer, shape)
  if #shape ~= 3 or shape[1] == -1 then layer:need_rank(shape, 4, "batch, rows, columns, channels") end
end

--- with_batch(x) -> x as a batch of one; without_batch(y) is the inverse.
function M.with_batch(x) return x:reshape { 1, unpack(x:shape()) } end
function M.without_batch(y) return y:reshape { unpack(y:shape(), 2) } end

--- range(layer, name, least, most) -> {lower, upper} of the option `name`, a pair, or a number v for {-v, v} without
--- what is below `least`. Errors: numbers outside of least to most.
function M.range(layer, name, least, most)
  local value = layer[name]
  local pair = type(value) == "number" and { math.max(-math.abs(value), least), math.abs(value) } or value
  if #pair ~= 2 or type(pair[1]) ~= "number" or type(pair[2]) ~= "number" then
    layer:fail("option %q must be a number or {lower, upper}", name)
  end
  local lower, upper = math.min(pair[1], pair[2]), math.max(pair[1], pair[2])
  local first = type(value) == "number" and value or lower
  if not (first >= least and upper <= most) then
    layer:fail("option %q must be from %g to %g, got %g", name, least, most, first >= least and upper or first)
  end
  return { lower, upper }
end

--- values(layer) -> {lower, upper} of the option value_range. Errors: an empty range.
function M.values(layer)
  local range = M.range(layer, "value_range", -math.huge, math.huge)
  if range[1] == range[2] then
    layer:fail("option \"value_range\" must have two different ends, got %g twice", range[1])
  end
  return range
end

--- uniform(layer, n, range) -> {n} float32 numbers, one for each image, in range[1] to range[2].
function M.uniform(layer, n, range)
  return core.ops.random { shape = { n }, kind = "uniform", a = range[1], b = range[2], dtype = "float32",
    stream = layer.stream }
end

--- chosen(layer, n) -> bool {n}: true for each image with a probability that it draws from the range layer.span.
function M.chosen(layer, n)
  return core.ops.lt(M.uniform(layer, n, { 0, 1 }), M.uniform(layer, n, layer.span))
end

--- pick(chosen, y, x) -> y for the images whose bool in chosen {n} is true, x for the others.
function M.pick(chosen, y, x) return core.ops.where(chosen:reshape { chosen:shape()[1], 1, 1, 1 }, y, x) end

--- each(x, numbers) -> numbers {n} as {n, 1, 1, 1} in the dtype of x, to broadcast against images.
function M.each(x, numbers)
  return core.ops.reshape(core.ops.cast(numbers, { dtype = x:dtype() }), { shape = { numbers:shape()[1], 1, 1, 1 } })
end

--- gray(x, axis) -> 0.2989 red + 0.587 green + 0.114 blue of images with three channels along the axis, with one
--- channel; x itself if it has one.
function M.gray(x, axis)
  if x:shape()[axis] == 1 then return x end
  local shape = { 3 }
  for _ = axis + 1, x:rank() do shape[#shape + 1] = 1 end
  local weights = core.tensor({ 0.2989, 0.5870, 0.1140 }, { dtype = x:dtype(), device = x:device() })
  return core.ops.sum(x * weights:reshape(shape), { axis = axis, keepdims = true })
end

--- axes(layer, rank = 4) -> the axes of rows and columns, from 1, of images or of one image.
function M.axes(layer, rank)
  local rows = images.rows_axis(layer, rank)
  return rows, rows + 1
end

--- same_shape(layer, shape) -> the shape; for output_shape.
function M.same_shape(layer, shape)
  M.need_images(layer, shape)
  return shape
end

--- transformed(layer, x) -> x as the layer changes it in training, which a class of extend does.
function M.transformed(layer, x)
  local shape = x:shape()
  return layer:transform(x, layer:draw(shape[1], shape))
end

--- part(layer, class_name, options) -> a layer that this one, which has it in its list `parts`, applies in training, in
--- its dtype and data format. The options are changed.
function M.part(layer, class_name, options)
  options.name, options.dtype = ("%s_%s"):format(layer.name, class_name), layer.dtype_policy
  options.data_format = layer.data_format
  return require "mgpu.nn.layers"[class_name](options)
end

--- layer(class_name, declared) -> a class of layers that take images, or one image without the batch. The class defines
--- change(x, training), and may define check(shape).
function M.layer(class_name, declared)
  local class = require "mgpu.nn.layer":extend(class_name, declared)

  class.output_shape = M.same_shape

  --- layer:check(shape): raises if images of this shape have a wrong number of channels, -1 if it is not known.
  function class:check() end -- luacheck: no self

  function class:build(shape)
    if #shape ~= 4 then return end -- one image, or a wrong rank: call looks at it
    self:check(shape)
  end

  function class:call(x, training)
    local shape = x:shape()
    M.need_images(self, shape)
    x = M.in_floats(self, x)
    if #shape == 3 then return M.without_batch(self:call(M.with_batch(x), training)) end
    self:check(shape)
    return self:change(x, training)
  end

  return class
end

--- need_channels(layer, shape, allowed, who = "images need"): raises unless the images have one of these numbers of
--- channels, a list.
function M.need_channels(layer, shape, allowed, who)
  local channels, texts = shape[images.channels_axis(layer, #shape)], {}
  for i, n in ipairs(allowed) do
    if n == channels or channels == -1 then return end
    texts[i] = tostring(n)
  end
  layer:fail("%s %s channels, got %d", who or "images need", table.concat(texts, " or "), channels)
end

--- extend(class_name, declared, draw) -> a class of layer(...) that changes images in training only. draw(layer, n,
--- shape) returns what is random for n images; the class defines transform(layer, x, ...) with these values.
function M.extend(class_name, declared, draw)
  local class = M.layer(class_name, declared)
  local build = class.build

  function class:build(shape)
    build(self, shape)
    self.stream = self:own_stream(self.seed)
    for _, part in ipairs(rawget(self, "parts") or {}) do part.stream = self.stream end
  end

  --- layer:check(shape): raises if images of this shape have a wrong number of channels, -1 if it is not known.
  function class:check(shape)
    for _, part in ipairs(rawget(self, "parts") or {}) do part:check(shape) end
  end

  --- layer:draw(n, shape) -> what is random for n images of x of this shape, for layer:transform(x, ...).
  function class:draw(n, shape) return draw(self, n, shape) end

  --- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
  function class:change(x, training)
    if not training then return x end
    return M.transformed(self, x)
  end

  return class
end

return M
