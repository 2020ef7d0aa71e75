-- The CIFAR-10 network fed by a queue: the examples cifar10_cnn_mgpu_tfqueue and _tfqueue_var of keras_experiments.
--
--     mgpulua examples/cifar10_cnn_mgpu_queue.lua --help
--
-- What it teaches: a dataset whose threads read, augment and batch images ahead of the training; data in a tensor
-- or in a variable; a checkpoint, and its test in a fresh model.

local mgpu = require "mgpu"
local clock = require("mgpu.core").clock -- seconds
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local THREADS, TEST_THREADS, CAPACITY = 8, 1, 10000 -- of the queues; the capacity in images
local FILE = "cifar10_cnn_mgpu_queue.weights.best.hdf5"

local parser = command_line.parser "Trains the CIFAR-10 network from a queue, on one or several devices."
command_line.add_mgpu(parser)
parser:option("--preload", "Hold the images in a constant or in a variable: constant, variable.", "constant")
  :choices { "constant", "variable" }:argname "KIND"
command_line.add_epochs(parser, 200)
parser:option("--checkpt", "Load the weights from FILE at the start if it exists, and save the best ones in it, by "
  .. "acc. Without FILE: " .. FILE .. ". Without the option, the last weights are saved there."):args "?"
  :argname "FILE"
parser:flag("--aug", "Augment the training images: flips, brightness, contrast. Images are standardized then.")
parser:flag("--logdevp", "Say what runs on which device before training.")
command_line.add_data(parser, { "cifar10", "shapes" })
parser:option("--datadir", "The folder with the files of CIFAR-10."):argname "DIR"
parser:option("--network", "Suffix of host names; it has no effect, since this script uses one machine.")
  :argname "DOMAIN"
command_line.add_limit(parser)
local options = command_line.read(parser)

local train, test = command_line.load(options)
local batch_size, rate = 32 * options.ngpus, 1e-4 * options.ngpus

-- A dataset of batches: images as `changes` (ds:augment) leaves them, labels one-hot.
local function queue(set, shuffled, changes, threads)
  local x, y = command_line.first_rows(set, options.limit)
  y = mgpu.to_categorical(y, set.classes)
  print(("%s: %s"):format(shuffled and "x_train shape" or "x_test shape", command_line.shape_text(x)))
  if options.preload == "variable" then
    x, y = mgpu.variable(x, { trainable = false }), mgpu.variable(y, { trainable = false })
  end
  local ds = mgpu.data.from_tensors { x, y }
  if shuffled then ds = ds:shuffle(ds:length()) end
  return ds:augment(changes):batch(batch_size):prefetch(math.ceil(CAPACITY / batch_size), { threads = threads })
end

local for_training, for_test = { rescale = 1 / 255 }, { rescale = 1 / 255 }
if options.aug then
  for_training = { horizontal_flip = true, brightness = 63, contrast = { 0.2, 1.8 }, standardize = true }
  for_test = { standardize = true }
end
local train_queue = queue(train, true, for_training, THREADS)
local test_queue = queue(test, false, for_test, TEST_THREADS)
print(options.aug and "Using real-time data augmentation." or "Not using data augmentation.")

local function new_model() return mgpu.models.cifar10_cnn { classes = train.classes } end

local function compile(model, gpus)
  model:compile {
    optimizer = mgpu.parallel.optimizers.RMSPropMGPU { lr = rate, decay = 1e-6, gdev_list = gpus },
    loss = "categorical_crossentropy",
    metrics = { "accuracy" },
  }
end

local parallel = #options.gpus > 0
if parallel then print("Using GPUs: " .. table.concat(options.gpus, ", ")) end
local model = mgpu.parallel.make_parallel(new_model(), options.gpus)
mgpu.parallel.print_mgpu_modelsummary(model)

local path = options.checkpt and options.checkpt[1] or FILE
if options.checkpt and command_line.exists(path) then
  model:load_weights(path)
  print("Loaded the weights in " .. path)
end
compile(model, parallel and options.gpus or nil)
if options.logdevp then print(mgpu.explain(model, { batch_size = batch_size })) end

local callbacks = {}
if options.checkpt then
  callbacks[1] = mgpu.callbacks.ModelCheckpoint { path, monitor = "acc", mode = "max", verbose = 1,
    save_best_only = true, save_weights_only = true }
end
local start = clock()
model:fit(train_queue, { epochs = options.epochs, callbacks = callbacks })
print(("[TRAINING] finished in %.3f s"):format(clock() - start))
if not options.checkpt then model:save_weights(path) end

-- A fresh model on one device, with the weights of the file.
local fresh = new_model()
fresh:load_weights(path)
compile(fresh)
local loss, accuracy = unpack(fresh:evaluate(test_queue, { verbose = 0 }))
print(("\nTest loss: %s\nTest accuracy: %s"):format(loss, accuracy))
