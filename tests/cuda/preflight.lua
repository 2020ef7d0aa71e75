-- A quick check of a GPU machine before the tests: one training step, one convolution and one matmul on
-- cuda:0. on_gpu.sh runs it with MGPU_LOG=fallback,dispatch, so that its log shows which libraries are
-- missing. Wrong numbers are an error.
local mgpu = require "mgpu"
local core = require "mgpu.core"

core.default_device "cuda:0"
local L = mgpu.layers

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

local model = mgpu.Sequential { L.Input { 12, 12, 1 }, L.Conv2D { 8, 3, activation = "relu" },
  L.MaxPooling2D { 2 }, L.Flatten {}, L.Dense { 10, activation = "softmax" } }
model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
local loss = model:train_on_batch(mgpu.rand { 8, 12, 12, 1 }, mgpu.zeros({ 8 }, { dtype = "int32" })).loss
if not (loss > 0 and loss < 20) then error("the loss of a step is " .. loss, 0) end
print "preflight: ok"
