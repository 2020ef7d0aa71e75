-- mgpu.explain: the plan of a training step before the first one, for devices this machine may not have.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function model()
  local m = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu" }, L.Dense { 3 } }
  m:compile { optimizer = "adam", loss = "mse" }
  return m
end

test("explain gives rows and bytes for each of four GPUs that this machine does not have", function()
  local e = mgpu.explain(model(), { devices = "cuda:0-3", batch_size = 10, samples = 23 })
  local rows, last = {}, {}
  for i, d in ipairs(e.devices) do rows[i], last[i] = d.rows, d.last_rows end
  check.equal(rows, { 3, 3, 2, 2 })
  check.equal(last, { 1, 1, 1, 0 })
  check.equal(e.devices[1].name, "cuda:0")
  check.equal(e.devices[1].weights, (6 * 8 + 8 + 8 * 3 + 3) * 4)
  check.equal(e.devices[1].gradients, e.devices[1].weights)
  check.equal(e.devices[1].optimizer, 2 * e.devices[1].weights + 16) -- two slots a weight, rate, step count
  check.truthy(e.devices[1].collectives >= 4)
  check.truthy(e.devices[1].memory > 0)
  check.matches(tostring(e), "a training step on 4 devices, mirrored, batch 10 (the last has 3)")
end)

test("explain trains nothing and moves nothing", function()
  local m = model()
  local before = m:get_weights()[1]:totable()
  mgpu.explain(m, { devices = { "cuda:0", "cuda:1" } })
  check.equal(m:get_weights()[1], before)
  check.equal(tonumber(m.optimizer.iterations:item()), 0)
  m:fit(mgpu.ones { 4, 6 }, mgpu.ones { 4, 3 }, { verbose = 0 })
end)

test("central keeps weights and optimizer state on one device only", function()
  local e = mgpu.explain(model(), { devices = { "cuda:0", "cuda:1" }, strategy = "central" })
  check.equal({ e.devices[1].weights, e.devices[2].weights }, { 0, 0 })
  check.truthy(e.devices[3].weights > 0 and e.devices[3].rows == 0)
end)

test("the central device can be one of the devices that compute", function()
  local e = mgpu.explain(model(), { devices = "cpu:0-1", strategy = "central" })
  check.equal(#e.devices, 2)
  check.equal({ e.devices[1].name, e.devices[1].rows, e.devices[2].weights }, { "cpu:0", 16, 0 })
  check.truthy(e.devices[1].weights > 0)
  local m = model()
  m:compile { optimizer = "adam", loss = "mse", devices = { "ref:0", "ref:1" }, strategy = "central" }
  e = mgpu.explain(m, { strategy = "central" })
  check.equal({ #e.devices, e.devices[3].name }, { 3, "cpu:0" }) -- the weights are on a third device
end)

test("a step on one device has no all-reduce", function()
  check.equal(mgpu.explain(model(), { devices = "cpu:0" }).devices[1].collectives, 0)
end)

test("explain refuses a model or devices that it cannot explain, with the reason", function()
  check.raises(function() mgpu.explain(5) end, "must be a model", "usage")
  check.raises(function() mgpu.explain(mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }) end,
    "model:compile", "usage")
  check.raises(function() mgpu.explain(model(), { devices = { { "cpu:0" }, { "cpu:1" } } }) end,
    "entry 1 is a table", "usage")
  check.raises(function() mgpu.explain(model(), { batchsize = 2 }) end, '"batch_size"', "usage")
end)

test("explain takes devices, strategy and bn from compile", function()
  local m = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 }, L.BatchNormalization {} }
  m:compile { loss = "mse", devices = { "cpu:0", "cpu:1" }, strategy = "central", bn = "local" }
  local e = mgpu.explain(m)
  check.equal({ e.strategy, e.bn, e.devices[2].name, e.devices[2].weights }, { "central", "local", "cpu:1", 0 })
  check.equal(mgpu.explain(m, { strategy = "mirrored", bn = "sync" }).bn, "sync")
end)

test("explain knows asynchronous devices: whole batches, weights pulled and gradients pushed", function()
  local m = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
  m:compile { loss = "mse", devices = { "cpu:0", "cpu:1", "cpu:2" }, strategy = "async" }
  local e = mgpu.explain(m, { batch_size = 8, samples = 21 })
  local home, other = e.devices[1], e.devices[3]
  check.equal({ e.strategy, home.rows, other.rows, other.last_rows }, { "async", 8, 8, 5 })
  check.equal({ home.transfer_bytes, other.transfer_bytes }, { 0, 2 * 15 * 4 })
  check.equal({ home.weights, other.weights, other.optimizer, other.collectives }, { 60, 60, 0, 0 })
  check.truthy(home.optimizer >= 60)
  check.matches(tostring(e), "async")
end)

test("explain shows what each device of a group holds", function()
  local m = mgpu.Sequential { L.Input { 4 }, L.Dense { 8, device = 1 }, L.Dense { 1, device = 2 } }
  m:compile { loss = "mse", devices = { { "cpu:0", "cpu:1" }, { "cpu:2", "cpu:3" } } }
  local bytes = {}
  for _, d in ipairs(mgpu.explain(m, { batch_size = 10 }).devices) do bytes[d.name] = { d.rows, d.weights } end
  check.equal(bytes, { ["cpu:0"] = { 5, 160 }, ["cpu:2"] = { 5, 160 }, ["cpu:1"] = { 5, 36 }, ["cpu:3"] = { 5, 36 } })
end)
