-- A functional model with two inputs and two outputs: an image and a number go in, a class and a number
-- come out.
--
--     mgpulua examples/two_inputs.lua --help
--
-- What it teaches: mgpu.Input and mgpu.Model, branches and a shared layer, a loss and metrics for each
-- output, loss_weights, data by name.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "A model with two inputs and two outputs."
command_line.add_epochs(parser, 6)
local options = parser:parse()

-- Inputs: an image of a digit, and a number from 0 to 1. Targets: the digit, and digit + number.
local train, test = mgpu.datasets.digits(6000)
mgpu.seed(1)
local function prepare(set)
  local rows = set.y:shape()[1]
  local offset = mgpu.rand { rows, 1 }
  local sum = set.y:to "float32":reshape { rows, 1 } + offset
  mgpu.eval(offset, sum)
  return { image = set.x:reshape { rows, 28, 28, 1 }:to "float32" / 255, offset = offset },
    { digit = set.y, sum = sum }
end
local x, y = prepare(train)
local x_test, y_test = prepare(test)

local image, offset = mgpu.Input { 28, 28, 1, name = "image" }, mgpu.Input { 1, name = "offset" }
local h = L.Conv2D { 8, 3, strides = 2, activation = "relu" } (image)
h = L.Conv2D { 16, 3, strides = 2, activation = "relu" } (h)
local features = L.Dense { 64, activation = "relu", name = "features" } (L.Flatten {} (h))
local digit = L.Dense { 10, activation = "softmax", name = "digit" } (features)
local sum = L.Dense { 1, name = "sum" } (L.Concatenate {} { features, digit, offset })
local model = mgpu.Model { inputs = { image, offset }, outputs = { digit, sum }, name = "two_inputs" }
model:summary()

model:compile {
  optimizer = "adam",
  loss = { digit = "sparse_categorical_crossentropy", sum = "mse" },
  loss_weights = { digit = 1, sum = 0.2 },
  metrics = { digit = "accuracy", sum = "mae" },
}
model:fit(x, y, { epochs = options.epochs, batch_size = 64, verbose = 2, validation_data = { x_test, y_test } })
local score = model:evaluate(x_test, y_test, { verbose = 0 })
print(("test: digits right %.3f, mean error of the sum %.3f"):format(score.digit_accuracy, score.sum_mae))
