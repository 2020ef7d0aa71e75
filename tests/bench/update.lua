-- Optimizer updates of 2.35 million parameters, compared with the time to read and write the same bytes.
--
--     build/mgpulua tests/bench/update.lua [--rounds 15]
--
-- SGD reads weights and gradients and writes weights; RMSprop also reads and writes one slot per weight, Adam
-- two. The yardstick is a step that reads and writes as many arrays of that size with one addition each. All
-- take turns.

local core = require "mgpu.core"
local mgpu = require "mgpu"

local rounds = tonumber(arg[1] == "--rounds" and arg[2]) or 15
local model = mgpu.models.mnist_cnn { classes = 10 }
local variables = model.trainable_variables

local grads, count = {}, 0
for i, v in ipairs(variables) do
  grads[i] = mgpu.rand(v:shape())
  count = count + v:count()
end
mgpu.eval(unpack(grads))

local function updating(name)
  local opt = mgpu.optimizers[name] {}
  opt:build(variables)
  return mgpu.jit(function(list) opt:apply(list, variables) end)
end

-- The yardstick: reads n + 1 arrays and writes n of them.
local function traffic(n)
  local arrays = {}
  for i = 1, n + 1 do arrays[i] = mgpu.variable(mgpu.rand { count }) end
  return mgpu.jit(function()
    local last = arrays[n + 1]:value()
    for i = 1, n do arrays[i]:assign(arrays[i]:value() + last) end
  end)
end

local function time(fn, ...)
  local start = core.clock()
  for _ = 1, 5 do fn(...) end
  return (core.clock() - start) / 5 * 1000
end

local rows = {}
for i, name in ipairs { "SGD", "RMSprop", "Adam" } do
  rows[i] = { name = name, update = updating(name), traffic = traffic(i), ours = {}, bytes = {} }
end
for i = 1, 3 + rounds do
  for _, row in ipairs(rows) do
    local a, b = time(row.update, grads), time(row.traffic)
    if i > 3 then row.ours[i - 3], row.bytes[i - 3] = a, b end
  end
end
local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end
print(("%d parameters: the update, its bytes read and written, ms; ratio"):format(count))
for _, row in ipairs(rows) do
  local ours, bytes = median(row.ours), median(row.bytes)
  print(("  %-8s %.2f  %.2f  %.2f"):format(row.name, ours, bytes, ours / bytes))
end
