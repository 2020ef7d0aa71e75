-- How much of the communication of a training step is hidden: rank 0 of several processes prints a line.
--
--     mgpulua --np 2 tests/bench/beside.lua --net lenet5 [--batch 128] [--steps 100]
--
-- "hidden" is the share of the time of all reductions in which the device computed: reductions of 64 KB and more run on
-- a thread beside the backward pass, and the device waits for those that are not done when it needs their results.
-- "control" is what a step of several processes takes longer than the same step of one, with tiny operations and
-- without reductions: before and after it the ranks agree. Last comes what mgpu.explain forecasts for the step, from
-- the speed of a rank that trains alone, while the others do too, and of sums of 4 MB and 4 bytes.
local mgpu = require "mgpu"
local core = require "mgpu.core"

local options = { net = "lenet5", batch = "128", steps = "100" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end
local batch, steps = tonumber(options.batch), tonumber(options.steps)

-- Microseconds of a jitted step of ten tiny ops: the least mean of several trials.
local function tiny_step(spread)
  local x, best = mgpu.ones { 4 }, math.huge
  local step = mgpu.jit(function(t)
    for _ = 1, 10 do t = t:exp():log() end
    return t
  end, spread)
  for _ = 1, 20 do
    local start = core.clock()
    for _ = 1, 100 do step(x) end
    best = math.min(best, (core.clock() - start) / 100)
  end
  return best * 1e6
end

local function compiled_model()
  mgpu.seed(1)
  local model = mgpu.models[options.net] { classes = 10 }
  model:compile { optimizer = "rmsprop", loss = "sparse_categorical_crossentropy" }
  return model
end

-- The report of the step, and the seconds of a step: of the fastest of three epochs.
local function train()
  local model, best = compiled_model(), math.huge
  local x, y = mgpu.rand { batch * steps, 28, 28, 1 }, mgpu.randint(0, 10, { batch * steps })
  mgpu.eval(x, y)
  for _ = 1, 3 do
    local start = core.clock()
    model:fit(x, y, { batch_size = batch, verbose = 0 })
    best = math.min(best, (core.clock() - start) / steps)
  end
  return model.compiled.steps.train:report()[1], best
end

-- Seconds of a step of this rank's rows, which it shares with nobody.
local function alone_step(rows)
  local model, best = compiled_model(), math.huge
  local x, y = mgpu.rand { rows, 28, 28, 1 }, mgpu.randint(0, 10, { rows })
  mgpu.eval(x, y)
  local optimizer, loss_of = model.optimizer, mgpu.losses.sparse_categorical_crossentropy
  local step = mgpu.jit(function()
    local loss, gradients = mgpu.value_and_grad(function()
      return loss_of(y, model(x, { training = true })):mean()
    end, model.trainable_variables)()
    optimizer:apply(gradients, model.trainable_variables)
    return loss
  end)
  for _ = 1, 3 do
    local start = core.clock()
    for _ = 1, steps do step():item() end
    best = math.min(best, (core.clock() - start) / steps)
  end
  return best
end

-- What explain forecasts for a step of all ranks, each of which counts as a host.
local function forecast(size)
  local compute = alone_step(batch / size)
  local function least(count)
    local best = math.huge
    for _ = 1, 10 do best = math.min(best, core.world_sum_time(count, 10)) end
    return best
  end
  local large, small, model = least(1e6), least(1), compiled_model()
  local function explained(speeds)
    return mgpu.explain(model, { devices = size, hosts = size, batch_size = batch, speeds = speeds }).forecast
  end
  local unit = explained { compute = 1, memory = math.huge }.compute -- operations
  return explained { compute = unit / compute, memory = math.huge, network = 2 * (size - 1) / size * 4e6 / large,
    latency = small / 2 / math.ceil(math.log(size) / math.log(2)) }
end

mgpu.warnings(false) -- the tiny step has nothing to share
local r, measured = train()
local joint, alone = tiny_step { devices = { "cpu:0" } }, tiny_step()
local f = forecast(mgpu.world().size)
if mgpu.world().rank == 0 then
  local all, exposed = r.beside_seconds + r.reduce_seconds, r.wait_seconds + r.reduce_seconds
  print(("%s: reductions %.3f ms a step, %.0f %% of it hidden; control path %.1f us a step"):format(options.net,
    all / steps / 3 * 1e3, 100 * (1 - exposed / all), joint - alone))
  print(("%s: a step takes %.3f ms, the forecast is %.3f ms (%+.0f %%)"):format(options.net, measured * 1e3,
    f.seconds * 1e3, 100 * (f.seconds / measured - 1)))
end
