--- mobilenet_v2 {alpha = 1, classes = 1000, include_top = true, weights =, ...}: MobileNetV2 of keras.applications,
--- 3,538,984 parameters.
--     mgpu.models.mobilenet_v2 { alpha = 0.35, input_shape = { 96, 96, 3 } }     -- RETURNS an uncompiled Model
-- alpha: multiplies the channels of all layers but the last, which are rounded to multiples of 8. Other options and
-- preprocess_input ("tf"): lua/mgpu/zoo/classifier.lua.
-- Source: Sandler, Howard, Zhu, Zhmoginov & Chen, MobileNetV2, 2018.
-- Example:
--     local base = mgpu.models.mobilenet_v2 { alpha = 0.35, input_shape = { 32, 32, 3 }, include_top = false }
--     print(unpack(base:predict(mgpu.rand { 1, 32, 32, 3 }):shape()))  --> 1 1 1 1280
local classifier = require "mgpu.zoo.classifier"
local images = require "mgpu.nn.layers.images"
local L = require "mgpu.nn.layers"

-- The blocks: filters of the output, stride.
local BLOCKS = {
  { 16, 1 }, { 24, 2 }, { 24, 1 }, { 32, 2 }, { 32, 1 }, { 32, 1 }, { 64, 2 }, { 64, 1 }, { 64, 1 }, { 64, 1 },
  { 96, 1 }, { 96, 1 }, { 96, 1 }, { 160, 2 }, { 160, 1 }, { 160, 1 }, { 320, 1 },
}
local EXPANSION = 6

-- The multiple of 8 next to n, but not below 8 or 0.9 n.
local function rounded(n)
  local multiple = math.max(8, math.floor((n + 4) / 8) * 8)
  return multiple < 0.9 * n and multiple + 8 or multiple
end

local function normalized(x, name)
  return L.BatchNormalization { axis = images.channels_axis(), epsilon = 1e-3, momentum = 0.999, name = name } (x)
end

local function relu6(x, name) return L.ReLU { 6, name = name } (x) end

local function channels_of(x)
  local shape = x:shape()
  return shape[images.channels_axis()]
end

-- Zeros before a 3 x 3 convolution with stride 2, which leave half the size, rounded up.
local function pad_for_stride(x, name)
  local shape, margins = x:shape(), {}
  for i = 1, 2 do
    local size = shape[images.rows_axis() + i - 1]
    margins[i] = { size % 2 == 1 and size ~= -1 and 1 or 0, 1 }
  end
  return L.ZeroPadding2D { margins, name = name } (x)
end

-- Block i (from 0): 1 x 1 convolution to more channels, depthwise 3 x 3, 1 x 1 to few; the first has no expansion.
local function inverted_residual(input, i, filters, stride)
  local prefix = i == 0 and "expanded_conv_" or ("block_%d_"):format(i)
  local x, channels = input, channels_of(input)
  if i > 0 then
    x = L.Conv2D { EXPANSION * channels, 1, padding = "same", use_bias = false, name = prefix .. "expand" } (x)
    x = relu6(normalized(x, prefix .. "expand_BN"), prefix .. "expand_relu")
  end
  if stride == 2 then x = pad_for_stride(x, prefix .. "pad") end
  x = L.DepthwiseConv2D { 3, strides = stride, use_bias = false, padding = stride == 1 and "same" or "valid",
    name = prefix .. "depthwise" } (x)
  x = relu6(normalized(x, prefix .. "depthwise_BN"), prefix .. "depthwise_relu")
  x = L.Conv2D { filters, 1, padding = "same", use_bias = false, name = prefix .. "project" } (x)
  x = normalized(x, prefix .. "project_BN")
  if channels ~= filters or stride ~= 1 then return x end
  return L.Add { name = prefix .. "add" } { input, x }
end

local function features(x, chosen)
  local alpha = chosen.alpha
  x = L.Conv2D { rounded(32 * alpha), 3, strides = 2, padding = "same", use_bias = false, name = "Conv1" } (x)
  x = relu6(normalized(x, "bn_Conv1"), "Conv1_relu")
  for i, block in ipairs(BLOCKS) do
    x = inverted_residual(x, i - 1, rounded(math.floor(block[1] * alpha)), block[2])
  end
  x = L.Conv2D { rounded(1280 * math.max(1, alpha)), 1, use_bias = false, name = "Conv_1" } (x)
  return relu6(normalized(x, "Conv_1_bn"), "out_relu")
end

return classifier.define {
  name = "mobilenet_v2", mode = "tf",
  options = { { "alpha", "number", default = 1, min = 0.01 } },
  model_name = function(chosen, shape)
    local rows = shape[images.rows_axis({}, 3)]
    return ("mobilenetv2_%.2f_%s"):format(chosen.alpha, rows == -1 and "None" or rows)
  end,
  features = features,
}
