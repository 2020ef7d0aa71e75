-- Runs of jitted functions beside the caller: core.jit(fn):submit(...) -> handle with done(), wait()
-- and cancel().

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

-- A jitted function of one device that takes a while: the sum of the elements of x^(n + 1).
local function slow(device, n)
  return core.jit(function(x)
    local y = x
    for _ = 1, n do y = mgpu.matmul(x, y) end
    return mgpu.sum(y)
  end, { devices = { device } })
end

-- An identity matrix of 150 rows: every product with it is itself, and its elements add up to 150.
local eye = mgpu.eye(150)

test("several devices run a step while one of them has a submitted run", function()
  local alone = slow("ref:0", 6)
  local both = core.jit(function(x) return mgpu.sum(core.ops.shard(x) * 2) end, { devices = { "ref:0", "ref:1" } })
  for _ = 1, 3 do
    local handle = alone:submit(eye)
    check.near(both(eye):item(), 300, 1e-4)
    check.near(handle:wait():item(), 150, 1e-4)
  end
end)

test("the error of a submitted run is raised by wait, also after another run on its device", function()
  local alone = slow("ref:0", 6)
  local both = core.jit(function(x) return mgpu.sum(core.ops.shard(x) * 2) end, { devices = { "ref:0", "ref:1" } })
  alone:prepare(eye)
  both:prepare(eye)
  core.fault { device = "ref:0", op = "matmul" }
  local handle = alone:submit(eye)
  check.near(both(eye):item(), 300, 1e-4)
  check.raises(function() handle:wait() end, "ref:0", "device")
  check.near(alone(eye):item(), 150, 1e-4, "the fault is over")
end)

test("a device refuses a second submitted run until the first has been waited for", function()
  local f, g = slow("ref:0", 6), slow("ref:0", 1)
  local first = f:submit(eye)
  for _ = 1, 100 do
    check.raises(function() f:submit(eye) end, "ref:0: a submitted run of this function has not been waited for yet",
      "usage")
    check.raises(function() g:submit(eye) end, "ref:0: a submitted run has not been waited for yet", "usage")
  end
  local elsewhere = slow("ref:1", 1):submit(eye)
  check.near(first:wait():item(), 150, 1e-4)
  check.near(elsewhere:wait():item(), 150, 1e-4)
  check.near(g:submit(eye):wait():item(), 150, 1e-4)
  check.near(f:submit(eye):wait():item(), 150, 1e-4)
end)

test("a function refuses to run while it has a submitted run with the same signature", function()
  local f = slow("ref:0", 6)
  local handle = f:submit(eye)
  check.raises(function() f(eye) end, "has not been waited for yet: call wait() on its handle first", "usage")
  check.near(handle:wait():item(), 150, 1e-4)
  check.near(f(eye):item(), 150, 1e-4)
end)

test("a submitted run that is refused takes no random numbers", function()
  local f, g = slow("ref:0", 6), core.jit(function(x)
    return mgpu.sum(x + mgpu.rand(x:shape()))
  end, { devices = { "ref:0" } })
  local handle = f:submit(eye)
  g:prepare(eye)
  local before = core.rng_state()
  check.raises(function() g:submit(eye) end, nil, "usage")
  check.equal(core.rng_state(), before)
  handle:wait()
  g:submit(eye):wait()
  check.truthy(core.rng_state().base > before.base)
end)

test("a submitted run whose handle is dropped frees its device", function()
  slow("ref:0", 1):submit(eye)
  collectgarbage()
  collectgarbage()
  check.near(slow("ref:0", 1):submit(eye):wait():item(), 150, 1e-4)
end)

test("a cancelled run commits nothing, and its function and device can be used again at once", function()
  local v = mgpu.variable(1, { name = "v" })
  local f = core.jit(function(x)
    local y = x
    for _ = 1, 20 do y = mgpu.matmul(x, y) end
    v:assign(v + 1)
    return mgpu.sum(y)
  end, { devices = { "ref:0" } })
  local handle = f:submit(eye)
  handle:cancel()
  handle:cancel()
  check.raises(function() handle:wait() end, "the result was taken already", "usage")
  check.equal(v:item(), 1)
  check.near(f(eye):item(), 150, 1e-4)
  check.equal(v:item(), 2)
end)
