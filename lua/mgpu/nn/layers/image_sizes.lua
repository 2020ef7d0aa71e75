--- Layers that change the rows and columns of images: cropping, padding, repeating, resizing.
--
-- x {batch, rows, columns, channels}, or channels_first; one image is an x without the batch.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local M = {}

-- ---- ZeroPadding2D ------------------------------------------------------------------------------

--- ZeroPadding2D {padding = 1, data_format =}: adds rows and columns of zeros at the edges of images.
-- padding: a number, {rows, columns}, or {{top, bottom}, {left, right}}.
-- x {batch, rows, columns, channels} -> {batch, rows + top + bottom, columns + left + right, channels}.
-- Example:
--     print(L.ZeroPadding2D { 1 } (mgpu.ones { 1, 1, 2, 1 }):reshape { 3, 4 })
--     --> tensor {3, 4} float32 cpu:0
--     --> {{0, 0, 0, 0},
--     -->  {0, 1, 1, 0},
--     -->  {0, 0, 0, 0}}
local ZeroPadding2D = Layer:extend("ZeroPadding2D", { positional = 1,
  { "padding", "margins", default = { { 1, 1 }, { 1, 1 } } },
  images.data_format,
})

function ZeroPadding2D:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

function ZeroPadding2D:output_shape(shape)
  local s, p = images.shape_last(self, shape), self.padding
  local function padded(i) return s[i + 1] == -1 and -1 or s[i + 1] + p[i][1] + p[i][2] end
  return images.shape_back(self, { s[1], padded(1), padded(2), s[4] })
end

function ZeroPadding2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  local p, at = self.padding, images.is_first(self) and 3 or 2
  local before, after = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
  for i = 1, 2 do before[at + i - 1], after[at + i - 1] = p[i][1], p[i][2] end
  return core.ops.pad(x, { before = before, after = after })
end

M.ZeroPadding2D = ZeroPadding2D

-- ---- Cropping2D ---------------------------------------------------------------------------------

--- Cropping2D {cropping = 0, data_format =}: removes rows and columns at the edges of images.
-- cropping: a number, {rows, columns}, or {{top, bottom}, {left, right}}.
-- x {batch, rows, columns, channels} -> {batch, rows - top - bottom, columns - left - right, channels}.
-- Errors: a cropping that leaves nothing.
-- Example:
--     print(unpack(L.Cropping2D { { { 1, 0 }, { 2, 2 } } } (mgpu.ones { 1, 10, 10, 3 }):shape()))  --> 1 9 6 3
local Cropping2D = Layer:extend("Cropping2D", { positional = 1,
  { "cropping", "margins", default = { { 0, 0 }, { 0, 0 } } },
  images.data_format,
})

function Cropping2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self:output_shape(shape)
end

function Cropping2D:output_shape(shape)
  local s, c = images.shape_last(self, shape), self.cropping
  local out = { s[1], s[2], s[3], s[4] }
  for i = 1, 2 do
    if s[i + 1] ~= -1 then
      out[i + 1] = s[i + 1] - c[i][1] - c[i][2]
      if out[i + 1] < 1 then
        self:fail("cropping {{%d, %d}, {%d, %d}} leaves nothing of the input %s", c[1][1], c[1][2],
          c[2][1], c[2][2], self.shape_text(shape))
      end
    end
  end
  return images.shape_back(self, out)
end

function Cropping2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  local s, c, at = x:shape(), self.cropping, images.is_first(self) and 3 or 2
  self:output_shape(s)
  local start, stop = { 0, 0, 0, 0 }, { unpack(s) }
  for i = 1, 2 do start[at + i - 1], stop[at + i - 1] = c[i][1], s[at + i - 1] - c[i][2] end
  return core.ops.slice(x, { start = start, stop = stop })
end

M.Cropping2D = Cropping2D

-- ---- CenterCrop ---------------------------------------------------------------------------------

--- CenterCrop {height, width, data_format =}: the middle of images, in training and at inference.
-- Images with fewer rows or columns are cropped to the aspect height : width and resized (bilinear).
-- x {batch, rows, columns, channels} or one image -> {batch, height, width, channels}, floating.
-- Example:
--     local image = mgpu.arange(16):reshape { 1, 4, 4, 1 }
--     print(L.CenterCrop { 2, 2 } (image):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 5,  6},
--     -->  { 9, 10}}
local CenterCrop = image_parts.layer("CenterCrop", { positional = 2,
  { "height", "integer", min = 1, required = true },
  { "width", "integer", min = 1, required = true },
  images.data_format,
})

CenterCrop.output_shape = image_parts.output_shape

--- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
function CenterCrop:change(x)
  return images.as_last(self, x, function(t)
    local s, h, w = t:shape(), self.height, self.width
    if s[2] < h or s[3] < w then return image_parts.smart_resize(t, h, w) end
    return image_parts.crop(t, math.floor((s[2] - h) / 2), math.floor((s[3] - w) / 2), h, w)
  end)
end

M.CenterCrop = CenterCrop

-- ---- UpSampling2D -------------------------------------------------------------------------------

--- UpSampling2D {size = {2, 2}, interpolation = "nearest", data_format =}: enlarges images.
-- "nearest" repeats rows and columns; "bilinear", "bicubic", "lanczos3" and "lanczos5" interpolate as in Resizing, and
-- make floats of integers.
-- x {batch, rows, columns, channels} -> {batch, rows * size[1], columns * size[2], channels}.
-- Example:
--     print(L.UpSampling2D { 2 } (mgpu.tensor { 1, 2 }:reshape { 1, 1, 2, 1 }):reshape { 2, 4 })
--     --> tensor {2, 4} float32 cpu:0
--     --> {{1, 1, 2, 2},
--     -->  {1, 1, 2, 2}}
local UpSampling2D = Layer:extend("UpSampling2D", { positional = 1,
  { "size", "pair", default = { 2, 2 } },
  images.data_format,
  { "interpolation", "string", default = "nearest",
    values = { "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5" } },
})

function UpSampling2D:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

function UpSampling2D:output_shape(shape)
  local s, f = images.shape_last(self, shape), self.size
  local function larger(i) return s[i + 1] == -1 and -1 or s[i + 1] * f[i] end
  return images.shape_back(self, { s[1], larger(1), larger(2), s[4] })
end

local function nearest(t, f)
  local s = t:shape()
  local y = ops.reshape(t, { shape = { s[1], s[2], 1, s[3], 1, s[4] } })
  y = ops.broadcast_to(y, { shape = { s[1], s[2], f[1], s[3], f[2], s[4] } })
  return ops.reshape(y, { shape = { s[1], s[2] * f[1], s[3] * f[2], s[4] } })
end

local function resized(t, f, interpolation)
  local s = t:shape()
  if not t:dtype():find "float" then t = ops.cast(t, { dtype = core.floatx() }) end
  return ops.image_resize(t, { size = { s[2] * f[1], s[3] * f[2] }, interpolation = interpolation })
end

function UpSampling2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  return images.as_last(self, x, function(t)
    if self.interpolation == "nearest" then return nearest(t, self.size) end
    return resized(t, self.size, self.interpolation)
  end)
end

M.UpSampling2D = UpSampling2D

-- ---- Resizing -----------------------------------------------------------------------------------

--- Resizing {height, width, interpolation = "bilinear", crop_to_aspect_ratio = false, pad_to_aspect_ratio = false, ...}
-- Resizes images as tf.image.resize, in training and at inference.
-- interpolation: "bilinear", "nearest", "bicubic", "area", "lanczos3" or "lanczos5" (image_resize); antialias = false:
-- all pixels count where an image shrinks. crop_to_aspect_ratio: only the largest part in the middle with the aspect
-- height : width is used; pad_to_aspect_ratio: margins of fill_value = 0 (fill_mode "constant") give the image this
-- aspect.
-- x {batch, rows, columns, channels} or one image -> {batch, height, width, channels}, floating.
-- Errors: cropping and padding together.
-- Example:
--     print(L.Resizing { 2, 2, interpolation = "area" } (mgpu.arange(16):reshape { 1, 4, 4, 1 }):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 2.5,  4.5},
--     -->  {10.5, 12.5}}
local Resizing = image_parts.layer("Resizing", { positional = 2,
  { "height", "integer", min = 1, required = true },
  { "width", "integer", min = 1, required = true },
  { "interpolation", "string", default = "bilinear", values = require "mgpu.data.augment_options".METHODS },
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

Resizing.output_shape = image_parts.output_shape

--- layer:change(x, training) -> what call returns for the images x, a batch in the dtype that the layer computes in.
function Resizing:change(x)
  return images.as_last(self, x, function(t)
    local h, w = self.height, self.width
    if self.crop_to_aspect_ratio then t = image_parts.crop_to_aspect(t, h, w) end
    if self.pad_to_aspect_ratio then t = image_parts.pad_to_aspect(t, h, w, self.fill_value) end
    return image_parts.resize(t, h, w, self.interpolation, self.antialias)
  end)
end

M.Resizing = Resizing

return M
