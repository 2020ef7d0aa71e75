--- cifar10_cnn_small {input_shape = {32, 32, 3}, classes = 10}: the small network of keras_experiments' CIFAR-10
--- examples, one convolution and one Dense layer, 328,586 parameters for 32 x 32 x 3 images and 10 classes.
--     mgpu.models.cifar10_cnn_small {}     -- RETURNS an uncompiled Sequential
-- Example:
--     local model = mgpu.models.cifar10_cnn_small { input_shape = { 8, 8, 3 } }
--     print(unpack(model:predict(mgpu.rand { 4, 8, 8, 3 }):shape()))  --> 4 10
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local CIFAR10_CNN_SMALL = options.declare {
  { "input_shape", "shape", default = { 32, 32, 3 } },
  { "classes", "integer", default = 10, min = 1 },
}

return function(given)
  local chosen = options.check("cifar10_cnn_small", CIFAR10_CNN_SMALL, given == nil and {} or given)
  return mgpu.Sequential {
    name = "cifar10_cnn_small",
    L.Input(chosen.input_shape),
    L.Conv2D { 32, 3, padding = "same" }, L.Activation "relu",
    L.Flatten {},
    L.Dense { chosen.classes }, L.Activation "softmax",
  }
end
