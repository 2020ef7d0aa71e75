-- examples/train_mnist.lua: its options and output, the model that it saves, and the accuracy that it reaches.

local check = require "check"

local test = check.test

local function run(options, environment)
  return check.run(("%s %s examples/train_mnist.lua %s"):format(environment or "", check.program,
    options))
end

-- The output of a run that must succeed.
local function succeed(options)
  local out, status = run(options)
  if status ~= 0 then check.fail(("exit status %d:\n%s"):format(status, out)) end
  return out
end

test("train_mnist prints the lines of the original Keras notebook", function()
  local path = check.path "model.safetensors"
  local out = succeed("--data digits --limit 200 --epochs 2 --verbose 2 --save " .. path)
  check.matches(out, "X_train shape: (200, 28, 28, 1)\n200 train samples\n200 test samples\n")
  check.matches(out, "NOT Using Multi%-GPU\nTrain on 200 samples, validate on 200 samples\n"
    .. "Epoch 1/2\n %- %d+s %- loss: [%d.]+ %- acc: [%d.]+ %- val_loss: [%d.]+ %- val_acc: [%d.]+\n"
    .. "Epoch 2/2\n.*Test score: [%d.]+\nTest accuracy: [%d.]+\nTotal Duration %([%d.]+ sec%)\n")
  local again = run("--data digits --limit 200 --evaluate " .. path)
  check.equal(again:match "Test score: [%d.]+", out:match "Test score: [%d.]+")
  check.equal(again:match "Test accuracy: [%d.]+", out:match "Test accuracy: [%d.]+")
end)

test("train_mnist trains in float16, refuses other precisions, and evaluates its saved model", function()
  local path = check.path "half.safetensors"
  local out = succeed("--data digits --limit 64 --epochs 1 --model mlp --verbose 0 "
    .. "--precision mixed_float16 --save " .. path)
  local again = run("--data digits --limit 64 --evaluate " .. path)
  check.equal(again:match "Test score: [%d.]+", out:match "Test score: [%d.]+")
  local status
  out, status = run "--precision half"
  check.equal(status, 1)
  check.matches(out, "mixed_bfloat16")
end)

test("--help prints the options", function()
  local out = succeed "--help"
  for _, option in ipairs { "model", "epochs", "batch%-size", "devices", "data", "limit", "seed",
    "lr", "precision", "save", "verbose", "evaluate" } do
    check.matches(out, "%-%-" .. option)
  end
end)

test("wrong options of train_mnist are errors", function()
  for _, options in ipairs { "--modle lenet5", "--epochs", "--epochs many", "--data cifar", "--limit 0",
    "--lr fast", "--lr 0" } do
    local out, status = run(options)
    check.equal(status, 1)
    check.matches(out, "see --help")
  end
  local out, status = run "--data digits --limit 10 --model lenet6"
  check.equal(status, 1)
  check.matches(out, "lenet5")
end)

test("a file that cannot be saved ends train_mnist before it trains", function()
  local out, status = run "--data digits --limit 10 --save m.txt"
  check.equal(status, 1)
  check.equal(out:match "^[^:]*: [^\n]*\n", out)
  check.matches(out, 'train_mnist.lua: %-%-save: m.txt: unknown ending ".txt": the endings are ')
  out, status = run("--data digits --limit 10 --save " .. check.path "missing/m.h5")
  check.equal(status, 1)
  check.matches(out, "train_mnist.lua: %-%-save: cannot write to the folder ")
  check.falsy(out:find "Test score")
end)

test("without MNIST train_mnist says so and names another data set", function()
  local home = check.path "home"
  local out = run("--limit 50 --epochs 1 --save " .. check.path "m.safetensors",
    ("MGPU_DATA= HOME='%s'"):format(home))
  if not out:find "cannot be loaded" then check.skip "MNIST can be loaded here" end
  check.matches(out, "MNIST cannot be loaded: ")
  check.matches(out, "Using the data set %w+_?%w* instead")
  check.matches(out, "Test accuracy")
end)

test("LeNet-5 learns drawn digits", function()
  local out = run("--data digits --model lenet5 --epochs 3 --verbose 0 --save "
    .. check.path "digits.safetensors")
  check.truthy(tonumber(out:match "Test accuracy: ([%d.]+)") > 0.9, out)
end)

test("LeNet-5 learns Fashion-MNIST in three epochs", function()
  check.slow()
  check.needs("cpu", "/usr/share/datasets/fashion-mnist")
  local out = run("--data fashion --model lenet5 --epochs 3 --verbose 0 --save "
    .. check.path "fashion.safetensors")
  check.truthy(tonumber(out:match "Test accuracy: ([%d.]+)") >= 0.85, out)
end)

test("LeNet-5 learns MNIST in two epochs", function()
  check.slow()
  check.needs "cpu"
  local data
  for _, folder in ipairs { os.getenv "MGPU_DATA" or "", "../shared/data" } do
    local file = io.open(folder .. "/mnist/train-images-idx3-ubyte.gz")
    if file then
      file:close()
      data = data or folder
    end
  end
  if not data then check.skip "no MNIST: set MGPU_DATA to the folder above mnist" end
  local out = run("--data mnist --model lenet5 --epochs 2 --verbose 0 --save "
    .. check.path "mnist.safetensors", ("MGPU_DATA='%s'"):format(data))
  check.truthy(tonumber(out:match "Test accuracy: ([%d.]+)") >= 0.975, out)
end)
