--- The options of ImageDataGenerator, checked, and its random steps as tables for core.augment.
local core = require "mgpu.core"
local options = require "mgpu.options"

local M = {}

local WHO = "ImageDataGenerator"
local MOST_CHOICES = 256 -- MG_SHIFT_CHOICES
local function fail(message, ...) core.fail("usage", WHO .. ": " .. message:format(...)) end

local function switch(name) return { name, "boolean", default = false } end
local function angle(name, most) return { name, "number", default = 0, min = 0, max = most } end

local declared = options.declare {
  positional = 0,
  switch "featurewise_center", switch "samplewise_center", switch "featurewise_std_normalization",
  switch "samplewise_std_normalization", switch "zca_whitening",
  { "zca_epsilon", "number", default = 1e-6, min = 0, max = 1e6 },
  angle("rotation_range", 360), { "width_shift_range", "number|table", default = 0 },
  { "height_shift_range", "number|table", default = 0 }, { "brightness_range", "table" },
  angle("shear_range", 90), { "zoom_range", "number|table", default = 0 },
  { "channel_shift_range", "number", default = 0, min = 0, max = 1e6 },
  { "fill_mode", "string", default = "nearest", values = { "nearest", "reflect", "wrap", "constant" } },
  { "cval", "number", default = 0, min = -1e6, max = 1e6 },
  switch "horizontal_flip", switch "vertical_flip",
  { "rescale", "number", min = -1e12, max = 1e12 }, { "preprocessing_function", "function" },
  { "data_format", "string", values = { "channels_last", "channels_first" } },
  { "validation_split", "number", default = 0, min = 0, below = 1 },
  { "interpolation_order", "integer", default = 1, values = { 0, 1 } },
  { "dtype", "string", values = { "float16", "bfloat16", "float32", "float64" } },
}

-- ---- options for core.augment -------------------------------------------------------------------

-- Keras's shift: a fraction of the image, a whole number of pixels below n with a random sign, or one of a list.
local function set_shift(flat, name, value)
  local list, most = value, 0
  if type(value) == "number" then
    if not (value >= 0 and value <= 65500) then
      fail('option "%s_range" must be from 0 to 65500, got %g', name, value)
    end
    if value == 0 then return end
    if value % 1 ~= 0 then
      flat[name], flat[name .. "_kind"], flat[name .. "_fraction"] = { -value, value }, "real", value < 1
      return
    end
    list = {}
    for i = 1, value do list[i] = i - 1 end
  end
  if #list == 0 or #list > MOST_CHOICES then
    fail('option "%s_range": a list of 1 to %d shifts, or below %d pixels, got %d', name, MOST_CHOICES,
      MOST_CHOICES + 1, #list)
  end
  for i, v in ipairs(list) do
    if type(v) ~= "number" or not (math.abs(v) <= 65500) then
      fail('option "%s_range": entry %d must be a number of pixels, got %s', name, i, tostring(v))
    end
    most = i == 1 and v or math.max(most, v)
  end
  if type(value) == "number" then most = value end
  flat[name], flat[name .. "_kind"], flat[name .. "_fraction"] = list, "choice", most < 1
end

local function check_pair(name, value, least)
  if #value ~= 2 or type(value[1]) ~= "number" or type(value[2]) ~= "number" then
    fail("option %q must be two numbers, as in {0.5, 1.5}", name)
  end
  if not (value[1] >= least and value[1] <= value[2] and value[2] <= 1000) then
    fail("option %q must be {least, greatest} from %g to 1000, got {%g, %g}", name, least, value[1], value[2])
  end
  return { value[1], value[2] }
end

local function zoom_of(value)
  if type(value) == "table" then return check_pair("zoom_range", value, 0.001) end
  if not (value >= 0 and value < 1) then
    fail('option "zoom_range" must be from 0 to below 1, or {least, greatest}; got %g', value)
  end
  return value > 0 and { 1 - value, 1 + value } or nil
end

local function around_zero(value) return value > 0 and { -value, value } or nil end

--- base_table(chosen) -> what the tables of all steps share.
function M.base_table(chosen)
  return { dtype = chosen.dtype, channels_first = chosen.channel_axis == 2, cval = chosen.cval,
    fill_mode = chosen.fill_mode, interpolation = chosen.interpolation_order == 0 and "nearest" or "bilinear" }
end

--- random_table(chosen) -> the random steps: what get_random_transform draws.
function M.random_table(chosen)
  local flat = M.base_table(chosen)
  flat.rotation, flat.shear = around_zero(chosen.rotation_range), around_zero(chosen.shear_range)
  flat.zoom_rows = zoom_of(chosen.zoom_range)
  flat.zoom_columns = flat.zoom_rows
  set_shift(flat, "height_shift", chosen.height_shift_range)
  set_shift(flat, "width_shift", chosen.width_shift_range)
  flat.horizontal_flip = chosen.horizontal_flip and 0.5 or 0
  flat.vertical_flip = chosen.vertical_flip and 0.5 or 0
  flat.channel_shift = around_zero(chosen.channel_shift_range)
  if chosen.brightness_range then
    flat.brightness_factor = check_pair("brightness_range", chosen.brightness_range, 0)
  end
  return flat
end

-- Switches that others imply, as in Keras.
local function imply(chosen)
  if chosen.zca_whitening then
    chosen.featurewise_center, chosen.featurewise_std_normalization = true, false
  end
  if chosen.featurewise_std_normalization then chosen.featurewise_center = true end
  if chosen.samplewise_std_normalization then chosen.samplewise_center = true end
end

--- check(given) -> the chosen options, with the defaults and what they imply.
function M.check(given)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    fail("the options are a table, as in {horizontal_flip = true}, got a %s", type(given))
  end
  local chosen = options.check(WHO, declared, given or {})
  if chosen.rescale == 0 then chosen.rescale = nil end
  chosen.dtype = chosen.dtype or core.floatx()
  chosen.data_format = chosen.data_format or require "mgpu.nn.layers.images".default_format
  chosen.channel_axis = chosen.data_format == "channels_first" and 2 or 4
  imply(chosen)
  return chosen
end

return M
