--- Layers that apply other layers of images one after the other, in training only.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- ---- RandomColorJitter --------------------------------------------------------------------------

--- RandomColorJitter {value_range = {0, 255}, brightness_factor =, contrast_factor =, saturation_factor =, ...}
-- Changes the colors of images in training: RandomBrightness, RandomContrast, RandomSaturation and RandomHue with these
-- factors, in this order; those without a factor are left out.
-- brightness_factor, contrast_factor, saturation_factor, hue_factor: as the option factor of these layers; seed,
-- data_format.
-- x {batch, rows, columns, 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local jitter = L.RandomColorJitter { { 0, 1 }, brightness_factor = 0.2, hue_factor = 0.1 }
--     print(unpack(jitter(mgpu.rand { 8, 16, 16, 3 }, { training = true }):shape()))  --> 8 16 16 3
local RandomColorJitter = image_parts.extend("RandomColorJitter", { positional = 1,
  image_parts.value_range,
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
  image_parts.values(self)
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
  for _, part in ipairs(self.parts) do x = image_parts.transformed(part, x) end
  return x
end

M.RandomColorJitter = RandomColorJitter

-- ---- RandAugment --------------------------------------------------------------------------------

--- RandAugment {value_range = {0, 255}, num_ops = 2, factor = 0.5, interpolation = "bilinear", seed =, data_format =}
-- Changes images in training by num_ops layers, one after the other, which each batch draws: RandomShear,
-- RandomTranslation, RandomRotation, RandomBrightness, RandomColorDegeneration, RandomContrast, RandomSharpness,
-- RandomPosterization, Solarization, AutoContrast or Equalization (Cubuk et al. 2019).
-- factor: the factors of these layers, {lower, upper} from 0 to 1, or a number v for {0, v}; RandomPosterization has 8
-- times the upper one. interpolation: "bilinear" or "nearest". All layers are computed for each of num_ops, and one is
-- used.
-- x {batch, rows, columns, 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local augment = L.RandAugment { { 0, 1 }, factor = 0.3 }
--     print(unpack(augment(mgpu.rand { 8, 16, 16, 3 }, { training = true }):shape()))  --> 8 16 16 3
local RandAugment = image_parts.extend("RandAugment", { positional = 2,
  image_parts.value_range,
  { "num_ops", "integer", default = 2, min = 1 },
  { "factor", "number|table", default = 0.5 },
  { "interpolation", "string", default = "bilinear", values = { "bilinear", "nearest" } },
  image_parts.seed, images.data_format,
}, function(layer, n, shape)
  local draws = {}
  for i, part in ipairs(layer.parts) do draws[i] = part.draw and { part:draw(n, shape) } or {} end
  local last = #layer.parts - 1
  return image_parts.uniform(layer, layer.num_ops, { 0, last + 1 }):floor():minimum(last), draws
end)

-- The layers in Keras's order, with their options.
local function augmentations(range, values, interpolation)
  return {
    { "RandomShear", { x_factor = range, y_factor = range, interpolation = interpolation } },
    { "RandomTranslation", { height_factor = range, width_factor = range, interpolation = interpolation } },
    { "RandomRotation", { factor = range, interpolation = interpolation } },
    { "RandomBrightness", { factor = range, value_range = values } },
    { "RandomColorDegeneration", { factor = range, value_range = values } },
    { "RandomContrast", { factor = range, value_range = values } },
    { "RandomSharpness", { factor = range, value_range = values } },
    { "RandomPosterization", { factor = math.max(1, math.floor(8 * range[2])), value_range = values } },
    { "Solarization", { addition_factor = range, threshold_factor = range, value_range = values } },
    { "AutoContrast", { value_range = values } },
    { "Equalization", { value_range = values } },
  }
end

function RandAugment:init()
  local values = image_parts.values(self)
  self.parts = {}
  for i, row in ipairs(augmentations(image_parts.range(self, "factor", 0, 1), values, self.interpolation)) do
    self.parts[i] = image_parts.part(self, unpack(row))
  end
end

--- layer:transform(x, choices, draws) -> x after the layers whose places, from 0, are in choices {num_ops}; draws: for
--- each layer, a list of what it drew.
function RandAugment:transform(x, choices, draws)
  for k = 1, self.num_ops do
    local choice = ops.slice(choices, { start = { k - 1 }, stop = { k } }):reshape { 1, 1, 1, 1 }
    local given = x
    for i, part in ipairs(self.parts) do
      local y = part.draw and part:transform(given, unpack(draws[i])) or part:change(given, true)
      x = ops.where(ops.eq(choice, i - 1), y, x)
    end
  end
  return x
end

M.RandAugment = RandAugment

return M
