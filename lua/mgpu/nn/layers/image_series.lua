--- Layers that apply other layers of images one after the other, in training only.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_draws = require "mgpu.nn.layers.image_draws"
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

-- ---- layers of which one is drawn ----------------------------------------------------------------

-- The names of the layers, in Keras's order.
local RAND_AUGMENT = { "RandomShear", "RandomTranslation", "RandomRotation", "RandomBrightness",
  "RandomColorDegeneration", "RandomContrast", "RandomSharpness", "RandomPosterization", "Solarization",
  "AutoContrast", "Equalization" }
local AUG_MIX = { "RandomShear", "RandomTranslation", "RandomRotation", "RandomPosterization", "Solarization",
  "AutoContrast", "Equalization" }
local AUG_MIX_COLORS = { "RandomBrightness", "RandomColorDegeneration", "RandomContrast", "RandomSharpness" }

-- The options of one of these layers for the factors `range`.
local function options_of(class_name, range, values, interpolation)
  if class_name == "RandomShear" then
    return { x_factor = range, y_factor = range, interpolation = interpolation }
  elseif class_name == "RandomTranslation" then
    return { height_factor = range, width_factor = range, interpolation = interpolation }
  elseif class_name == "RandomRotation" then
    return { factor = range, interpolation = interpolation }
  elseif class_name == "RandomPosterization" then
    return { factor = math.max(1, math.floor(8 * range[2])), value_range = values }
  elseif class_name == "Solarization" then
    return { addition_factor = range, threshold_factor = range, value_range = values }
  elseif class_name == "AutoContrast" or class_name == "Equalization" then
    return { value_range = values }
  end
  return { factor = range, value_range = values }
end

-- Makes the layer's parts of the classes with these names.
local function make_parts(layer, names)
  local values, range = image_parts.values(layer), image_parts.range(layer, "factor", 0, 1)
  layer.parts = {}
  for i, name in ipairs(names) do
    layer.parts[i] = image_parts.part(layer, name, options_of(name, range, values, layer.interpolation))
  end
end

-- For each part, a list of what it draws.
local function draw_parts(layer, n, shape)
  local draws = {}
  for i, part in ipairs(layer.parts) do draws[i] = part.draw and { part:draw(n, shape) } or {} end
  return draws
end

-- `count` random places of parts, from 0 to `last`.
local function draw_choices(layer, count, last)
  return image_parts.uniform(layer, count, { 0, last + 1 }):floor():minimum(last)
end

-- x after the part whose place, from 0, is entry k of choices; x itself if there is no such part.
local function after_part(layer, x, choices, k, draws)
  local choice = ops.slice(choices, { start = { k - 1 }, stop = { k } }):reshape { 1, 1, 1, 1 }
  local out = x
  for i, part in ipairs(layer.parts) do
    local y = part.draw and part:transform(x, unpack(draws[i])) or part:change(x, true)
    out = ops.where(ops.eq(choice, i - 1), y, out)
  end
  return out
end

-- ---- RandAugment --------------------------------------------------------------------------------

--- RandAugment {value_range = {0, 255}, num_ops = 2, factor = 0.5, interpolation = "bilinear", seed =, data_format =}
-- Changes images in training by num_ops layers, one after the other, which each batch draws: RandomShear,
-- RandomTranslation, RandomRotation, RandomBrightness, RandomColorDegeneration, RandomContrast, RandomSharpness,
-- RandomPosterization, Solarization, AutoContrast or Equalization (Cubuk et al. 2019).
-- factor: the factors of these layers, {lower, upper} from 0 to 1, or a number v for {0, v}; RandomPosterization has 8
-- times the upper one. interpolation: "bilinear" or "nearest". All layers are computed for each of num_ops, and one is
-- used.
-- x {batch, rows, columns, 1 or 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local augment = L.RandAugment { { 0, 1 }, factor = 0.3 }
--     print(unpack(augment(mgpu.rand { 8, 16, 16, 3 }, { training = true }):shape()))  --> 8 16 16 3
local RandAugment = image_parts.extend("RandAugment", { positional = 2,
  image_parts.value_range,
  { "num_ops", "integer", default = 2, min = 1 },
  { "factor", "number|table", default = 0.5 },
  image_parts.interpolation, image_parts.seed, images.data_format,
}, function(layer, n, shape)
  local draws = draw_parts(layer, n, shape)
  return draw_choices(layer, layer.num_ops, #layer.parts - 1), draws
end)

function RandAugment:init() make_parts(self, RAND_AUGMENT) end

--- layer:transform(x, choices, draws) -> x after the layers whose places, from 0, are in choices {num_ops}; draws: for
--- each layer, a list of what it drew.
function RandAugment:transform(x, choices, draws)
  for k = 1, self.num_ops do x = after_part(self, x, choices, k, draws) end
  return x
end

M.RandAugment = RandAugment

-- ---- AugMix -------------------------------------------------------------------------------------

--- AugMix {value_range = {0, 255}, num_chains = 3, chain_depth = 3, factor = 0.3, alpha = 1, all_ops = true, ...}
-- Mixes images in training with changed copies of themselves (Hendrycks et al. 2019).
-- Each of num_chains copies goes through chain_depth steps, one after the other; for each step the batch draws a layer
-- or none: those of RandAugment, with all_ops = false without RandomBrightness, RandomColorDegeneration, RandomContrast
-- and RandomSharpness. The result is w x + (1 - w) (the mean of the copies with drawn weights): weights of the
-- Dirichlet distribution and w of the beta distribution, with all parameters alpha, one draw for the batch. It is
-- clipped to value_range.
-- factor, interpolation = "bilinear", seed, data_format: as for RandAugment. All layers are computed for each step, and
-- one is used: num_chains times chain_depth times 11 layers.
-- x {batch, rows, columns, 1 or 3} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local augment = L.AugMix { { 0, 1 }, num_chains = 2, chain_depth = 1 }
--     print(unpack(augment(mgpu.rand { 8, 16, 16, 3 }, { training = true }):shape()))  --> 8 16 16 3
local AugMix = image_parts.extend("AugMix", { positional = 1,
  image_parts.value_range,
  { "num_chains", "integer", default = 3, min = 1 },
  { "chain_depth", "integer", default = 3, min = 1 },
  { "factor", "number|table", default = 0.3 },
  { "alpha", "number", default = 1, above = 0 },
  { "all_ops", "boolean", default = true },
  image_parts.interpolation, image_parts.seed, images.data_format,
}, function(layer, n, shape)
  local draws, steps = {}, layer.num_chains * layer.chain_depth
  for k = 1, steps do draws[k] = draw_parts(layer, n, shape) end
  return draw_choices(layer, steps, #layer.parts), draws, image_draws.dirichlet(layer, layer.num_chains, layer.alpha),
    image_draws.beta(layer, 1, layer.alpha)
end)

function AugMix:init()
  local names = { unpack(AUG_MIX) }
  for _, name in ipairs(self.all_ops and AUG_MIX_COLORS or {}) do names[#names + 1] = name end
  make_parts(self, names)
  self.values = image_parts.values(self)
end

--- layer:transform(x, choices, draws, weights, own) -> x mixed with copies of it: own {1} is the weight of x, weights
--- {num_chains} those of the copies. choices {num_chains * chain_depth}: places of layers, from 0, for each step of the
--- first copy, then of the second one; a place behind the last layer is none. draws: for each step, for each layer, a
--- list of what it drew.
function AugMix:transform(x, choices, draws, weights, own)
  local sum
  for chain = 1, self.num_chains do
    local y = x
    for step = 1, self.chain_depth do
      local k = (chain - 1) * self.chain_depth + step
      y = after_part(self, y, choices, k, draws[k])
    end
    y = y * image_parts.each(x, ops.slice(weights, { start = { chain - 1 }, stop = { chain } }))
    sum = sum and sum + y or y
  end
  local w = image_parts.each(x, own)
  return (w * x + (1 - w) * sum):clip(self.values[1], self.values[2])
end

M.AugMix = AugMix

return M
