-- A hand-written training loop: gradients, optimizer and metric in one jitted step.
--
--     mgpulua examples/custom_loop.lua --help
--
-- What it teaches: value_and_grad, optimizer:apply, mgpu.jit, datasets with shuffle, batch, map and
-- prefetch.

local mgpu = require "mgpu"

local HELP = [[
usage: mgpulua custom_loop.lua [options]
  --data NAME       mnist, fashion or digits (digits, which need no files)
  --epochs N        passes over the training data (3)
  --batch-size N    images a step (128)
  --help            this text]]

local function usage(text, ...)
  io.stderr:write("custom_loop.lua: ", text:format(...), " (see --help)\n")
  os.exit(1)
end

local options, i = { data = "digits", epochs = "3", ["batch-size"] = "128" }, 1
while arg[i] do
  local name = arg[i]:match "^%-%-([%a-]+)$"
  if name == "help" then
    print(HELP)
    return
  elseif not name or not options[name] then
    usage("unknown option %s", arg[i])
  elseif not arg[i + 1] then
    usage("%s needs a value", arg[i])
  end
  options[name], i = arg[i + 1], i + 2
end
local epochs = tonumber(options.epochs) or usage("--epochs: cannot read %q as a number", options.epochs)
local batch_size = tonumber(options["batch-size"])
  or usage("--batch-size: cannot read %q as a number", options["batch-size"])

local train, test
if options.data == "mnist" then
  train, test = mgpu.datasets.mnist.load_data()
elseif options.data == "fashion" then
  train, test = mgpu.datasets.fashion_mnist.load_data()
elseif options.data == "digits" then
  train, test = mgpu.datasets.digits(6000)
else
  usage("--data %s: there are mnist, fashion and digits", options.data)
end

mgpu.seed(42)
local model = mgpu.models.lenet5 { classes = 10 }
local opt = mgpu.optimizers.Adam { learning_rate = 1e-3 }
local loss_of = mgpu.losses.sparse_categorical_crossentropy

local step = mgpu.jit(function(x, y)
  local loss, grads = mgpu.value_and_grad(function()
    return loss_of(y, model(x, { training = true }))
  end, model.trainable_variables)()
  opt:apply(grads, model.trainable_variables)
  return loss
end)

local function prepared(x, y) return x:to "float32" / 255, y end

local rows = train.x:shape()[1]
local batches = mgpu.data.from_tensors { train.x:reshape { rows, 28, 28, 1 }, train.y }
  :shuffle(rows, 1):batch(batch_size):map(prepared):prefetch(2)
for epoch = 1, epochs do
  local mean = mgpu.metrics.Mean {}
  for x, y in batches:iter() do mean:update(step(x, y)) end
  print(("epoch %d  loss %.4f"):format(epoch, mean:result()))
end

rows = test.x:shape()[1]
local accuracy = mgpu.metrics.SparseCategoricalAccuracy {}
for x, y in mgpu.data.from_tensors { test.x:reshape { rows, 28, 28, 1 }, test.y }:batch(500)
  :map(prepared):iter() do
  accuracy:update(y, model(x))
end
print(("test accuracy %.4f"):format(accuracy:result()))
