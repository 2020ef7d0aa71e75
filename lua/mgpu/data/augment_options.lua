--- The options of ds:augment{...}, checked, as the flat table that core.augment (runtime/bind/transform.c) reads.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local options = require "mgpu.options"

--- METHODS: how images are resized, by the names of tf.image.resize.
local M = { METHODS = { "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5" } }

local MOST_SIDE = 65500
local FILLS = { "nearest", "reflect", "wrap", "constant" }
local DTYPES = { "uint8", "float16", "bfloat16", "float32", "float64" }

local function fail(message, ...) core.fail("usage", "augment: " .. message:format(...)) end

local function show(value)
  if type(value) == "table" then
    local list = {}
    for i, v in ipairs(value) do list[i] = tostring(v) end
    return "{" .. table.concat(list, ", ") .. "}"
  end
  return type(value) == "string" and ("%q"):format(value) or tostring(value)
end

-- ---- ranges -------------------------------------------------------------------------------------

local function is_pair_of_numbers(value)
  if type(value) ~= "table" or #value ~= 2 then return false end
  for key, v in pairs(value) do
    if type(key) ~= "number" or type(v) ~= "number" then return false end
  end
  return true
end

local function check_range(name, lo, hi, least, most)
  if not (lo <= hi) then fail("option %q: the range {%g, %g} is empty: give {least, greatest}", name, lo, hi) end
  if lo < least or hi > most then
    fail("option %q must be from %g to %g, got {%g, %g}", name, least, most, lo, hi)
  end
  return { lo, hi }
end

-- How the options that are ranges are spelled. A number v stands for {center - v, center + v}.
local RANGES = {
  rotation = { center = 0, widest = 360, least = -360, most = 360 },
  shear = { center = 0, widest = 90, least = -90, most = 90 },
  zoom = { center = 1, widest = 0.999, least = 0.001, most = 1000 },
  channel_shift = { center = 0, widest = 1e6, least = -1e6, most = 1e6 },
  brightness = { center = 0, widest = 1e6, least = -1e6, most = 1e6 },
  brightness_factor = { center = 1, widest = 1, least = 0, most = 1000 },
  contrast = { center = 1, widest = 1, least = 0, most = 1000 },
  saturation = { center = 1, widest = 1, least = 0, most = 1000 },
  hue = { center = 0, widest = 0.5, least = -1, most = 1 },
}

local function range(name, value)
  local how = RANGES[name]
  if is_pair_of_numbers(value) then return check_range(name, value[1], value[2], how.least, how.most) end
  if type(value) ~= "number" then
    fail("option %q must be a number or {least, greatest}, got %s", name, show(value))
  end
  if not (value >= 0 and value <= how.widest) then
    fail("option %q must be from 0 to %g, or {least, greatest}; got %g", name, how.widest, value)
  end
  return { how.center - value, how.center + value }
end

-- ---- shifts, flips, numbers of channels -----------------------------------------------------------

local function is_whole(v) return v % 1 == 0 end

-- Sets name, name_kind and name_fraction.
local function set_shift(flat, name, value)
  local lo, hi
  if is_pair_of_numbers(value) then
    lo, hi = unpack(value)
  elseif type(value) == "number" and value >= 0 then
    lo, hi = -value, value
  else
    fail("option %q must be a number from 0 on or {least, greatest}, got %s", name, show(value))
  end
  check_range(name, lo, hi, -MOST_SIDE, MOST_SIDE)
  local fraction = math.max(math.abs(lo), math.abs(hi)) < 1
  local whole = not fraction and is_whole(lo) and is_whole(hi)
  if not (fraction or whole or type(value) == "table") then
    fail("option %q must be below 1 (a fraction of the image) or a whole number of pixels, got %g", name, value)
  end
  flat[name], flat[name .. "_fraction"] = { lo, hi }, fraction
  flat[name .. "_kind"] = whole and "whole" or "real"
end

local function probability(name, value)
  if value == true then return 0.5 end
  if value == false then return 0 end
  if type(value) == "number" and value >= 0 and value <= 1 then return value end
  fail("option %q must be true, false or a probability from 0 to 1, got %s", name, show(value))
end

-- One number, or one for each channel, as an array.
local function channel_numbers(name, value, least)
  local list = type(value) == "number" and { value } or value
  if type(list) ~= "table" or #list == 0 then
    fail("option %q must be a number or a list of one for each channel, got %s", name, show(value))
  end
  local fault = core.array_fault(list)
  if fault then fail("option %q: %s", name, fault) end
  for i, v in ipairs(list) do
    if type(v) ~= "number" or v ~= v or math.abs(v) == math.huge then
      fail("option %q: entry %d must be a finite number, got %s", name, i, show(v))
    end
    if v <= least then fail("option %q: entry %d must be above %g, got %g", name, i, least, v) end
  end
  return list
end

-- ---- options that are tables ----------------------------------------------------------------------

local HEIGHT = { "height", "integer", min = 1, max = MOST_SIDE }
local WIDTH = { "width", "integer", min = 1, max = MOST_SIDE }
local METHOD = { "method", "string", default = "bilinear", values = M.METHODS }
local ANTIALIAS = { "antialias", "boolean", default = false }

local SIZE = { positional = 2, HEIGHT, WIDTH }
local RESIZE = { positional = 2, HEIGHT, WIDTH, METHOD, ANTIALIAS,
  { "crop_to_aspect_ratio", "boolean", default = false }, { "pad_to_aspect_ratio", "boolean", default = false } }
local RANDOM_CROP = { positional = 2, HEIGHT, WIDTH, { "padding", "pair0" },
  { "fill_mode", "string", default = "constant", values = FILLS } }
local RESIZED_CROP = { positional = 2, HEIGHT, WIDTH, METHOD, ANTIALIAS, { "area", "table", default = { 0.1, 1 } },
  { "aspect", "table", default = { 0.8, 1.25 } } }
local CUTOUT = { positional = 2, HEIGHT, WIDTH, { "value", "number", default = 0 } }

-- RETURNS the chosen values and {height, width}; one number n stands for both.
local function with_size(name, declared, value)
  local chosen = options.check("augment: " .. name, declared, value)
  if not chosen.height then fail("option %q needs a size, as in %s = {32, 32}", name, name) end
  return chosen, { chosen.height, chosen.width or chosen.height }
end

local function set_resize(flat, value)
  local chosen, size = with_size("resize", RESIZE, value)
  flat.method, flat.antialias = chosen.method, chosen.antialias
  if chosen.width then flat.resize = size else flat.resize_shorter = chosen.height end
  flat.crop_to_aspect_ratio, flat.pad_to_aspect_ratio = chosen.crop_to_aspect_ratio, chosen.pad_to_aspect_ratio
  if chosen.crop_to_aspect_ratio and chosen.pad_to_aspect_ratio then
    fail "resize: only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be true"
  elseif (chosen.crop_to_aspect_ratio or chosen.pad_to_aspect_ratio) and not chosen.width then
    fail "resize: crop_to_aspect_ratio and pad_to_aspect_ratio need both sides of the size, as in resize = {32, 32}"
  end
end

local function set_random_crop(flat, value)
  local chosen, size = with_size("random_crop", RANDOM_CROP, value)
  flat.random_crop, flat.padding, flat.padding_fill = size, chosen.padding, chosen.fill_mode
end

local function set_resized_crop(flat, value)
  local who = "random_resized_crop"
  local chosen, size = with_size(who, RESIZED_CROP, value)
  flat.random_resized_crop, flat.method, flat.antialias = size, chosen.method, chosen.antialias
  for _, name in ipairs { "area", "aspect" } do
    if not is_pair_of_numbers(chosen[name]) then
      fail("%s: option %q must be {least, greatest}, got %s", who, name, show(chosen[name]))
    end
    local lo, hi = unpack(chosen[name])
    flat[name] = check_range(who .. "." .. name, lo, hi, 0.001, name == "area" and 1 or 1000)
  end
end

local function set_cutout(flat, value)
  local chosen, size = with_size("cutout", CUTOUT, value)
  flat.cutout, flat.cutout_value = size, chosen.value
end

-- ---- the whole ----------------------------------------------------------------------------------

local declared = options.declare {
  { "field", "any", default = 1 },
  { "seed", "integer", min = 0, max = 2 ^ 53 },
  { "dtype", "string", values = DTYPES },
  { "data_format", "string", default = "channels_last", values = { "channels_last", "channels_first" } },
  { "interpolation", "string", default = "bilinear", values = { "bilinear", "nearest" } },
  { "fill_mode", "string", default = "nearest", values = FILLS },
  { "cval", "number", default = 0, min = -1e6, max = 1e6 },
  { "resize", "any" }, { "center_crop", "any" }, { "random_crop", "any" }, { "random_resized_crop", "any" },
  { "rotation", "any" }, { "shear", "any" }, { "zoom", "any" }, { "height_shift", "any" }, { "width_shift", "any" },
  { "horizontal_flip", "any" }, { "vertical_flip", "any" },
  { "channel_shift", "any" }, { "brightness_factor", "any" }, { "brightness", "any" }, { "contrast", "any" },
  { "saturation", "any" }, { "hue", "any" },
  { "rescale", "number", min = -1e12, max = 1e12 }, { "standardize", "boolean", default = false },
  { "mean", "any" }, { "std", "any" }, { "cutout", "any" },
}

-- The fields of the dataset that take part: an array of different numbers.
local function fields_of(value)
  local list = type(value) == "number" and { value } or value
  local seen = {}
  if type(list) ~= "table" or #list == 0 or core.array_fault(list) then
    fail('option "field" must be the number of a field or a list of them, got %s', show(value))
  end
  for _, k in ipairs(list) do
    if type(k) ~= "number" or k < 1 or k % 1 ~= 0 then
      fail('option "field": fields are numbered from 1, got %s', show(k))
    end
    if seen[k] then fail('option "field": field %d is named twice', k) end
    seen[k] = true
  end
  return list
end

local function set_geometry(flat, chosen)
  if chosen.random_resized_crop ~= nil then
    for _, other in ipairs { "resize", "center_crop", "random_crop" } do
      if chosen[other] ~= nil then
        fail("options \"random_resized_crop\" and %q cannot be combined: augment twice to do both", other)
      end
    end
    set_resized_crop(flat, chosen.random_resized_crop)
  end
  if chosen.resize ~= nil then set_resize(flat, chosen.resize) end
  if chosen.center_crop ~= nil then
    local _, size = with_size("center_crop", SIZE, chosen.center_crop)
    flat.center_crop = size
  end
  if chosen.random_crop ~= nil then set_random_crop(flat, chosen.random_crop) end
  for _, name in ipairs { "rotation", "shear" } do
    if chosen[name] ~= nil then flat[name] = range(name, chosen[name]) end
  end
  if chosen.zoom ~= nil then
    flat.zoom_rows = range("zoom", chosen.zoom)
    flat.zoom_columns = flat.zoom_rows
  end
  for _, name in ipairs { "height_shift", "width_shift" } do
    if chosen[name] ~= nil then set_shift(flat, name, chosen[name]) end
  end
  for _, name in ipairs { "horizontal_flip", "vertical_flip" } do
    if chosen[name] ~= nil then flat[name] = probability(name, chosen[name]) end
  end
end

local function set_values(flat, chosen)
  for _, name in ipairs { "channel_shift", "brightness_factor", "brightness", "contrast", "saturation", "hue" } do
    if chosen[name] ~= nil then flat[name] = range(name, chosen[name]) end
  end
  if chosen.rescale == 0 then fail 'option "rescale" must not be 0' end
  flat.rescale = chosen.rescale
  if chosen.standardize then flat.standardize = "tf" end
  if chosen.mean ~= nil then flat.mean = channel_numbers("mean", chosen.mean, -math.huge) end
  if chosen.std ~= nil then flat.std = channel_numbers("std", chosen.std, 0) end
  if chosen.cutout ~= nil then set_cutout(flat, chosen.cutout) end
  flat.dtype = chosen.dtype
end

--- check(given) -> fields, image, mask: the numbers of the fields, and two tables for core.augment. `image` is for the
--- first field; `mask` is for the others, which get only the geometry, without mixing pixels.
function M.check(given)
  if type(given) ~= "table" or getmetatable(given) then
    fail("the options are a table, as in {horizontal_flip = true}, got %s", checks.kind(given))
  end
  local chosen = options.check("augment", declared, given)
  local fields = fields_of(chosen.field)
  local image, mask = {}, {}
  for _, flat in ipairs { image, mask } do
    flat.seed = chosen.seed
    flat.fill_mode, flat.cval = chosen.fill_mode, chosen.cval
    flat.channels_first = chosen.data_format == "channels_first"
    flat.interpolation = chosen.interpolation
    set_geometry(flat, chosen)
  end
  mask.interpolation, mask.method = "nearest", "nearest"
  set_values(image, chosen)
  return fields, image, mask
end

return M
