-- Our side of the benchmark: times training steps on request.
--
--     mgpulua tests/bench/ours.lua [--net mnist_cnn|lenet5|mlp] [--batch 128] [--estimate STEPS]
--
-- Reads lines from standard input, as the peer_*.py beside it: "run N" trains N steps and answers
-- {"ms": [milliseconds of each]}, "memory" answers {"rss_mb": peak}, "quit" or the end of input
-- ends. With --estimate it says how long that many steps take, and reads nothing.

local mgpu = require "mgpu"
local core = require "mgpu.core"

local options = { net = "mnist_cnn", batch = "128" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

-- The step of a loop of one's own: forward, loss, gradients, update, as one plan.
local function make_step(net, batch)
  mgpu.seed(1)
  local model = mgpu.models[net] { input_shape = { 28, 28, 1 }, classes = 10 }
  local optimizer = mgpu.optimizers.RMSprop { learning_rate = 1e-3 }
  local loss_of = mgpu.losses.categorical_crossentropy
  local step = mgpu.jit(function(x, y)
    local loss, gradients = mgpu.value_and_grad(function()
      return loss_of(y, model(x, { training = true }))
    end, model.trainable_variables)()
    optimizer:apply(gradients, model.trainable_variables)
    return loss
  end)
  local labels = {}
  for i = 1, batch do labels[i] = (i * 7) % 10 end
  local x = mgpu.rand { batch, 28, 28, 1 }
  local y = mgpu.one_hot(mgpu.tensor(labels, { dtype = "int32" }), 10)
  mgpu.eval(x, y)
  return function() return step(x, y):item() end
end

local function peak_memory_mb()
  for line in io.lines "/proc/self/status" do
    local kb = line:match "^VmHWM:%s*(%d+)"
    if kb then return tonumber(kb) / 1024 end
  end
end

local function run(step, n)
  local ms = {}
  for i = 1, n do
    local start = core.clock()
    step()
    ms[i] = ("%.4f"):format((core.clock() - start) * 1e3)
  end
  return ('{"ms": [%s]}'):format(table.concat(ms, ", "))
end

local step = make_step(options.net, tonumber(options.batch))
if options.estimate then
  step() -- the first makes the plan
  local start, n = core.clock(), 3
  for _ = 1, n do step() end
  print(("%.0f s"):format((core.clock() - start) / n * options.estimate))
  os.exit(0, true)
end
for line in io.lines() do
  local n = line:match "^run (%d+)"
  if n then print(run(step, tonumber(n))) end
  if line == "memory" then print(('{"rss_mb": %.1f}'):format(peak_memory_mb())) end
  if line == "quit" then break end
  io.flush()
end
