--- RandomCrop {height, width, seed =, data_format =}: a random part of images in training, the same of all images in a
--- batch.
-- At inference, and where images have fewer rows or columns: the largest part in the middle with the aspect height :
-- width, resized (bilinear).
-- x {batch, rows, columns, channels} -> {batch, height, width, channels}, floating.
-- Example:
--     local crop = L.RandomCrop { 24, 24 }
--     print(unpack(crop(mgpu.rand { 8, 32, 32, 3 }, { training = true }):shape()))  --> 8 24 24 3
local core = require "mgpu.core"
local image_draws = require "mgpu.nn.layers.image_draws"
local image_window = require "mgpu.nn.layers.image_window"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local RandomCrop = Layer:extend("RandomCrop", { positional = 2,
  { "height", "integer", min = 1, required = true },
  { "width", "integer", min = 1, required = true },
  image_draws.seed, images.data_format,
})

function RandomCrop:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self.stream = self:own_stream(self.seed)
end

RandomCrop.output_shape = image_window.output_shape

-- `count` neighboring positions of `size` along the axis, which begin at a random place.
local function random_part(self, x, axis, size, count)
  if size == count then return x end
  local places = size - count + 1
  local first = (image_draws.uniform(self, 1, { 0, places })):floor():minimum(places - 1)
  local index = ops.cast(first + ops.iota({ count }, 1, "float32"), { dtype = "int32" })
  return ops.gather(x, index, { axis = axis })
end

function RandomCrop:call(x, training)
  return images.as_last(self, image_draws.in_floats(self, x), function(t)
    local s, h, w = t:shape(), self.height, self.width
    if not training or s[2] < h or s[3] < w then return image_window.smart_resize(t, h, w) end
    return random_part(self, random_part(self, t, 2, s[2], h), 3, s[3], w)
  end)
end

return RandomCrop
