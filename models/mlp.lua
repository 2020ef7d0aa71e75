--- mlp {input_shape = {28, 28, 1}, classes = 10, units = 512, dropout = 0.2}: the multilayer perceptron of Keras's
--- MNIST example, two hidden layers with dropout.
--     mgpu.models.mlp { classes = 10, units = 64 }     -- RETURNS an uncompiled Sequential
local mgpu = require "mgpu"
local L = mgpu.layers

return function(options)
  options = options or {}
  local units, rate = options.units or 512, options.dropout or 0.2
  return mgpu.Sequential {
    name = "mlp",
    L.Input(options.input_shape or { 28, 28, 1 }),
    L.Flatten {},
    L.Dense { units, activation = "relu" },
    L.Dropout { rate },
    L.Dense { units, activation = "relu" },
    L.Dropout { rate },
    L.Dense { options.classes or 10, activation = "softmax" },
  }
end
