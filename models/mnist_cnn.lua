--- mnist_cnn {input_shape = {28, 28, 1}, classes = 10, dropout = {0.25, 0.5}}: the convolutional network of the MNIST
--- multi-GPU notebook, 2,354,250 parameters, 512 of them not trainable, for 28 x 28 x 1 images and 10 classes.
--     mgpu.models.mnist_cnn { dropout = { 0.1, 0.3 } }     -- RETURNS an uncompiled Sequential
-- Example:
--     local model = mgpu.models.mnist_cnn {}
--     -- parameters, and how many of them are trainable
--     print(model:count_params())  --> 2354250 2353738
local core = require "mgpu.core"
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local MNIST_CNN = options.declare {
  { "input_shape", "shape", default = { 28, 28, 1 } },
  { "classes", "integer", default = 10, min = 1 },
  { "dropout", "table", default = { 0.25, 0.5 } },
}

return function(given)
  local chosen = options.check("mnist_cnn", MNIST_CNN, given == nil and {} or given)
  local dropout = chosen.dropout
  if #dropout ~= 2 then
    core.fail("usage", ('mnist_cnn: option "dropout" must be two rates, got %d'):format(#dropout))
  end
  return mgpu.Sequential {
    name = "mnist_cnn",
    L.Input(chosen.input_shape),
    L.Conv2D { 32, 3, activation = "relu" },
    L.Conv2D { 256, 3, activation = "relu" },
    L.BatchNormalization {},
    L.Conv2D { 128, 3, activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Dropout { dropout[1] },
    L.Flatten {},
    L.Dense { 128, activation = "relu" },
    L.Dropout { dropout[2] },
    L.Dense { chosen.classes, activation = "softmax" },
  }
end
