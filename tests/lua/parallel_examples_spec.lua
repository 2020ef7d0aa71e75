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

for name, count in pairs { cifar10_cnn_mgpu = "epochs", cifar10_cnn_mgpu_queue = "epochs",
  mnist_tfrecord_mgpu = "epochs", vae_deconv = "epochs", make_imagenet_records = "images",
  resnet50_tfrecord = "epochs", mnist_multi_gpu = "epochs", strategies = "epochs" } do
  test(name .. ".lua has help and knows its options", function()
    check.matches(output_of(name, "--help"), "Usage: mgpulua " .. name .. ".lua")
    local output, status = run(name, "--nonsense")
    check.equal(status, 1)
    check.equal(output, name .. ".lua: unknown option '--nonsense' (see --help)\n")
    output, status = run(name, ("--%s many"):format(count))
    check.equal(status, 1)
    check.equal(output, ("%s.lua: --%s many: it must be a whole number from 1 on (see --help)\n"):format(name, count))
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
  -- The serial and the parallel model have the same loss.
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

local NO_NETWORK = "MGPU_DATA=/nonexistent HOME=/nonexistent https_proxy=http://127.0.0.1:9"

test("an example whose data set is missing says so in a sentence, which names the set that is drawn by code", function()
  for name, drawn in pairs { cifar10_cnn_mgpu = "shapes", cifar10_cnn_mgpu_queue = "shapes" } do
    local output, status = run(name, "--datadir nowhere")
    check.equal(status, 1)
    check.matches(output, ("^%s.lua: cifar10: nowhere has no cifar%%-10%%-binary.tar.gz[^\n]*; %%-%%-data %s needs no "
      .. "files\n$"):format(name, drawn))
  end
  for _, name in ipairs { "mnist_multi_gpu", "vae_deconv", "custom_loop" } do
    local output, status = run(name, "--data mnist", nil, NO_NETWORK)
    check.equal(status, 1)
    check.matches(output, ("%s.lua: [^\n]*; %%-%%-data digits needs no files\n"):format(name))
  end
end)

test("the examples of CIFAR-10 train with drawn shapes, too", function()
  local output = output_of("cifar10_cnn_mgpu", "--data shapes --limit 64 --epochs 1", "cpu:0")
  check.matches(output, "x_train shape: %(64, 32, 32, 3%)\n64 train samples\n64 test samples\n")
  output = output_of("cifar10_cnn_mgpu_queue", "--data shapes --limit 64 --epochs 1 --checkpt shapes.hdf5",
    "cpu:0")
  check.matches(output, "x_train shape: %(64, 32, 32, 3%)\n")
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

test("resnet50_tfrecord.lua trains from the records of make_imagenet_records.lua", function()
  local output = output_of("make_imagenet_records", "--datadir imagenet --images 40 --shards 2")
  check.equal(output, "Wrote 40 train images to imagenet\nWrote 8 validation images to imagenet\n")
  local words = "--network resnet18 --image_size 32 --classes 10 --batch_size 8 --epochs 1 "
  output = output_of("resnet50_tfrecord", words .. "--distort_color", "cpu:0")
  check.matches(output, "^Num images: 40\n")
  check.matches(output, "5/5 ") -- 40 images in batches of 8
  check.matches(output, "%[TRAINING%] finished in [%d.]+ s\n\nTest loss, acc: [%d.]+, [%d.]+\n$")
  output = output_of("resnet50_tfrecord", words .. "--mgpu --imgs_per_epoch 16", "cpu:0-1")
  check.matches(output, "Using GPUs: cpu:0, cpu:1\n")
  check.matches(output, "1/1 ") -- 16 images in batches of 16
  check.matches(output, "\n\nTest loss, acc: [%d.]+, [%d.]+\n$")
end)

test("without records resnet50_tfrecord.lua says so in a sentence", function()
  local output, status = run("resnet50_tfrecord", "--datadir nowhere")
  check.equal(status, 1)
  check.equal(output, "resnet50_tfrecord.lua: tfrecord: no file matches nowhere/train-*: give their folder "
    .. "with --datadir, or write a small set with make_imagenet_records.lua\n")
end)

-- ---- the autoencoder ----------------------------------------------------------------------------

for _, devices in ipairs { "cpu:0", "cpu:0-1" } do
  test("vae_deconv.lua draws the latent plane and digits, on " .. devices, function()
    local output = output_of("vae_deconv", "--data digits --limit 100 --epochs 1 --mgpu", devices)
    check.equal(output:find("Using GPUs: cpu:0, cpu:1\n", 1, true) ~= nil, devices == "cpu:0-1")
    check.matches(output, "\nVAE VALIDATION LOSS: [%d.]+\nWrote vae_scatter.svg and vae_digit.png\n$")
    local _, dots = check.read(check.path "vae_scatter.svg"):gsub("<circle", "")
    check.equal(dots, 110) -- 100 images and the legend of 10 classes
    local picture = mgpu.image.load(check.path "vae_digit.png")
    check.equal(picture:shape(), { 15 * 28, 15 * 28, 1 })
  end)
end

-- ---- the notebook and the article ---------------------------------------------------------------

test("mnist_multi_gpu.lua prints the notebook's lines for one device and for three", function()
  local output = output_of("mnist_multi_gpu", "--data digits --limit 24 --batch_size 4 --epochs 1", "cpu:0-2")
  check.matches(output, "^%['cpu:0', 'cpu:1', 'cpu:2'%]\nUsing 3 GPUs.\n"
    .. "X_train shape: %(24, 28, 28, 1%)\n24 train samples\n24 test samples\n")
  local value = " [%d.e+-]+" -- an accuracy of 0 is 0.0000e+00
  local epoch = "Train on 24 samples, validate on 24 samples\nEpoch 1/1\n %- %d+s %- loss:" .. value
    .. " %- acc:" .. value .. " %- val_loss:" .. value .. " %- val_acc:" .. value .. "\n"
  local score = "Test score: [%d.]+\nTest accuracy: [%d.]+\nTotal Duration %([%d.]+ sec%)\n"
  check.matches(output, "NOT Using Multi%-GPU\n" .. epoch .. score)
  check.matches(output, "\nUsing Multi%-GPU: 3 GPUs\n" .. epoch .. score .. "$")
  check.equal(mgpu.load_model(check.path "model.h5"):count_params(), 2354250)
end)

test("mnist_multi_gpu.lua trains channels first on one device", function()
  local output = output_of("mnist_multi_gpu",
    "--data digits --limit 8 --epochs 1 --data_format channels_first --save first.h5", "cpu:0")
  check.matches(output, "^%[%]\nUsing 0 GPUs.\nX_train shape: %(8, 1, 28, 28%)\n")
  check.falsy(output:find("\nUsing Multi", 1, true))
  check.equal(mgpu.load_model(check.path "first.h5"):count_params(), 2354250)
end)

test("strategies.lua trains by each strategy, on one device and on three", function()
  for devices, replicas in pairs { ["cpu:0"] = 1, ["cpu:0-2"] = 3 } do
    local output = output_of("strategies", "--limit 200 --epochs 1", devices)
    check.matches(output, "^three%-way: the loss was 2, and is 1.28 after a step\n")
    check.equal(output:find("dense_2 (Dense) @cpu:1", 1, true) ~= nil, replicas == 3)
    check.matches(output, "\nlayer ranges: test accuracy [%d.]+\n")
    check.matches(output, ("\nmirrored: number of replicas in sync: %d\n"):format(replicas))
    local best = output:match "val_accuracy: ([%d.]+)[^\n]*\nmirrored: test accuracy"
    check.equal(output:match "\nloaded from the checkpoint: test accuracy ([%d.]+)\n", best)
    check.matches(output, "\nEpoch 2/2\n.*\ncontinued on one device: test accuracy [%d.]+\n")
    check.matches(output, ("\ncentral: number of replicas in sync: %d\n.*\ncentral: test accuracy "):format(replicas))
    check.matches(output, "\nasync: number of replicas in sync: 1\n.*\nasync: test accuracy [%d.]+\n$")
  end
end)
