-- Iterators that read only a share of each batch, as one of several processes does: `share` of ds:iter.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local test = check.test

local data = mgpu.data

-- The iterator of device number `first` (from 0) of `total` that share each batch.
local function shared(ds, first, total)
  return ds:iter(nil, "cpu:0", { share = { first = first, n = 1, total = total } })
end

-- fn() and how many rows it has read.
local function reads(fn)
  local before = core.rows_read()
  fn()
  return core.rows_read() - before
end

test("each row is read for one of the devices that share the batches", function()
  local ds = data.from_tensors({ mgpu.arange(22):reshape { 11, 2 } }):shuffle(11, 1):batch(4)
  for total = 1, 5 do
    local whole, seen = {}, {}
    for x in ds:iter { pass = 0, element = 0 } do whole[#whole + 1] = x end
    local n = reads(function()
      for first = 0, total - 1 do
        local i, share = 0, { first = first, n = 1, total = total }
        for x in ds:iter({ pass = 0, element = 0 }, "cpu:0", { share = share }) do
          i = i + 1
          check.equal(x:shape(), whole[i]:shape())
          local from, count = core.share_rows(share, x:shape()[1])
          for row = from + 1, from + count do
            check.equal(x[row], whole[i][row])
            seen[i .. " " .. row] = true
          end
        end
      end
    end)
    local rows = 0
    for _ in pairs(seen) do rows = rows + 1 end
    check.equal({ n, rows }, { 11, 11 })
  end
end)

test("threads that read ahead keep to the share", function()
  local ds = data.from_tensors({ mgpu.arange(1000) }):batch(100):prefetch(3, { threads = 3 })
  check.equal(reads(function() for x in shared(ds, 2, 3) do check.equal(x[100]:item() % 100, 99) end end), 330)
end)

test("a batch of windows is shared by its windows", function()
  local ds = data.from_tensors({ mgpu.arange(24) }):window(3):batch(4)
  check.equal(reads(function()
    for x in shared(ds, 1, 2) do
      check.equal(x:shape(), { 4, 3 })
      check.equal(x[4][3]:item() % 12, 11)
    end
  end), 12)
end)

test("where sizes vary, the first row gives the batch its shape", function()
  local sizes = { 3, 3, 3, 2 }
  local path = check.path "rows.tfrecord"
  local schema = { { "x", "float32", shape = { -1 } } }
  data.write_tfrecord(path, (function()
    local i = 0
    return function()
      i = i + 1
      return sizes[i] and { mgpu.full({ sizes[i] }, i) }
    end
  end)(), schema)
  local ds = data.tfrecord(path, schema)
  for first, row in pairs { [0] = 1, [2] = 3 } do
    local n = reads(function()
      local x = shared(ds:take(3):batch(3), first, 3)()
      check.equal(x:shape(), { 3, 3 })
      check.equal(x[row], mgpu.full({ 3 }, row))
    end)
    check.equal(n, first == 0 and 1 or 2)
  end
  check.equal(shared(ds:take(2):batch(2), 2, 3)():shape(), { 2, 3 }) -- a device without rows
  check.raises(function() shared(ds:batch(4), 3, 4)() end, "rows 1 and 4 cannot be in one batch")
end)

-- ---- maps of rows -------------------------------------------------------------------------------

-- Goes through a pass over ds for each of `total` devices. Fails unless the rows of each are
-- those of `whole`, and its random numbers end where they do for all rows. RETURNS the rows read.
local function check_shares(ds, total, whole, random)
  local rows = 0
  for first = 0, total - 1 do
    local i, share = 0, { first = first, n = 1, total = total }
    mgpu.seed(3)
    rows = rows + reads(function()
      for x, y in ds:iter({ pass = 0, element = 0 }, "cpu:0", { share = share }) do
        i = i + 1
        check.equal(x:shape(), whole[i].x:shape())
        local from, count = core.share_rows(share, x:shape()[1])
        for row = from + 1, from + count do check.equal({ x[row], y[row] }, { whole[i].x[row], whole[i].y[row] }) end
      end
    end)
    check.equal({ i, core.rng_state().base }, { #whole, random })
  end
  return rows
end

-- The batches of ds, and the base of the random numbers after them.
local function whole_batches(ds)
  local list = {}
  mgpu.seed(3)
  for x, y in ds:iter { pass = 0, element = 0 } do list[#list + 1] = { x = x, y = y } end
  return list, core.rng_state().base
end

local function pairs_of(n) return data.from_tensors { mgpu.arange(2 * n):reshape { n, 2 } } end

local function noisy(x) return x + mgpu.rand { 2 }, x:sum() end

test("a map of rows runs for the rows of its device only, with the random numbers of the whole", function()
  for _, make in ipairs { function(ds) return ds:batch(4) end,
    function(ds) return ds:map(function(x, y) return x * mgpu.rand { 2 }, y end):shuffle(5, 1):batch(4):prefetch(2) end,
    function(ds) return ds:window(2):batch(3) end } do
    local function fresh() return make(pairs_of(22):map(noisy)) end
    for total = 1, 5 do
      local ds = fresh()
      local whole, random = whole_batches(ds)
      local rows = check_shares(ds, total, whole, random) -- the maps are known from the pass before
      -- 22 rows, and one row, or window, for each batch of a device without rows
      if total < 3 then check.equal(rows, 22) else check.truthy(rows >= 22 and rows < 22 * 2, rows) end
      check_shares(fresh(), total, whole, random)
    end
  end
end)

test("a map of rows is not cut if a call depends on those before it", function()
  local count = mgpu.variable(mgpu.zeros {})
  local calls = 0
  for _, fn in ipairs {
    function(x) count:assign(count:value() + 1); return x + count:value(), x end,
    function(x) calls = calls + 1; return x + calls, x end } do
    local ds = pairs_of(12):map(fn):batch(4)
    for _ = 1, 2 do
      check.equal(reads(function()
        for x in shared(ds, 1, 3) do check.truthy(x:shape()[1] == 4) end
      end), 12)
    end
  end
  check.equal({ count:value():item(), calls }, { 24, 24 })
end)

test("a map that begins to draw other random numbers is made whole once, then cut again", function()
  local noise = 0
  local function fn(x)
    for _ = 1, noise do x = x + mgpu.rand { 2 } end
    return x, x
  end
  local function pass(iterate)
    local list = {}
    noise = 0
    mgpu.seed(3)
    for x in iterate() do
      list[#list + 1] = x
      noise = #list >= 3 and 2 or 0
    end
    return list, core.rng_state().base
  end
  local ds = pairs_of(32):map(fn):batch(4)
  local whole, random = pass(function() return ds:iter { pass = 0, element = 0 } end)
  local own, own_random, rows
  rows = reads(function()
    own, own_random = pass(function()
      return ds:iter({ pass = 0, element = 0 }, "cpu:0", { share = { first = 1, n = 1, total = 2 } })
    end)
  end)
  check.equal(own_random, random)
  for i, x in ipairs(whole) do
    for row = 3, 4 do check.equal(own[i][row], x[row]) end
  end
  check.truthy(rows < 32, rows)
end)

test("text, the first batch of a map of rows and what a map of batches makes are read whole", function()
  local path = check.path "lines.txt"
  check.write(path, "a\nb\nc\nd\n")
  check.equal(reads(function() check.equal(shared(data.text_lines(path):batch(4), 1, 2)()[1], "a") end), 4)
  local ds = data.from_tensors({ mgpu.arange(4) })
  check.equal(shared(ds:batch(4):map(function(x) return x + 1 end), 1, 2)(), mgpu.tensor { 1, 2, 3, 4 })
  check.equal(shared(ds:map(function(x) return x + 1 end):batch(4), 1, 2)(), mgpu.tensor { 1, 2, 3, 4 })
  check.equal(shared(ds, 1, 2)():item(), 0) -- elements that are rows
  local is_shared = {}
  for i, each in ipairs { ds:batch(4), ds, ds:batch(4):map(function(x) return x end) } do
    is_shared[i] = shared(each, 1, 2):is_shared()
  end
  check.equal(is_shared, { true, false, false })
end)

test("a share names devices that there are", function()
  local ds = data.from_tensors({ mgpu.arange(4) }):batch(2)
  for _, numbers in ipairs { { 2, 1, 2 }, { 0, 3, 2 }, { 0, 1, 1025 } } do
    local share = { first = numbers[1], n = numbers[2], total = numbers[3] }
    check.raises(function() ds:iter(nil, "cpu:0", { share = share }) end,
      "a share of a batch: %d devices from number %d on, of %d+; at most 1024 are possible")
  end
end)
