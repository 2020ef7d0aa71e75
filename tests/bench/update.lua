-- The optimizer's update of 2.35 million parameters against the time to read and write its bytes.
--
--     build/mgpulua tests/bench/update.lua [--rounds 15]
--
-- The bytes of Adam: weight, gradient and two slots read, weight and slots written, 7 float32 each. The
-- measure is what the same device takes to read four arrays and write three of that size with one
-- operation each. Both take turns.

local core = require "mgpu.core"
local mgpu = require "mgpu"

local rounds = tonumber(arg[1] == "--rounds" and arg[2]) or 15
local model = mgpu.models.mnist_cnn { classes = 10 }
local variables = model.trainable_variables
local opt = mgpu.optimizers.Adam {}
opt:build(variables)

local grads, count = {}, 0
for i, v in ipairs(variables) do
  grads[i] = mgpu.rand(v:shape())
  count = count + v:count()
end
mgpu.eval(unpack(grads))
local update = mgpu.jit(function(list) opt:apply(list, variables) end)

-- Four arrays in, three of them written again: the traffic of the update and next to no arithmetic.
local arrays = {}
for i = 1, 4 do arrays[i] = mgpu.variable(mgpu.rand { count }) end
local traffic = mgpu.jit(function()
  local a, b, c, d = arrays[1]:value(), arrays[2]:value(), arrays[3]:value(), arrays[4]:value()
  arrays[1]:assign(a + d)
  arrays[2]:assign(b + d)
  arrays[3]:assign(c + d)
end)

local function time(fn, ...)
  local start = core.clock()
  for _ = 1, 5 do fn(...) end
  return (core.clock() - start) / 5 * 1000
end

local times = { {}, {} }
for i = 1, 3 + rounds do
  local a, b = time(update, grads), time(traffic)
  if i > 3 then
    times[1][i - 3], times[2][i - 3] = a, b
  end
end
table.sort(times[1])
table.sort(times[2])
local ours, bytes = times[1][math.ceil(rounds / 2)], times[2][math.ceil(rounds / 2)]
print(("Adam, %d parameters: %.2f ms; its bytes read and written: %.2f ms; ratio %.2f"):format(count, ours,
  bytes, ours / bytes))
