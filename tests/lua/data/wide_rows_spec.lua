-- Rows of many fields: every source, what is done to rows, and the limit.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local fields_of = require("mgpu.data.dataset").fields
local test, data = check.test, mgpu.data
local WIDE, ROWS, MOST = 100, 4, 1024

-- Field k of row i, both from 1, is 1000 k + i.
local function column(k, dtype)
  local list = {}
  for i = 1, ROWS do list[i] = 1000 * k + i end
  return mgpu.tensor(list, { dtype = dtype or "float32" })
end

local function columns(n)
  local list = {}
  for k = 1, n do list[k] = column(k) end
  return list
end

-- Asserts that the batches of the dataset hold all rows, in order.
local function expect_all(ds, n)
  local rows = 0
  for batch in ds:map(function(...) return { ... } end):iter() do
    check.equal(#batch, n)
    local size = batch[1]:shape()[1]
    for k = 1, n, 37 do
      for i = 1, size do check.equal(batch[k][i]:item(), 1000 * k + rows + i) end
    end
    rows = rows + size
  end
  check.equal(rows, ROWS)
end

test("from_tensors takes hundreds of tensors, with prefetch, cache, zip and concatenate", function()
  local ds = data.from_tensors(columns(WIDE))
  expect_all(ds:batch(3), WIDE)
  expect_all(ds:batch(3):prefetch(2, { threads = 2 }), WIDE)
  expect_all(ds:cache(check.path "wide.cache"):batch(2), WIDE)
  local parts, images = {}, {}
  for k = 1, WIDE do images[k] = mgpu.zeros({ ROWS, 2, 2 }, { dtype = "uint8" }) end
  for k = 1, WIDE do parts[k] = data.from_tensors { column(k) } end
  expect_all(data.zip(parts):batch(3), WIDE)
  expect_all(data.concatenate { ds:take(2), ds:skip(2) }:batch(2), WIDE)
  local x = data.from_tensors(images):augment { field = WIDE, horizontal_flip = true }
  check.equal(#fields_of(x), WIDE)
end)

test("filter, shuffle and a cached file of values take hundreds of fields", function()
  local ds = data.from_tensors(columns(WIDE)):filter(function(x) return x:gt(0) end)
  expect_all(ds:batch(3), WIDE)
  expect_all(ds:cache(check.path "wide.values"):batch(3), WIDE)
end)

test("csv reads hundreds of columns as fields", function()
  local lines, names = {}, {}
  for k = 1, WIDE do names[k] = "c" .. k end
  lines[1] = table.concat(names, ",")
  for i = 1, ROWS do
    local cells = {}
    for k = 1, WIDE do cells[k] = k % 50 == 0 and ("text %d %d"):format(k, i) or 1000 * k + i end
    lines[#lines + 1] = table.concat(cells, ",")
  end
  local path = check.path "wide.csv"
  check.write(path, table.concat(lines, "\n"))
  local ds = data.csv(path)
  check.equal(#ds.columns, WIDE)
  local rows = 0
  for row in ds:map(function(...) return { ... } end):iter() do
    rows = rows + 1
    check.equal({ row[99]:item(), row[100], row[1]:item() }, { 99000 + rows, "text 100 " .. rows, 1000 + rows })
  end
  check.equal(rows, ROWS)
end)

test("write_tfrecord writes and tfrecord reads hundreds of features", function()
  local path, schema = check.path "wide.tfrecord", {}
  for k = 1, WIDE do schema[k] = { ("feature %d"):format(k), k % 2 == 0 and "float32" or "int64" } end
  check.equal(data.write_tfrecord(path, data.from_tensors(columns(WIDE)), schema), ROWS)
  expect_all(data.tfrecord(path, schema):batch(3), WIDE)
end)

test("npy and npz take hundreds of arrays", function()
  local arrays, names, paths = {}, {}, {}
  for k = 1, WIDE do
    names[k] = "a" .. k
    arrays[names[k]] = column(k)
  end
  local path = check.path "wide.npz"
  core.store_save(path, arrays, {})
  expect_all(data.npz(path, names):batch(3), WIDE)
  local bytes = check.read "tests/golden/npy/float32.npy"
  check.write(check.path "one.npy", bytes)
  for k = 1, 40 do paths[k] = check.path "one.npy" end
  local count = select("#", data.npy(paths):iter()())
  check.equal(count, 40)
end)

test("more fields than a row can have are refused, by name", function()
  local one = column(1)
  local list, paths, schema = {}, {}, {}
  for k = 1, MOST + 1 do
    list[k], paths[k], schema[k] = one, "tests/golden/npy/float32.npy", { "f" .. k, "int64" }
  end
  check.raises(function() data.from_tensors(list) end, "from_tensors: got 1025 tensors; 1 to 1024 are possible",
    "usage")
  check.raises(function() data.npy(paths) end, "npy: got 1025 arrays; 1 to 1024 are possible", "usage")
  check.raises(function() data.tfrecord("none", schema) end, "tfrecord: 1025 fields; 1 to 1024 are possible", "usage")
  local path = check.path "wider.csv"
  check.write(path, ("1,"):rep(MOST) .. "1\n")
  check.raises(function() data.csv(path) end,
    "csv: 1025 columns as fields; at most 1024 are possible: name some with `columns`", "usage")
  check.equal(fields_of(data.csv(path, { label = -1 }))[1].shape, { MOST })
  list[MOST + 1] = nil
  local zipped = {}
  for k = 1, 700 do zipped[k] = data.from_tensors { one } end
  check.equal(select("#", data.from_tensors(list):iter()()), MOST)
  check.equal(#fields_of(data.zip(zipped)), 700)
end)
