-- Spaces of mgpu.tune, and what a search draws from them.

local check = require "check"
local mgpu = require "mgpu"
local spaces = require "mgpu.tune.spaces"

local test = check.test
local tune = mgpu.tune

local function drawn(space, n)
  local list, found = spaces.check { x = space }, {}
  for i = 1, n do found[i] = spaces.random(list, 7, i).x end
  return found
end

test("draws lie in the space and reach all of it", function()
  local counts = {}
  for _, x in ipairs(drawn(tune.int(-1, 3), 500)) do counts[x] = (counts[x] or 0) + 1 end
  for x = -1, 3 do check.truthy(counts[x] > 60 and counts[x] < 140, tostring(x)) end
  local low, high, below = math.huge, -math.huge, 0
  for _, x in ipairs(drawn(tune.loguniform(1e-4, 1), 500)) do
    low, high = math.min(low, x), math.max(high, x)
    if x < 1e-2 then below = below + 1 end
  end
  check.truthy(low >= 1e-4 and low < 2e-4 and high <= 1 and high > 0.5)
  check.truthy(below > 200 and below < 300, "half of them are below the middle of the logarithms")
  for _, x in ipairs(drawn(tune.uniform(2, 4), 100)) do check.truthy(x >= 2 and x < 4) end
  local seen = {}
  for _, x in ipairs(drawn({ "a", true, 5 }, 50)) do seen[x] = true end
  check.truthy(seen.a and seen[true] and seen[5])
  check.equal(drawn("fixed", 2), { "fixed", "fixed" })
end)

test("draws depend on seed, number and name alone", function()
  local both = spaces.check { a = tune.uniform(0, 1), b = tune.uniform(0, 1) }
  local one = spaces.check { a = tune.uniform(0, 1) }
  check.equal(spaces.random(both, 3, 5).a, spaces.random(one, 3, 5).a)
  check.truthy(spaces.random(both, 3, 5).a ~= spaces.random(both, 3, 5).b)
  check.truthy(spaces.random(one, 3, 5).a ~= spaces.random(one, 4, 5).a)
  check.truthy(spaces.seed_of(0, 1) ~= spaces.seed_of(0, 2))
  local before = mgpu.rng_state()
  spaces.random(both, 1, 1)
  check.equal(mgpu.rng_state(), before)
end)

test("a grid has every combination once", function()
  local list = spaces.grid(spaces.check { a = { 1, 2 }, b = tune.int(3, 5), c = "x" })
  check.equal(#list, 6)
  check.equal(list[1], { a = 1, b = 3, c = "x" })
  check.equal(list[2], { a = 1, b = 4, c = "x" })
  check.equal(list[6], { a = 2, b = 5, c = "x" })
end)

test("wrong spaces are refused", function()
  for _, case in ipairs {
    { function() tune.uniform(2, 1) end, "uniform: the first number must be below the second, got 2 and 1" },
    { function() tune.uniform "a" end, "uniform: two numbers are expected" },
    { function() tune.uniform(0, math.huge) end, "two numbers are expected" },
    { function() tune.loguniform(0, 1) end, "loguniform: both numbers must be above 0, got 0" },
    { function() tune.int(1, 2.5) end, "int: whole numbers are expected, got 1 and 2.5" },
    { function() tune.choice {} end, "choice: an array of values is expected" },
    { function() tune.choice { print } end, "choice: value 1 is a function" },
    { function() spaces.check {} end, "space is a table of parameters" },
    { function() spaces.check { 5 } end, "parameters have names, as {units = {32, 64}}, got the key 1" },
    { function() spaces.check { epochs = { 5 } } end, '"epochs" is a field of every trial' },
    { function() spaces.check { x = {} } end, "space: x: a space of mgpu.tune, an array of values" },
    { function() spaces.check { x = print } end, "got a function" },
    { function() spaces.grid(spaces.check { x = tune.uniform(0, 1) }) end, "x is uniform(0, 1), of which a grid" },
    { function() spaces.grid(spaces.check { x = tune.int(0, 1e9) }) end, "more than 100000 values" },
    { function() spaces.grid(spaces.check { x = tune.int(1, 999), y = tune.int(1, 999) }) end,
      "more than 100000 trials" },
  } do
    check.truthy(check.raises(case[1], nil, "usage"):find("tune: " .. case[2], 1, true)
      or check.raises(case[1]):find(case[2], 1, true), case[2])
  end
end)
