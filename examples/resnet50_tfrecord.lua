-- ResNet-50 from the TFRecord files of ImageNet: the example resnet50_tfrecord_horovod of keras_experiments, in one
-- process. resnet50_tfrecord_horovod.lua is the one for several.
--
--     mgpulua examples/resnet50_tfrecord.lua --help
--
-- What it teaches: records with images of all sizes, which threads decode, crop, flip and color (common/imagenet.lua);
-- labels that count from 1; epochs with another number of images than the files hold.

local mgpu = require "mgpu"
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local imagenet = dofile(folder .. "imagenet.lua")(command_line)

local parser = command_line.parser("Trains ResNet-50 from ImageNet's TFRecord files, on one or several devices. "
  .. "make_imagenet_records.lua writes a tiny set of such files.")
command_line.add_mgpu(parser)
command_line.add_count(parser, "--batch_size", 1, "Images per step for each device.", "64")
imagenet.add(parser)
local options = command_line.read(parser)
options.batch_size = options.batch_size * options.ngpus

local train, test, steps = imagenet.load(options)
if #options.gpus > 0 then print("Using GPUs: " .. table.concat(options.gpus, ", ")) end
local model = mgpu.parallel.make_parallel(imagenet.model(options), options.gpus)
model:compile { optimizer = mgpu.optimizers.Adam {}, loss = "sparse_categorical_crossentropy",
  metrics = { "accuracy" } }
imagenet.run(model, options, train, test, steps)
