--- Weights as images for TensorBoard, by the rules of Keras's callback.
--
-- Without its axes of size 1, a vector is an image of one column; a matrix is an image, with more columns than rows;
-- three axes are a gray image for each entry of the last; four axes, if the last has 1, 3 or 4 entries, are images in
-- colour. Numbers from 0 to 1 become 0 to 255, others the nearer end. TensorFlow writes the first three images.
local core = require "mgpu.core"
local encode_png = require "mgpu.data.image".encode_png
local summaries = require "mgpu.train.tensorboard.summaries"

local ops = core.ops

local MOST = 3

-- The weight as {images, rows, columns, channels}; nil if there is no such form.
local function as_images(t)
  local shape = {}
  for _, size in ipairs(t:shape()) do
    if size ~= 1 then shape[#shape + 1] = size end
  end
  t = ops.reshape(t, { shape = shape })
  if #shape == 1 then return ops.reshape(t, { shape = { 1, shape[1], 1, 1 } }) end
  if #shape == 2 then
    if shape[1] > shape[2] then t, shape = ops.permute(t, { order = { 2, 1 } }), { shape[2], shape[1] } end
    return ops.reshape(t, { shape = { 1, shape[1], shape[2], 1 } })
  elseif #shape == 3 then
    t = ops.permute(t, { order = { 3, 1, 2 } })
    return ops.reshape(t, { shape = { shape[3], shape[1], shape[2], 1 } })
  end
  local channels = shape[4]
  return #shape == 4 and (channels == 3 or channels == 4) and t or nil
end

-- TensorFlow multiplies by 255.5 and cuts the fraction off. NaN is black.
local function as_bytes(t)
  local scaled = ops.where(ops.eq(t, t), t, 0) * 255.5
  return ops.minimum(ops.maximum(scaled, 0), 255):floor():to "uint8"
end

local M = {}

--- check(): raises if PNG files cannot be written here.
function M.check() encode_png(ops.full({ 1, 1 }, 0, "uint8")) end

--- value(tag, t) -> the value for a weight, a tensor of floats in host memory; nil if it cannot be shown.
function M.value(tag, t)
  local images = t:count() > 0 and as_images(t)
  if not images then return nil end
  local n, rows, columns, channels = unpack(images:shape())
  local bytes, pngs = as_bytes(images), {}
  for i = 1, math.min(n, MOST) do
    local one = ops.slice(bytes, { start = { i - 1, 0, 0, 0 }, stop = { i, rows, columns, channels } })
    pngs[i] = encode_png(ops.reshape(one, { shape = { rows, columns, channels } }))
  end
  return summaries.images(tag, columns, rows, pngs)
end

return M
