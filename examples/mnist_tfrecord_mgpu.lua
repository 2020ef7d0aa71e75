-- MNIST from TFRecord files on all GPUs: the example mnist_tfrecord_mgpu of keras_experiments.
--
--     mgpulua examples/mnist_tfrecord_mgpu.lua --help
--     CUDA_VISIBLE_DEVICES=0,1 mgpulua examples/mnist_tfrecord_mgpu.lua
--
-- What it teaches: write_tfrecord and tfrecord, a dataset with threads of its own, weights that a second model loads.

local mgpu = require "mgpu"
local clock = require("mgpu.core").clock -- seconds
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local THREADS, CAPACITY = 8, 10000 -- of the queue; the capacity in images
local CLASSES = 10

local parser = command_line.parser("Writes MNIST as TFRecord files, once, and trains from them on all GPUs. "
  .. "Without MNIST, digits that are drawn by code take its place.")
command_line.add_epochs(parser, 5)
parser:option("--datadir", "The folder of train.tfrecord and test.tfrecord. They are written if they are missing.", ".")
  :argname "DIR"
parser:option("--save", "The file that the weights are saved in.", "saved_wt.h5"):argname "FILE"
command_line.add_limit(parser)
local options = command_line.read(parser)

-- ---- records ------------------------------------------------------------------------------------

local SCHEMA = { { "image_raw", "uint8", shape = { 28, 28, 1 } }, { "label", "int64" } }
local paths = { train = options.datadir .. "/train.tfrecord", test = options.datadir .. "/test.tfrecord" }

local function write_records()
  local found, train, test = pcall(mgpu.datasets.mnist.load_data)
  if not found then
    print("MNIST cannot be loaded; the records hold drawn digits.")
    train, test = mgpu.datasets.digits(6000)
  end
  for name, set in pairs { train = train, test = test } do
    local x, y = command_line.first_rows(set, options.limit)
    local rows = mgpu.data.from_tensors { x:reshape { x:shape()[1], 28, 28, 1 }, y }
    local n = mgpu.data.write_tfrecord(paths[name], rows, SCHEMA)
    print(("Wrote %d records to %s"):format(n, paths[name]))
  end
end
if not (command_line.exists(paths.train) and command_line.exists(paths.test)) then write_records() end

local gpus = mgpu.parallel.get_available_gpus()
local ngpus = math.max(#gpus, 1)
local batch_size = 128 * ngpus

local function queue(path) return mgpu.data.tfrecord(path, SCHEMA):augment { rescale = 1 / 255 } end
local train_rows = queue(paths.train)
print(train_rows:length() .. " train samples")
local train = train_rows:shuffle(CAPACITY):batch(batch_size):prefetch(math.ceil(CAPACITY / batch_size),
  { threads = THREADS })
local test = queue(paths.test):batch(batch_size):prefetch(2)

-- ---- model --------------------------------------------------------------------------------------

local function compile(model, devices)
  model:compile {
    optimizer = mgpu.parallel.optimizers.RMSPropMGPU { lr = 2e-3 * ngpus, decay = 1e-5, gdev_list = devices },
    loss = "sparse_categorical_crossentropy",
    metrics = { "accuracy" },
  }
end

if ngpus > 1 then print("Using GPUs: " .. table.concat(gpus, ", ")) end
local serial = mgpu.models.mnist_tfrecord_cnn { classes = CLASSES }
local model = mgpu.parallel.make_parallel(serial, gpus)
model:summary()
compile(model, ngpus > 1 and gpus or nil)

local start = clock()
model:fit(train, { epochs = options.epochs })
print(("[TRAINING] finished in %.3f s"):format(clock() - start))
model:save_weights(options.save)

-- A second model, on one device, with the weights of the file.
local second = mgpu.models.mnist_tfrecord_cnn { classes = CLASSES }
second:load_weights(options.save)
compile(second)
second:summary()
local loss, accuracy = unpack(second:evaluate(test, { verbose = 0 }))
print(("\nTest loss: %s\nTest accuracy: %s"):format(loss, accuracy))
