-- mgpu.data.generator: elements that Lua functions and coroutines give.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local generator = mgpu.data.generator

-- A factory: the numbers from 1 to n, in each pass.
local function count_to(n)
  return function()
    local i = 0
    return function()
      i = i + 1
      if i <= n then return i end
    end
  end
end

-- A function that gives the numbers 1, 2, ... and, every n calls, nil.
local function counter(n)
  local calls = 0
  return function()
    calls = calls + 1
    if calls % (n + 1) ~= 0 then return calls end
  end
end

local function listed(it)
  local list = {}
  for x in it do list[#list + 1] = type(x) == "userdata" and x:totable() or x end
  return list
end

local function pass(ds, position) return listed(ds:iter(position)) end

test("a function that returns a function is called anew in each pass", function()
  local ds = generator(count_to(4))
  check.equal(pass(ds), { 1, 2, 3, 4 })
  check.equal(pass(ds), { 1, 2, 3, 4 })
  check.equal(pass(ds:batch(3):cycle(2)), { { 1, 2, 3 }, { 4 }, { 1, 2, 3 }, { 4 } })
  check.equal(pass(ds, { pass = 7, element = 3 }), { 4 })
end)

test("a function may return a coroutine, or an iterator of another dataset", function()
  local ds = generator(function()
    return coroutine.create(function()
      for i = 1, 3 do coroutine.yield(i, -i) end
    end)
  end)
  check.equal(pass(ds), { 1, 2, 3 })
  check.equal(pass(ds:map(function(_, y) return y end)), { -1, -2, -3 })
  local rows = mgpu.data.from_tensors { { 5, 6, 7 } }
  local of_rows = generator(function()
    local it = rows:iter()
    return function() return it() end
  end)
  check.equal(pass(of_rows:shuffle(2, 1):batch(3)), pass(generator(count_to(3)):map(function(x) return x + 4 end)
    :shuffle(2, 1):batch(3)))
end)

test("a function that gives elements itself goes on in the next pass", function()
  local ds = generator(counter(3))
  check.equal(pass(ds), { 1, 2, 3 })
  check.equal(pass(ds), { 5, 6, 7 })
  local some = generator(counter(3)):take(2)
  check.equal({ pass(some), pass(some) }, { { 1, 2 }, { 3 } })
end)

test("a coroutine is one pass", function()
  local co = coroutine.create(function()
    for i = 1, 3 do coroutine.yield(i) end
  end)
  local ds = generator(co)
  check.equal(pass(ds), { 1, 2, 3 })
  check.raises(function() pass(ds) end, "flow_generator_spec.lua:%d+: generator: the coroutine ended before pass 2: "
    .. "give a function that makes a new one for each pass", "usage")
end)

test("elements that are given once cannot be had again, but a fresh program can leave out the first", function()
  local ds = generator(counter(5))
  check.equal(pass(ds, { pass = 0, element = 2 }), { 3, 4, 5 })
  check.raises(function() pass(ds, { pass = 0, element = 2 }) end, "generator: the function at .*:%d+ has given its "
    .. "elements of pass 1 already and cannot go back to them: give a function that makes a new one", "usage")
  check.raises(function() pass(generator(counter(5)), { pass = 2, element = 1 }) end,
    "gives elements once, so pass 3 cannot be resumed", "usage")
end)

test("numbers and nested arrays become tensors of the given dtypes, tables of tensors stay tables", function()
  local function one()
    local done = false
    return function()
      if not done then
        done = true
        return 5, true, { { 1, 2 }, { 3, 4 } }, { a = 1, b = { mgpu.ones { 2 }, "text" } }
      end
    end
  end
  local a, b, c, d = generator(one, { dtypes = { "int32", nil, "uint8" } }):iter()()
  check.equal({ a:dtype(), b:dtype(), c:dtype(), d.a:dtype() }, { "int32", "bool", "uint8", "float32" })
  check.equal({ a:item(), b:item(), c:totable(), d.a:item(), d.b[1]:totable(), d.b[2] },
    { 5, true, { { 1, 2 }, { 3, 4 } }, 1, { 1, 1 }, "text" })
  check.equal(generator(count_to(1), { dtypes = "int64" }):iter()():dtype(), "int64")
end)

test("whole batches can be given", function()
  local ds = generator(function()
    local i = 0
    return function()
      i = i + 1
      if i <= 2 then return mgpu.full({ 4, 2 }, i), mgpu.ones { 4 } end
    end
  end)
  check.equal(pass(ds:unbatch():batch(3):map(function(x) return x:sum() end)), { 6, 10, 8 }) -- rows 111 122 22
end)

test("a length that is given is the dataset's length, and checked", function()
  check.equal(generator(count_to(4), { length = 4 }):length(), 4)
  check.equal(generator(count_to(4)):length(), nil)
  check.equal(generator(count_to(4), { length = 4 }):batch(3):length(), 2)
  check.raises(function() pass(generator(count_to(4), { length = 5 })) end,
    "gave 4 elements in pass 1, but its length was given as 5", "usage")
  check.raises(function() pass(generator(count_to(4), { length = 3 })) end,
    "gave more than 3 elements in pass 1, but its length was given as 3", "usage")
end)

test("more elements than the given length are an error at the first of them", function()
  local it = generator(count_to(math.huge), { length = 3 }):iter()
  check.equal({ it():item(), it():item(), it():item() }, { 1, 2, 3 })
  check.raises(it, "gave more than 3 elements", "usage")
end)

test("an error of the function has its message, place and element", function()
  local ds = generator(function()
    local i = 0
    return function()
      i = i + 1
      if i == 3 then error "no more disk" end
      return i
    end
  end)
  check.raises(function() pass(ds) end,
    "flow_generator_spec.lua:%d+: no more disk %(generator: the function at .*:%d+, element 3%)")
  check.raises(function() pass(generator(coroutine.create(function() error "early" end))) end,
    "early %(generator: the coroutine, element 1%)")
end)

test("a pass may be left early", function()
  local ds = generator(count_to(1000)):shuffle(10, 1):batch(5)
  for _ = 1, 3 do
    local it = ds:iter()
    check.equal(it():shape(), { 5 })
  end
end)

for what, case in pairs {
  ["a number as the function"] = { function() generator(5) end,
    "generator: expected a function or a coroutine, got number" },
  ["options that are not a table"] = { function() generator(counter(1), 5) end, "the options must be a table" },
  ["an unknown option"] = { function() generator(counter(1), { size = 5 }) end, 'unknown option "size"' },
  ["a length below 0"] = { function() generator(counter(1), { length = -1 }) end, "at least 0" },
  ["an unknown dtype"] = { function() pass(generator(counter(1), { dtypes = "integer" })) end, '"integer"' },
  ["a function as a value"] = { function() pass(generator(function() return print, 1 end)) end,
    "must give tensors, numbers or text, but value 1 of element 1 is a function" },
  ["a hole between values"] = { function() pass(generator(function() return 1, nil, 2 end)) end,
    "value 2 of element 1 is nil" },
  ["ragged numbers"] = { function() pass(generator(function() return { { 1 }, { 1, 2 } } end)) end, "generator" },
} do
  test("an error: " .. what, function()
    check.matches(check.raises(case[1], case[2], "usage"), "^[^:]*flow_generator_spec.lua:%d+: ")
  end)
end
