--- CenterCrop {height, width, data_format =}: the middle of images, in training and at inference.
-- Images with fewer rows or columns are cropped to the aspect height : width and resized (bilinear).
-- x {batch, rows, columns, channels} -> {batch, height, width, channels}, floating.
-- Example:
--     local image = mgpu.arange(16):reshape { 1, 4, 4, 1 }
--     print(L.CenterCrop { 2, 2 } (image):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 5,  6},
--     -->  { 9, 10}}
local image_draws = require "mgpu.nn.layers.image_draws"
local image_window = require "mgpu.nn.layers.image_window"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local CenterCrop = Layer:extend("CenterCrop", { positional = 2,
  { "height", "integer", min = 1, required = true },
  { "width", "integer", min = 1, required = true },
  images.data_format,
})

function CenterCrop:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

CenterCrop.output_shape = image_window.output_shape

function CenterCrop:call(x)
  return images.as_last(self, image_draws.in_floats(self, x), function(t)
    local s, h, w = t:shape(), self.height, self.width
    if s[2] < h or s[3] < w then return image_window.smart_resize(t, h, w) end
    return image_window.crop(t, math.floor((s[2] - h) / 2), math.floor((s[3] - w) / 2), h, w)
  end)
end

return CenterCrop
