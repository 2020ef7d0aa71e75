-- Batches of datasets on the GPU: the threads of a stream copy them there ahead of use. With steps that work on
-- elements as values, such as filter, tensors are stacked in host memory and the batches are on the GPU again.
require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

-- A table of 300 KiB a row, more than a copy that the driver buffers itself, and a column; both in host memory.
local ROWS, COLUMNS = 12, 75 * 1024
local function rows()
  local x = mgpu.arange(ROWS * COLUMNS, { dtype = "int32", device = "cpu:0" }):reshape { ROWS, COLUMNS }
  local y = mgpu.arange(ROWS, { dtype = "int32", device = "cpu:0" })
  mgpu.eval(x, y)
  return mgpu.data.from_tensors { x, y }
end

-- Asserts that the pass has these rows in this order, as batches on a device.
local function check_pass(it, order, device)
  local at = 0
  for x, y in it do
    check.equal({ x:device(), y:device() }, { device, device })
    for i, row in ipairs(y:totable()) do
      at = at + 1
      check.equal(row, order[at])
      check.equal({ x[i][1]:item(), x[i][COLUMNS]:item() }, { row * COLUMNS, (row + 1) * COLUMNS - 1 })
    end
  end
  check.equal(at, #order)
end

local function order_of(ds)
  local list = {}
  for _, y in ds:iter { pass = 0, element = 0 } do
    for _, row in ipairs(y:totable()) do list[#list + 1] = row end
  end
  return list
end

test("batches are on the GPU, ahead of use or not", function()
  local ds = rows():shuffle(ROWS, 3):batch(5)
  local order = order_of(ds)
  for depth = 0, 3 do
    for threads = 1, 3 do
      local ahead = depth == 0 and ds or ds:prefetch(depth, { threads = threads })
      check_pass(ahead:iter({ pass = 0, element = 0 }, "cuda:0"), order, "cuda:0")
    end
  end
end)

test("rows of tensors on the GPU come back there", function()
  local x = mgpu.arange(6, { device = "cuda:0" }):reshape { 3, 2 }
  local ds = mgpu.data.from_tensors { x }:batch(2):prefetch(2)
  local first = ds:iter()()
  check.equal(first:device(), "cuda:0")
  check.equal(first:totable(), { { 0, 1 }, { 2, 3 } })
end)

test("a pass on the GPU may end early, and its batches are used while more are copied", function()
  local ds = rows():batch(2):cycle():prefetch(3, { threads = 2 })
  local step = mgpu.jit(function(x, y) return (x % 1000):sum() + y:sum() end)
  local on_host, on_gpu = {}, {}
  for i, list in ipairs { on_host, on_gpu } do
    local it = ds:iter({ pass = 0, element = 0 }, i == 1 and "cpu:0" or "cuda:0")
    for _ = 1, 8 do list[#list + 1] = step(it()):item() end
    it:close()
  end
  check.equal(on_gpu, on_host)
end)

test("a GPU without memory is an error at the next batch, which succeeds when there is memory again", function()
  local script = check.path "short.lua"
  check.write(script, [[
local mgpu = require "mgpu"
require "mgpu.core".default_device "cpu:0"
local x = mgpu.zeros { 8, 64 * 1024 } -- 256 KiB a row
mgpu.eval(x)
local ds = mgpu.data.from_tensors { x }:batch(4):prefetch(2)
local it = ds:iter(nil, "cuda:0")
local held = it()
print(pcall(it))
print(mgpu.error_code(), it:position().element)
held:free()
print(it():shape()[1], it())
]])
  local out = check.run(("MGPU_MEMORY=cuda:0=1500K %s %s"):format(check.program, script))
  check.matches(out, "false\t[^\n]*cuda:0: out of memory")
  check.matches(out, "\noom\t1\n4\tnil\n")
end)

test("core.stream puts batches together in host memory only", function()
  local source = core.source_tensors { mgpu.arange(3, { device = "cpu:0" }) }
  check.raises(function() core.stream(source, {}, { devices = { "cpu:0" }, host = "cuda:0" }) end,
    "cuda:0 is not in the host's memory", "usage")
end)

-- ---- steps that work on elements as values ----

dofile "tests/lua/data/flow_golden_spec.lua"
dofile "tests/lua/data/flow_cache_spec.lua"

test("batches, their rows, and cached elements are where the elements were", function()
  local ds = mgpu.data.from_tensors { mgpu.arange(6), mgpu.arange(6):to "cpu" }:filter(function(x) return x:ge(0) end)
  local path = check.path "devices.cache"
  for _, chain in ipairs { ds, ds:batch(3), ds:padded_batch(2), ds:batch(3):unbatch(), ds:window(2), ds:cache(path) } do
    local x, y = chain:iter()()
    check.equal({ x:device(), y:device() }, { "cuda:0", "cpu:0" })
  end
end)

test("a dataset with a filter trains on the GPU as on ref", function()
  local fixtures = require "fixtures"
  local function loss(device)
    local x, y = fixtures.line(20)
    local ds = mgpu.data.from_tensors { x:to(device), y:to(device) }:filter(function(row) return row:sum():gt(0.5) end)
    return fixtures.linear { devices = device }:fit(ds:shuffle(5, 1):batch(4), { epochs = 2, verbose = 0 }).history.loss
  end
  check.near(loss "cuda:0", { unpack(loss "ref:0") }, 1e-5) -- float32 sums in another order
end)
