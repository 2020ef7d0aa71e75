-- Trains a small network on MNIST, tests it and saves it: the first thing to try.
--
--     mgpulua examples/train_mnist.lua --help
--
-- What it teaches: load data, describe a model, compile, fit, evaluate, save; the same on several
-- devices: with --devices cuda:0-7, or cpu:0-1 where there is no GPU.

local mgpu = require "mgpu"
local clock = require("mgpu.core").clock -- seconds
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Trains a small network on MNIST, tests it and saves it."
parser:option("--model", "The network (default: mnist_cnn with a GPU, else lenet5).")
  :choices { "mnist_cnn", "lenet5", "mlp" }
command_line.add_count(parser, "--epochs", 1, "Passes over the training data (default: 12 with a GPU, else 3).")
command_line.add_count(parser, "--batch-size", 1, "Images per step.", "128")
parser:option("--devices", "Devices to train on: cuda:0, cuda:0,1 or cpu:0-3 (default: the first of mgpu.devices()).")
  :argname "LIST"
parser:option("--strategy", "How several devices work together (default: mirrored).")
  :choices { "mirrored", "central", "async" }
parser:option("--bn", "Batch normalization over all rows (sync, the default) or the rows of each device (local).")
  :choices { "sync", "local" }
parser:option("--precision", "The dtype policy (default: float32).")
  :choices { "float32", "mixed_bfloat16", "mixed_float16" }
parser:option("--data", "The data set (default: mnist; if it cannot be loaded, another one, with a note).")
  :choices { "mnist", "fashion", "digits" }
command_line.add_limit(parser)
command_line.add_count(parser, "--seed", 0, "Seed of the random numbers.", "42")
parser:option("--lr", "Learning rate (default: 0.001, as for RMSprop)."):argname "X"
  :convert(command_line.positive "--lr")
parser:option("--save", "File that the model is saved in.", "model.safetensors"):argname "FILE"
parser:option("--evaluate", "Do not train; test the model in FILE (default: the one of --save)."):args "?"
  :argname "FILE"
command_line.add_count(parser, "--verbose", 0, "0 silent, 1 progress bar, 2 one line per epoch.", "1")

-- ---- data ---------------------------------------------------------------------------------------

local function load_data(name, limit)
  local sets = mgpu.datasets
  if name == "mnist" then return sets.mnist.load_data() end
  if name == "fashion" then return sets.fashion_mnist.load_data() end
  if name == "digits" then return sets.digits(math.max(limit or 0, 6000)) end
  local ok, train, test = pcall(sets.mnist.load_data)
  if ok then return train, test end
  print("MNIST cannot be loaded: " .. train:gsub("^%S+:%d+: ", ""))
  ok, train, test = pcall(sets.fashion_mnist.load_data)
  if not ok then train, test = sets.digits(6000) end
  print(("Using the data set %s instead."):format(train.name))
  return train, test
end

-- Images as float32 in 0..1 with a channel axis, labels one-hot.
local function prepare(set, limit)
  local rows = math.min(limit or math.huge, set.x:shape()[1])
  local x = set.x:slice { { 1, rows }, {}, {} }:reshape { rows, 28, 28, 1 }:to "float32" / 255
  return x, mgpu.to_categorical(set.y:slice { { 1, rows } }, set.classes)
end

-- ---- the run ------------------------------------------------------------------------------------

local function report(model, x, y)
  local score = model:evaluate(x, y, { verbose = 0 })
  print(("Test score: %.6f"):format(score.loss))
  print(("Test accuracy: %.4f"):format(score.accuracy))
end

local options = parser:parse()
if not options.evaluate then command_line.check_save(options.save) end
mgpu.seed(options.seed)

local gpus = #mgpu.devices "cuda"
local devices = options.devices and require "mgpu.program".parse_devices(options.devices)
  or { mgpu.devices()[1] }
print("['" .. table.concat(mgpu.devices(), "', '") .. "']")
print(("Using %d GPUs."):format(gpus > 0 and #devices or 0))

local train, test = load_data(options.data, options.limit)
local x_train, y_train = prepare(train, options.limit)
local x_test, y_test = prepare(test, options.limit)
print(("X_train shape: (%s)"):format(table.concat(x_train:shape(), ", ")))
print(x_train:shape()[1] .. " train samples")
print(x_test:shape()[1] .. " test samples")

local compile_options = {
  optimizer = mgpu.optimizers.RMSprop { learning_rate = options.lr },
  loss = "categorical_crossentropy",
  metrics = { "accuracy" },
  devices = devices,
  strategy = options.strategy,
  bn = options.bn,
  precision = options.precision,
}

if options.evaluate then
  local model = mgpu.load_model(options.evaluate[1] or options.save)
  model:compile(compile_options)
  report(model, x_test, y_test)
  return
end

local name = options.model or gpus > 0 and "mnist_cnn" or "lenet5"
local model = mgpu.models[name] { input_shape = { 28, 28, 1 }, classes = train.classes }
print(#devices > 1 and ("Using Multi-GPU: %d devices"):format(#devices) or "NOT Using Multi-GPU")
model:compile(compile_options)

local start = clock()
model:fit(x_train, y_train, {
  batch_size = options.batch_size,
  epochs = options.epochs or gpus > 0 and 12 or 3,
  verbose = options.verbose,
  style = options.verbose == 2 and "keras2" or nil,
  validation_data = { x_test, y_test },
})
report(model, x_test, y_test)
print(("Total Duration (%.3f sec)"):format(clock() - start))

model:save(options.save)
print("Saved the model in " .. options.save)
