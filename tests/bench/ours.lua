-- Our side of the benchmarks: times training steps on request.
--
--     mgpulua tests/bench/ours.lua [--net mnist_cnn|lenet5|mlp|cifar10_cnn|resnet18|resnet50|gpt] [--batch 128]
--       [--estimate STEPS] [--device cuda:0] [--precision tf32|fp16|bf16] [--read last]
--
-- Reads requests from standard input, one a line, with the protocol of peer_protocol.py:
--     run N     trains N steps and answers {"ms": [milliseconds of each]}; with --read last, which reads
--               only the last loss, {"ms": [their mean], "host_us": the host's microseconds for a step}
--     memory    answers {"mb": peak memory of the process, or of the GPU}
--     quit      ends, as the end of input does
-- Started as several processes, these train the step together; rank 0 reads the requests.
-- With --estimate it prints how long that many steps take, and reads nothing.

local mgpu = require "mgpu"
local core = require "mgpu.core"

local options = { net = "mnist_cnn", batch = "128", precision = "tf32" }
local SHAPES = { cifar10_cnn = { 32, 32, 3 }, resnet18 = { 224, 224, 3 }, resnet50 = { 224, 224, 3 } } -- else MNIST's
local POLICIES = { fp16 = "mixed_float16", bf16 = "mixed_bfloat16" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

-- classifier(net, batch), gpt(batch) -> the model, the optimizer, the loss, and a batch of x and y.
local function classifier(net, batch)
  local shape, labels = SHAPES[net] or { 28, 28, 1 }, {}
  for i = 1, batch do labels[i] = (i * 7) % 10 end
  return mgpu.models[net] { input_shape = shape, classes = 10 }, mgpu.optimizers.RMSprop { learning_rate = 1e-3 },
    mgpu.losses.categorical_crossentropy, mgpu.rand { batch, unpack(shape) },
    mgpu.one_hot(mgpu.tensor(labels, { dtype = "int32" }), 10)
end

-- A GPT-2 small enough for a CPU: 822,016 parameters.
local function gpt(batch)
  local ids = mgpu.randint(0, 96, { batch, 128 }):to "int32"
  return mgpu.models.gpt { vocabulary = 96, context = 128, width = 128, layers = 4, heads = 4 },
    mgpu.optimizers.AdamW { learning_rate = 1e-3 },
    mgpu.losses.SparseCategoricalCrossentropy { from_logits = true }, ids, ids
end

-- A custom training step as one plan: forward, loss, gradients, update.
local function make_step(net, batch)
  local spread = mgpu.world().size > 1 and { devices = { "cpu:0" } } or nil
  mgpu.seed(1)
  local model, optimizer, loss_of, x, y
  if net == "gpt" then
    model, optimizer, loss_of, x, y = gpt(batch)
  else
    model, optimizer, loss_of, x, y = classifier(net, batch)
  end
  local step = mgpu.jit(function(inputs, targets)
    inputs, targets = inputs:shard(), targets:shard()
    local loss, gradients = mgpu.value_and_grad(function()
      return loss_of(targets, model(inputs, { training = true }))
    end, model.trainable_variables)()
    optimizer:apply(gradients, model.trainable_variables)
    return loss
  end, spread)
  mgpu.eval(x, y)
  return function() return step(x, y) end
end

local function peak_memory_mb()
  for line in io.lines "/proc/self/status" do
    local kb = line:match "^VmHWM:%s*(%d+)"
    if kb then return tonumber(kb) / 1024 end
  end
end

-- n steps, reading each loss.
local function run_each(step, n)
  local ms = {}
  for i = 1, n do
    local start = core.clock()
    step():item()
    ms[i] = ("%.4f"):format((core.clock() - start) * 1e3)
  end
  return ('{"ms": [%s]}'):format(table.concat(ms, ", "))
end

-- n steps without waiting; the last loss is read. host_us is the time to enqueue them.
local function run_ahead(step, n)
  local start, loss = core.clock(), nil
  for _ = 1, n do loss = step() end
  local enqueued = core.clock()
  loss:item()
  return ('{"ms": [%.5f], "host_us": %.2f}'):format((core.clock() - start) / n * 1e3,
    (enqueued - start) / n * 1e6)
end

local function memory()
  if not options.device then return peak_memory_mb() end
  return mgpu.memory(options.device).peak / 2 ^ 20
end

if options.device then core.set_devices { options.device } end
if POLICIES[options.precision] then mgpu.set_policy(POLICIES[options.precision]) end
local step = make_step(options.net, tonumber(options.batch))
if options.estimate then
  step():item() -- the first step makes the plan
  local start, n = core.clock(), 3
  for _ = 1, n do step():item() end
  print(("%.0f s"):format((core.clock() - start) / n * options.estimate))
  os.exit(0, true)
end

-- The next request: a number of steps, "memory" or "quit". With several processes all ranks get that of rank 0.
local NUMBERS = { memory = 0, quit = -1 }
local NAMES = { [0] = "memory", [-1] = "quit" }
local function next_request()
  local request = "quit"
  if mgpu.world().rank == 0 then
    local line = io.read() or request
    request = tonumber(line:match "^run (%d+)") or line
  end
  if mgpu.world().size == 1 then return request end
  local number = mgpu.world():gather(NUMBERS[request] or request)[1]
  return NAMES[number] or number
end

for request in next_request do
  if request == "quit" then break end
  print(request == "memory" and ('{"mb": %.1f}'):format(memory())
    or (options.read == "last" and run_ahead or run_each)(step, request))
  io.flush()
end
