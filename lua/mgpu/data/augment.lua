--- ds:augment {field = 1, seed =, ...}: random and fixed changes of the images of a dataset, in C, row by row.
--
--     local train = mgpu.data.from_tensors { x, y }:shuffle(50000)
--       :augment { width_shift = 0.1, height_shift = 0.1, horizontal_flip = true, rescale = 1 / 255 }
--       :batch(128):prefetch(2)
-- The images are {rows, columns}, {rows, columns, channels} or, with data_format = "channels_first", {channels, rows,
-- columns}. What a row becomes depends on the seed (nil: drawn from mgpu.seed's state), the epoch and the row alone:
-- not on the batch size, the order or the number of threads.
--
-- The steps, in this order whatever the order of the options (for another order augment twice):
--   resize = {h, w, method = "bilinear", antialias = false}: as tf.image.resize, with the method "bilinear", "nearest",
--     "bicubic", "area", "lanczos3" or "lanczos5"; a number: the size of the shorter side. crop_to_aspect_ratio or
--     pad_to_aspect_ratio = true: the image keeps its proportions, and the sides that are too long are cut, or those
--     that are too short padded with cval
--   center_crop = {h, w}; random_crop = {h, w, padding = 0 | {rows, columns}, fill_mode = "constant"}
--   random_resized_crop = {h, w, area = {0.1, 1}, aspect = {0.8, 1.25}, method =, antialias =}, in place of these
--   rotation = degrees, shear = degrees, zoom = share or {least, greatest}, height_shift, width_shift = a fraction of
--     the image below 1 or a whole number of pixels, horizontal_flip, vertical_flip = true (1/2) or a probability:
--     one map about the center, as Keras's, with interpolation = "bilinear"|"nearest", and outside of the image
--     fill_mode = "nearest"|"reflect"|"wrap"|"constant" (cval = 0)
--   channel_shift = amount, within the image's least and greatest value; brightness_factor = {least, greatest}, in
--     steps of 1 from 0 to 255 (Keras's brightness_range)
--   brightness = greatest change; contrast, saturation = share or {least, greatest}; hue = at most 0.5: as
--     tf.image.adjust_..., in the units of the pixels; of four channels the last is alpha and stays
--   rescale = factor; standardize = true: tf.image.per_image_standardization; mean, std = a number or one a channel
--   cutout = n or {h, w, value = 0}: a hole around a random pixel
-- A range {v, v} fixes a value. A number v stands for -v to v, or for 1 - v to 1 + v where it is a factor.
--
-- dtype = the dtype of the result. By default uint8 images stay uint8 (rounded); a step from channel_shift on, except
-- cutout, makes them float32, still 0 to 255 unless rescaled. Floating images keep their dtype.
-- field = {1, 2}: the first field is the image, the others are masks. Masks get the same geometry, but their pixels are
-- copied, never mixed, and no other step changes them.
-- Errors: unknown options and values out of range; a crop larger than the image; images of another rank.
local core = require "mgpu.core"
local options = require "mgpu.data.augment_options"

--- augment(ds, given) -> a dataset; see the top.
return function(ds, given)
  local fields, image, mask = options.check(given)
  image.seed = image.seed or core.stream_seed()
  mask.seed = image.seed
  local Dataset = require "mgpu.data.dataset"
  for i, field in ipairs(fields) do
    ds = Dataset.transformed(ds, "augment", field, core.augment(i == 1 and image or mask))
  end
  return ds
end
