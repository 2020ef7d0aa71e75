-- The CIFAR-10 network on several processes, fed by queues: the example cifar10_cnn_horovod_tfqueue of
-- keras_experiments.
--
--     mpirun -np 4 mgpulua examples/cifar10_cnn_horovod_queue.lua --aug
--     mgpulua examples/cifar10_cnn_horovod_queue.lua --help
--
-- What it teaches: datasets whose threads augment images ahead of the training, with the same images on any number of
-- processes.

local mgpu = require "mgpu"
local clock = require("mgpu.core").clock -- seconds
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local ranks = dofile(folder .. "ranks.lua")(command_line)
local cifar10 = dofile(folder .. "cifar10.lua")(command_line)

local THREADS, TEST_THREADS, CAPACITY = 8, 1, 10000 -- of the queues; the capacity in images

local parser = command_line.parser "Trains the CIFAR-10 network from queues on several processes, one device each."
ranks.add(parser, 32, 1e-4)
cifar10.add(parser, "cifar10_cnn_horovod_queue.weights.best.hdf5", "acc")
local options = ranks.read(parser)

mgpu.seed(1) -- the same weights, shuffles and dropout on all processes, and for any number of them
local train, test = cifar10.load(options)

local for_training, for_test = { rescale = 1 / 255 }, { rescale = 1 / 255 }
if options.aug then
  for_training = { horizontal_flip = true, brightness = 63, contrast = { 0.2, 1.8 }, standardize = true }
  for_test = { standardize = true }
end
print(options.aug and "Using real-time data augmentation." or "Not using data augmentation.")

-- The batches of a dataset, whose images are changed as `changes` (ds:augment) says.
local function queue(ds, changes, threads)
  return ds:augment(changes):batch(options.batch_size)
    :prefetch(math.ceil(CAPACITY / options.batch_size), { threads = threads })
end
local train_rows = mgpu.data.from_tensors { train.x, train.y }
local train_queue = queue(train_rows:shuffle(train_rows:length()), for_training, THREADS)
local test_queue = queue(mgpu.data.from_tensors { test.x, test.y }, for_test, TEST_THREADS)

local model, callbacks = cifar10.model(options, train)
model:summary()
local start = clock()
model:fit(train_queue, { epochs = options.epochs, callbacks = callbacks })
print(("[TRAINING] finished in %.3f s"):format(clock() - start))

local loss, accuracy = unpack(model:evaluate(test_queue, { verbose = 0 }))
print(("\nCIFAR VALIDATION LOSS, ACC: %s, %s"):format(loss, accuracy))
