--- densenet121 {classes = 1000, include_top = true, weights =, ...}: DenseNet-121 of keras.applications,
--- 8,062,504 parameters.
--     mgpu.models.densenet121 { classes = 10, input_shape = { 64, 64, 3 } }     -- RETURNS an uncompiled Model
-- Options and preprocess_input ("torch"): lua/mgpu/zoo/classifier.lua.
-- Source: Huang, Liu, van der Maaten & Weinberger, Densely connected convolutional networks, 2016.
-- Example:
--     local base = mgpu.models.densenet121 { include_top = false, input_shape = { 32, 32, 3 } }
--     print((base:count_params()))  --> 7037504
local classifier = require "mgpu.zoo.classifier"
local images = require "mgpu.nn.layers.images"
local L = require "mgpu.nn.layers"

local BLOCKS = { 6, 12, 24, 16 } -- dense layers of each stage
local GROWTH = 32 -- channels that a dense layer adds

local function conv(x, filters, size, name, strides)
  return L.Conv2D { filters, size, strides = strides, padding = size == 3 and "same" or "valid", use_bias = false,
    name = name .. "_conv" } (x)
end

-- Batch normalization NAME_bn, or prefix + "bn", and relu.
local function norm_relu(x, prefix)
  x = L.BatchNormalization { axis = images.channels_axis(), epsilon = 1.001e-5, name = prefix .. "bn" } (x)
  return L.Activation { "relu", name = prefix .. "relu" } (x)
end

local function dense_layer(x, name)
  local y = conv(norm_relu(x, name .. "_0_"), 4 * GROWTH, 1, name .. "_1")
  y = conv(norm_relu(y, name .. "_1_"), GROWTH, 3, name .. "_2")
  return L.Concatenate { axis = images.channels_axis(), name = name .. "_concat" } { x, y }
end

-- Half the channels, and half the size.
local function transition(x, name)
  x = norm_relu(x, name .. "_")
  local channels = x:shape()[images.channels_axis()]
  return L.AveragePooling2D { 2, strides = 2, name = name .. "_pool" } (conv(x, math.floor(channels / 2), 1, name))
end

local function features(x)
  x = conv(L.ZeroPadding2D { 3 } (x), 64, 7, "conv1", 2)
  x = L.ZeroPadding2D { 1 } (norm_relu(x, "conv1_"))
  x = L.MaxPooling2D { 3, strides = 2, name = "pool1" } (x)
  for stage, count in ipairs(BLOCKS) do
    if stage > 1 then x = transition(x, "pool" .. stage) end
    for i = 1, count do x = dense_layer(x, ("conv%d_block%d"):format(stage + 1, i)) end
  end
  return norm_relu(x, "")
end

return classifier.define { name = "densenet121", mode = "torch", pools_named = true, features = features }
