-- Steps of mgpu.jit on several devices: what they share, and the warning about those that share nothing.

local check = require "check"
local mgpu = require "mgpu"
local stderr_of = require "fixtures".stderr_of

local test = check.test

-- The sum of the squares of n rows by a step on the devices -> what it wrote to stderr, the sum.
local function square_sum(devices, shares, ...)
  local step = mgpu.jit(function(x)
    if shares then x = x:shard() end
    return (x * x):sum()
  end, { devices = devices })
  return stderr_of(function(...)
    local sums = {}
    for i, n in ipairs { ... } do sums[i] = step(mgpu.arange(n)):item() end
    return sums
  end, ...)
end

test("a step whose devices share nothing gives the right number and one warning, whatever its shapes", function()
  local text, sums = square_sum("ref:0-2", false, 5, 4)
  check.equal(sums, { 30, 14 })
  check.equal(text, "mgpulua: warning: mgpu.jit: each of the 3 devices computes the whole step, because nothing in it "
    .. "says what they share: x:shard() splits the rows of x over them\n")
end)

test("a step that shards rows, or has one device, gives no warning", function()
  for _, case in ipairs { { "ref:0-2", true }, { "ref:0", false }, { { ["ref:0"] = 2, ["ref:1"] = 1 }, true } } do
    local text, sums = square_sum(case[1], case[2], 5, 2)
    check.equal(sums, { 30, 1 })
    check.equal(text, "")
  end
end)

test("what reads one sum of a bucket is not fused with what another sum of it is made of", function()
  local f = mgpu.jit(function(x, z)
    x, z = x:shard(), z:shard()
    local a = z:sum { axis = 1 }
    return (x * 2 + 1):sum { axis = 1 }, (x * a):sum { axis = 1 } -- the two terms would share the reading of x
  end, { devices = { "cpu:0", "cpu:1" } })
  local b, y = f(mgpu.ones { 4, 3 }, mgpu.full({ 4, 3 }, 2))
  check.equal(b:totable(), { 12, 12, 12 })
  check.equal(y:totable(), { 32, 32, 32 })
end)
