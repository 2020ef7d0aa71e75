-- The examples of training on several devices: each runs on one device and on several, and prints its last lines.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test

-- Runs an example in the temporary folder, where its files go. ARGS devices: as --devices spells them, or nil;
-- environment: variables, or nil. RETURNS the output and the status.
local function run(name, words, devices, environment)
  return check.run(("root=$PWD; program=$(realpath %s); cd %s; %s $program %s $root/examples/%s.lua %s"):format(
    check.program, check.path "", environment or "", devices and "--devices " .. devices or "", name, words))
end

-- The output of a run that must end well.
local function output_of(name, words, devices)
  local output, status = run(name, words, devices)
  if status ~= 0 then check.fail(("%s.lua %s: status %d: %s"):format(name, words, status, output)) end
  return output
end

test("without argparse an example says which package has it", function()
  local output, status = run("cifar10_cnn_mgpu", "--help", nil, "LUA_PATH=/nonexistent")
  check.equal(status, 1)
  check.equal(output, "cifar10_cnn_mgpu.lua: the Lua module argparse is missing: apt-get install lua-argparse\n")
end)

if not pcall(require, "argparse") then check.skip "lua-argparse is not installed" end
check.needs "cpu"

for _, name in ipairs { "cifar10_cnn_mgpu", "cifar10_cnn_mgpu_queue", "mnist_tfrecord_mgpu" } do
  test(name .. ".lua has help and knows its options", function()
    check.matches(output_of(name, "--help"), "Usage: mgpulua " .. name .. ".lua")
    local output, status = run(name, "--nonsense")
    check.equal(status, 1)
    check.equal(output, name .. ".lua: unknown option '--nonsense' (see --help)\n")
    output, status = run(name, "--epochs many")
    check.equal(status, 1)
    check.equal(output, name .. ".lua: 'many' must be a whole number from 1 on (see --help)\n")
  end)
end

-- ---- CIFAR-10 -----------------------------------------------------------------------------------

mgpu.datasets.shapes.write_cifar(check.path "cifar", 160)
local CIFAR = "--datadir cifar --epochs 1 "

test("cifar10_cnn_mgpu.lua trains on one device, and continues from its checkpoint on three", function()
  local output = output_of("cifar10_cnn_mgpu", CIFAR .. "--checkpt best.hdf5", "cpu:0")
  check.matches(output, "x_train shape: (160, 32, 32, 3)\n160 train samples\n32 test samples\n")
  check.falsy(output:find("Loaded", 1, true))
  check.matches(output, "Total params: 1,250,858")
  check.matches(output, "Not using data augmentation.")
  check.matches(output, "5/5 ") -- 160 images in batches of 32
  local accuracy = output:match "\nCIFAR VALIDATION LOSS, ACC: [%d.]+, ([%d.]+)\n$"
  check.truthy(accuracy, output)

  output = output_of("cifar10_cnn_mgpu", CIFAR .. "--mgpu --aug --logdevp --checkpt best.hdf5", "cpu:0-2")
  check.matches(output, "\nUsing GPUs: cpu:0, cpu:1, cpu:2\n")
  check.matches(output, "Loaded the weights in best.hdf5")
  check.matches(output, "Using real-time data augmentation.")
  check.matches(output, "a training step on 3 devices, central, batch 96")
  check.matches(output, "2/2 ") -- 160 images in batches of 96
  check.matches(output, "Samples/sec: %d")
  -- The loss of the serial model is that of the parallel one.
  local loss, serial = output:match "val_loss: ([%d.]+).-\nCIFAR VALIDATION LOSS, ACC: ([%d.]+), [%d.]+\n$"
  check.near(tonumber(serial), tonumber(loss), 1e-4) -- the progress line has four digits
end)

test("cifar10_cnn_mgpu.lua takes the first devices, and refuses more than there are", function()
  local output = output_of("cifar10_cnn_mgpu", CIFAR .. "--limit 32 --mgpu 2 --syncopt --enqueue --nccl --network x",
    "cpu:0-3")
  check.matches(output, "\nUsing GPUs: cpu:0, cpu:1\n")
  local status
  output, status = run("cifar10_cnn_mgpu", CIFAR .. "--mgpu 3", "cpu:0-1")
  check.equal(status, 1)
  check.matches(output, "cifar10_cnn_mgpu.lua: --mgpu 3: 3 GPUs were asked for, but these are visible: cpu:0, cpu:1\n")
end)

test("without the files of CIFAR-10 the example says so in a sentence", function()
  local output, status = run("cifar10_cnn_mgpu", "--datadir nowhere")
  check.equal(status, 1)
  check.matches(output, "^cifar10_cnn_mgpu.lua: cifar10: nowhere has no cifar%-10%-binary.tar.gz[^\n]*\n$")
end)

test("cifar10_cnn_mgpu_queue.lua tests a fresh model with the file that --checkpt names", function()
  local output = output_of("cifar10_cnn_mgpu_queue", CIFAR .. "--aug --checkpt queue.hdf5 --logdevp", "cpu:0")
  check.matches(output, "saving model to queue.hdf5")
  check.matches(output, "%[TRAINING%] finished in [%d.]+ s\n\nTest loss: [%d.]+\nTest accuracy: [%d.]+\n$")
  check.falsy(io.open(check.path "cifar10_cnn_mgpu_queue.weights.best.hdf5"))
end)

test("cifar10_cnn_mgpu_queue.lua feeds two devices from a variable and saves the last weights", function()
  local output = output_of("cifar10_cnn_mgpu_queue", CIFAR .. "--limit 80 --preload variable --mgpu", "cpu:0-1")
  check.matches(output, "\nUsing GPUs: cpu:0, cpu:1\n")
  check.matches(output, "MULTI-GPU MODEL: cifar10_cnn\n")
  check.matches(output, "%[TRAINING%] finished in [%d.]+ s\n\nTest loss: [%d.]+\nTest accuracy: [%d.]+\n$")
  check.matches(check.read(check.path "cifar10_cnn_mgpu_queue.weights.best.hdf5"), "^\137HDF")
end)

-- ---- TFRecord files -----------------------------------------------------------------------------

test("mnist_tfrecord_mgpu.lua writes records once, and trains from them on one device and on two", function()
  local words = "--datadir . --limit 300 --epochs 1"
  local output = output_of("mnist_tfrecord_mgpu", words, "cpu:0")
  check.matches(output, "Wrote 300 records to ./train.tfrecord\n")
  check.matches(output, "300 train samples\n")
  check.matches(output, "%[TRAINING%] finished in [%d.]+ s\n.*Total params: 1,199,882"
    .. ".*\n\nTest loss: [%d.]+\nTest accuracy: [%d.]+\n$")
  output = output_of("mnist_tfrecord_mgpu", words, "cpu:0-1")
  check.falsy(output:find("Wrote", 1, true))
  check.matches(output, "Using GPUs: cpu:0, cpu:1\n")
  check.matches(output, "\n\nTest loss: [%d.]+\nTest accuracy: [%d.]+\n$")
  check.matches(check.read(check.path "saved_wt.h5"), "^\137HDF")
end)
