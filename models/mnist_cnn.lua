--- mnist_cnn {input_shape = {28, 28, 1}, classes = 10, dropout = {0.25, 0.5}}: the convolutional network of the MNIST
--- multi-GPU notebook, 2,354,250 parameters, 512 of them not trainable, for 28 x 28 x 1 images and 10 classes.
--     mgpu.models.mnist_cnn { dropout = { 0.1, 0.3 } }     -- RETURNS an uncompiled Sequential
local mgpu = require "mgpu"
local L = mgpu.layers

return function(options)
  options = options or {}
  local dropout = options.dropout or { 0.25, 0.5 }
  return mgpu.Sequential {
    name = "mnist_cnn",
    L.Input(options.input_shape or { 28, 28, 1 }),
    L.Conv2D { 32, 3, activation = "relu" },
    L.Conv2D { 256, 3, activation = "relu" },
    L.BatchNormalization {},
    L.Conv2D { 128, 3, activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Dropout { dropout[1] },
    L.Flatten {},
    L.Dense { 128, activation = "relu" },
    L.Dropout { dropout[2] },
    L.Dense { options.classes or 10, activation = "softmax" },
  }
end
