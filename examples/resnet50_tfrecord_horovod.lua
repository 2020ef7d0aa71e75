-- ResNet-50 from the TFRecord files of ImageNet on several processes: the example resnet50_tfrecord_horovod of
-- keras_experiments.
--
--     mpirun -np 4 mgpulua examples/resnet50_tfrecord_horovod.lua --datadir imagenet
--     mgpulua examples/resnet50_tfrecord_horovod.lua --help
--
-- What it teaches: records that all processes read, with the same crops, flips and colors on any number of processes.

local mgpu = require "mgpu"
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local ranks = dofile(folder .. "ranks.lua")(command_line)
local imagenet = dofile(folder .. "imagenet.lua")(command_line)

local parser = command_line.parser("Trains ResNet-50 from ImageNet's TFRecord files, on several processes, one device "
  .. "each. make_imagenet_records.lua writes a tiny set of such files.")
ranks.add(parser, 64)
imagenet.add(parser)
local options = ranks.read(parser)

mgpu.seed(1) -- the same weights, shuffles and crops on all processes, and for any number of them
local train, test, steps = imagenet.load(options)
local model = imagenet.model(options)
model:compile { optimizer = mgpu.optimizers.Adam {}, loss = "sparse_categorical_crossentropy",
  metrics = { "accuracy" }, devices = { options.device } }
imagenet.run(model, options, train, test, steps)
