-- mgpu.data in detail: orders, positions, prefetching, maps and errors. data_spec has the outline.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test
local from_tensors = mgpu.data.from_tensors

local function numbers(n) return mgpu.arange(n, { dtype = "int32" }) end
local function count_to(n) return from_tensors { numbers(n) } end

-- The first tensor of each element as Lua values.
local function listed(iterator)
  local list = {}
  for x in iterator do list[#list + 1] = x:totable() end
  return list
end

local function elements(ds, position) return listed(ds:iter(position)) end

local function sorted(list)
  local copy = { unpack(list) }
  table.sort(copy)
  return copy
end

local function same(a, b)
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function double(x) return x * 2 end

-- ---- elements -----------------------------------------------------------------------------------

test("an element is a row of each tensor, without the first axis", function()
  local x = mgpu.arange(12, { dtype = "float64" }):reshape { 3, 2, 2 }
  local rows = {}
  for a, b, c in from_tensors { x, { 7, 8, 9 }, numbers(3):to "uint8" }:iter() do
    check.equal(a:shape(), { 2, 2 })
    check.equal({ a:dtype(), b:dtype(), c:dtype() }, { "float64", "float32", "uint8" })
    rows[#rows + 1] = { a:totable()[2][1], b:item(), c:item() }
  end
  check.equal(rows, { { 2, 7, 0 }, { 6, 8, 1 }, { 10, 9, 2 } })
end)

test("from_tensors takes a data set and a single tensor", function()
  local train = mgpu.datasets.digits(20)
  local x, y = from_tensors(train):batch(20):iter()()
  check.equal(x, train.x)
  check.equal(y, train.y)
  check.equal(elements(from_tensors(numbers(2))), { 0, 1 })
  local v = mgpu.variable(mgpu.tensor { 4, 5 })
  check.equal(elements(from_tensors { v }), { 4, 5 })
end)

test("the smaller last batch is kept unless drop_remainder says otherwise", function()
  local ds = count_to(5)
  check.equal(elements(ds:batch(2)), { { 0, 1 }, { 2, 3 }, { 4 } })
  check.equal(elements(ds:batch(2, { drop_remainder = true })), { { 0, 1 }, { 2, 3 } })
  check.equal(elements(ds:batch(9)), { { 0, 1, 2, 3, 4 } })
  check.equal(elements(count_to(6):batch(2):batch(2)), { { { 0, 1 }, { 2, 3 } }, { { 4, 5 } } })
end)

test("stages act in the order in which they are written", function()
  local ds = count_to(3)
  check.equal(elements(ds:take(2):cycle(2)), { 0, 1, 0, 1 })
  check.equal(elements(ds:cycle(2):take(4)), { 0, 1, 2, 0 })
  check.equal(elements(ds:skip(2):cycle(2)), { 2, 2 })
  check.equal(elements(ds:cycle():skip(4):take(3)), { 1, 2, 0 })
  check.equal(elements(ds:cycle(2):batch(4)), { { 0, 1, 2, 0 }, { 1, 2 } })
  check.equal(elements(ds:batch(2):cycle(2)), { { 0, 1 }, { 2 }, { 0, 1 }, { 2 } })
end)

test("shards share the elements of a pass out", function()
  local ds = count_to(7)
  check.equal(elements(ds:shard(1, 3)), { 0, 3, 6 })
  check.equal(elements(ds:shard(3, 3)), { 2, 5 })
  check.equal(elements(ds:shard(8, 9)), {})
  check.equal(elements(ds:batch(2):shard(2, 2)), { { 2, 3 }, { 6 } })
  check.equal(elements(ds:map(double):shard(2, 4)), { 2, 10 })
  local seen = {}
  for i = 1, 3 do
    for _, x in ipairs(elements(ds:shuffle(7, 5):shard(i, 3))) do seen[#seen + 1] = x end
  end
  check.equal(sorted(seen), { 0, 1, 2, 3, 4, 5, 6 })
end)

test("windows overlap by their shift and have gaps by their stride", function()
  local ds = count_to(6)
  check.equal(elements(ds:window(3, { shift = 1, drop_remainder = true })),
    { { 0, 1, 2 }, { 1, 2, 3 }, { 2, 3, 4 }, { 3, 4, 5 } })
  check.equal(elements(ds:window(4)), { { 0, 1, 2, 3 }, { 4, 5 } })
  check.equal(elements(ds:window(2, { stride = 2, shift = 3 })), { { 0, 2 }, { 3, 5 } })
  check.equal(elements(ds:map(double):window(2, { shift = 3 })), { { 0, 2 }, { 6, 8 } })
  check.equal(elements(ds:window(2, { shift = 2, drop_remainder = true }):map(function(x) return x:sum() end)),
    { 1, 5, 9 })
end)

test("unbatch takes a batch apart", function()
  local ds = count_to(5)
  check.equal(elements(ds:batch(2):unbatch()), { 0, 1, 2, 3, 4 })
  check.equal(elements(ds:batch(2, { drop_remainder = true }):unbatch()), { 0, 1, 2, 3 })
  check.equal(elements(ds:batch(2):batch(2, { drop_remainder = true }):unbatch()), { { 0, 1 }, { 2, 3 } })
  check.equal(ds:cycle():batch(2, { drop_remainder = true }):unbatch():length(), nil)
end)

test("length counts the elements of a pass", function()
  local ds = count_to(10)
  for _, case in ipairs { { ds, 10 }, { ds:batch(3), 4 }, { ds:batch(3, { drop_remainder = true }), 3 },
    { ds:shuffle(3, 1):cycle(3):batch(4), 8 }, { ds:cycle():take(7):skip(2), 5 }, { ds:skip(11), 0 },
    { ds:map(double):batch(4):prefetch(2), 3 }, { ds:cycle(0), 0 }, { ds:take(0):cycle(), 0 },
    { ds:shard(3, 4), 2 }, { ds:shard(4, 4), 2 }, { ds:shard(11, 20), 0 }, { ds:window(4), 3 },
    { ds:window(4, { shift = 1 }), 10 }, { ds:window(4, { shift = 1, stride = 2, drop_remainder = true }), 4 },
    { ds:window(11, { drop_remainder = true }), 0 }, { ds:batch(4, { drop_remainder = true }):unbatch(), 8 } } do
    check.equal(case[1]:length(), case[2])
    check.equal(#elements(case[1]), case[2])
  end
  check.equal(ds:cycle():batch(3):length(), nil)
  check.equal(tostring(ds:cycle()), "dataset of endless elements")
end)

test("a dataset without elements ends at once", function()
  check.equal(elements(count_to(3):take(0)), {})
  check.equal(elements(count_to(3):take(0):cycle():batch(2):prefetch(1)), {})
  check.equal(elements(from_tensors { mgpu.zeros { 0, 4 } }:batch(2)), {})
end)

test("methods leave the dataset they are called on alone", function()
  local ds = count_to(4):batch(2)
  local ahead = ds:map(double):prefetch(3):take(1)
  check.equal(elements(ahead), { { 0, 2 } })
  check.equal(elements(ds), { { 0, 1 }, { 2, 3 } })
  check.equal(rawget(ds, "depth"), 0)
end)

-- ---- shuffle ------------------------------------------------------------------------------------

test("a shuffle gives each element once, and passes differ", function()
  for _, window in ipairs { 5, 40, 1000 } do
    local ds = count_to(40):shuffle(window, 7)
    local one, two = elements(ds), elements(ds)
    check.equal(sorted(one), numbers(40):totable())
    check.equal(sorted(two), numbers(40):totable())
    check.falsy(same(one, two), "two passes in the same order")
    local again = count_to(40):shuffle(window, 7)
    check.equal(elements(again), one)
    check.equal(elements(again), two)
    check.falsy(same(elements(count_to(40):shuffle(window, 8)), one), "the same order with another seed")
  end
end)

test("shuffles are the same on every machine", function()
  check.equal(elements(count_to(8):shuffle(3, 1)), { 2, 3, 4, 0, 5, 7, 6, 1 })
  check.equal(elements(count_to(8):shuffle(8, 1)), { 5, 6, 4, 1, 0, 2, 3, 7 })
  check.equal(elements(count_to(8):shuffle(8, 2 ^ 52 + 1)), { 6, 0, 4, 3, 1, 5, 2, 7 })
end)

-- As in tf.data, each step draws one of the w elements in the window with probability 1/w.
test("a shuffle window draws each of its elements with the same probability", function()
  local hits, seeds, window = {}, 1000, 4
  for seed = 1, seeds do
    local it = count_to(20):shuffle(window, seed):iter()
    for _ = 1, 4 do it() end
    local fifth = it():item()
    hits[fifth] = (hits[fifth] or 0) + 1
  end
  for element = 0, 7 do
    local waited = math.min(4, 7 - element) -- draws that did not choose it
    local expected = seeds * 0.75 ^ waited * 0.25
    check.truthy(math.abs((hits[element] or 0) - expected) < 5 * math.sqrt(expected),
      ("%d of %g hits of %d: near is"):format(hits[element] or 0, expected, element))
  end
end)

test("a shuffle without a seed takes one from mgpu.seed when shuffle is called", function()
  local function two()
    mgpu.seed(5)
    return count_to(20):shuffle(20), count_to(20):shuffle(20)
  end
  local a, b = two()
  local c, d = two()
  local first = elements(a)
  mgpu.seed(6)
  check.equal(elements(c), first)
  check.equal(elements(d), elements(b))
  check.falsy(same(first, elements(d)), "two shuffles alike")
  check.falsy(same(elements(count_to(20):shuffle(20)), first), "other seeds, the same order")
end)

test("each round of a cycle is shuffled anew in every pass", function()
  for _, ds in ipairs { count_to(12):shuffle(12, 1):cycle(3), count_to(12):shuffle(12, 1):cycle():take(36) } do
    local rounds = {}
    for _ = 1, 2 do
      local all = elements(ds)
      for first = 1, 36, 12 do rounds[#rounds + 1] = { unpack(all, first, first + 11) } end
    end
    for i, round in ipairs(rounds) do
      check.equal(sorted(round), numbers(12):totable())
      for k = 1, i - 1 do check.falsy(same(round, rounds[k]), "two rounds alike") end
    end
  end
end)

test("batches can be shuffled, too", function()
  local list = elements(count_to(10):batch(2):shuffle(10, 3))
  check.equal(#list, 5)
  for i, pair in ipairs(list) do
    check.equal(pair[2], pair[1] + 1)
    list[i] = pair[1]
  end
  check.equal(sorted(list), { 0, 2, 4, 6, 8 })
end)

-- ---- map ----------------------------------------------------------------------------------------

test("map's function gets all tensors and can return more or fewer", function()
  local ds = from_tensors { numbers(4), { 10, 20, 30, 40 } }
  local sums, parts = {}, {}
  for s in ds:map(function(x, y) return x + y end):iter() do sums[#sums + 1] = s:item() end
  check.equal(sums, { 10, 21, 32, 43 })
  for x, y, both, one in ds:batch(2):map(function(x, y) return x, y, x + y, 1 end):iter() do
    parts[#parts + 1] = { x:totable(), y:totable(), both:totable(), one:item() }
  end
  check.equal(parts, { { { 0, 1 }, { 10, 20 }, { 10, 21 }, 1 }, { { 2, 3 }, { 30, 40 }, { 32, 43 }, 1 } })
end)

test("map's function is traced once for each shape over all passes", function()
  local count = { traced = 0 } -- in a table: a plain number would be part of the signature
  local ds = count_to(7):batch(2):map(function(x)
    count.traced = count.traced + 1
    return x * 2
  end)
  for _ = 1, 3 do check.equal(elements(ds), { { 0, 2 }, { 4, 6 }, { 8, 10 }, { 12 } }) end
  check.equal(count.traced, 2) -- the last batch is smaller
end)

test("stages after a map act on its results", function()
  local ds = count_to(6):map(double)
  check.equal(elements(ds:batch(4)), { { 0, 2, 4, 6 }, { 8, 10 } })
  check.equal(elements(ds:take(2):cycle(2)), { 0, 2, 0, 2 })
  check.equal(elements(ds:skip(4):map(double)), { 16, 20 })
  check.equal(sorted(elements(ds:shuffle(3, 1))), { 0, 2, 4, 6, 8, 10 })
  check.equal(elements(ds:batch(2):map(function(x) return x:sum(1) end):batch(2)), { { 2, 10 }, { 18 } })
  check.equal(elements(ds:batch(2):batch(2)), { { { 0, 2 }, { 4, 6 } }, { { 8, 10 } } })
  local shapes = {}
  for x, y in from_tensors { mgpu.zeros { 5, 3 } }:map(function(t) return t, t:sum(1) end):batch(2):iter() do
    shapes[#shapes + 1] = { x:shape(), y:shape() }
  end
  check.equal(shapes, { { { 2, 3 }, { 2 } }, { { 2, 3 }, { 2 } }, { { 1, 3 }, { 1 } } })
end)

test("a jitted function can be mapped", function()
  check.equal(elements(count_to(3):map(mgpu.jit(double))), { 0, 2, 4 })
end)

test("an error in map's function is raised unchanged, and the next call retries the element", function()
  local broken = true
  local it = count_to(4):batch(2):map(function(x)
    if broken then error "not yet" end
    return x
  end):iter()
  check.raises(it, "data_streams_spec.lua:%d+: not yet")
  check.equal(it:position(), { pass = 0, element = 0 })
  broken = false
  check.equal(it():totable(), { 0, 1 })
  check.equal(listed(it), { { 2, 3 } })
end)

-- ---- iterators ----------------------------------------------------------------------------------

test("iter starts a fresh pass each time, and passes do not disturb one another", function()
  local ds = count_to(6):batch(2):prefetch(2)
  local a, b = ds:iter(), ds:iter()
  check.equal({ a():totable(), b():totable(), a():totable(), b():totable() },
    { { 0, 1 }, { 0, 1 }, { 2, 3 }, { 2, 3 } })
  check.equal(listed(a), { { 4, 5 } })
  check.equal(a(), nil)
  check.equal(a(), nil)
  check.equal(elements(ds), { { 0, 1 }, { 2, 3 }, { 4, 5 } })
end)

test("an iterator continues exactly at a given position", function()
  local function chain()
    return count_to(11):shuffle(4, 1):cycle(3):map(double):take(32):batch(2):shuffle(3, 2):map(double):batch(3)
  end
  local ds = chain()
  for pass = 0, 2 do
    local it = ds:iter()
    check.equal(it:position(), { pass = pass, element = 0 })
    local positions, all = { it:position() }, {}
    for x in it do
      all[#all + 1] = x:totable()
      positions[#positions + 1] = it:position()
    end
    for i, position in ipairs(positions) do
      check.equal(position, { pass = pass, element = i - 1 })
      local rest = {}
      for k = i, #all do rest[#rest + 1] = all[k] end
      check.equal(elements(chain(), position), rest)
      check.equal(elements(chain():prefetch(2), position), rest)
    end
  end
end)

test("a chain of every stage continues exactly at each position, with any number of threads", function()
  local function chain()
    return from_tensors { numbers(23), numbers(23) * 10 }:shuffle(7, 1):cycle(2):shard(2, 3):skip(1)
      :window(3, { shift = 2 }):shuffle(3, 2):take(6)
  end
  local function pairs_of(ds, position)
    local list = {}
    for x, y in ds:iter(position) do list[#list + 1] = { x:totable(), y:totable() } end
    return list
  end
  local all = pairs_of(chain())
  check.equal(#all, 6)
  for i = 0, 6 do
    local rest = { unpack(all, i + 1) }
    for _, threads in ipairs { 1, 2, 4 } do
      check.equal(pairs_of(chain():prefetch(2, { threads = threads }), { pass = 0, element = i }), rest)
    end
  end
end)

test("a pass that continued from a position is followed by the next pass", function()
  local ds, resumed = count_to(9):shuffle(9, 1), count_to(9):shuffle(9, 1)
  local one, two = elements(ds), elements(ds)
  local three = elements(ds)
  check.falsy(same(one, two), "two passes alike")
  local rest = elements(resumed, { pass = 1, element = 5 })
  check.equal(rest, { unpack(two, 6) })
  check.equal(elements(resumed), three)
end)

test("a far position is reached without producing the elements before it", function()
  local count = { traced = 0 }
  local ds = count_to(10):shuffle(10, 1):cycle():batch(4):map(function(x)
    count.traced = count.traced + 1
    return x
  end)
  check.equal(ds:iter { pass = 2, element = 1e12 }():shape(), { 4 })
  check.equal(count.traced, 1)
end)

test("prefetching does not change the elements", function()
  local ds = from_tensors { mgpu.rand { 50, 3 }, numbers(50) }:shuffle(20, 3):batch(8):cycle(2)
  local function pairs_of(dataset)
    local list = {}
    for x, y in dataset:iter { pass = 0, element = 0 } do list[#list + 1] = { x:totable(), y:totable() } end
    return list
  end
  local expected = pairs_of(ds)
  check.equal(#expected, 14)
  for _, depth in ipairs { 1, 2, 100, 2 ^ 40 } do
    check.equal(pairs_of(ds:prefetch(depth)), expected)
    check.equal(pairs_of(ds:prefetch(depth, { threads = 3 })), expected)
    check.equal(pairs_of(ds:map(function(x, y) return x, y end):prefetch(depth)), expected)
  end
end)

local function threads()
  local list = io.open "/proc/self/status"
  if not list then check.skip "no /proc" end
  local n = tonumber(list:read "*a":match "Threads:%s*(%d+)")
  list:close()
  return n
end

-- A thread that has been joined is still counted for a moment, until the kernel has removed it.
local function check_threads(n)
  for _ = 1, 500 do
    if threads() == n then break end
    core.sleep(0.01)
  end
  check.equal(threads(), n)
end

test("an iterator that is left early leaves no thread and no memory", function()
  local ds = count_to(1000):cycle():batch(100):prefetch(4)
  for x in ds:iter() do -- luacheck: ignore 512
    check.equal(x:shape(), { 100 })
    break
  end
  collectgarbage()
  collectgarbage()
  local before, bytes = threads(), mgpu.memory(nil).bytes
  for _ = 1, 20 do
    local it = ds:iter()
    it()
  end
  collectgarbage()
  collectgarbage()
  check_threads(before)
  check.equal(mgpu.memory(nil).bytes, bytes)
  local it = ds:iter()
  check_threads(before + 1)
  it:close()
  check_threads(before)
  check.equal(it(), nil)
end)

test("batches are on the device of their tensors", function()
  local ds = from_tensors { mgpu.zeros({ 4, 2 }, { device = "null:0" }), mgpu.ones({ 4 }, { device = "ref:0" }) }
  local x, y = ds:batch(3):iter()()
  check.equal({ x:device(), y:device() }, { "null:0", "ref:0" })
  check.equal(y, { 1, 1, 1 })
end)

-- ---- errors -------------------------------------------------------------------------------------

test("from_tensors refuses a value that is not a table of rows", function()
  local x = numbers(3)
  check.raises(function() from_tensors { x, numbers(4) } end, "entry 1 has 3 rows, entry 2 has 4", "usage")
  check.raises(function() from_tensors { x = x, y = x } end, "in order, as in {x, y}, but there is an entry", "usage")
  check.raises(function() from_tensors {} end, "at least one tensor", "usage")
  check.raises(function() from_tensors() end, "got nil", "usage")
  check.raises(function() from_tensors(x, x) end, "expected one table of tensors, as in {x, y}, got 2 arguments",
    "usage")
  check.raises(function() from_tensors { x, nil, x } end, "entry 2 is nil", "usage")
  check.raises(function() from_tensors { 1, 2, 3 } end, "entry 1 is a number, not a tensor", "usage")
  check.raises(function() from_tensors { mgpu.sum(x) } end, "single number", "usage")
  check.raises(function() from_tensors { { { 1, 2 }, { 3 } } } end, "ragged", "usage")
end)

test("wrong arguments of the methods are errors at the user's line", function()
  local ds = count_to(6)
  local message = check.raises(function() ds:batch(0) end, "batch: expected a whole number of at least 1, got 0",
    "usage")
  check.matches(message, "^tests/lua/data/data_streams_spec.lua:%d+: ")
  check.raises(function() ds:batch(2.5) end, "got 2.5", "usage")
  check.raises(function() ds:batch() end, "got nil", "usage")
  check.raises(function() ds:batch(math.huge) end, "got inf", "usage")
  check.raises(function() ds:batch(2, { drop = true }) end, "the only option is drop_remainder", "usage")
  check.raises(function() ds:batch(2, true) end, "must be a table", "usage")
  check.raises(function() ds:take(-1) end, "take: expected a whole number of at least 0, got -1", "usage")
  check.raises(function() ds:skip "2" end, "skip", "usage")
  check.raises(function() ds:cycle(-1) end, "cycle", "usage")
  check.raises(function() ds:shuffle() end, "shuffle: expected a whole number of at least 1, got nil", "usage")
  check.raises(function() ds:shuffle(0) end, "shuffle", "usage")
  check.raises(function() ds:shuffle(2, 0.5) end, "shuffle: the seed", "usage")
  check.raises(function() ds:prefetch(0) end, "prefetch", "usage")
  check.raises(function() ds:prefetch(2, { threads = 0 }) end, 'prefetch: option "threads" must be at least 1', "usage")
  check.raises(function() ds:prefetch(2, { thread = 1 }) end,
    'unknown option "thread" %(did you mean "threads"', "usage")
  check.raises(function() ds:shard(3, 2) end, "there is no shard 3 of 2", "usage")
  check.raises(function() ds:shard(0, 2) end, "shard: the shard's number: expected a whole number of at least 1, got 0",
    "usage")
  check.raises(function() ds:shard(1) end, "shard: the number of shards", "usage")
  check.raises(function() ds:window(2, { shift = 0 }) end, 'window: option "shift" must be', "usage")
  check.raises(function() ds:window(2, { stride = 0.5 }) end, 'window: option "stride" must be', "usage")
  check.raises(function() ds:window(2, { step = 1 }) end, "the options are shift, stride, drop_remainder", "usage")
  check.raises(function() ds:window(2, { drop_remainder = 1 }) end,
    'option "drop_remainder" must be true or false', "usage")
  check.raises(function() ds:map(3) end, "map: expected a function, got number", "usage")
  check.raises(function() ds:bacth(2) end, 'no method "bacth" (did you mean "batch"?)', "usage")
  check.raises(function()
    for _ = 1, 70 do ds = ds:take(5) end
  end, "too long", "usage")
end)

test("map's function must return tensors", function()
  local function first(fn) return check.raises(count_to(3):map(fn):iter(), "map: the function at", "usage") end
  check.matches(first(function() end), "data_streams_spec.lua:%d+ returns nothing")
  check.matches(first(function() return nil end), "its result 1 is nil")
  check.matches(first(function(x) return x, nil, x end), "its result 2 is nil")
  check.matches(first(function() return print end), "returned a function")
end)

test("batches of different sizes cannot be batched again", function()
  local it = count_to(7):batch(2):batch(2):iter()
  check.equal(it():totable(), { { 0, 1 }, { 2, 3 } })
  for _ = 1, 2 do check.raises(it, "sizes {2} and {1} cannot be batched again", "usage") end
  local deep = count_to(7)
  for _ = 1, 9 do deep = deep:batch(1) end
  check.raises(function() deep:iter() end, "9 axes, at most 8", "usage")
end)

test("wrong positions are refused", function()
  local ds = count_to(6):batch(4)
  check.equal(elements(ds, { pass = 0, element = 2 }), {})
  check.raises(function() ds:iter { pass = 0, element = 3 } end, "a pass of this dataset has 2", "usage")
  check.raises(function() ds:iter { pass = 0.5, element = 0 } end, "the position's pass", "usage")
  check.raises(function() ds:iter { pass = 1 } end, "the position's element", "usage")
  check.raises(function() ds:iter { pass = 1, element = 0, epoch = 2 } end, "epoch", "usage")
  check.raises(function() ds:iter(3) end, "a position is what", "usage")
end)

test("an iterator inside mgpu.jit is refused", function()
  local it = count_to(3):iter()
  check.raises(function() mgpu.jit(function(x) return x + it() end)(mgpu.ones {}) end, "iterate outside", "usage")
  check.equal(listed(it), { 0, 1, 2 })
end)

test("running out of memory is an error at the next pull", function()
  local script = check.path "short.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local x = mgpu.zeros { 100, 1000 } -- 400 kB
mgpu.eval(x)
for _, ahead in ipairs { false, true } do
  local ds = mgpu.data.from_tensors { x }:cycle(9):batch(900)
  if ahead then ds = ds:prefetch(2) end
  local it = ds:iter()
  for _ = 1, 2 do print(pcall(it)) end
  print(mgpu.error_code(), it:position().element)
end
]])
  local out = check.run(("MGPU_MEMORY=cpu:0=2M %s %s"):format(check.program, script))
  local _, n = out:gsub("false\t[^\n]*cpu:0: out of memory: asked 3%.4 MiB", "")
  check.equal(n, 4)
  _, n = out:gsub("\noom\t0\n", "")
  check.equal(n, 2)
end)

test("an interrupt ends the pull, not the iterator", function()
  local ffi = require "ffi"
  pcall(ffi.cdef, "void mg_interrupt(void);")
  local ok, interrupt = pcall(function() return ffi.C.mg_interrupt end)
  if not ok then check.skip "the library does not show its symbols" end
  for _, ds in ipairs { count_to(4):batch(2), count_to(4):batch(2):prefetch(1) } do
    local it = ds:iter()
    interrupt()
    check.raises(it, "interrupted", "interrupted")
    check.equal(listed(it), { { 0, 1 }, { 2, 3 } })
  end
end)

-- ---- whole programs -----------------------------------------------------------------------------

test("a custom training loop over a dataset learns", function()
  check.slow() -- convolutions take minutes under ThreadSanitizer
  local train = mgpu.datasets.digits(600)
  mgpu.seed(1)
  local model = mgpu.models.lenet5 { classes = 10 }
  local opt = mgpu.optimizers.Adam { learning_rate = 1e-3 }
  local loss_of = mgpu.losses.sparse_categorical_crossentropy
  local step = mgpu.jit(function(x, y)
    local loss, grads = mgpu.value_and_grad(function()
      return loss_of(y, model(x, { training = true }))
    end, model.trainable_variables)()
    opt:apply(grads, model.trainable_variables)
    return loss
  end)
  local batches = from_tensors { train.x:reshape { 600, 28, 28, 1 }, train.y }
    :shuffle(60000, 1):batch(128):map(function(x, y) return x:to "float32" / 255, y end):prefetch(2)
  local losses = {}
  for epoch = 1, 3 do
    local mean = mgpu.metrics.Mean {}
    for x, y in batches:iter() do mean:update(step(x, y)) end
    losses[epoch] = mean:result()
  end
  check.truthy(losses[3] < losses[1], ("%g < %g"):format(losses[3], losses[1]))
  check.equal(step:plans(), 2)
end)

test("examples/custom_loop.lua runs", function()
  check.slow()
  local function run(options)
    return check.run(("%s examples/custom_loop.lua %s"):format(check.program, options))
  end
  local out, status = run "--data digits --epochs 1 --batch-size 256"
  check.equal(status, 0)
  check.matches(out, "epoch 1  loss [%d.]+\ntest accuracy [%d.]+\n")
  out, status = run "--help"
  check.equal(status, 0)
  for _, option in ipairs { "data", "epochs", "batch%-size" } do check.matches(out, "%-%-" .. option) end
  for _, options in ipairs { "--epoch 1", "--epochs", "--epochs many", "--data cifar" } do
    out, status = run(options)
    check.equal(status, 1)
    check.matches(out, "see --help")
  end
end)

-- The errors of core.source_tensors, on which from_tensors is built.
test("core.source_tensors checks its tensors", function()
  check.raises(function() core.source_tensors { 1 } end, "entry 1 is not a tensor", "usage")
  check.raises(function() core.source_tensors {} end, "1 to 1024 are possible", "usage")
end)
