-- The CIFAR-10 network on several processes: the example cifar10_cnn_horovod of keras_experiments.
--
--     mpirun -np 4 mgpulua examples/cifar10_cnn_horovod.lua
--     mgpulua --np 2 examples/cifar10_cnn_horovod.lua --data shapes         the same by our own launcher
--     mgpulua examples/cifar10_cnn_horovod.lua --help
--
-- What it teaches: a script that any launcher starts; a batch and a learning rate that grow with the number of
-- processes. Unlike in the original, each row is trained on once an epoch, and every test row counts once.

local mgpu = require "mgpu"
local clock = require("mgpu.core").clock -- seconds
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local ranks = dofile(folder .. "ranks.lua")(command_line)
local cifar10 = dofile(folder .. "cifar10.lua")(command_line)

local parser = command_line.parser "Trains the CIFAR-10 network on several processes, one device each."
ranks.add(parser, 32, 1e-4)
cifar10.add(parser, "cifar10_cnn_horovod.weights.best.hdf5", "val_acc")
local options = ranks.read(parser)

mgpu.seed(1) -- the same weights, shuffles and dropout on all processes, and for any number of them
local train, test = cifar10.load(options)
local model, callbacks = cifar10.model(options, train)
model:summary()
table.insert(callbacks, mgpu.callbacks.BatchTiming {})
table.insert(callbacks, mgpu.callbacks.SamplesPerSec { options.batch_size })

local start = clock()
cifar10.fit_images(model, options, train, test, callbacks)
print(("[TRAINING] finished in %.3f s"):format(clock() - start))

local loss, accuracy = unpack(model:evaluate(test.x:to "float32" / 255, test.y, { verbose = 0 }))
print(("\nCIFAR VALIDATION LOSS, ACC: %s, %s"):format(loss, accuracy))
