-- State: variables and their values, steps that compute and then commit, random numbers that are the same
-- eagerly and compiled, and memory use.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test

local function variable(values) return mgpu.variable(mgpu.tensor(values), { name = "v" }) end

test("assign does not change a value that was read before", function()
  local v = variable { 3 }
  local y = v * 2
  v:assign(mgpu.tensor { 0 })
  check.equal(y:totable(), { 6 })
  check.equal(v:value():totable(), { 0 })
end)

test("assigning a value of another shape is refused and changes nothing", function()
  local v = variable { 3 }
  check.raises(function() v:assign(mgpu.tensor { 1, 2 }) end, "cannot assign shape {2} to shape {1}",
    "usage")
  check.equal(v:value():totable(), { 3 })
end)

test("a gradient is with respect to the value that the variable had at the start", function()
  local v = variable { 3 }
  local value, grads = mgpu.value_and_grad(function()
    local y = (v * v):sum()
    v:assign(mgpu.tensor { 100 })
    return y
  end, { v })()
  check.equal(value:item(), 9)
  check.equal(grads[1]:totable(), { 6 })
end)

test("the gradient of a variable without influence is false", function()
  local v, w = variable { 3 }, variable { 4 }
  local _, grads = mgpu.value_and_grad(function() return (v * v):sum() end, { v, w })()
  check.equal(grads[1]:totable(), { 6 })
  check.equal(grads[2], false)
end)

test("a compiled step assigns the same values as an eager one", function()
  local function run(wrap)
    local v, w = variable { 1 }, variable { 10 }
    local step = wrap(function(x)
      local old = v:value()
      v:assign(w * x) -- reads w before its update
      w:assign(old + w)
      return old
    end)
    local out = {}
    for i = 1, 3 do out[i] = step(mgpu.tensor { i }):item() end
    return { out, v:value():item(), w:value():item() }
  end
  check.equal(run(mgpu.jit), run(function(f) return f end))
end)

test("a value read from a variable survives compiled steps", function()
  local v = variable { 1, 2 }
  local step = mgpu.jit(function() v:assign(v * 2) end)
  step()
  local held = v:value()
  step()
  step()
  check.equal(held:totable(), { 2, 4 })
  check.equal(v:value():totable(), { 8, 16 })
end)

test("a compiled step with a NaN commits nothing, and training can go on", function()
  local v = variable { 1 }
  local step = mgpu.jit(function(x)
    local y = v * x
    core.guard_finite({ y }, "the product is not finite")
    v:assign(y)
    return y
  end)
  step(mgpu.tensor { 3 })
  check.raises(function() step(mgpu.tensor { 0 / 0 }) end, "the product is not finite", "nonfinite")
  check.equal(v:value():totable(), { 3 })
  step(mgpu.tensor { 2 })
  check.equal(v:value():totable(), { 6 })
end)

test("an error inside a traced function leaves variables unchanged", function()
  local v = variable { 1 }
  local step = mgpu.jit(function(x)
    v:assign(v + x)
    error "halt"
  end)
  check.raises(function() step(mgpu.tensor { 3 }) end, "halt")
  check.equal(v:value():totable(), { 1 })
  check.falsy(core.tracing(), "a trace")
end)

test("a learning rate in a variable can change without a retrace", function()
  local v, rate = variable { 1 }, variable { 0.5 }
  local step = mgpu.jit(function() v:assign(v - rate) end)
  step()
  rate:assign(mgpu.tensor { 0.25 })
  step()
  check.equal(v:value():totable(), { 0.25 })
  check.equal(step:plans(), 1)
end)

test("numbers, strings and upvalues are part of the signature", function()
  local factor = 2
  local step = mgpu.jit(function(x, n, mode)
    if mode == "add" then return x + n * factor end
    return x * n * factor
  end)
  local x = mgpu.tensor { 3 }
  check.equal(step(x, 2, "add"):totable(), { 7 })
  check.equal(step(x, 3, "add"):totable(), { 9 })
  check.equal(step(x, 2, "mul"):totable(), { 12 })
  factor = 10
  check.equal(step(x, 2, "mul"):totable(), { 60 })
  check.equal(step(mgpu.tensor { 1, 2 }, 2, "mul"):totable(), { 20, 40 })
  check.equal(step:plans(), 5)
end)

test("item inside a traced function is an error at the user's line", function()
  local step = mgpu.jit(function(x) return x:item() end)
  local message = check.raises(function() step(mgpu.tensor { 3 }) end, "jit", "usage")
  check.matches(message, "state_spec.lua:")
end)

test("a traced tensor used after the trace is an error", function()
  local leaked
  local step = mgpu.jit(function(x)
    leaked = x * 2
    return leaked
  end)
  check.equal(step(mgpu.tensor { 3 }):item(), 6)
  check.raises(function() return leaked:item() end, "jit", "usage")
  check.raises(function() return (leaked + 1):item() end, "jit", "usage")
  leaked = nil
end)

test("eager and compiled steps draw the same random numbers", function()
  local function draw() return mgpu.rand { 3, 5 }, mgpu.randn { 4 } end
  local function numbers(f)
    mgpu.seed(7)
    local all = {}
    for i = 1, 3 do
      local a, b = f()
      all[i] = { a:totable(), b:totable() }
    end
    return all
  end
  check.equal(numbers(mgpu.jit(draw)), numbers(draw))
end)

test("a failed step consumes no random numbers", function()
  local v = variable { 1 }
  local step = mgpu.jit(function(x)
    local r = mgpu.rand { 3 }
    core.guard_finite({ x }, "no")
    v:assign(v + 1)
    return r
  end)
  mgpu.seed(5)
  local first = step(mgpu.tensor { 1 }):totable()
  mgpu.seed(5)
  check.raises(function() step(mgpu.tensor { 1 / 0 }) end, "no")
  check.equal(step(mgpu.tensor { 1 }):totable(), first)
end)

test("a million eager updates do not use more and more memory", function()
  local v = mgpu.variable(mgpu.tensor(0, { dtype = "float64" }))
  local peak = 0
  for i = 1, 1000000 do
    v:assign(v + 1)
    if i % 50000 == 0 then
      collectgarbage()
      peak = math.max(peak, collectgarbage "count")
    end
  end
  check.equal(v:value():item(), 1000000)
  check.truthy(peak < 64 * 1024, "the Lua heap stays small: " .. peak .. " KiB")
end)

test("a chain of 200,000 unevaluated tensors can be built and freed", function()
  local v = mgpu.tensor(0, { dtype = "float64" })
  for _ = 1, 200000 do v = v + 1 end
  check.equal(v:item(), 200000)
end)

-- Every second op makes one of 2^45 elements, so that the evaluation that bounds the history would meet one.
test("a large tensor that nothing reads is not computed to bound a history", function()
  for first = 0, 1 do
    local v = mgpu.tensor { 0 }
    for _ = 1, first do v = v + 1 end
    for _ = 1, 1500 do
      v = v + 1
      v:broadcast_to { 2 ^ 45 }
    end
    check.equal(v:item(), 1500 + first)
  end
end)

test("repeating a run with the same seed gives the same bits", function()
  local function run()
    mgpu.seed(11)
    local w = mgpu.variable(mgpu.randn { 64, 32 })
    local x = mgpu.randn { 128, 64 }
    local step = mgpu.jit(function()
      local loss, g = mgpu.value_and_grad(function() return (x:matmul(w):relu() ^ 2):mean() end, { w })()
      w:assign(w - g[1] * 0.1)
      return loss
    end)
    local losses = {}
    for i = 1, 10 do losses[i] = step():item() end
    return losses
  end
  check.equal(run(), run())
end)

test("a malformed MGPU_MEMORY is an error that says how to write it", function()
  local function sum(limit)
    return check.run(('MGPU_MEMORY=%s %s -e "print(require[[mgpu]].ones{3}:sum():item())" 2>&1'):format(limit,
      check.program))
  end
  for _, limit in ipairs { "cpu:0=abc", "200M", "cpu:0=20MB", "cpu:0=0", "cpu:0=-1G", "cqu:0=1G", "cpu:0=1G,cpu:1=",
    "ref:0=inf" } do
    check.matches(sum(limit), ('MGPU_MEMORY: cannot read "%s"'):format(limit:match "[^,]*$"))
    check.matches(sum(limit), "as in MGPU_MEMORY=cpu:0=200M,cuda:0=4G")
  end
  check.matches(check.run(('MGPU_MEMORY=1G %s -e "print(pcall(require[[mgpu]].jit(function() return 1 end)))"')
    :format(check.program)), "cannot read") -- a trace needs a device too
  for _, limit in ipairs { "", "cpu:0=200M", "cpu=1g,gpu:0=4G", "ref:0=1048576,null:3=1.5T" } do
    check.equal(sum(limit), "3\n")
  end
end)

test("MGPU_MEMORY limits a device's memory, and the session goes on after the error", function()
  local script = check.path "limit.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local ok, message = pcall(function() return mgpu.zeros { 10000000 }:item() end)
ok, message = pcall(function() return (mgpu.zeros { 10000000 } + 1):sum():item() end)
local big_ok, big = pcall(function() return mgpu.tensor { 1 }:broadcast_to { 20000000 }:clone():totable() end)
print(big_ok, big)
print(mgpu.error_code())
print((mgpu.ones { 100 } * 2):sum():item())
]])
  local output = check.run("MGPU_MEMORY=cpu:0=20M,ref:0=20M " .. check.program .. " " .. script)
  check.matches(output, "out of memory: asked")
  check.matches(output, "limit 20.0 MiB")
  check.matches(output, "\noom\n200\n")
end)
