--- Resizing {height, width, interpolation = "bilinear", crop_to_aspect_ratio = false, pad_to_aspect_ratio = false, ...}
-- Resizes images as tf.image.resize, in training and at inference.
-- interpolation: "bilinear", "nearest", "bicubic" or "area"; antialias = false: all pixels count where an image
-- shrinks. crop_to_aspect_ratio: only the largest part in the middle with the aspect height : width is used;
-- pad_to_aspect_ratio: margins of fill_value = 0 (fill_mode "constant") give the image this aspect.
-- x {batch, rows, columns, channels} -> {batch, height, width, channels}, floating. data_format as usual.
-- Errors: cropping and padding together.
-- Example:
--     print(L.Resizing { 2, 2, interpolation = "area" } (mgpu.arange(16):reshape { 1, 4, 4, 1 }):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 2.5,  4.5},
--     -->  {10.5, 12.5}}
local image_draws = require "mgpu.nn.layers.image_draws"
local image_window = require "mgpu.nn.layers.image_window"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local Resizing = Layer:extend("Resizing", { positional = 2,
  { "height", "integer", min = 1, required = true },
  { "width", "integer", min = 1, required = true },
  { "interpolation", "string", default = "bilinear", values = { "bilinear", "nearest", "bicubic", "area" } },
  { "crop_to_aspect_ratio", "boolean", default = false },
  { "pad_to_aspect_ratio", "boolean", default = false },
  { "fill_mode", "string", default = "constant", values = { "constant" } },
  { "fill_value", "number", default = 0 },
  { "antialias", "boolean", default = false },
  images.data_format,
})

function Resizing:init()
  if self.crop_to_aspect_ratio and self.pad_to_aspect_ratio then
    self:fail "crop_to_aspect_ratio and pad_to_aspect_ratio cannot both be true"
  end
end

function Resizing:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

Resizing.output_shape = image_window.output_shape

function Resizing:call(x)
  return images.as_last(self, image_draws.in_floats(self, x), function(t)
    local h, w = self.height, self.width
    if self.crop_to_aspect_ratio then t = image_window.crop_to_aspect(t, h, w) end
    if self.pad_to_aspect_ratio then t = image_window.pad_to_aspect(t, h, w, self.fill_value) end
    return image_window.resize(t, h, w, self.interpolation, self.antialias)
  end)
end

return Resizing
