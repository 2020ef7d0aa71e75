-- A hand-written training loop: gradients, optimizer and metric in one jitted step.
--
--     mgpulua examples/custom_loop.lua --help
--
-- What it teaches: value_and_grad, optimizer:apply, mgpu.jit, datasets with shuffle, batch, map and
-- prefetch.

local mgpu = require "mgpu"
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "A hand-written training loop."
command_line.add_data(parser, { "mnist", "fashion", "digits" }, "digits")
command_line.add_epochs(parser, 3)
command_line.add_count(parser, "--batch-size", 1, "Images per step.", "128")
local options = parser:parse()

local train, test = command_line.load(options)

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
  :shuffle(rows, 1):batch(options.batch_size):map(prepared):prefetch(2)
for epoch = 1, options.epochs do
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
