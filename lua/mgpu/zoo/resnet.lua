--- Residual networks: with bottleneck blocks as keras.applications builds them, with basic blocks as torchvision does.
--
-- Source: He, Zhang, Ren & Sun, Deep residual learning for image recognition, 2015.
local classifier = require "mgpu.zoo.classifier"
local images = require "mgpu.nn.layers.images"
local L = require "mgpu.nn.layers"

local M = {}

-- The filters of the four stacks of blocks.
local FILTERS = { 64, 128, 256, 512 }

-- A convolution NAME_conv and its batch normalization NAME_bn.
local function conv_bn(x, name, options, epsilon)
  options.name = name .. "_conv"
  x = L.Conv2D(options)(x)
  return L.BatchNormalization { axis = images.channels_axis(), epsilon = epsilon,
    name = name .. "_bn" } (x)
end

local function relu(x, name) return L.Activation { "relu", name = name } (x) end

-- ---- bottleneck blocks, of Keras ------------------------------------------------------------------

local KERAS_EPSILON = 1.001e-5

local function bottleneck(x, filters, stride, name)
  local shortcut = x
  if stride then
    shortcut = conv_bn(x, name .. "_0", { 4 * filters, 1, strides = stride }, KERAS_EPSILON)
  end
  x = relu(conv_bn(x, name .. "_1", { filters, 1, strides = stride or 1 }, KERAS_EPSILON), name .. "_1_relu")
  x = relu(conv_bn(x, name .. "_2", { filters, 3, padding = "same" }, KERAS_EPSILON), name .. "_2_relu")
  x = conv_bn(x, name .. "_3", { 4 * filters, 1 }, KERAS_EPSILON)
  return relu(L.Add { name = name .. "_add" } { shortcut, x }, name .. "_out")
end

-- ---- basic blocks, of torchvision -----------------------------------------------------------------

local TORCH_EPSILON = 1e-5

-- A 3 x 3 convolution with one row or column of zeros on each side, which is not what "same" means for a stride of 2.
local function conv3x3(x, filters, stride, name)
  x = L.ZeroPadding2D { 1, name = name .. "_pad" } (x)
  return conv_bn(x, name, { filters, 3, strides = stride, use_bias = false }, TORCH_EPSILON)
end

local function basic(x, filters, stride, name)
  local shortcut = x
  if stride and (stride ~= 1 or filters ~= FILTERS[1]) then
    shortcut = conv_bn(x, name .. "_0", { filters, 1, strides = stride, use_bias = false }, TORCH_EPSILON)
  end
  x = relu(conv3x3(x, filters, stride or 1, name .. "_1"), name .. "_1_relu")
  x = conv3x3(x, filters, 1, name .. "_2")
  return relu(L.Add { name = name .. "_add" } { shortcut, x }, name .. "_out")
end

-- ---- networks -----------------------------------------------------------------------------------

-- The first convolution and pooling, then the stacks of blocks. block(x, filters, stride, name): stride is given
-- for the first block of a stack, which changes the number of channels, and nil for the other blocks.
local function features(block, counts, use_bias, epsilon)
  return function(x)
    x = L.ZeroPadding2D { 3, name = "conv1_pad" } (x)
    x = relu(conv_bn(x, "conv1", { 64, 7, strides = 2, use_bias = use_bias }, epsilon), "conv1_relu")
    x = L.ZeroPadding2D { 1, name = "pool1_pad" } (x)
    x = L.MaxPooling2D { 3, strides = 2, name = "pool1_pool" } (x)
    for stack, count in ipairs(counts) do
      for i = 1, count do
        local stride = i == 1 and (stack == 1 and 1 or 2) or nil
        x = block(x, FILTERS[stack], stride, ("conv%d_block%d"):format(stack + 1, i))
      end
    end
    return x
  end
end

--- bottleneck(name, counts) -> the classifier of keras.applications with these numbers of bottleneck blocks in its
--- stacks.
function M.bottleneck(name, counts)
  return classifier.define { name = name, mode = "caffe", pools_named = true,
    features = features(bottleneck, counts, true, KERAS_EPSILON) }
end

--- basic(name, counts) -> the classifier of torchvision with these numbers of basic blocks in its stacks.
function M.basic(name, counts)
  return classifier.define { name = name, mode = "torch", pools_named = true,
    features = features(basic, counts, false, TORCH_EPSILON) }
end

return M
