-- Datasets of rows: texts, caches of rows, zip and concatenate row by row, and the devices of the values.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local from_tensors = mgpu.data.from_tensors

local function numbers(n) return mgpu.arange(n, { dtype = "int32" }) end

-- Uint8 images {n, 4, 4, 1} of which no two rows are equal, nor mirror images.
local function images(n)
  local x = (mgpu.arange(n * 16) % 251):to "uint8":reshape { n, 4, 4, 1 }
  mgpu.eval(x)
  return x
end

-- The elements of a pass, or of the rest of one, as Lua values.
local function listed(ds, position)
  local list, it = {}, ds:iter(position)
  while true do
    local element = { it() }
    if element[1] == nil then return list end
    for i, value in ipairs(element) do
      if core.is_tensor(value) then element[i] = value:totable() end
      if type(value) == "table" then element[i] = { unpack(value) } end
    end
    list[#list + 1] = #element == 1 and element[1] or element
  end
end

-- Whether its elements are chosen by row numbers.
local function is_rows(ds) return rawget(ds, "source") ~= nil end

local function texts()
  local path = check.path "texts.csv"
  check.write(path, "name,n\none,1\n,2\nthree,3\n")
  return mgpu.data.csv(path, { missing = { name = "" } })
end

-- ---- texts ----------------------------------------------------------------------------------------

test("texts are strings, and in batches arrays of strings", function()
  check.equal(listed(texts()), { { "one", 1 }, { "", 2 }, { "three", 3 } })
  check.equal(listed(texts():batch(2)), { { { "one", "" }, { 1, 2 } }, { { "three" }, { 3 } } })
  local names = texts():batch(3):iter()()
  check.equal(tostring(names), "batch of 3 strings")
  for _, threads in ipairs { 1, 2, 4 } do
    check.equal(listed(texts():shuffle(3, 1):batch(2):prefetch(2, { threads = threads })),
      listed(texts():shuffle(3, 1):batch(2)))
  end
end)

test("a map gets texts, and its results are batched", function()
  local ds = texts():map(function(name, n) return name .. "!", n * 2, #name end)
  check.equal(listed(ds), { { "one!", 2, 3 }, { "!", 4, 0 }, { "three!", 6, 5 } })
  check.equal(listed(ds:batch(2)), { { { "one!", "!" }, { 2, 4 }, { 3, 0 } }, { { "three!" }, { 6 }, { 5 } } })
end)

test("an error in a map names the function and the element", function()
  local it = texts():batch(2):map(function(_, n) return n:reshape { 2 } end):iter()
  it()
  check.raises(it, "(map: the function at tests/lua/data/rows_spec.lua:61, element 2)", "usage")
end)

-- ---- files that cannot be read --------------------------------------------------------------------

-- A folder of n gray PNG files, each of one shade of gray: its number. RETURNS its path and the path of the
-- file named bad.
local function pictures(n, bad)
  local top = check.path "pictures"
  core.make_folder(top)
  for i = 1, n do
    local x = mgpu.full({ 8, 8, 1 }, i, { dtype = "uint8" })
    check.write(("%s/%02d.png"):format(top, i), mgpu.image.encode_png(x))
  end
  return top, ("%s/%02d.png"):format(top, bad)
end

test("a damaged file ends its batch only, with its name, whatever the number of threads", function()
  if not pcall(mgpu.image.encode_png, mgpu.zeros({ 1, 1 }, { dtype = "uint8" })) then check.skip "no libpng" end
  local top, bad = pictures(12, 8)
  local good = check.read(bad)
  local ds = mgpu.data.image_folder(top, { labels = "none", channels = 1 }):batch(3)
  for threads = 0, 4 do
    check.write(bad, good:sub(1, #good - 20) .. ("x"):rep(20))
    local it = (threads == 0 and ds or ds:prefetch(3, { threads = threads })):iter()
    local shades = {}
    local function take(n)
      for _ = 1, n do
        for _, shade in ipairs(it():max { axis = { 2, 3, 4 } }:totable()) do shades[#shades + 1] = shade end
      end
    end
    take(2)
    for _ = 1, 2 do
      local message = check.raises(it, "08.png", "data")
      check.falsy(message:find("10.png", 1, true))
    end
    check.write(bad, good)
    take(2)
    check.equal(shades, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 })
    check.equal(it(), nil)
  end
end)

test("images of different sizes cannot be in one batch", function()
  if not pcall(mgpu.image.encode_png, mgpu.zeros({ 1, 1 }, { dtype = "uint8" })) then check.skip "no libpng" end
  local top = check.path "sizes"
  core.make_folder(top)
  for i = 1, 3 do
    check.write(("%s/%d.png"):format(top, i), mgpu.image.encode_png(mgpu.zeros({ i, 9, 3 }, { dtype = "uint8" })))
  end
  local ds = mgpu.data.image_folder(top, { labels = "none" })
  local rows = {}
  for x in ds:iter() do rows[#rows + 1] = x:shape()[1] end
  check.equal(rows, { 1, 2, 3 })
  local message = check.raises(ds:batch(3):iter(), "rows 1 and 2 cannot be in one batch", "usage")
  check.matches(message, "field 1 have shapes {1, 9, 3} and {2, 9, 3}: bring them to one shape")
end)

-- ---- cache ----------------------------------------------------------------------------------------

test("a cache in memory keeps what augment chose", function()
  local ds = from_tensors { images(40) }:augment { horizontal_flip = true, vertical_flip = true, seed = 3 }
  local function same(a, b) return pcall(check.equal, a, b) end
  check.falsy(same(listed(ds), listed(ds)), "two passes alike")
  local kept = ds:cache()
  check.equal(is_rows(kept), true)
  local first = listed(kept)
  check.equal(listed(kept), first)
  check.equal(listed(kept:batch(40))[1], first)
  check.equal(listed(kept, { pass = 5, element = 30 }), { unpack(first, 31) })
end)

test("a cache in a file serves later datasets, with any number of threads", function()
  local path = check.path "rows.cache"
  local function chain(x)
    return from_tensors { x, numbers(30) }:augment { horizontal_flip = true, seed = 3 }:batch(4):cache(path)
      :shuffle(8, 1):cycle(2)
  end
  local first = listed(chain(images(30)))
  for _, threads in ipairs { 1, 2, 4 } do
    local again = chain(mgpu.zeros({ 30, 4, 4, 1 }, { dtype = "uint8" })):prefetch(3, { threads = threads })
    check.equal(is_rows(again), true)
    check.equal(listed(again), first)
    check.equal(listed(again, { pass = 0, element = 5 }), { unpack(first, 6) })
  end
end)

test("texts can be kept in memory and in a file", function()
  local expected, path = listed(texts()), check.path "texts.cache"
  for _, kept in ipairs { texts():cache(), texts():cache(path), texts():cache(path) } do
    for _ = 1, 2 do check.equal(listed(kept), expected) end
  end
end)

test("a damaged cache, and one of other rows, are errors that name the file", function()
  local path = check.path "four.cache"
  local ds = from_tensors { numbers(4) }:cache(path)
  check.equal(listed(ds), { 0, 1, 2, 3 })
  local message = check.raises(function() from_tensors { numbers(5) }:cache(path):iter() end,
    "four.cache has 4 rows, the dataset here has 5: it holds rows of another dataset", "usage")
  check.matches(message, "^tests/lua/data/rows_spec.lua:%d+: cache: ")
  check.raises(function() from_tensors { mgpu.zeros { 4, 2 } }:cache(path):iter() end,
    "field 1 is int32 {} in", "usage")
  local f = io.open(path, "r+b")
  f:seek("set", 5)
  f:write "x"
  f:close()
  local it = from_tensors { numbers(4) }:cache(path):iter()
  check.equal(it():item(), 0)
  check.raises(it, "four.cache is damaged in row 2: remove the file to have it written again", "data")
  check.write(path, "no rows")
  check.raises(function() from_tensors { numbers(4) }:cache(path):iter() end, "is not a file of cached rows", "data")
  check.raises(function() from_tensors { numbers(4) }:cache(check.path "no/folder/rows"):iter() end, "cache: ", "io")
  check.raises(function() ds:cache(3) end, "cache: expected the path of a file, got a number", "usage")
end)

test("after a shuffle or a map the elements of the first pass are kept", function()
  local ds = from_tensors { numbers(9) }
  local kept = ds:shuffle(9, 1):cache()
  check.equal(listed(kept), listed(kept))
  check.equal(is_rows(ds:take(5):cache()), true)
  check.equal(is_rows(ds:take(5):cache(check.path "five")), false) -- else all nine would be written
  check.equal(listed(ds:take(2):cache(check.path "five")), { 0, 1 })
  check.equal(is_rows(ds:map(function(x) return x * 2 end):cache()), false)
end)

-- ---- zip and concatenate --------------------------------------------------------------------------

test("zip and concatenate of rows without steps are rows", function()
  local a, b = from_tensors { numbers(5) }, from_tensors { numbers(7) * 10 }
  local pairs_of, all = mgpu.data.zip { a, b }, a:concatenate(b)
  check.equal({ is_rows(pairs_of), is_rows(all) }, { true, true })
  check.equal({ pairs_of:length(), all:length() }, { 5, 12 })
  check.equal(listed(pairs_of:skip(3)), { { 3, 30 }, { 4, 40 } })
  check.equal(listed(all:batch(12)), { { 0, 1, 2, 3, 4, 0, 10, 20, 30, 40, 50, 60 } })
  check.equal(listed(pairs_of:shuffle(5, 1):batch(2):prefetch(2)), listed(from_tensors { numbers(5), numbers(5) * 10 }
    :shuffle(5, 1):batch(2)))
end)

test("zip and concatenate of datasets with steps, or of other fields, still work", function()
  local a, b = from_tensors { numbers(3) }, from_tensors { mgpu.tensor { 0.5, 1.5 } }
  check.equal(is_rows(mgpu.data.zip { a:batch(1), b }), false)
  check.equal(listed(mgpu.data.zip { a:skip(1), b }), { { 1, 0.5 }, { 2, 1.5 } })
  check.equal(is_rows(a:concatenate(a:take(1))), false)
  check.equal(listed(a:concatenate(a:take(1))), { 0, 1, 2, 0 })
  check.equal(is_rows(a:concatenate(b)), false)
  check.equal(listed(a:concatenate(b)), { 0, 1, 2, 0.5, 1.5 })
end)

-- ---- devices --------------------------------------------------------------------------------------

test("values go to the device that iter is told, unless a map computes elsewhere", function()
  for _, depth in ipairs { 0, 2 } do
    local ds = from_tensors { numbers(4), { 1, 2, 3, 4 } }:batch(2)
    if depth > 0 then ds = ds:prefetch(depth) end
    for x, y in ds:iter(nil, "ref:0") do check.equal({ x:device(), y:device() }, { "ref:0", "ref:0" }) end
    check.equal(ds:iter(nil, "null:0")():device(), "null:0")
    check.equal(ds:iter()():device(), numbers(1):device())
    local mapped = ds:map(function(x) return x + 1 end)
    check.equal(mapped:iter(nil, "ref:0")():device(), numbers(1):device())
  end
end)

test("rows of no device go to the default device", function()
  local default = core.default_device()
  local ds = texts()
  core.default_device "ref:0"
  local ok, _, n = pcall(ds:iter())
  core.default_device(default)
  check.equal({ ok, n:device() }, { true, "ref:0" })
end)

test("a dataset in a child process without the threads of its parent says so", function()
  local ffi = require "ffi"
  pcall(ffi.cdef, "int fork(void); int waitpid(int, int *, int); void _exit(int);")
  local it = from_tensors { numbers(100) }:batch(2):prefetch(2, { threads = 2 }):iter()
  it()
  io.stdout:flush()
  local child = ffi.C.fork()
  if child == 0 then
    local ok, message = pcall(it)
    it:close()
    ffi.C._exit(not ok and message:find "forked from" and 7 or 1)
  end
  local status = ffi.new "int[1]"
  ffi.C.waitpid(child, status, 0)
  check.equal(status[0], 7 * 256)
  check.equal(it():totable(), { 2, 3 })
end)
