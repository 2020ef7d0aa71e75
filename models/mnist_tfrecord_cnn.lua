--- mnist_tfrecord_cnn {input_shape = {28, 28, 1}, classes = 10, dropout = {0.25, 0.5}}: the network of Keras's MNIST
--- TFRecord example, 1,199,882 parameters for 28 x 28 x 1 images and 10 classes.
--     mgpu.models.mnist_tfrecord_cnn {}     -- RETURNS an uncompiled Sequential
-- Errors: other than two rates.
-- Example:
--     local model = mgpu.models.mnist_tfrecord_cnn { classes = 4 }
--     print(unpack(model.layers[#model.layers].output:shape()))  --> -1 4
local core = require "mgpu.core"
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local MNIST_TFRECORD_CNN = options.declare {
  { "input_shape", "shape", default = { 28, 28, 1 } },
  { "classes", "integer", default = 10, min = 1 },
  { "dropout", "table", default = { 0.25, 0.5 } },
}

return function(given)
  local chosen = options.check("mnist_tfrecord_cnn", MNIST_TFRECORD_CNN, given == nil and {} or given)
  local dropout = chosen.dropout
  if #dropout ~= 2 then
    core.fail("usage", ('mnist_tfrecord_cnn: option "dropout" must be two rates, got %d'):format(#dropout))
  end
  return mgpu.Sequential {
    name = "mnist_tfrecord_cnn",
    L.Input(chosen.input_shape),
    L.Conv2D { 32, 3, activation = "relu" },
    L.Conv2D { 64, 3, activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Dropout { dropout[1] },
    L.Flatten {},
    L.Dense { 128, activation = "relu" },
    L.Dropout { dropout[2] },
    L.Dense { chosen.classes, activation = "softmax" },
  }
end
