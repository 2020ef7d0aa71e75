--- Operations of keras.ops.image; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"

local ops = core.ops

local M = {}

-- Calls fn with images whose channels are last, and gives its result the form of the images again.
local function channels_last(x, data_format, fn)
  if data_format ~= "channels_first" then return fn(x) end
  local one = x:rank() == 3
  local y = fn(ops.permute(x, { order = one and { 2, 3, 1 } or { 1, 3, 4, 2 } }))
  return ops.permute(y, { order = one and { 3, 1, 2 } or { 1, 4, 2, 3 } })
end

M.Resize = { "images | size interpolation? antialias? crop_to_aspect_ratio:boolean? pad_to_aspect_ratio:boolean? "
  .. "fill_mode:string? fill_value:number? data_format?",
  function(x, size, interpolation, antialias, crop, pad, _, fill_value, data_format)
    if crop and pad then
      core.fail("usage", "resize: crop_to_aspect_ratio and pad_to_aspect_ratio cannot both be true")
    end
    local height, width = size, size
    if type(size) == "table" then height, width = size[1], size[2] end
    return channels_last(x, data_format, function(t)
      local one = (crop or pad) and t:rank() == 3
      if one then t = image_parts.with_batch(t) end
      if crop then t = image_parts.crop_to_aspect(t, height, width) end
      if pad then t = image_parts.pad_to_aspect(t, height, width, fill_value or 0) end
      local y = composite.image_resize(t, { size = { height, width }, interpolation = interpolation or "bilinear",
        antialias = antialias or false })
      return one and image_parts.without_batch(y) or y
    end)
  end }

M.RGBToGrayscale = { "images | data_format?", function(x, data_format)
  return channels_last(x, data_format, function(t)
    local channels = t:shape()[t:rank()]
    if channels ~= 1 and channels ~= 3 then
      core.fail("usage", ("rgb_to_grayscale: images need 1 or 3 channels, got %d"):format(channels))
    end
    return image_parts.gray(t, t:rank())
  end)
end }

-- Which sizes before and after an axis the options give: two of before, after and the whole.
local function around(before, after, target, size, sign)
  if target then
    local rest = sign * (target - size)
    if before then return before, rest - before end
    return rest - (after or 0), after or 0
  end
  return before or 0, after or 0
end

local SIDES = "images | top_%s:number? left_%s:number? bottom_%s:number? right_%s:number? target_height:number? "
  .. "target_width:number? data_format?"

local function sided(who, word, sign, fn)
  return { SIDES:gsub("%%s", word), function(x, top, left, bottom, right, height, width, data_format)
    return channels_last(x, data_format, function(t)
      local s, rank = t:shape(), t:rank()
      local before, after = {}, {}
      for i = 1, rank do before[i], after[i] = 0, 0 end
      before[rank - 2], after[rank - 2] = around(top, bottom, height, s[rank - 2], sign)
      before[rank - 1], after[rank - 1] = around(left, right, width, s[rank - 1], sign)
      for i = 1, rank do
        arguments.whole(who, "a width", before[i], 0)
        arguments.whole(who, "a width", after[i], 0)
      end
      return fn(t, before, after)
    end)
  end }
end

M.PadImages = sided("pad_images", "padding", 1, function(t, before, after)
  return ops.pad(t, { before = before, after = after, value = 0 })
end)
M.CropImages = sided("crop_images", "cropping", -1, function(t, before, after)
  local ranges = {}
  for i, size in ipairs(t:shape()) do ranges[i] = { before[i] + 1, size - after[i] } end
  return composite.slice(t, ranges)
end)

return M
