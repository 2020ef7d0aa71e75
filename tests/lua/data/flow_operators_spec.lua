-- Steps of datasets that work on elements as values: functions, text, nested components, errors, positions, memory.
-- flow_golden_spec compares their order with tf.data's.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local from = mgpu.data.from_tensors

local function range(n) return from { mgpu.arange(n) } end
local function even(x) return (x % 2):eq(0) end
local function all(x) return x:ge(0):all() end

-- Elements of a generator: one or more values each.
local function given(elements)
  return mgpu.data.generator(function()
    local i = 0
    return function()
      i = i + 1
      if elements[i] then return unpack(elements[i]) end
    end
  end)
end

local function words(...)
  local elements = {}
  for i, word in ipairs { ... } do elements[i] = { word } end
  return given(elements)
end

local function plain(value)
  if type(value) == "userdata" then return value:totable() end
  if type(value) ~= "table" then return value end
  local made = {}
  for key, v in pairs(value) do made[key] = plain(v) end
  return made
end

-- The elements of the rest of a pass as Lua values; an element of several components is an array.
local function listed(it)
  local list = {}
  while true do
    local e = { it() }
    if e[1] == nil then return list end
    list[#list + 1] = plain(#e == 1 and e[1] or e)
  end
end

local function pass(ds, position) return listed(ds:iter(position)) end

local function sorted(list)
  local copy = { unpack(list) }
  table.sort(copy)
  return copy
end

-- ---- functions ----------------------------------------------------------------------------------

test("filter's function is traced once for each shape, and may return a Lua boolean", function()
  local calls = {}
  local ds = range(6):filter(function(x)
    calls[#calls + 1] = true
    return even(x)
  end)
  check.equal(pass(ds), { 0, 2, 4 })
  check.equal(pass(ds), { 0, 2, 4 })
  check.equal(#calls, 1)
  local whole = range(10):batch(4):filter(function(x) return x:shape()[1] == 4 end)
  check.equal(pass(whole), { { 0, 1, 2, 3 }, { 4, 5, 6, 7 } })
end)

test("filter sees all components", function()
  local ds = from { mgpu.arange(5), mgpu.arange(5) * 10 }:filter(function(_, y) return y:gt(15) end)
  check.equal(pass(ds), { { 2, 20 }, { 3, 30 }, { 4, 40 } })
end)

test("functions that get text run as they are", function()
  local ds = words("b", "aa", "ccc"):filter(function(s) return #s > 1 end):map(function(s) return s:upper(), #s end)
  check.equal(pass(ds), { { "AA", 2 }, { "CCC", 3 } })
  local batch = ds:batch(2):iter()()
  check.equal({ batch[1], batch[2], #batch }, { "AA", "CCC", 2 })
  check.equal(pass(ds:batch(2):unbatch()), { { "AA", 2 }, { "CCC", 3 } })
end)

test("components may be tables, by position and by name", function()
  local ds = range(4):filter(all):map(function(x) return { image = x, more = { x + 1, x + 2 } }, x * 10 end)
  local e = { ds:batch(2):iter()() }
  check.equal(plain(e), { { image = { 0, 1 }, more = { { 1, 2 }, { 2, 3 } } }, { 0, 10 } })
  check.equal(pass(ds:batch(3):unbatch():take(1)), { { { image = 0, more = { 1, 2 } }, 0 } })
  check.equal(pass(ds:map(function(t, y) return t.image + t.more[2] + y end)), { 2, 14, 26, 38 })
end)

test("layers and jitted functions can be mapped after a filter", function()
  check.equal(pass(range(3):filter(all):map(mgpu.jit(function(x) return x + 1 end))), { 1, 2, 3 })
  local relu = mgpu.layers.ReLU {}
  check.equal(pass(range(3):filter(all):map(function(x) return x - 1 end):batch(3):map(relu)), { { 0, 0, 1 } })
end)

test("an error in a function has its message, the function's place and the element", function()
  local ds = range(5):filter(even):map(function(x)
    if x:shape()[1] == nil then error "broken" end
    return x
  end)
  check.raises(function() pass(ds) end,
    "flow_operators_spec.lua:%d+: broken %(map: the function at .*flow_operators_spec.lua:%d+, element 1, row 1%)")
  local ok, value = pcall(pass, words("a", "bc"):filter(function(s) return #s < 2 or error { code = 7 } end))
  check.equal({ ok, value }, { false, { code = 7 } })
end)

test("after an error the next call tries the same element again", function()
  local broken = true
  local it = words("a", "b", "c", "d"):map(function(s)
    if s == "c" and broken then error "not yet" end
    return s .. s
  end):batch(2):iter()
  check.equal(plain(it()), { "aa", "bb" })
  check.raises(it, "not yet %(map: the function at .*, element 3%)")
  check.equal(it:position(), { pass = 0, element = 1 })
  broken = false
  check.equal(listed(it), { { "cc", "dd" } })
end)

for what, case in pairs {
  ["a number"] = { function() return 5 end, "it returns a number" },
  ["a tensor of numbers"] = { function(x) return x end, "it returns a float32 tensor of shape {}" },
  ["several truth values"] = { function(x) return x:reshape { 1 }:eq(0) end, "a bool tensor of shape {1}" },
  ["nothing"] = { function() end, "it returns nil" },
} do
  test("filter refuses a function that returns " .. what, function()
    check.raises(function() pass(range(3):filter(case[1])) end, "flow_operators_spec.lua:%d+: filter: the function at "
      .. ".*flow_operators_spec.lua:%d+ must return one truth value", "usage")
    check.raises(function() pass(range(3):filter(case[1])) end, case[2], "usage")
  end)
end

test("map refuses results that are not components", function()
  local function refuses(fn, expected)
    check.raises(function() pass(words "a":map(fn)) end, expected, "usage")
  end
  refuses(function() end, "map: the function at .*:%d+ returns nothing; it must return tensors")
  refuses(function() return print end, "its result 1 is a function %(element 1%)")
  refuses(function() return 1, { a = { b = io.stdout } } end, "its result 2.a.b is a userdata")
  refuses(function() return {} end, "its result 1 is an empty table")
  refuses(function() return nil, 1 end, "its result 1 is nil")
end)

-- ---- order --------------------------------------------------------------------------------------

test("a shuffle of values has the order of a shuffle of rows", function()
  for _, window in ipairs { 1, 3, 7, 20, 100 } do
    local rows, values = range(20):shuffle(window, 5), range(20):filter(all):shuffle(window, 5)
    for _ = 1, 3 do check.equal(pass(values), pass(rows)) end
    local twice, values_twice = range(20):shuffle(window, 5):cycle(2), range(20):filter(all):shuffle(window, 5):cycle(2)
    for _ = 1, 2 do check.equal(pass(values_twice), pass(twice)) end
  end
  local endless = range(5):shuffle(5, 1):cycle():take(23)
  check.equal(pass(range(5):filter(all):shuffle(5, 1):cycle():take(23)), pass(endless))
end)

-- Random steps that rows and values both know; the same for both datasets.
local function random_step(random, a, b)
  local n = random(1, 6)
  local name = ({ "take", "skip", "cycle", "batch", "shuffle", "shard", "unbatch" })[random(1, 7)]
  if a.level > 0 and (name == "batch" or name == "unbatch") then
    return a, b -- the last batch is smaller, so batches cannot be batched
  elseif name == "unbatch" then
    return a:batch(n):unbatch(), b:batch(n):unbatch()
  elseif name == "batch" then
    local options = { drop_remainder = random(1, 2) == 1 }
    return a:batch(n, options), b:batch(n, options)
  elseif name == "shard" then
    local i = random(1, n)
    return a:shard(i, n), b:shard(i, n)
  elseif name == "shuffle" then
    return a:shuffle(n, 7), b:shuffle(n, 7)
  end
  n = name == "cycle" and math.min(n, 3) or n
  return a[name](a, n), b[name](b, n)
end

test("chains on values give what chains on rows give, from every position of every pass", function()
  local state = 1
  local function random(low, high)
    state = state * 16807 % 2147483647
    return low + state % (high - low + 1)
  end
  for _ = 1, 100 do
    local rows = range(random(0, 12))
    local values = mgpu.data.zip { rows }
    for _ = 1, random(1, 4) do rows, values = random_step(random, rows, values) end
    for number = 0, 2 do
      local whole = pass(rows, { pass = number, element = 0 })
      if values:length() then check.equal(values:length(), #whole) end
      for k = 0, #whole, math.max(1, math.floor(#whole / 5)) do
        check.equal(pass(values, { pass = number, element = k }), { unpack(whole, k + 1) })
      end
    end
  end
end)

test("many elements are left out at once", function()
  check.equal(pass(mgpu.data.zip { range(1000) }:shard(3, 400)), { 2, 402, 802 })
  check.equal(pass(mgpu.data.zip { range(1000) }:cycle():shard(1, 700):take(4)), { 0, 700, 400, 100 })
  check.equal(pass(mgpu.data.zip { range(10) }:cycle():skip(5):shard(1, 32):take(3)), { 5, 7, 9 })
end)

test("shuffles before a filter have another order in each pass", function()
  local ds = range(30):shuffle(30, 3):filter(even)
  local first, second = pass(ds), pass(ds)
  check.equal(sorted(first), pass(range(30):filter(even)))
  check.equal(sorted(second), sorted(first))
  check.truthy(table.concat(first, " ") ~= table.concat(second, " "), "another order")
end)

test("a shuffle without a seed takes one from mgpu.seed when shuffle is called", function()
  local function order()
    mgpu.seed(4)
    return pass(range(10):filter(all):shuffle(10))
  end
  check.equal(order(), order())
end)

test("every position of every chain continues with the rest of the pass", function()
  local base = range(12):shuffle(12, 2)
  local chains = {
    base:filter(even):shuffle(4, 9), base:filter(all):map(function(x) return x + 1 end):batch(5),
    base:filter(all):shuffle(5, 1):batch(2):shuffle(3, 2):unbatch(), base:filter(even):cycle(3):shard(2, 3),
    base:filter(all):window(3, { shift = 2 }):skip(1), base:filter(even):cache():cycle(2),
    mgpu.data.zip { base:filter(all), range(20):shuffle(20, 8) }, base:filter(even):concatenate(range(3)):take(7),
    mgpu.data.interleave({ base:filter(even), base, range(4) }, { cycle_length = 2, block_length = 2 }),
    range(4):flat_map(function(x) return range(x:item()):shuffle(9, 1) end),
    base:filter(even):enumerate():cycle():skip(2):take(9),
  }
  for i, ds in ipairs(chains) do
    local _, whole = pass(ds), pass(ds) -- pass 0 and pass 1
    for k = 0, #whole do
      check.equal(pass(ds, { pass = 1, element = k }), { unpack(whole, k + 1) })
    end
    local it = ds:iter { pass = 1, element = 0 }
    it()
    it()
    local here = it:position()
    check.equal(here, { pass = 1, element = 2 })
    check.truthy(#whole > 2, "chain " .. i .. " has enough elements")
    check.equal(pass(ds, here), listed(it))
  end
end)

test("what comes before a position is not computed where it does not decide", function()
  local calls = {}
  local ds = words("a", "b", "c", "d", "e", "f"):map(function(s)
    calls[#calls + 1] = s
    return s
  end):batch(2)
  check.equal(pass(ds, { pass = 0, element = 2 }), { { "e", "f" } })
  check.equal(calls, { "e", "f" })
  calls = {}
  check.equal(pass(ds:shard(2, 3)), { { "c", "d" } })
  check.equal(calls, { "c", "d" })
end)

test("a position past the end of a pass is refused", function()
  check.raises(function() pass(range(5):filter(even), { pass = 0, element = 4 }) end,
    "iter: the position is past element 4, but this pass has 3", "usage")
  check.raises(function() range(5):enumerate():iter { pass = 0, element = 6 } end, "a pass of this dataset has 5",
    "usage")
  check.raises(function() range(5):filter(even):iter(3) end, "a position is what iterator:position", "usage")
end)

test("methods leave the dataset they are called on alone, and count its passes apart", function()
  local base = range(4):shuffle(4, 1)
  local first = pass(base)
  local ds = range(4):shuffle(4, 1):filter(all)
  pass(ds:map(function(x) return x end))
  check.equal(pass(ds), first)
  local rows = range(4):shuffle(4, 1)
  pass(rows:filter(all))
  pass(mgpu.data.zip { rows, rows })
  check.equal(pass(rows), first)
end)

test("lengths are known where values do not decide", function()
  local e = range(10):enumerate()
  local lengths = { e:length(), e:batch(4):length(), e:batch(4, { drop_remainder = true }):length(), e:take(3):length(),
    e:skip(4):length(), e:cycle(3):length(), e:shard(3, 4):length(), e:window(3):length(),
    e:window(3, { shift = 1, drop_remainder = true }):length(), e:concatenate(range(5)):length(),
    mgpu.data.zip({ e, range(4) }):length(), e:cycle():take(50):length(), e:shuffle(3, 1):cache():length() }
  check.equal(lengths, { 10, 3, 2, 3, 6, 30, 2, 4, 8, 15, 4, 50, 10 })
  check.equal({ range(4):filter(even):length() or "unknown", range(4):filter(even):batch(2):length() or "unknown",
    range(0):filter(even):length(), e:cycle():length() or "endless" }, { "unknown", "unknown", 0, "endless" })
  check.equal({ tostring(e), tostring(e:filter(all)), tostring(e:cycle()) }, { "dataset of 10 elements",
    "dataset of an unknown number of elements", "dataset of endless elements" })
end)

-- ---- batches ------------------------------------------------------------------------------------

test("a batch of elements that do not go together is an error that names both", function()
  local function refuses(elements, expected)
    check.raises(function() pass(given(elements):batch(8)) end, expected, "usage")
  end
  refuses({ { mgpu.ones { 2 } }, { mgpu.ones { 2 } }, { mgpu.ones { 3 } } }, "batch: the elements of a batch must have "
    .. "equal shapes, but component 1 has {2} in element 1 and {3} in element 3: use padded_batch")
  refuses({ { mgpu.ones { 2 } }, { mgpu.ones { 2, 1 } } }, "component 1 of element 2 is a tensor of shape {2, 1}, "
    .. "but a tensor of shape {2} in element 1")
  refuses({ { mgpu.ones { 2 } }, { mgpu.ones({ 2 }, { dtype = "int32" }) } }, "component 1 of element 2 is int32, but "
    .. "float32 in element 1")
  refuses({ { 1, "a" }, { 2, 3 } }, "component 2 of element 2 is float32, but text in element 1")
  refuses({ { 1, 2 }, { 1 } }, "element 1 has 2 components, element 2 has 1 components")
  refuses({ { { a = mgpu.tensor(1) } }, { { b = mgpu.tensor(1) } } }, "element 1 has 1.a, element 2 has 1.b")
  check.raises(function() pass(words("a", "b", "c"):batch(2):batch(2)) end,
    "component 1 of element 2 is a list of 1 strings, but a list of 2 strings in element 1", "usage")
  local ds = given { { mgpu.ones { 1 } }, { mgpu.ones { 1 } }, { mgpu.ones { 1 } }, { mgpu.ones { 2 } } }
  for k = 0, 1 do -- also where the first batch was left out
    check.raises(function() pass(ds:batch(2), { pass = 0, element = k }) end, "{1} in element 3 and {2} in element 4",
      "usage")
  end
end)

test("batches have the dtype and the device of their elements", function()
  for _, dtype in ipairs { "bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64" } do
    local ones, zeros = mgpu.ones({ 2 }, { dtype = dtype }), mgpu.zeros({ 2 }, { dtype = dtype })
    local x = given { { ones }, { zeros } }:batch(2):iter()()
    check.equal({ x:dtype(), x:shape() }, { dtype, { 2, 2 } })
    check.equal(x:to "float32":totable(), { { 1, 1 }, { 0, 0 } })
  end
end)

test("a batch may have more elements than a call has arguments", function()
  for _, ds in ipairs { range(20000):map(function(x) return x + 1 end), mgpu.data.zip { range(20000) }:filter(all) } do
    local it = ds:batch(12000):iter()
    check.equal({ it():shape(), it():shape(), it() }, { { 12000 }, { 8000 } })
  end
end)

test("padded_batch pads every axis at its end, each component with its own number", function()
  local function box(rows, columns) return mgpu.arange(1, rows * columns + 1):reshape { rows, columns } end
  local ds = given { { box(1, 3), mgpu.tensor({ 1 }, { dtype = "int64" }) },
    { box(2, 2), mgpu.tensor({ 2, 3 }, { dtype = "int64" }) } }
  check.equal(pass(ds:padded_batch(2)), { { { { { 1, 2, 3 }, { 0, 0, 0 } }, { { 1, 2, 0 }, { 3, 4, 0 } } },
    { { 1, 0 }, { 2, 3 } } } })
  local options = { padded_shapes = { { 2, -1 }, { 3 } }, padding_values = { 0.5, -1 } }
  check.equal(pass(ds:padded_batch(2, options)), { { { { { 1, 2, 3 }, { 0.5, 0.5, 0.5 } },
    { { 1, 2, 0.5 }, { 3, 4, 0.5 } } }, { { 1, -1, -1 }, { 2, 3, -1 } } } })
  local empty = given { { mgpu.zeros { 0, 2 } }, { mgpu.zeros { 0, 1 } } }:padded_batch(2):iter()()
  check.equal(empty:shape(), { 2, 0, 2 })
end)

test("padded_batch refuses what it cannot pad", function()
  local ds = given { { mgpu.ones { 2 } }, { mgpu.ones { 4 } } }
  local function refuses(data, options, expected)
    check.raises(function() pass(data:padded_batch(2, options)) end, "padded_batch: " .. expected, "usage")
  end
  refuses(ds, { padded_shapes = { 3 } },
    "component 1 of element 2 has shape {4}, which is larger than the padded shape {3}")
  refuses(ds, { padded_shapes = { 3, 3 } }, "padded_shapes has 2 sizes for component 1, whose shape is {2}")
  refuses(ds, { padded_shapes = { -2 } },
    "padded_shapes: expected sizes from 0 on, or %-1 for the largest size, got %-2")
  refuses(ds, { padded_shapes = { { 3 }, "x" } },
    "padded_shapes: expected an array of sizes for each component, got a string")
  refuses(ds, { padded_shapes = { { 3 }, { 3 } } }, "padded_shapes is for 2 components, but the elements have 1")
  refuses(ds, { padding_values = { 1, 2 } }, "padding_values is for 2 components, but the elements have 1")
  refuses(ds, { padding_values = { x = 1 } }, 'padding_values: the name "x" stands in an array')
  refuses(ds, { padding_values = { "x" } }, "padding_values: expected a number for each component, got a string")
  local bytes = given { { mgpu.ones({ 2 }, { dtype = "uint8" }) }, { mgpu.ones({ 4 }, { dtype = "uint8" }) } }
  for _, value in ipairs { -1, 256, 0.5 } do
    refuses(bytes, { padding_values = value }, "padding_values: component 1 is uint8, which cannot hold ")
  end
  refuses(ds, { pad = 1 }, 'unknown option "pad"')
  refuses(words("a", "b", "c"):batch(2), {}, "component 1 of element 2 is a list of 1 strings, but a list of 2")
  refuses(given { { mgpu.ones { 2 } }, { mgpu.ones { 2, 2 } } }, {},
    "component 1 of element 2 is a tensor of shape {2, 2}")
end)

test("unbatch refuses elements without rows, or with different numbers of them", function()
  check.raises(function() pass(range(3):filter(all):unbatch()) end,
    "unbatch: component 1 of element 1 is a single number: it has no rows", "usage")
  check.raises(function() pass(words "a":unbatch()) end,
    "component 1 of element 1 is one string: it has no rows", "usage")
  check.raises(function() pass(given { { mgpu.ones { 2 }, mgpu.ones { 3 } } }:unbatch()) end,
    "component 1 of element 1 has 2 rows, but component 2 has 3", "usage")
end)

-- ---- several datasets ---------------------------------------------------------------------------

test("zip nests elements of several components, as tf.data does, and takes datasets by name", function()
  local two = from { mgpu.arange(3), mgpu.arange(3) * 10 }
  check.equal(pass(mgpu.data.zip { two, range(2) }), { { { 0, 0 }, 0 }, { { 1, 10 }, 1 } })
  check.equal(pass(mgpu.data.zip { a = range(2), b = range(5) }), { { a = 0, b = 0 }, { a = 1, b = 1 } })
  check.equal(pass(mgpu.data.zip { { image = range(2), mask = two }, range(2) }),
    { { { image = 0, mask = { 0, 0 } }, 0 }, { { image = 1, mask = { 1, 10 } }, 1 } })
  check.equal(pass(range(2):zip(range(2), range(2))), { { 0, 0, 0 }, { 1, 1, 1 } })
end)

test("concatenate refuses elements with other components", function()
  local ds = range(2):concatenate(from { mgpu.arange(2), mgpu.arange(2) })
  check.raises(function() pass(ds) end,
    "concatenate: the elements of dataset 2 have 2 components, those before 1 components", "usage")
end)

for what, case in pairs {
  ["zip of nothing"] = { function() mgpu.data.zip {} end, "zip: expected datasets, as in {a, b}, got an empty table" },
  ["zip of one dataset"] = { function() mgpu.data.zip(range(2)) end, "got one dataset" },
  ["zip of a tensor"] = { function() mgpu.data.zip { range(2), { x = mgpu.ones { 2 } } } end,
    "entry 2.x is a userdata, not a dataset" },
  ["concatenate of a number"] = { function() mgpu.data.concatenate { range(2), 5 } end, "entry 2 is a number" },
  ["concatenate by name"] = { function() mgpu.data.concatenate { a = range(2) } end, 'name "a"' },
  ["concatenate of nothing"] = { function() mgpu.data.concatenate {} end, "at least one dataset" },
  ["interleave in no turns"] = { function() mgpu.data.interleave({ range(2) }, { cycle_length = 0 }) end,
    "at least 1" },
  ["interleave with an unknown option"] = { function() mgpu.data.interleave({ range(2) }, { block = 1 }) end,
    '"block"' },
  ["flat_map to a tensor"] = { function() pass(range(2):flat_map(function(x) return x end)) end,
    "flat_map: the function at .*:%d+ must return a dataset, but it returns a userdata %(element 1%)" },
  ["filter by no function"] = { function() range(2):filter(5) end, "filter: expected a function, got number" },
  ["a shard past the last"] = { function() range(2):filter(all):shard(3, 2) end, "there is no shard 3 of 2" },
  ["shard 0"] = { function() range(2):filter(all):shard(0, 2) end, "at least 1, got 0" },
  ["half a window"] = { function() range(2):window(1.5) end, "window: expected a whole number of at least 1, got 1.5" },
  ["a window that stays"] = { function() range(2):window(2, { shift = 0 }) end, "at least 1" },
  ["options that are not a table"] = { function() range(2):filter(all):batch(2, true) end,
    "batch: the options must be a table" },
  ["interleave with a number"] = { function() mgpu.data.interleave({ range(2) }, 3) end,
    "interleave: the options must be a table such as {cycle_length = ...}, got number" },
  ["generator with a number"] = { function() mgpu.data.generator(print, 3) end,
    "generator: the options must be a table such as {length = ...}, got number" },
  ["a table for a number"] = { function() range(2):take {} end, "at least 0, got a table$" },
  ["augment after filter"] = { function() range(2):filter(all):augment { rescale = 2 } end,
    "augment: it works on rows as they are read, so it must come before filter" },
  ["a name of tf.data"] = { function() range(2):filter(all):cardinality() end,
    'no method "cardinality": write ds:length%(%)' },
  ["a name of tf.data, of rows"] = { function() range(2)["repeat"](3) end, 'no method "repeat": write ds:cycle%(n%)' },
  ["a source of tf.data"] = { function() mgpu.data.from_tensor_slices {} end,
    'unknown data source "from_tensor_slices": write mgpu.data.from_tensors {x, y}' },
  ["an unknown method"] = { function() range(2):filter(all):bacth(2) end, 'no method "bacth" %(did you mean "batch"' },
  ["cycling something endless"] = { function() range(2):filter(all):cycle():cycle(2) end, "already endless" },
  ["a cache at a number"] = { function() range(2):filter(all):cache(5) end,
    "cache: expected the path of a file, got a number" },
} do
  test("an error: " .. what, function()
    local message = check.raises(case[1], case[2], "usage")
    check.matches(message, "^[^:]*flow_operators_spec.lua:%d+: ")
  end)
end

-- ---- memory and threads -------------------------------------------------------------------------

test("a pass may be left early, in every kind of step", function()
  local base = from { mgpu.ones { 500, 20 } }:prefetch(4):filter(function(x) return x:gt(0):all() end)
  local joined = mgpu.data.zip { base, mgpu.data.concatenate { base, base } }
  local chains = { base, base:batch(3):shuffle(4, 1), joined, base:cache(), base:window(5, { shift = 1 }):unbatch(),
    mgpu.data.interleave { base, base }, base:take(2), base:cycle():shard(1, 7) }
  for _, ds in ipairs(chains) do
    for i = 1, 3 do
      local it = ds:iter()
      it()
      if i == 1 then it:close() end
      if i == 1 then check.equal(it(), nil) end
    end
  end
end)

test("an iterator inside mgpu.jit is refused", function()
  local it = words("a", "b"):iter()
  local traced = mgpu.jit(function(x)
    it()
    return x
  end)
  check.raises(function() traced(mgpu.ones {}) end, "a dataset's iterator: not available inside mgpu.jit", "usage")
  check.equal(it(), "a")
end)

test("prefetch reaches the rows below and changes no element", function()
  local plain_ds = range(30):shuffle(30, 4):filter(even):batch(4)
  check.equal(pass(plain_ds:prefetch(3)), pass(plain_ds))
  check.equal(pass(mgpu.data.zip({ range(3), range(3) }):prefetch(2)), { { 0, 0 }, { 1, 1 }, { 2, 2 } })
  local first = pass(plain_ds, { pass = 0, element = 0 })
  check.equal(pass(plain_ds:prefetch(2)), first) -- a new dataset begins with its first pass
end)

test("running out of memory is an error at the next pull, which can be repeated", function()
  local core = require "mgpu.core"
  local ds = range(8):filter(all):padded_batch(3):unbatch():map(function(x) return x * 2 end):shuffle(3, 1):batch(4)
  local expected = pass(ds)
  local n, failed = 0, 0
  repeat
    n = n + 1
    local it = ds:iter { pass = 0, element = 0 }
    core.alloc_fault(n, true)
    local ok, message = pcall(it)
    core.alloc_fault()
    if not ok then
      failed = failed + 1
      check.matches(message, "memory")
      check.equal(listed(it), expected)
    end
  until ok or n > 2000
  check.truthy(failed > 20 and n < 2000, failed .. " allocations failed")
end)
