-- A quick check of a GPU machine before the tests: a convolution and a product of ones, and four steps of lenet5 and
-- mnist_cnn, of which the first runs as it is, the second is captured into a CUDA graph, and the others replay it.
--
--     mgpulua tests/cuda/preflight.lua [DEVICE] [MODEL...]     -- cuda:0, lenet5 mnist_cnn
--
-- on_gpu.sh runs it with MGPU_LOG=fallback,dispatch and with each MGPU_CUDA_GRAPH, and compares the losses that it
-- prints with those that the cpu device had when the bundle was made. Wrong numbers are an error.
local mgpu = require "mgpu"
local core = require "mgpu.core"

core.default_device(arg[1] or "cuda:0")

-- A tolerance is needed even for ones: the transforms of a Winograd convolution contain thirds.
local function expect(what, got, wanted)
  if not (math.abs(got / wanted - 1) < 2e-3) then error(("%s gave %g, not %g"):format(what, got, wanted), 0) end
end

for _, dtype in ipairs { "float32", "float16" } do
  local x, w = mgpu.ones({ 4, 16, 16, 8 }, { dtype = dtype }), mgpu.ones({ 3, 3, 8, 16 }, { dtype = dtype })
  expect("a convolution of ones", core.ops.conv2d(x, w):max():item(), 72)
  local a = mgpu.ones({ 64, 64 }, { dtype = dtype })
  expect("a product of ones", core.ops.matmul(a, a):max():item(), 64)
end

-- Learning rates with which a wrong gradient changes the losses, and rounding hardly does.
local RATES = { lenet5 = 0.05, mnist_cnn = 3e-4 }

local function train(name)
  mgpu.seed(1)
  mgpu.reset_names() -- initial weights depend on the names and the seed
  local model = mgpu.models[name] {}
  model:compile { optimizer = mgpu.optimizers.SGD { RATES[name] or 1e-3 }, loss = "sparse_categorical_crossentropy" }
  local x, y = mgpu.rand { 16, 28, 28, 1 }, mgpu.randint(0, 10, { 16 })
  local losses = {}
  for step = 1, 4 do
    local loss = model:train_on_batch(x, y).loss
    if not (loss > 0 and loss < 20) then error(("%s: the loss of step %d is %g"):format(name, step, loss), 0) end
    losses[step] = ("%.6g"):format(loss)
  end
  print(("losses: %s %s"):format(name, table.concat(losses, " ")))
end

local models = { unpack(arg, 2) }
for _, name in ipairs(models[1] and models or { "lenet5", "mnist_cnn" }) do train(name) end
print "preflight: ok"
