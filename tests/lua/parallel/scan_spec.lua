-- Loops on several devices: the values and gradients of one device, without collectives in a step.
local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local F64 = { dtype = "float64" }

local function cpus(n)
  local list = {}
  for i = 1, n do list[i] = "cpu:" .. i - 1 end
  return list
end

-- Results of fn(x), as lists, in a step whose rows the devices share, and the step.
local function run(fn, variables, x, n)
  mgpu.seed(1)
  local step = mgpu.jit(function(rows)
    return mgpu.value_and_grad(function() return fn(rows:shard()) end, variables)()
  end, n > 1 and { devices = cpus(n) } or nil)
  local value, gradients = step(x)
  local list = { value:to "cpu:0":reshape({ -1 }):totable() }
  for i, g in ipairs(gradients) do list[i + 1] = g:to "cpu:0":reshape({ -1 }):totable() end
  return list, step
end

-- 8 devices for 6 rows: two have none.
local function compare(fn, variables, x, wanted)
  local one = run(fn, variables, x, 1)
  for _, n in ipairs { 2, 3, 4, 8 } do
    local list, step = run(fn, variables, x, n)
    for i, values in ipairs(list) do check.near(mgpu.tensor(values, F64), one[i], 1e-12) end
    local _, gathers = step:dump():gsub("all_gather", "")
    check.equal(gathers > 0, wanted == "gathers", step:dump())
  end
end

-- {rows, steps, width} as {steps, rows, width}
local function by_steps(x) return x:permute { 2, 1, 3 } end

local function v(shape) return mgpu.variable(mgpu.rand(shape, F64)) end

test("a recurrence with weights, bias and a learned first state needs sums of gradients only", function()
  local w, u, b, h0 = v { 3, 4 }, v { 4, 4 }, v { 4 }, v { 4 }
  compare(function(x)
    local first = h0:value():reshape({ 1, 4 }):broadcast_to { 6, 4 }
    local h, ys = mgpu.scan(function(h, xt)
      local new = (xt:matmul(w) + h:matmul(u) + b):tanh()
      return new, new * new
    end, first, by_steps(x))
    return h:mean() + ys:mean()
  end, { w, u, b, h0 }, mgpu.rand({ 6, 5, 3 }, F64))
end)

test("a recurrence over the steps of another, each with a product of all steps, gathers nothing", function()
  local w, u = v { 3, 4 }, v { 4, 2 }
  compare(function(x)
    local function layer(xs, kernel, width)
      local _, hs = mgpu.scan(function(h, xt)
        local new = (h * 0.5 + xt):tanh()
        return new, new
      end, mgpu.zeros({ 6, width }, F64), xs:matmul(kernel:value()))
      return hs
    end
    return layer(layer(by_steps(x), w, 4), u, 2):mean()
  end, { w, u }, mgpu.rand({ 6, 5, 3 }, F64))
end)

test("a sum over the rows is carried as terms, which are added up after the loop", function()
  local w = v { 3 }
  compare(function(x)
    local sums, hs = mgpu.scan(function(c, xt)
      return { total = c.total + (xt * w):sum(), best = mgpu.maximum(c.best, xt * w) }, c.best
    end, { total = mgpu.zeros({}, F64), best = mgpu.zeros({ 6, 3 }, F64) }, by_steps(x))
    return sums.total * 0.1 + sums.best:mean() + hs:sum()
  end, { w }, mgpu.rand({ 6, 5, 3 }, F64))
end)

test("carries that are equal on all devices stay so", function()
  local w = v { 3 }
  compare(function(x)
    local c, ys = mgpu.scan(function(c, xt)
      return { rate = c.rate * 0.5, h = c.h + xt * w * c.rate }, c.h * c.rate
    end, { rate = mgpu.ones({}, F64), h = mgpu.zeros({ 6, 3 }, F64) }, by_steps(x))
    return (c.h * c.rate):mean() + ys:mean()
  end, { w }, mgpu.rand({ 6, 5, 3 }, F64))
end)

test("a step that needs all rows is run whole on each device", function()
  local w = v { 3 }
  compare(function(x)
    local h = mgpu.scan(function(h, xt) return (h + xt * w - xt:mean { axis = 1, keepdims = true }):tanh() end,
      mgpu.zeros({ 6, 3 }, F64), by_steps(x))
    return h:mean()
  end, { w }, mgpu.rand({ 6, 5, 3 }, F64), "gathers")
end)

test("steps that are the rows are run whole on each device", function()
  local w = v { 3 }
  compare(function(x)
    local h = mgpu.scan(function(h, xt) return (h + xt * w):tanh() end, mgpu.zeros({ 3 }, F64), x)
    return h:mean()
  end, { w }, mgpu.rand({ 6, 3 }, F64), "gathers")
end)

test("loops within loops, draws and checkpoints give the numbers of one device", function()
  local w = v { 3, 3 }
  compare(function(x)
    local total = mgpu.scan(function(c, xt)
      local kept = mgpu.random { kind = "bernoulli", shape = { 6, 3 }, a = 0.5 }
      local inner = mgpu.scan(function(d, row) return (d:matmul(w) + row):tanh() end, c, mgpu.stack { xt, xt * 0.5 })
      return mgpu.where(kept, inner, c)
    end, mgpu.zeros({ 6, 3 }, F64), by_steps(x), { checkpoint = true })
    return total:mean()
  end, { w }, mgpu.rand({ 6, 9, 3 }, F64))
end)

test("second derivatives", function()
  local w = v { 3 }
  compare(function(x)
    local function loss()
      return mgpu.scan(function(h, xt) return (h * w + xt):tanh() end, mgpu.zeros({ 6, 3 }, F64), by_steps(x)):mean()
    end
    local _, g = mgpu.value_and_grad(loss, { w })()
    return (g[1] * g[1]):sum()
  end, { w }, mgpu.rand({ 6, 5, 3 }, F64))
end)

test("matrices of {steps, rows, width} are contracted over both axes without a gather", function()
  local w = v { 3, 4 }
  compare(function(x) return by_steps(x):matmul(w):tanh():mean() end, { w }, mgpu.rand({ 6, 5, 3 }, F64))
  compare(function(x) -- but the matrix itself is a gather
    local flat = by_steps(x):reshape { 30, 3 }
    return (flat:matmul(w) * mgpu.arange(30):to("float64"):reshape { 30, 1 }):tanh():mean()
  end, { w }, mgpu.rand({ 6, 5, 3 }, F64), "gathers")
end)

test("what only unread results of a loop need is not computed, nor gathered", function()
  local w = v { 3 }
  compare(function(x)
    local _, ys = mgpu.scan(function(c, xt)
      return { c[2], c[1], c[3] * 0.5 }, { xt + c[3], xt:cumsum { axis = 1 } } -- the latter needs all rows
    end, { x[1], x[1], mgpu.ones({ 6, 3 }, F64) }, by_steps(x))
    local h = mgpu.scan(function(c, xt)
      return { used = (c.used + xt.x * w):tanh(), unread = c.unread + xt.all }
    end, { used = mgpu.zeros({ 6, 3 }, F64), unread = mgpu.zeros({ 6, 3 }, F64) }, { x = ys[1], all = ys[2] })
    return h.used:mean()
  end, { w }, mgpu.rand({ 6, 5, 3 }, F64))
end)

test("a device without rows meets a reduction that only a loop's results with rows need", function()
  local function step(x)
    local most = x:max() -- the only collective
    local count, ys = mgpu.scan(function(n, xt) return n + 1, xt - most end, mgpu.zeros({}, F64), by_steps(x))
    return ys:permute { 2, 1, 3 }, count -- by rows, so each device has its part
  end
  local x = mgpu.rand({ 3, 4, 2 }, F64)
  local wanted = step(x)
  local ys, count = mgpu.jit(function(rows) return step(rows:shard()) end, { devices = cpus(5) })(x)
  check.equal(count:item(), 4)
  check.equal(ys:to "cpu:0":totable(), wanted:totable())
end)
