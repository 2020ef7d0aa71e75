-- The notebook "MNIST Multi GPU with Keras", line by line: the same network on one GPU and on all of them.
--
--     mgpulua examples/mnist_multi_gpu.lua --help
--     mgpulua --devices cpu:0-3 examples/mnist_multi_gpu.lua --data digits --limit 500     four CPU devices for GPUs
--
-- What it teaches: multi_gpu_model, weights on the CPU, a model saved through the serial model.

local mgpu = require "mgpu"
local L = mgpu.layers
local clock = require("mgpu.core").clock -- seconds
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Trains a network on MNIST, first on one GPU, then on all of them."
command_line.add_epochs(parser, 12)
command_line.add_count(parser, "--batch_size", 1, "Images per step for each GPU.", "128")
command_line.add_data(parser, { "mnist", "digits" })
parser:option("--data_format", "channels_last or channels_first.", "channels_last")
  :choices { "channels_last", "channels_first" }:argname "NAME"
parser:option("--save", "The file that the model is saved in.", "model.h5"):argname "FILE"
command_line.add_limit(parser)
local options = command_line.read(parser)
mgpu.set_image_data_format(options.data_format)

-- check how many GPUs are available in the box
local function get_available_gpus() return mgpu.parallel.get_available_gpus() end

local names = get_available_gpus()
print(#names > 0 and "['" .. table.concat(names, "', '") .. "']" or "[]")

mgpu.seed(42) -- for reproducibility

-- the data, shuffled and split between train and test sets
local train_set, test_set = command_line.load(options)
local X_train, y_train = command_line.first_rows(train_set, options.limit)
local X_test, y_test = command_line.first_rows(test_set, options.limit)

local ngpus = #get_available_gpus() -- 1
print(("Using %d GPUs."):format(ngpus))

-- input image dimensions
local img_rows, img_cols = 28, 28

local input_shape, channels_axis
if options.data_format == "channels_first" then
  X_train = X_train:reshape { X_train:shape()[1], 1, img_rows, img_cols }
  X_test = X_test:reshape { X_test:shape()[1], 1, img_rows, img_cols }
  input_shape, channels_axis = { 1, img_rows, img_cols }, 2
else
  X_train = X_train:reshape { X_train:shape()[1], img_rows, img_cols, 1 }
  X_test = X_test:reshape { X_test:shape()[1], img_rows, img_cols, 1 }
  input_shape, channels_axis = { img_rows, img_cols, 1 }, -1
end

-- normalize inputs from 0-255 to 0-1
X_train = X_train:to "float32" / 255
X_test = X_test:to "float32" / 255

print("X_train shape: " .. command_line.shape_text(X_train))
print(X_train:shape()[1] .. " train samples")
print(X_test:shape()[1] .. " test samples")

-- convert class vectors to binary class matrices
local Y_train = mgpu.to_categorical(y_train, 10)
local Y_test = mgpu.to_categorical(y_test, 10)

local function create_model()
  local model = mgpu.Sequential {}

  model:add(L.Conv2D { 32, { 3, 3 }, padding = "valid", input_shape = input_shape })
  model:add(L.Activation "relu")
  model:add(L.Conv2D { 256, { 3, 3 } })
  model:add(L.Activation "relu")
  model:add(L.BatchNormalization { axis = channels_axis })
  model:add(L.Conv2D { 128, { 3, 3 } })
  model:add(L.Activation "relu")
  model:add(L.MaxPooling2D { pool_size = { 2, 2 } })
  model:add(L.Dropout(0.25))
  model:add(L.Flatten {})
  model:add(L.Dense(128))
  model:add(L.Activation "relu")
  model:add(L.Dropout(0.5))
  model:add(L.Dense(10))
  model:add(L.Activation "softmax")

  return model
end

-- Compiles, trains and tests. ARGS batch_size: of all GPUs together.
local function fit(model, batch_size, nb_epoch)
  model:compile { loss = "categorical_crossentropy", optimizer = "rmsprop", metrics = { "accuracy" } }

  local start_time = clock()
  model:fit(X_train, Y_train, { batch_size = batch_size, epochs = nb_epoch, verbose = 2, style = "keras2",
    validation_data = { X_test, Y_test } })
  local score = model:evaluate(X_test, Y_test, { verbose = 0 })
  print(("Test score: %s"):format(score[1]))
  print(("Test accuracy: %s"):format(score[2]))
  print(("Total Duration (%.3f sec)"):format(clock() - start_time))
end

local function train(batch_size, nb_epoch, gpus)
  local model
  if gpus and gpus >= 2 then
    -- Make the serial model in the scope of the CPU; cpu_relocation keeps and updates its weights there.
    model = mgpu.with_device("cpu:0", create_model)
    print(("Using Multi-GPU: %d GPUs"):format(gpus))
    fit(mgpu.parallel.multi_gpu_model(model, { gpus = gpus, cpu_relocation = true }), batch_size * gpus, nb_epoch)
  else
    model = create_model()
    print "NOT Using Multi-GPU"
    fit(model, batch_size, nb_epoch)
  end

  -- Save through the serial model, which has the same weights: a file for any number of GPUs.
  model:save(options.save)
end

-- train on one gpu
train(options.batch_size, options.epochs)

-- train on all available gpus
if ngpus >= 2 then train(options.batch_size, options.epochs, ngpus) end
