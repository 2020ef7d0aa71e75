--- Layers that apply other layers of images one after the other, in training only.
-- RETURNS the classes by name.
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local M = {}

-- ---- RandomColorJitter --------------------------------------------------------------------------

--- RandomColorJitter {value_range = {0, 255}, brightness_factor =, contrast_factor =, saturation_factor =, ...}
-- Changes the colors of images in training: RandomBrightness, RandomContrast, RandomSaturation and RandomHue with these
-- factors, in this order; those without a factor are left out.
-- brightness_factor, contrast_factor, saturation_factor, hue_factor: as the option factor of these layers; seed,
-- data_format.
-- x {batch, rows, columns, 3} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local jitter = L.RandomColorJitter { { 0, 1 }, brightness_factor = 0.2, hue_factor = 0.1 }
--     print(unpack(jitter(mgpu.rand { 8, 16, 16, 3 }, { training = true }):shape()))  --> 8 16 16 3
local RandomColorJitter = image_parts.extend("RandomColorJitter", { positional = 1,
  { "value_range", "table", default = { 0, 255 } },
  { "brightness_factor", "number|table" },
  { "contrast_factor", "number|table" },
  { "saturation_factor", "number|table" },
  { "hue_factor", "number|table" },
  image_parts.seed, images.data_format,
}, function() end)

-- The option, its layer, and the least factor.
local JITTER = {
  { "brightness_factor", "RandomBrightness", -1 }, { "contrast_factor", "RandomContrast", 0 },
  { "saturation_factor", "RandomSaturation", -1 }, { "hue_factor", "RandomHue", 0 },
}

function RandomColorJitter:init()
  image_parts.range(self, "value_range", -math.huge, math.huge)
  self.parts = {}
  for _, row in ipairs(JITTER) do
    local option, class_name, least = unpack(row)
    if self[option] ~= nil then
      image_parts.range(self, option, least, 1)
      self.parts[#self.parts + 1] = image_parts.part(self, class_name,
        { factor = self[option], value_range = self.value_range })
    end
  end
end

--- layer:transform(x) -> x after its layers.
function RandomColorJitter:transform(x)
  for _, part in ipairs(self.parts) do x = image_parts.apply_part(self, part, x) end
  return x
end

M.RandomColorJitter = RandomColorJitter

return M
