--- Images {batch, rows, columns, channels}, or one image {rows, columns, channels}, resized and transformed.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops

-- op(images, ...) for a batch of images; one image becomes a batch and back. Integer images become float32 unless the
-- interpolation is "nearest".
local function over_images(who, op, images, interpolation, ...)
  images = arguments.as_tensor(who, images)
  if interpolation ~= "nearest" then images = arguments.floating(images) end
  local shape = images:shape()
  if #shape ~= 3 and #shape ~= 4 then
    arguments.fail("%s: images have the axes batch (which may be missing), rows, columns and channels; got shape {%s}",
      who, table.concat(shape, ", "))
  end
  if #shape == 4 then return op(images, ...) end
  local y = op(ops.reshape(images, { shape = { 1, shape[1], shape[2], shape[3] } }), ...)
  local made = y:shape()
  return ops.reshape(y, { shape = { made[2], made[3], made[4] } })
end

--- image_resize(images, size, interpolation = "bilinear", antialias = false) -> the images with size = {rows, columns},
--- as tf.image.resize makes them: pixels are squares ("half-pixel centers").
-- interpolation: "nearest" (any dtype), "bilinear", "bicubic" (Keys 1981, a = -0.5), "area" (the mean of the covered
-- pixels), "lanczos3" or "lanczos5" (Lanczos kernels of 3 or 5 pixels to each side); all but nearest make float32 of
-- integers. antialias: where bilinear, bicubic and Lanczos shrink an image, all its pixels count.
-- images {n, h, w, c} or {h, w, c}; gradient: to the images.
-- Errors: no size, a size below 1, another rank.
-- Example:
--     local image = mgpu.tensor { { 0, 4 }, { 8, 12 } }:reshape { 2, 2, 1 }
--     print(image:image_resize { size = { 2, 4 } }:reshape { 2, 4 })
--     --> tensor {2, 4} float32 cpu:0
--     --> {{ 0,  1,  3,  4},
--     -->  { 8,  9, 11, 12}}
--     print(image:image_resize({ 2, 4 }, "nearest"):reshape { 2, 4 })
--     --> tensor {2, 4} float32 cpu:0
--     --> {{ 0,  0,  4,  4},
--     -->  { 8,  8, 12, 12}}
function M.image_resize(images, ...)
  local size, interpolation, antialias = arguments.read_options("image_resize",
    { "size", "interpolation", "antialias" }, ...)
  return over_images("image_resize", ops.image_resize, images, interpolation,
    { size = size, interpolation = interpolation, antialias = antialias })
end

--- affine_transform(images, transforms, interpolation = "bilinear", fill_mode = "constant", fill_value = 0, size =) ->
--- images whose pixel (x, y), from 0, is read at ((a x + b y + c) / k, (d x + e y + f) / k), k = g x + h y + 1.
-- transforms: {a, b, c, d, e, f, g, h} for each image, {n, 8}, or one for all, {8}; six numbers leave g and h 0. They
-- map places of the result to places of the image, as in Keras's affine_transform.
-- fill_mode: what lies outside: "constant" (fill_value), "nearest" (the edge), "reflect" (mirrored) or "wrap".
-- size: {rows, columns} of the result; by default as the images. "nearest" keeps any dtype, "bilinear" makes
-- float32 of integers. A point at infinity, or further than 2^30 pixels away, gives fill_value.
-- images {n, h, w, c} or {h, w, c}; gradient: to the images, none to the transforms.
-- Errors: transforms of another shape.
-- Example:
--     local image = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:reshape { 2, 3, 1 }
--     local mirror = mgpu.tensor { -1, 0, 2, 0, 1, 0 } -- pixel (x, y) is read at (2 - x, y)
--     print(image:affine_transform(mirror):reshape { 2, 3 })
--     --> tensor {2, 3} float32 cpu:0
--     --> {{3, 2, 1},
--     -->  {6, 5, 4}}
function M.affine_transform(images, transforms, ...)
  local interpolation, fill_mode, fill_value, size = arguments.read_options("affine_transform",
    { "interpolation", "fill_mode", "fill_value", "size" }, ...)
  transforms = arguments.floating(arguments.as_tensor("affine_transform", transforms))
  return over_images("affine_transform", ops.affine_transform, images, interpolation, transforms,
    { size = size, interpolation = interpolation, fill_mode = fill_mode, fill_value = fill_value })
end

return M
