-- The timeline of a step on several GPUs, from the speeds that are stated: mgpu.explain(...):timeline().
local check = require "check"
local mgpu = require "mgpu"
local timeline = require "mgpu.parallel.timeline"

local test = check.test
local L = mgpu.layers

local FAST = 1e300
-- An operation a second, a byte a second between devices of a host, ten seconds for each between hosts.
local SLOW = { compute = 1, memory = FAST, link = 1, network = 0.1, latency = 1 / FAST }

local function compute(seconds, awaits)
  return { op = "matmul", flops = seconds, bytes = 0, collective = 0, sent = 0, awaits = awaits or 0 }
end

local function collective(number, op, sent, awaits)
  return { op = op, flops = 0, bytes = 0, collective = number, sent = sent, awaits = awaits or 0 }
end

local function spans(list)
  local text = {}
  for i, s in ipairs(list) do text[i] = ("%g-%g"):format(s[1], s[2]) end
  return table.concat(text, " ")
end

test("a step goes on beside a sum until it needs the result", function()
  -- a sum of 4 bytes over two devices takes 4 seconds, that of 8 bytes at the end 8
  local steps = { compute(1), collective(1, "all_reduce", 4), compute(3), compute(2, 1) }
  local t = timeline.simulate(steps, 2, 1, SLOW)
  check.equal(spans(t.computing), "0-1 1-4 5-7")
  check.equal(spans(t.exchanging), "1-5 7-15")
  check.near({ t.compute, t.communication, t.waiting, t.seconds }, { 6, 12, 9, 15 }, 1e-9)
  t = timeline.simulate(steps, 1, 1, SLOW)
  check.equal(spans(t.computing), "0-1 1-4 4-6")
  check.equal({ spans(t.exchanging), t.seconds }, { "", 6 })
end)

test("collectives follow one another, and those of a bucket are one", function()
  local steps = { compute(1), collective(1, "all_reduce", 4), compute(1), collective(2, "all_reduce", 1),
    collective(2, "all_reduce", 1), compute(1, 1), compute(1, 2) }
  local t = timeline.simulate(steps, 2, 1, SLOW)
  check.equal(spans(t.exchanging), "1-5 5-7 8-16")
  check.equal(spans(t.computing), "0-1 1-2 5-6 7-8")
end)

test("sums and gathers take the time of rings within hosts and between them, and of their messages", function()
  local function seconds(op, n, hosts, speeds)
    local t = timeline.simulate({ collective(1, op, 8) }, n, hosts, setmetatable(speeds, { __index = SLOW }))
    return t.exchanging[1][2]
  end
  check.near(seconds("all_reduce", 4, 1, {}), 2 * 3 / 4 * 8, 1e-9)
  check.near(seconds("all_reduce", 8, 2, {}), 2 * 3 / 4 * 8 + 2 * 1 / 2 * 8 * 10, 1e-9)
  check.near(seconds("all_gather", 4, 1, {}), 3 * 8, 1e-9)
  check.near(seconds("all_gather", 8, 2, {}), 3 * 8 + 1 * 4 * 8 * 10, 1e-9)
  check.near(seconds("all_reduce", 8, 1, { link = FAST, latency = 1 }), 2 * 3, 1e-9)
  check.near(seconds("all_gather", 8, 1, { link = FAST, latency = 1 }), 3, 1e-9)
end)

local STATED = { compute = 3e13, memory = 1e12, link = 1e11, network = 1e10, latency = 2e-5 }

local function timelines(name, shape, classes)
  local m = mgpu.models[name] { input_shape = shape, classes = classes }
  m:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  return mgpu.explain(m, { devices = "cuda:0", batch_size = 128, speeds = STATED }):timeline()
end

-- 30 Tflop/s and 1 TB/s of memory, 100 GB/s between GPUs, 20 us a message, 128 rows on each GPU.
for name, given in pairs { mnist_cnn = { { 28, 28, 1 }, 10, 7.2 }, resnet50 = { { 224, 224, 3 }, 1000, 7.6 } } do
  test(("weak scaling of %s: at least %.1f times as many rows a second on 8 GPUs"):format(name, given[3]), function()
    local list = timelines(name, given[1], given[2])
    local counts = {}
    for i, t in ipairs(list) do
      counts[i] = t.devices
      check.near(t.seconds, t.compute + t.waiting, 1e-9)
      check.near(t.speedup, t.devices * list[1].seconds / t.seconds, 1e-9)
      check.truthy(t.speedup <= t.devices and (i == 1 or t.speedup > list[i - 1].speedup), t.speedup)
      check.equal(t.hosts, math.ceil(t.devices / 8))
      for k = 2, #t.exchanging do
        check.truthy(t.exchanging[k][1] >= t.exchanging[k - 1][2] - 1e-12, "collectives overlap")
      end
    end
    check.equal(counts, { 1, 2, 4, 8, 16, 32, 64 })
    check.truthy(list[4].speedup >= given[3], list[4].speedup)
  end)
end

local function small()
  local m = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 }, L.BatchNormalization {}, L.Dense { 1 } }
  m:compile { optimizer = "sgd", loss = "mse" }
  return m
end

test("a timeline prints what it assumes, and a drawing for each number of GPUs", function()
  local text = tostring(mgpu.explain(small(), { devices = "cuda:0", batch_size = 8,
    speeds = { link = 5e10 } }):timeline { devices = { 1, 16 } })
  check.matches(text, "^8 rows on each GPU, 8 GPUs a host")
  check.matches(text, "a GPU 30 Tflop/s and 1 TB/s of memory, links 50 GB/s in a host and 10 GB/s between hosts, 20 us")
  check.matches(text, "  1 GPU +[%d.]+ ms a step,  1.00 times")
  check.matches(text, " 16 GPUs [^\n]*\n    computing  |[#=.-]+|\n    exchanging |[#=.-]+|$")
  local _, rows = text:gsub("|[#=.-]+|", function(row) check.equal(#row, 66) end)
  check.equal(rows, 3)
end)

test("a timeline refuses what it cannot draw, with the reason", function()
  local function refused(given, of, message)
    check.raises(function() mgpu.explain(small(), given):timeline(of) end, message, "usage")
  end
  refused({ devices = "cuda:0-1", strategy = "central" }, nil, 'for strategy "mirrored"')
  refused({ devices = "cuda:0" }, { devices = {} }, "must be a list of numbers of GPUs")
  refused({ devices = "cuda:0" }, { devices = { 1, 2.5 } }, "whole numbers from 1 to 1024, got 2.5")
  refused({ devices = "cuda:0" }, { devices = { 2000 } }, "whole numbers from 1 to 1024, got 2000")
  refused({ devices = "cuda:0" }, { hosts = 2 }, 'unknown option "hosts"')
end)
