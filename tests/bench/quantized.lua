-- Predictions with 8-bit integers beside those in float32: milliseconds of each, and float32 / int8.
--
--     MGPU_THREADS=1 build/mgpulua tests/bench/quantized.lua [MODEL...]      -- default: lenet5 mnist_cnn resnet18
--                                                                               mobilenet_v2
-- Weights are random, and ranges come from one batch of random images: the figures are about speed only. The two take
-- turns, and the fastest of 15 counts, so that noise of the machine affects both alike.

local mgpu = require "mgpu"
local core = require "mgpu.core"

local SIZES = { lenet5 = { 28, 28, 1 }, mnist_cnn = { 28, 28, 1 }, resnet18 = { 64, 64, 3 },
  mobilenet_v2 = { 96, 96, 3 } }
local names = #arg > 0 and { unpack(arg) } or { "lenet5", "mnist_cnn", "resnet18", "mobilenet_v2" }
local TURNS = 15

local function time(f, x)
  local t = core.clock()
  core.eval(f(x))
  return (core.clock() - t) * 1e3
end

local function measure(name, model, small, batch)
  local x = mgpu.rand { batch, unpack(SIZES[name]) }
  core.eval(x)
  local floats, bytes = mgpu.jit(function(t) return model(t) end), mgpu.jit(function(t) return small(t) end)
  local best = { math.huge, math.huge }
  for turn = 0, TURNS do -- the first one makes the plans
    for i, f in ipairs { floats, bytes } do
      local ms = time(f, x)
      if turn > 0 then best[i] = math.min(best[i], ms) end
    end
  end
  print(("%-14s %5d %10.3f %10.3f %8.2f"):format(name, batch, best[1], best[2], best[1] / best[2]))
end

print(("%-14s %5s %10s %10s %8s"):format("model", "batch", "float32", "int8", "ratio"))
for _, name in ipairs(names) do
  local size = SIZES[name] or error("the models are lenet5, mnist_cnn, resnet18 and mobilenet_v2, not " .. name)
  mgpu.seed(1)
  local large = size[3] == 3
  local model = mgpu.models[name](large and { input_shape = size, classes = 10 } or {})
  local small = model:quantize { calibration = mgpu.rand { 8, unpack(size) } }
  for _, batch in ipairs { 1, 16 } do measure(name, model, small, batch) end
end
