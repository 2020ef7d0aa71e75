--- mnist_cnn {input_shape = {28, 28, 1}, classes = 10, dropout = {0.25, 0.5}}: the convolutional network of the MNIST
--- multi-GPU notebook, 2,354,250 parameters, 512 of them not trainable, for 28 x 28 x 1 images and 10 classes.
--     mgpu.models.mnist_cnn { dropout = { 0.1, 0.3 } }     -- RETURNS an uncompiled Sequential
-- Example:
--     local model = mgpu.models.mnist_cnn {}
--     -- parameters, and how many of them are trainable
--     print(model:count_params())  --> 2354250 2353738
local L = require "mgpu".layers

return require "mgpu.zoo.mnist".define("mnist_cnn", function()
  return {
    L.Conv2D { 32, 3, activation = "relu" },
    L.Conv2D { 256, 3, activation = "relu" },
    L.BatchNormalization {},
    L.Conv2D { 128, 3, activation = "relu" },
    L.MaxPooling2D { 2 },
  }
end)
