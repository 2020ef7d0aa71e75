-- mgpu.explain: the plan of a training step before the first one, for devices this machine may not have.

local check = require "check"
local core = require "mgpu.core"
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

-- ---- clusters -----------------------------------------------------------------------------------

test("explain plans 512 devices of 64 hosts, and lists those with as many rows as one entry", function()
  local e = mgpu.explain(model(), { devices = 512, hosts = 64, batch_size = 1500, samples = 1600 })
  local list = {}
  for i, d in ipairs(e.devices) do list[i] = { d.name, d.count, d.rows, d.last_rows } end
  check.equal(list, { { "1-476", 476, 3, 1 }, { "477-512", 36, 2, 0 } })
  local few = mgpu.explain(model(), { devices = "cuda:0-3", batch_size = 12 }).devices[1]
  for _, name in ipairs { "weights", "gradients", "optimizer", "collectives", "collective_bytes", "memory" } do
    check.equal(e.devices[1][name], few[name], name) -- three rows, as there
  end
  check.matches(tostring(e), "a training step on 512 devices of 64 hosts, mirrored, batch 1500")
end)

test("a cluster of one device has no sums, and one of four as many bytes as four devices of one host", function()
  check.equal(mgpu.explain(model(), { devices = 1, hosts = 1 }).devices[1].collectives, 0)
  local m = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 }, L.BatchNormalization {} }
  m:compile { loss = "mse" }
  local function bytes(given) return mgpu.explain(m, given).devices[1].collective_bytes end
  check.equal(bytes { devices = 4, hosts = 2 }, bytes { devices = "cuda:0-3" })
  check.equal(bytes { devices = 4, hosts = 2, bn = "local" }, bytes { devices = "cuda:0-3", bn = "local" })
end)

test("a step that was planned for devices that are not there refuses to run", function()
  local x = mgpu.ones { 8, 2 }
  local step = core.jit(function(t) return t:sum() end, { devices = { "null:0" }, absent = 3 })
  step:prepare(x)
  check.raises(function() step(x) end, "a step of devices that are not there cannot run", "usage")
  check.raises(function() core.jit(print, { devices = { "null:0" }, absent = 1024 }) end,
    "at most 1024 devices can share a step, got 1025", "usage")
end)

-- ---- forecasts ----------------------------------------------------------------------------------

local FAST = 1e300 -- of what a test leaves out

local function seconds(layers, speeds, more)
  local m = mgpu.Sequential(layers)
  m:compile { optimizer = "sgd", loss = "mse" }
  local given = { devices = "cpu:0", batch_size = 8, speeds = { compute = FAST, memory = FAST, link = FAST,
    network = FAST, latency = 1 / FAST } }
  for name, value in pairs(speeds) do given.speeds[name] = value end
  for name, value in pairs(more or {}) do given[name] = value end
  return mgpu.explain(m, given).forecast
end

test("a forecast counts the multiplications of layers and their gradients", function()
  local dense = { L.Input { 4 }, L.Dense { 3 } }
  check.near(seconds(dense, { compute = 2 }).compute, 2 * 8 * 4 * 3, 1e-9) -- forward, and of the weights
  local two = { L.Input { 4 }, L.Dense { 5 }, L.Dense { 3 } }
  check.near(seconds(two, { compute = 2 }).compute, 2 * 8 * 4 * 5 + 3 * 8 * 5 * 3, 1e-9)
  local conv = { L.Input { 6, 6, 2 }, L.Conv2D { 3, 3, strides = 2 }, L.Conv2D { 5, 2 } }
  check.near(seconds(conv, { compute = 2 }).compute, 8 * (2 * 2 * 2 * 3 * 9 * 2 + 3 * 5 * 4 * 3), 1e-9)
end)

test("a forecast adds up gradients within hosts and between them, beside two thirds of the computation", function()
  local dense, cluster = { L.Input { 4 }, L.Dense { 3 } }, { devices = 8, hosts = 2 }
  local bytes = 15 * 4 + 4 -- and the loss
  local f = seconds(dense, { link = 2, network = 5 }, cluster)
  check.near(f.communication, 2 * 3 / 4 * bytes / 2 + 2 * 1 / 2 * bytes / 5, 1e-9)
  check.equal(f.bound, "communication")
  check.near(f.seconds, f.communication, 1e-9)
  f = seconds(dense, { link = 2, network = 5, compute = 0.01 }, cluster)
  check.equal({ f.bound, f.hidden }, { "compute", f.communication })
  check.near(f.seconds, f.compute, 1e-9)
  f = seconds(dense, { network = 5, compute = 2 * 24 / 9 }, cluster) -- a row on each device: 9 seconds
  check.near({ f.compute, f.hidden, f.seconds }, { 9, 6, 9 + bytes / 5 - 6 }, 1e-9)
end)

test("a forecast says when rows are loaded too slowly, and what more devices would bring", function()
  local dense = { L.Input { 4 }, L.Dense { 3 } }
  local f = seconds(dense, { input = 2 }, { devices = 4, hosts = 4 })
  check.equal({ f.bound, f.seconds }, { "input", 1 })
  check.near(f.advice.same_batch, 2, 1e-9) -- twice the hosts load half of the rows each
  f = seconds(dense, { compute = 2 }, { devices = 4, hosts = 2 })
  check.near({ f.advice.same_batch, f.advice.same_rows }, { 2, 2 }, 1e-9)
  f = seconds(dense, { network = 1 }, { devices = 4, hosts = 2 })
  check.near({ f.advice.same_batch, f.advice.same_rows }, { 2 / 3, 4 / 3 }, 1e-9)
end)

test("a forecast names the speeds that it assumes", function()
  local e = tostring(mgpu.explain(model(), { devices = 512, hosts = 64, batch_size = 512 }))
  check.matches(e, "bound by communication: ")
  check.matches(e, "assumed, not measured: a device 30 Tflop/s and 1 TB/s of memory, links 100 GB/s in a host")
  e = tostring(mgpu.explain(model(), { devices = "cuda:0-3", speeds = { link = 3e9, input = 2e4 } }))
  check.matches(e, "with the given speeds, else assumed: ")
  check.matches(e, "links 3 GB/s in a host")
  check.matches(e, "20 krows/s loaded by a host")
  check.equal(mgpu.explain(model(), { devices = "cuda:0-3" }).forecast, nil)
end)

test("explain refuses clusters and speeds that it cannot forecast, with the reason", function()
  local function refused(given, message)
    check.raises(function() mgpu.explain(model(), given) end, message, "usage")
  end
  refused({ devices = 10, hosts = 4 }, "a multiple of 4, at most 1024")
  refused({ devices = 2048, hosts = 4 }, "a multiple of 4, at most 1024")
  refused({ devices = "cuda:0-3", hosts = 4 }, "devices must be the number of all of them")
  refused({ devices = 8, hosts = 4, strategy = "central" }, 'with hosts, the strategy is "mirrored"')
  refused({ devices = 8, hosts = 4, speeds = { disk = 1 } }, "speeds: there is no disk")
  refused({ devices = 8, hosts = 4, speeds = { link = -1 } }, "speeds: link must be a number above 0, got -1")
  refused({ devices = "cpu:0-1", strategy = "async", speeds = { link = 1 } }, "there is no forecast")
end)
