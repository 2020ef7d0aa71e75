-- The ways to use several devices, and to survive a failure: what DataFlair's article on Keras multi-GPU shows.
--
--     mgpulua --devices cpu:0-2 examples/strategies.lua
--     mgpulua examples/strategies.lua --help
--
-- What it teaches: model parallelism by ranges of layers, the strategies mirrored, central and async, ModelCheckpoint
-- and continuing from its file, cache and prefetch.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser("Trains a small network in turn by every strategy, on all devices: the GPUs, or "
  .. "those that mgpulua --devices names.")
command_line.add_epochs(parser, 2)
parser:option("--filepath", "The file of the checkpoints.", "checkpoint.safetensors"):argname "FILE"
command_line.add_limit(parser)
local options = command_line.read(parser)

local devices = mgpu.parallel.get_available_gpus()
if #devices == 0 then devices = { mgpu.devices()[1] } end
local function device(i) return devices[(i - 1) % #devices + 1] end -- starts again with the first where there are few

local train, test = mgpu.datasets.digits(3000)
local function prepare(set)
  local x, y = command_line.first_rows(set, options.limit)
  return x:to "float32" / 255, y
end
local x_train, y_train = prepare(train)
local x_test, y_test = prepare(test)

-- ---- model parallelism --------------------------------------------------------------------------

-- l = x^2 + y^2 in three parts: the squares on two devices, their sum on a third.
local function three_way()
  local function square_on(i, v) return mgpu.with_device(device(i), function() return v:to(device(i)):square() end) end
  local x, y = mgpu.variable(mgpu.ones {}), mgpu.variable(mgpu.ones {})
  local optimizer = mgpu.optimizers.SGD { learning_rate = 0.1 }
  local minimize = mgpu.value_and_grad(function()
    return square_on(1, x):to(device(3)) + square_on(2, y):to(device(3))
  end, { x, y })
  local loss, gradients = minimize()
  optimizer:apply(gradients, { x, y })
  print(("three-way: the loss was %g, and is %g after a step"):format(loss:item(), minimize():item()))
end
three_way()

-- Each device has two layers: the first ones are on the first device and so on.
local LAYERS_EACH = 2

local function layer_ranges()
  local layers = { L.Input { 28, 28 }, L.Flatten {} }
  for i = 1, #devices do
    mgpu.with_device(device(i), function()
      for _ = 1, LAYERS_EACH do layers[#layers + 1] = L.Dense { 32, activation = "relu" } end
      if i == #devices then layers[#layers + 1] = L.Dense { 10, activation = "softmax" } end
    end)
  end
  return mgpu.Sequential(layers)
end

local function compile(model)
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy", metrics = { "acc" } }
end

local fit_options = { batch_size = 64, epochs = options.epochs, verbose = 2, validation_data = { x_test, y_test } }

local function report(title, model)
  print(("%s: test accuracy %.4f"):format(title, model:evaluate(x_test, y_test, { verbose = 0 }).acc))
end

do
  local model = layer_ranges()
  model:summary()
  compile(model)
  model:fit(x_train, y_train, fit_options)
  report("layer ranges", model)
end

-- ---- data parallelism ---------------------------------------------------------------------------

local function create_model()
  return mgpu.Sequential { L.Input { 28, 28 }, L.Flatten {}, L.Dense { 64, activation = "relu" },
    L.Dense { 10, activation = "softmax" } }
end

-- A model made and compiled in the scope of a strategy trains by it.
local function under(name)
  local strategy = mgpu.parallel.strategy(name, { devices = devices })
  print(("%s: number of replicas in sync: %d"):format(name, strategy.num_replicas_in_sync))
  return strategy:scope(function()
    local model = create_model()
    compile(model)
    return model
  end)
end

-- ---- fault tolerance ----------------------------------------------------------------------------

local model = under "mirrored"
local model_checkpoint_callback = mgpu.callbacks.ModelCheckpoint { options.filepath, save_weights_only = true,
  monitor = "val_acc", mode = "max", save_best_only = true }
model:fit(x_train, y_train, { batch_size = 64, epochs = options.epochs, verbose = 2,
  validation_data = { x_test, y_test }, callbacks = { model_checkpoint_callback } })
report("mirrored", model)

-- As if the program had failed: another model, on one device, continues from the best weights.
local restarted = create_model()
compile(restarted)
restarted:load_weights(options.filepath)
report("loaded from the checkpoint", restarted)
restarted:fit(x_train, y_train, { batch_size = 64, initial_epoch = options.epochs, epochs = options.epochs + 1,
  verbose = 2, validation_data = { x_test, y_test } })
report("continued on one device", restarted)

-- ---- cache and prefetch -------------------------------------------------------------------------

-- The images are rescaled once, in the first epoch; batches are made and sent to the devices ahead of time.
local rows = mgpu.data.from_tensors { command_line.first_rows(train, options.limit) }
  :augment { rescale = 1 / 255 }:cache()
local dataset = rows:shuffle(rows:length()):batch(64):prefetch(2)

for _, name in ipairs { "central", "async" } do
  model = under(name)
  model:fit(dataset, { epochs = options.epochs, verbose = 2 })
  report(name, model)
end
