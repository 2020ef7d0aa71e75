--- mnist_tfrecord_cnn {input_shape = {28, 28, 1}, classes = 10, dropout = {0.25, 0.5}}: the network of Keras's MNIST
--- TFRecord example, 1,199,882 parameters for 28 x 28 x 1 images and 10 classes.
--     mgpu.models.mnist_tfrecord_cnn {}     -- RETURNS an uncompiled Sequential
-- Errors: other than two rates.
-- Example:
--     local model = mgpu.models.mnist_tfrecord_cnn { classes = 4 }
--     print(unpack(model.layers[#model.layers].output:shape()))  --> -1 4
local L = require "mgpu".layers

return require "mgpu.zoo.mnist".define("mnist_tfrecord_cnn", function()
  return {
    L.Conv2D { 32, 3, activation = "relu" },
    L.Conv2D { 64, 3, activation = "relu" },
    L.MaxPooling2D { 2 },
  }
end)
