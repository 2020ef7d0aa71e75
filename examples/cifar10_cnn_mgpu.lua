-- The CIFAR-10 network on one or several devices: the example cifar10_cnn_mgpu of keras_experiments.
--
--     mgpulua examples/cifar10_cnn_mgpu.lua --help
--     mgpulua --devices cpu:0-3 examples/cifar10_cnn_mgpu.lua --mgpu        the same on four CPU devices
--     mgpulua examples/cifar10_cnn_mgpu.lua --data shapes                   without the files of CIFAR-10
--
-- What it teaches: make_parallel and a multi-GPU optimizer, a batch and a learning rate that grow with the number
-- of devices, ImageDataGenerator, checkpoints that fit any number of devices, the test of the serial model.

local mgpu = require "mgpu"
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Trains the CIFAR-10 network on one or several devices."
command_line.add_mgpu(parser)
parser:flag("--enqueue", "No effect: batches are always staged on the devices ahead of time.")
parser:flag("--syncopt", "No effect: the gradients of the devices are always averaged.")
parser:flag("--nccl", "Keep the weights on the GPUs and reduce gradients between them, by NCCL if it is installed. "
  .. "Without it, several devices have their weights on the CPU.")
command_line.add_epochs(parser, 200)
parser:option("--checkpt", "Load the weights from FILE at the start if it exists, and save the best ones in it, by "
  .. "val_acc. Without FILE: cifar10_cnn_mgpu.weights.best.hdf5."):args "?":argname "FILE"
parser:flag("--aug", "Augment the training images: shifts and horizontal flips.")
parser:flag("--logdevp", "Say what runs on which device before training.")
command_line.add_data(parser, { "cifar10", "shapes" })
parser:option("--datadir", "The folder with the files of CIFAR-10."):argname "DIR"
parser:option("--network", "Suffix of host names; it has no effect, since this script uses one machine.")
  :argname "DOMAIN"
command_line.add_limit(parser)
local options = command_line.read(parser)

-- ---- data ---------------------------------------------------------------------------------------

local train, test = command_line.load(options)

local function prepare(set)
  local x, y = command_line.first_rows(set, options.limit)
  return x:to "float32" / 255, mgpu.to_categorical(y, set.classes)
end
local x_train, y_train = prepare(train)
local x_test, y_test = prepare(test)
print("x_train shape: " .. command_line.shape_text(x_train))
print(x_train:shape()[1] .. " train samples")
print(x_test:shape()[1] .. " test samples")

-- ---- model --------------------------------------------------------------------------------------

local parallel = #options.gpus > 0
local batch_size, rate = 32 * options.ngpus, 1e-4 * options.ngpus

local serial = mgpu.models.cifar10_cnn { classes = train.classes }
local model = serial
if parallel then
  print("Using GPUs: " .. table.concat(options.gpus, ", "))
  model = mgpu.parallel.make_parallel(serial, options.gpus, { ps_device = "cpu:0", usenccl = options.nccl,
    syncopt = options.syncopt, enqueue = options.enqueue })
  mgpu.parallel.print_mgpu_modelsummary(model)
else
  model:summary()
end

local checkpoint = options.checkpt and (options.checkpt[1] or "cifar10_cnn_mgpu.weights.best.hdf5")
if checkpoint and command_line.exists(checkpoint) then
  model:load_weights(checkpoint)
  print("Loaded the weights in " .. checkpoint)
end

local function compile(which, gpus)
  which:compile {
    optimizer = mgpu.parallel.optimizers.RMSPropMGPU { lr = rate, decay = 1e-6, gdev_list = gpus },
    loss = "categorical_crossentropy",
    metrics = { "accuracy" },
  }
end
compile(model, parallel and options.gpus or nil)
if options.logdevp then print(mgpu.explain(model, { batch_size = batch_size })) end

-- ---- training -----------------------------------------------------------------------------------

local callbacks = { mgpu.callbacks.BatchTiming {}, mgpu.callbacks.SamplesPerSec { batch_size } }
if checkpoint then
  table.insert(callbacks, mgpu.callbacks.ModelCheckpoint { checkpoint, monitor = "val_acc", mode = "max",
    verbose = 1, save_best_only = true, save_weights_only = true })
end
local fit_options = { epochs = options.epochs, validation_data = { x_test, y_test }, callbacks = callbacks }

if options.aug then
  print "Using real-time data augmentation."
  local generator = mgpu.ImageDataGenerator { width_shift_range = 0.1, height_shift_range = 0.1,
    horizontal_flip = true }
  generator:fit(x_train)
  model:fit(generator:flow(x_train, y_train, { batch_size = batch_size }):prefetch(2), fit_options)
else
  print "Not using data augmentation."
  fit_options.batch_size, fit_options.shuffle = batch_size, true
  model:fit(x_train, y_train, fit_options)
end

-- The serial model has the weights that the parallel one trained.
if parallel then compile(serial) end
local loss, accuracy = unpack(serial:evaluate(x_test, y_test, { verbose = 0 }))
print(("\nCIFAR VALIDATION LOSS, ACC: %s, %s"):format(loss, accuracy))
