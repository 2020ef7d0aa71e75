--- convnext {variant = "tiny", classes = 1000, include_top = true, weights =, ...}: ConvNeXt of keras.applications,
--- 28,589,128 parameters.
--     mgpu.models.convnext { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- variant: also "small", "base", "large" and "xlarge"; depths and projection_dims, four numbers each, make others: the
-- blocks of each stage and their channels. Takes pixels from 0 to 255, so preprocess_input returns the images as they
-- are; include_preprocessing = false leaves out the layer that scales them. drop_path_rate = 0: the rate at which the
-- last block is skipped in training, that of earlier ones being less. layer_scale_init_value = 1e-6: of the LayerScale
-- of each block. Other options: lua/mgpu/zoo/classifier.lua. Errors: the image data format "channels_first". Source:
-- Liu et al., A ConvNet for the 2020s, 2022.
-- Example:
--     local small = mgpu.models.convnext { depths = { 1, 1, 1, 1 }, projection_dims = { 4, 8, 8, 16 }, classes = 3 }
--     print((small:count_params()))  --> 6543
local classifier = require "mgpu.zoo.classifier"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local L = require "mgpu.nn.layers"
local mgpu = require "mgpu"

-- The blocks of the four stages, and their channels.
local VARIANTS = {
  tiny = { { 3, 3, 9, 3 }, { 96, 192, 384, 768 } },
  small = { { 3, 3, 27, 3 }, { 96, 192, 384, 768 } },
  base = { { 3, 3, 27, 3 }, { 128, 256, 512, 1024 } },
  large = { { 3, 3, 27, 3 }, { 192, 384, 768, 1536 } },
  xlarge = { { 3, 3, 27, 3 }, { 256, 512, 1024, 2048 } },
}

-- Of ImageNet's pixels.
local MEANS, DEVIATIONS = { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }

local function name_of(chosen) return chosen.name or "convnext_" .. chosen.variant end

-- Without a name of its own, the layer behind the pooling has an automatic one, as in Keras.
local function norm(name) return L.LayerNormalization { epsilon = 1e-6, name = name } end

local function scaled(x, name)
  local means, variances = {}, {}
  for i = 1, 3 do means[i], variances[i] = MEANS[i] * 255, (DEVIATIONS[i] * 255) ^ 2 end
  return L.Normalization { mean = means, variance = variances, name = name .. "_prestem_normalization" } (x)
end

-- What leads to stage i, from 0: a quarter of the size, later half of it.
local function smaller(i, channels, name)
  if i == 0 then
    return mgpu.Sequential { name = name .. "_stem",
      L.Conv2D { channels, 4, strides = 4, name = name .. "_stem_conv" }, norm(name .. "_stem_layernorm") }
  end
  local function part(what) return ("%s_downsampling_%s_%d"):format(name, what, i - 1) end
  return mgpu.Sequential { name = part "block", norm(part "layernorm"),
    L.Conv2D { channels, 2, strides = 2, name = part "conv" } }
end

local function block(input, channels, drop, scale, name)
  local x = L.Conv2D { channels, 7, padding = "same", groups = channels, name = name .. "_depthwise_conv" } (input)
  x = norm(name .. "_layernorm")(x)
  x = L.Dense { 4 * channels, name = name .. "_pointwise_conv_1" } (x)
  x = L.Activation { "gelu", name = name .. "_gelu" } (x)
  x = L.Dense { channels, name = name .. "_pointwise_conv_2" } (x)
  x = L.LayerScale { scale, channels, name = name .. "_layer_scale" } (x)
  if drop > 0 then
    x = L.Dropout { drop, noise_shape = { -1, 1, 1, 1 }, name = name .. "_stochastic_depth" } (x)
  else
    x = L.Activation { "linear", name = name .. "_identity" } (x)
  end
  return L.Add {} { input, x }
end

local function check_four(list, option)
  for i = 1, 4 do
    if type(list[i]) ~= "number" or list[i] % 1 ~= 0 or list[i] < 1 or list[5] then
      core.fail("usage", ('convnext: option "%s" must be four whole numbers from 1 on'):format(option))
    end
  end
  return list
end

local function features(x, chosen)
  if images.is_first {} then
    core.fail("usage", 'convnext: its images are channels_last: call mgpu.set_image_data_format "channels_last"')
  end
  local variant, name = VARIANTS[chosen.variant], name_of(chosen)
  local depths = check_four(chosen.depths or variant[1], "depths")
  local channels = check_four(chosen.projection_dims or variant[2], "projection_dims")
  if chosen.include_preprocessing and x:shape()[4] == 3 then x = scaled(x, name) end
  local last, number = -1, 0
  for _, n in ipairs(depths) do last = last + n end
  for i, n in ipairs(depths) do
    x = smaller(i - 1, channels[i], name)(x)
    for k = 1, n do
      x = block(x, channels[i], last > 0 and chosen.drop_path_rate * number / last or 0, chosen.layer_scale_init_value,
        ("%s_stage_%d_block_%d"):format(name, i - 1, k - 1))
      number = number + 1
    end
  end
  return x
end

local function head(x, chosen)
  local name = name_of(chosen)
  x = L.GlobalAveragePooling2D { name = name .. "_head_gap" } (x)
  return L.Dense { chosen.classes, activation = chosen.classifier_activation, name = name .. "_head_dense" } (
    norm(name .. "_head_layernorm")(x))
end

return classifier.define { name = "convnext", model_name = name_of, features = features, head = head,
  without_top = function(x) return norm()(x) end,
  options = { { "variant", "string", default = "tiny", values = { "tiny", "small", "base", "large", "xlarge" } },
    { "depths", "integers" }, { "projection_dims", "integers" }, { "include_preprocessing", "boolean", default = true },
    { "drop_path_rate", "number", default = 0, min = 0, below = 1 },
    { "layer_scale_init_value", "number", default = 1e-6 } } }
