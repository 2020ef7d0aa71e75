--- cifar10_cnn {input_shape = {32, 32, 3}, classes = 10, dropout = {0.25, 0.25, 0.5}}: the convolutional network of
--- Keras's CIFAR-10 example and of keras_experiments, 1,250,858 parameters for 32 x 32 x 3 images and 10 classes.
--     mgpu.models.cifar10_cnn { classes = 100 }     -- RETURNS an uncompiled Sequential
-- The examples train it with RMSprop, a learning rate of 1e-4 and a decay of 1e-6. Errors: other than three rates.
-- Example:
--     local model = mgpu.models.cifar10_cnn { classes = 100, dropout = { 0.1, 0.1, 0.5 } }
--     print(#model.layers, (model:count_params()))  --> 18 1297028
local core = require "mgpu.core"
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local CIFAR10_CNN = options.declare {
  { "input_shape", "shape", default = { 32, 32, 3 } },
  { "classes", "integer", default = 10, min = 1 },
  { "dropout", "table", default = { 0.25, 0.25, 0.5 } },
}

return function(given)
  local chosen = options.check("cifar10_cnn", CIFAR10_CNN, given == nil and {} or given)
  local dropout = chosen.dropout
  if #dropout ~= 3 then
    core.fail("usage", ('cifar10_cnn: option "dropout" must be three rates, got %d'):format(#dropout))
  end
  return mgpu.Sequential {
    name = "cifar10_cnn",
    L.Input(chosen.input_shape),
    L.Conv2D { 32, 3, padding = "same" }, L.Activation "relu",
    L.Conv2D { 32, 3 }, L.Activation "relu",
    L.MaxPooling2D { 2 },
    L.Dropout { dropout[1] },
    L.Conv2D { 64, 3, padding = "same" }, L.Activation "relu",
    L.Conv2D { 64, 3 }, L.Activation "relu",
    L.MaxPooling2D { 2 },
    L.Dropout { dropout[2] },
    L.Flatten {},
    L.Dense { 512 }, L.Activation "relu",
    L.Dropout { dropout[3] },
    L.Dense { chosen.classes }, L.Activation "softmax",
  }
end
