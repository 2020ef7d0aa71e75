--- efficientnet_b0 {classes = 1000, include_top = true, weights =, dropout = 0.2, drop_connect = 0.2, ...}:
--- EfficientNetB0 of keras.applications, 5,330,571 parameters.
--     mgpu.models.efficientnet_b0 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Takes pixels from 0 to 255. dropout: before the classifier; drop_connect: the rate at which the last block is skipped
-- in training, that of earlier ones being less. Other options: lua/mgpu/zoo/classifier.lua. Its preprocess_input
-- returns the images as they are: the model scales them. weights: the variances in a published file of ImageNet become
-- those that Keras reaches by one more Rescaling layer.
-- Source: Tan & Le, EfficientNet: rethinking model scaling for convolutional neural networks, 2019.
-- Example:
--     local base = mgpu.models.efficientnet_b0 { include_top = false, input_shape = { 32, 32, 3 } }
--     print((base:count_params()))  --> 4049571
local classifier = require "mgpu.zoo.classifier"
local initializers = require "mgpu.nn.initializers"
local images = require "mgpu.nn.layers.images"
local L = require "mgpu.nn.layers"
local mgpu = require "mgpu"

-- The stages: blocks, filters, size of the depthwise kernel, stride of the first block, expansion of the channels.
local STAGES = { { 1, 16, 3, 1, 1 }, { 2, 24, 3, 2, 6 }, { 2, 40, 5, 2, 6 }, { 3, 80, 3, 2, 6 }, { 3, 112, 5, 1, 6 },
  { 4, 192, 5, 2, 6 }, { 1, 320, 3, 1, 6 } }
local BLOCKS = 16

local KERNEL = initializers.variance_scaling { scale = 2, mode = "fan_out" }
local CLASSIFIER = initializers.variance_scaling { scale = 1 / 3, mode = "fan_out", distribution = "uniform" }

local function conv(x, filters, name, options)
  options = options or {}
  local layer = L.Conv2D { filters, options.size or 1, strides = options.strides or 1, kernel_initializer = KERNEL,
    padding = options.padding or "same", use_bias = options.activation ~= nil, activation = options.activation,
    name = name }
  return layer(x)
end

local function norm_swish(x, norm, activation)
  x = L.BatchNormalization { axis = images.channels_axis(), name = norm } (x)
  return activation and L.Activation { "silu", name = activation } (x) or x
end

-- Zeros before a convolution with stride 2, which leave half the size, rounded up.
local function pad(x, size, name)
  local shape, margins, whole = x:shape(), {}, math.floor(size / 2)
  for i = 1, 2 do
    local n = shape[images.rows_axis() + i - 1]
    margins[i] = { whole - (n == -1 and 1 or 1 - n % 2), whole }
  end
  return L.ZeroPadding2D { margins, name = name } (x)
end

-- Each channel times a number that a small network finds from the means of all channels.
local function excited(x, channels, reduced, name)
  local se = L.GlobalAveragePooling2D { name = name .. "se_squeeze" } (x)
  se = L.Reshape { images.is_first {} and { channels, 1, 1 } or { 1, 1, channels }, name = name .. "se_reshape" } (se)
  se = conv(se, reduced, name .. "se_reduce", { activation = "silu" })
  se = conv(se, channels, name .. "se_expand", { activation = "sigmoid" })
  return L.Multiply { name = name .. "se_excite" } { x, se }
end

-- how: from, to (channels), size, stride, expansion, drop (rate).
local function block(input, how, name)
  local x, channels = input, how.from * how.expansion
  if how.expansion ~= 1 then
    x = norm_swish(conv(x, channels, name .. "expand_conv"), name .. "expand_bn", name .. "expand_activation")
  end
  if how.stride == 2 then x = pad(x, how.size, name .. "dwconv_pad") end
  x = L.DepthwiseConv2D { how.size, strides = how.stride, padding = how.stride == 2 and "valid" or "same",
    use_bias = false, depthwise_initializer = KERNEL, name = name .. "dwconv" } (x)
  x = norm_swish(x, name .. "bn", name .. "activation")
  x = excited(x, channels, math.floor(how.from / 4), name)
  x = norm_swish(conv(x, how.to, name .. "project_conv"), name .. "project_bn")
  if how.stride ~= 1 or how.from ~= how.to then return x end
  if how.drop > 0 then x = L.Dropout { how.drop, noise_shape = { -1, 1, 1, 1 }, name = name .. "drop" } (x) end
  return L.Add { name = name .. "add" } { x, input }
end

local function features(x, chosen)
  x = L.Normalization { axis = images.channels_axis() } (L.Rescaling { 1 / 255 } (x))
  x = conv(pad(x, 3, "stem_conv_pad"), 32, "stem_conv", { size = 3, strides = 2, padding = "valid" })
  x = norm_swish(x, "stem_bn", "stem_activation")
  local from, number = 32, 0
  for stage, row in ipairs(STAGES) do
    local count, to, size, stride, expansion = unpack(row)
    for i = 1, count do
      x = block(x, { from = from, to = to, size = size, stride = i == 1 and stride or 1, expansion = expansion,
        drop = chosen.drop_connect * number / BLOCKS }, ("block%d%s_"):format(stage, ("abcd"):sub(i, i)))
      from, number = to, number + 1
    end
  end
  return norm_swish(conv(x, 1280, "top_conv"), "top_bn", "top_activation")
end

local function head(x, chosen)
  x = L.GlobalAveragePooling2D { name = "avg_pool" } (x)
  if chosen.dropout > 0 then x = L.Dropout { chosen.dropout, name = "top_dropout" } (x) end
  return L.Dense { chosen.classes, activation = chosen.classifier_activation, kernel_initializer = CLASSIFIER,
    name = "predictions" } (x)
end

-- ImageNet's, as published files have them. With these, Keras divides normalized images by the square roots of the
-- deviations once more: the published weights were trained so.
local MEANS, DEVIATIONS = { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }

local function is_near(t, numbers)
  t = t:reshape { -1 }
  return t:count() == #numbers and (t - mgpu.tensor(numbers)):abs():max():item() < 1e-6
end

-- The layer, whose name counts the models made.
local function normalization(model)
  for _, layer in ipairs(model.layers) do
    if layer.class_name == "Normalization" then return layer end
  end
end

local function load_weights(model, path)
  model:load_weights(path)
  local norm, variances = normalization(model), {}
  for i, d in ipairs(DEVIATIONS) do variances[i] = d * d end
  local mean, variance = norm.adapt_mean, norm.adapt_variance
  if not (is_near(mean:value(), MEANS) and is_near(variance:value(), variances)) then return end
  for i, d in ipairs(DEVIATIONS) do variances[i] = d * d * d end
  variance:assign(mgpu.tensor(variances):reshape(variance:shape()))
end

return classifier.define { name = "efficientnet_b0", load_weights = load_weights,
  model_name = function() return "efficientnetb0" end, pools_named = true, features = features, head = head,
  options = { { "dropout", "number", default = 0.2, min = 0, below = 1 },
    { "drop_connect", "number", default = 0.2, min = 0, below = 1 } } }
