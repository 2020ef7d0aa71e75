-- Calls for little work: what a call of a tiny model costs besides its arithmetic, in microseconds.
--
--     build/mgpulua tests/bench/small_calls.lua [--rounds 41] [--rows 1] [--batch 32]
--
-- The net is a dense network of two layers. Predictions have --rows rows, steps --batch. The calls take turns; of each
-- it prints the fastest round, and that at a quarter of all. "An epoch" is one of 100 of a fit of one step an epoch.

local core = require "mgpu.core"
local mgpu = require "mgpu"

local options = { rounds = "41", rows = "1", batch = "32" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end
local rounds, batch = tonumber(options.rounds), tonumber(options.batch)

local L = mgpu.layers
mgpu.seed(1)
local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 16, activation = "relu" },
  L.Dense { 3, activation = "softmax" } }
model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
local x, xs, ids = mgpu.rand { tonumber(options.rows), 4 }, mgpu.rand { batch, 4 }, {}
core.eval(x, xs)
for i = 1, batch do ids[i] = i % 3 end
local ys = mgpu.tensor(ids, { dtype = "int32" })
local f = mgpu.compile_inference(model)

local CALLS = {
  { "compile_inference: f(x)", 100, function() f(x) end },
  { "model(x)", 100, function() model(x) end },
  { "model(x):totable()", 100, function() model(x):totable() end },
  { "model:predict(x)", 100, function() model:predict(x) end },
  { "model:test_on_batch(x, y)", 40, function() model:test_on_batch(xs, ys) end },
  { "model:train_on_batch(x, y)", 40, function() model:train_on_batch(xs, ys) end },
  { "model:evaluate(x, y)", 10, function() model:evaluate(xs, ys, { verbose = 0 }) end },
  { "model:fit(x, y), one step", 10, function() model:fit(xs, ys, { verbose = 0 }) end },
  { "an epoch of one step", 100, function() model:fit(xs, ys, { verbose = 0, epochs = 100 }) end, whole = true },
}

local function time(call)
  local n, fn = call[2], call[3]
  local start = core.clock()
  for _ = 1, call.whole and 1 or n do fn() end
  return (core.clock() - start) / n * 1e6
end

for round = -2, rounds do
  for _, call in ipairs(CALLS) do
    local us = time(call)
    call.times = call.times or {}
    if round > 0 then table.insert(call.times, us) end
  end
end
print(("%-30s %10s %10s"):format("us a call", "fastest", "quarter"))
for _, call in ipairs(CALLS) do
  table.sort(call.times)
  print(("%-30s %10.1f %10.1f"):format(call[1], call.times[1], call.times[math.ceil(rounds / 4)]))
end
