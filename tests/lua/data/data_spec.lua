-- mgpu.data.from_tensors and the methods of datasets, in outline; data_streams_spec has the details.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local from = mgpu.data.from_tensors

local function ten()
  local x = mgpu.arange(10)
  mgpu.eval(x)
  return x
end

-- The elements of one pass as Lua values: numbers, or arrays of numbers for batches.
local function pass(ds, position)
  local list = {}
  for x in ds:iter(position) do
    local value = x:totable()
    list[#list + 1] = value
  end
  return list
end

local function flat(list)
  local all = {}
  for _, item in ipairs(list) do
    if type(item) == "table" then
      for _, v in ipairs(item) do all[#all + 1] = v end
    else
      all[#all + 1] = item
    end
  end
  return all
end

local function sorted(list)
  local copy = { unpack(list) }
  table.sort(copy)
  return copy
end

local ALL = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }

test("an element has one row of each tensor, without the first axis", function()
  local rows = {}
  for a, b in from { mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor({ 5, 6 }, { dtype = "int32" }) }:iter() do
    rows[#rows + 1] = { a:totable(), b:item(), b:dtype() }
  end
  check.equal(rows, { { { 1, 2 }, 5, "int32" }, { { 3, 4 }, 6, "int32" } })
end)

test("from_tensors takes nested Lua numbers and the parts of a data set", function()
  check.equal(pass(from { { 1, 2, 3 } }), { 1, 2, 3 })
  local train = mgpu.datasets.digits(6)
  for x, y in from(train):batch(6):iter() do
    check.equal(x, train.x)
    check.equal(y, train.y)
  end
end)

test("batches have a new first axis, and the short last batch can be dropped", function()
  local ds = from { ten() }:batch(4)
  check.equal(pass(ds), { { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9 } })
  check.equal(ds:length(), 3)
  local dropped = from { ten() }:batch(4, { drop_remainder = true })
  check.equal(#pass(dropped), 2)
  check.equal(dropped:length(), 2)
end)

test("batches of batches have two new axes", function()
  local shapes = {}
  for x in from { mgpu.ones { 12, 3 } }:batch(2):batch(3):iter() do shapes[#shapes + 1] = x:shape() end
  check.equal(shapes, { { 3, 2, 3 }, { 3, 2, 3 } })
end)

test("a shuffle gives each element once a pass, a new order each pass, and repeats with its seed", function()
  local a, b = from { ten() }:shuffle(10, 1), from { ten() }:shuffle(10, 1)
  local first, second = pass(a), pass(a)
  check.equal(sorted(first), ALL)
  check.equal(sorted(second), ALL)
  check.truthy(table.concat(first) ~= table.concat(second), "another order")
  check.equal(pass(b), first)
  check.equal(pass(b), second)
  check.truthy(table.concat(pass(from { ten() }:shuffle(10, 2))) ~= table.concat(first), "another seed")
end)

test("a shuffle window of n moves no element forward by n places or more", function()
  local order = pass(from { ten() }:shuffle(3, 5))
  check.equal(sorted(order), ALL)
  for place, value in ipairs(order) do check.truthy(value <= place - 1 + 2, "element " .. value) end
end)

test("a shuffle without a seed follows mgpu.seed", function()
  mgpu.seed(3)
  local first = pass(from { ten() }:shuffle(10))
  mgpu.seed(3)
  check.equal(pass(from { ten() }:shuffle(10)), first)
end)

test("take, skip and cycle act in the order in which they are called", function()
  local ds = from { ten() }
  check.equal(pass(ds:take(3)), { 0, 1, 2 })
  check.equal(pass(ds:skip(8)), { 8, 9 })
  check.equal(pass(ds:skip(20)), {})
  check.equal(pass(ds:take(2):cycle(3)), { 0, 1, 0, 1, 0, 1 })
  check.equal(pass(ds:cycle():skip(9):take(3)), { 9, 0, 1 })
  check.equal(pass(ds:take(5):batch(2):cycle(2)), { { 0, 1 }, { 2, 3 }, { 4 }, { 0, 1 }, { 2, 3 }, { 4 } })
  check.equal({ ds:take(3):length(), ds:skip(8):length(), ds:take(2):cycle(3):length() }, { 3, 2, 6 })
  check.equal(ds:cycle():length(), nil)
  check.equal(ds:cycle():take(4):length(), 4)
end)

test("a cycled shuffle has a new order in each round", function()
  local order = flat(pass(from { ten() }:shuffle(10, 1):cycle(2)))
  check.equal(sorted({ unpack(order, 1, 10) }), ALL)
  check.equal(sorted({ unpack(order, 11, 20) }), ALL)
  check.truthy(table.concat(order, " ", 1, 10) ~= table.concat(order, " ", 11, 20))
end)

test("map's function is traced once per shape and may return several tensors", function()
  local calls = {} -- not a number: a number is part of the signature and would cause a retrace
  local ds = from { ten() }:batch(4):map(function(x)
    calls[#calls + 1] = true
    return x * 2, x + 1
  end)
  local seen = {}
  for a, b in ds:iter() do seen[#seen + 1] = { a:totable()[1], b:totable()[1] } end
  check.equal(seen, { { 0, 1 }, { 8, 5 }, { 16, 9 } })
  check.equal(#calls, 2) -- batches of 4 and of 2
  pass(ds)
  check.equal(#calls, 2)
end)

test("map before batch works on single elements", function()
  check.equal(pass(from { ten() }:map(function(x) return x * x end):batch(5)),
    { { 0, 1, 4, 9, 16 }, { 25, 36, 49, 64, 81 } })
end)

test("prefetching does not change the elements", function()
  local plain = from { ten(), ten() }:shuffle(10, 4):batch(3)
  local ahead = from { ten(), ten() }:shuffle(10, 4):batch(3):prefetch(2)
  for _ = 1, 3 do check.equal(pass(ahead), pass(plain)) end
  check.equal(pass(from { ten() }:batch(3):map(function(x) return x + 1 end):prefetch(4)),
    { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 10 } })
end)

test("an iterator may be left early, and each is a fresh pass", function()
  local ds = from { mgpu.ones { 1000, 100 } }:batch(10):prefetch(3)
  for i = 1, 20 do
    for _ in ds:iter() do
      if i % 2 == 0 then break end
    end
  end
end)

test("an iterator made from a position continues exactly there", function()
  for _, ds in ipairs { from { ten() }:shuffle(10, 1):batch(3), from { ten() }:shuffle(4, 1):batch(3):prefetch(2),
    from { ten() }:batch(2):map(function(x) return x end) } do
    local whole = pass(ds)
    local it = ds:iter { pass = 0, element = 0 }
    it()
    it()
    local position = it:position()
    check.equal(position, { pass = 0, element = 2 })
    local rest = pass(ds, position)
    check.equal(flat(rest), { select(7 - (#whole > 4 and 2 or 0), unpack(flat(whole))) })
  end
end)

test("chain methods leave the dataset they are called on alone", function()
  local ds = from { ten() }
  for _, name in ipairs { "batch", "shuffle", "take" } do ds[name](ds, 2) end
  check.equal(pass(ds), ALL)
end)

local function all() return true end

for what, case in pairs {
  ["tensors of different lengths"] = { function() from { ten(), mgpu.ones { 3 } } end,
    "entry 1 has 10 rows, entry 2 has 3" },
  ["a single number"] = { function() from { mgpu.tensor(1) } end, "is a single number" },
  ["no tensors"] = { function() from {} end, "at least one tensor" },
  ["tensors by name"] = { function() from { a = ten() } end, "given in order" },
  ["a string among the tensors"] = { function() from { "x" } end, "entry 1 is a string" },
  ["an empty batch"] = { function() from { ten() }:batch(0) end, "at least 1, got 0" },
  ["an unknown option of batch"] = { function() from { ten() }:batch(2, { drop = true }) end,
    "drop_remainder" },
  ["taking less than nothing"] = { function() from { ten() }:take(-1) end, "at least 0" },
  ["a window of nothing"] = { function() from { ten() }:shuffle(0) end, "at least 1" },
  ["mapping by a number"] = { function() from { ten() }:map(5) end, "expected a function" },
  ["a map that returns nothing"] = { function() pass(from { ten() }:map(function() end)) end,
    "must return tensors" },
  ["a number as a position"] = { function() from { ten() }:iter(5) end, "position" },
  ["a dot for a colon"] = { function() from { ten() }.batch(4) end, "a method is called with a colon: write ds:batch" },
  ["a dot for a colon of a step that needs values"] = { function() from { ten() }.filter(all) end, "write ds:filter" },
  ["a dot for a colon after such a step"] = { function() from { ten() }:filter(all).take(2) end, "write ds:take" },
  ["a dataset as a loop's iterator"] = { function() for x in from { ten() } do x() end end,
    "for x, y in ds:iter%(%) do" },
  ["a flow as a loop's iterator"] = { function() for x in from { ten() }:filter(all) do x() end end, "ds:iter%(%)" },
  ["mapping by a dataset"] = { function() from { ten() }:map(from { ten() }) end, "expected a function, got table" },
  ["augmenting after a filter"] = { function() from { ten() }:filter(all):augment { horizontal_flip = true } end,
    "augment: it works on rows as they are read, so it must come before filter" },
  ["cycling something endless n times"] = { function() from { ten() }:cycle():cycle(2) end, "already endless" },
} do
  test("an error: " .. what, function() check.raises(case[1], case[2], "usage") end)
end
