--- VGG networks as keras.applications builds them.
--
-- Source: Simonyan & Zisserman, Very deep convolutional networks for large-scale image recognition, 2014.
local classifier = require "mgpu.zoo.classifier"
local L = require "mgpu.nn.layers"

local M = {}

-- Five blocks of 3 x 3 convolutions, each halving the image; counts[i]: of the convolutions in block i.
local function features(counts)
  return function(x)
    for block, count in ipairs(counts) do
      local filters, name = math.min(32 * 2 ^ block, 512), "block" .. block
      for i = 1, count do
        x = L.Conv2D { filters, 3, activation = "relu", padding = "same", name = ("%s_conv%d"):format(name, i) } (x)
      end
      x = L.MaxPooling2D { 2, name = name .. "_pool" } (x)
    end
    return x
  end
end

local function head(x, chosen)
  x = L.Flatten { name = "flatten" } (x)
  x = L.Dense { 4096, activation = "relu", name = "fc1" } (x)
  x = L.Dense { 4096, activation = "relu", name = "fc2" } (x)
  return L.Dense { chosen.classes, activation = chosen.classifier_activation, name = "predictions" } (x)
end

--- define(name, counts) -> the classifier with these numbers of convolutions in its five blocks.
function M.define(name, counts)
  return classifier.define { name = name, mode = "caffe", features = features(counts), head = head }
end

return M
