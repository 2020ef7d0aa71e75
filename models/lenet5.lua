--- LeNet-5 (LeCun 1998) as it is built today: same-padded first convolution, max pools and ReLU.
--     mgpu.models.lenet5 { input_shape = {28, 28, 1}, classes = 10 }     -- 61,706 parameters
local mgpu = require "mgpu"
local L = mgpu.layers

return function(options)
  options = options or {}
  return mgpu.Sequential {
    name = "lenet5",
    L.Input(options.input_shape or { 28, 28, 1 }),
    L.Conv2D { 6, 5, padding = "same", activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Conv2D { 16, 5, activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Flatten {},
    L.Dense { 120, activation = "relu" },
    L.Dense { 84, activation = "relu" },
    L.Dense { options.classes or 10, activation = "softmax" },
  }
end
