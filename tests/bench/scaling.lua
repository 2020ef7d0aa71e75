-- The cost of data parallelism: a training step on 1, 2, 4 and 8 logical CPU devices of this machine.
--
--     build/mgpulua tests/bench/scaling.lua [--nets mnist_cnn,lenet5] [--batch 128] [--rounds 3]
--
-- All devices share the machine's cores, so 1.00x is the best possible result. A line shows how the time of
-- a step divides into computing, all-reduce and waiting for others; and the bytes that a device moves per step,
-- beside the 2 (n - 1) / n of the gradients' bytes that a ring all-reduce needs.

local core = require "mgpu.core"
local mgpu = require "mgpu"

local options = { nets = "mnist_cnn,lenet5", batch = "128", rounds = "3" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end
local batch, rounds = tonumber(options.batch), tonumber(options.rounds)
local STEPS = { mnist_cnn = 3, lenet5 = 100, mlp = 100 }

local function contender(net, n)
  mgpu.seed(1)
  local devices = {}
  for i = 1, n do devices[i] = "cpu:" .. i - 1 end
  local model = mgpu.models[net] { classes = 10 }
  model:compile { optimizer = "rmsprop", loss = "sparse_categorical_crossentropy", devices = devices }
  return { n = n, model = model, times = {} }
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function gradient_bytes(model)
  local count = 0
  for _, v in ipairs(model.trainable_variables) do count = count + v:count() end
  return 4 * count
end

for net in options.nets:gmatch "[^,]+" do
  local steps, list = STEPS[net], {}
  local x = mgpu.rand { batch * steps, 28, 28, 1 }
  local y = mgpu.randint(0, 10, { batch * steps })
  mgpu.eval(x, y)
  for i, n in ipairs { 1, 2, 4, 8 } do
    list[i] = contender(net, n)
    list[i].model:fit(x:slice { { 1, batch }, {}, {}, {} }, y:slice { { 1, batch } },
      { batch_size = batch, verbose = 0 })
  end
  for _ = 1, rounds do -- in turns, so that noise of the machine affects all
    for _, c in ipairs(list) do
      local start = core.clock()
      c.model:fit(x, y, { batch_size = batch, verbose = 0 })
      table.insert(c.times, (core.clock() - start) / steps * 1000)
    end
  end
  print(("%s, batch %d: devices, ms a step, against one, compute / reduce / wait, MB moved (needed)")
    :format(net, batch))
  local one = median(list[1].times)
  for _, c in ipairs(list) do
    local text, ms = "", median(c.times)
    if c.n > 1 then
      local r = c.model.compiled.steps.train:report()[1]
      local runs = rounds * steps
      text = ("  %2.0f / %2.0f / %2.0f %%  %.2f (%.2f)"):format(
        100 * (r.seconds - r.reduce_seconds - r.wait_seconds) / r.seconds,
        100 * r.reduce_seconds / r.seconds, 100 * r.wait_seconds / r.seconds, r.bytes_moved / runs / 1e6,
        2 * (c.n - 1) / c.n * gradient_bytes(c.model) / 1e6)
    end
    print(("  %d  %8.2f  %.2fx%s"):format(c.n, ms, one / ms, text))
  end
end
