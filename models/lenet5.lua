--- lenet5 {input_shape = {28, 28, 1}, classes = 10}: LeNet-5 as it is built today, with same-padded first
--- convolution, max pools and ReLU. 61,706 parameters. Source: LeCun et al., Gradient-based learning, 1998.
--     mgpu.models.lenet5 { classes = 10 }     -- RETURNS an uncompiled Sequential
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
