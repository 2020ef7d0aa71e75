-- Rewrites of the planner: updates of 16-bit policies, max pools and their gradients, small fused groups
-- that run in one call, concat and slice. Each test checks the plan, and that the numbers are those of the
-- ops evaluated one by one.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops

local fuses = not core.default_device():find "ref"

-- The lines of a plan that match a pattern.
local function lines(dump, pattern)
  local list = {}
  for line in (dump .. "\n"):gmatch "([^\n]*)\n" do
    if line:find(pattern) then list[#list + 1] = line end
  end
  return list
end

local function numbers(t) return t:to("float64"):reshape({ -1 }):totable() end

-- Runs fn as one compiled step and op by op, and compares the numbers; returns the plan. fn calls its first
-- argument with each intermediate tensor, which evaluates it in the second run.
local function compare(fn, ...)
  local step = mgpu.jit(function(...) return fn(function(t) return t end, ...) end)
  step(...)
  local together = step(...)
  local apart = fn(function(t)
    mgpu.eval(t)
    return t
  end, ...)
  local a, b = numbers(together), numbers(apart)
  check.equal(#a, #b)
  for i, v in ipairs(b) do
    if not (v == a[i] or (v ~= v and a[i] ~= a[i])) then check.fail(("number %d: %g, not %g"):format(i, a[i], v)) end
  end
  return step:dump()
end

-- ---- 16-bit updates -----------------------------------------------------------------------------

local function trained(dtype, optimizer)
  mgpu.seed(3)
  local variables, grads = {}, {}
  for i, shape in ipairs { { 3 }, { 2, 2 }, { 5 } } do
    variables[i] = core.variable(mgpu.rand(shape), { name = "v" .. i })
    grads[i] = (mgpu.rand(shape) - 0.5):to(dtype)
  end
  optimizer:build(variables)
  local step = mgpu.jit(function(list)
    local wide = {}
    for i, g in ipairs(list) do wide[i] = optimizer.skips_steps and g or g:to "float32" end
    optimizer:apply(wide, variables)
    if optimizer.skips_steps then return end -- such an optimizer checks the gradients itself
    core.guard(ops.all_finite(wide), "nonfinite", "a gradient is not finite")
  end)
  step(grads)
  return step:dump(), step, variables, grads
end

for dtype, new in pairs {
  float16 = function() return mgpu.optimizers.LossScaleOptimizer { mgpu.optimizers.RMSprop {} } end,
  bfloat16 = function() return mgpu.optimizers.RMSprop {} end,
} do
  test(dtype .. " gradients are checked before they are cast, and the updates are one row", function()
    local dump = trained(dtype, new())
    check.matches(dump, "all_finite%(%%%d+, %%%d+, %%%d+[,)]")
    for _, line in ipairs(lines(dump, "all_finite")) do
      if line:find "commit" then break end -- the commit of the new values
      local first = line:match "all_finite%(%%(%d+)"
      check.falsy(dump:find(("%%%%%s:[^\n]* = fused"):format(first)), line) -- no cast before the check
    end
    if not fuses then check.skip "ref fuses nothing" end
    check.matches(dump, "commit 3 alike: cast:float32")
  end)
end

test("weights are read once for their check: where they are new, behind the updates", function()
  local dump = trained("float32", mgpu.optimizers.RMSprop {})
  local checks = lines(dump, "all_finite")
  local weights = checks[#checks]:match "all_finite(%b())"
  check.matches(checks[#checks], "commit")
  for number in weights:gmatch "%%(%d+)" do
    check.matches(dump, ("commit[^\n]*%%%%%s:[^\n]* = fused"):format(number))
    for i = 1, #checks - 1 do check.falsy(checks[i]:find(("%%%%%s[,)]"):format(number)), checks[i]) end
  end
end)

test("a step with a gradient that is not finite changes nothing", function()
  for _, bad in ipairs { 1 / 0, -1 / 0, 0 / 0 } do
    local opt = mgpu.optimizers.LossScaleOptimizer { mgpu.optimizers.RMSprop {} }
    local _, step, variables, grads = trained("float16", opt)
    local before = numbers(variables[1])
    grads[2] = mgpu.tensor({ { 1, bad }, { 2, 3 } }, { dtype = "float16" })
    step(grads)
    check.equal(numbers(variables[1]), before)
    check.equal(opt.skipped:item(), 1)
  end
end)

test("all_finite of a quotient by a clamped scale gives the same answer without the division", function()
  local function finite(least, most)
    return mgpu.jit(function(x, s)
      return ops.all_finite(x:to "float32" / ops.minimum(ops.maximum(s, least), most))
    end)
  end
  for _, limits in ipairs { { 2 ^ -24, 2 ^ 126 }, { 1e-45, 2 ^ 126 }, { 2 ^ -24, 1 / 0 }, { 2 ^ -24, 1e-40 } } do
    local least, most = unpack(limits)
    local jitted = finite(least, most)
    for _, x in ipairs { 0, 1, 65504, 1 / 0, 0 / 0 } do
      for _, s in ipairs { 1, 0, 1e-36, 2 ^ -24, 3e38, 1 / 0, 0 / 0 } do
        local half = mgpu.tensor({ 1, x }, { dtype = "float16" })
        local scale = mgpu.tensor(s)
        local quotient = half:to "float32" / ops.minimum(ops.maximum(scale, least), most)
        mgpu.eval(quotient)
        check.equal(jitted(half, scale):item(), ops.all_finite(quotient):item(),
          ("%g / min(max(%g, %g), %g)"):format(x, s, least, most))
      end
    end
  end
end)

-- ---- max pools ----------------------------------------------------------------------------------

local IMAGE = { 2, 6, 7, 3 }

local function image(dtype, nan)
  local values = {}
  for i = 1, 2 * 6 * 7 * 3 do values[i] = math.floor((0.5 + i * 0.6180339887498949) % 1 * 9) - 4 end -- with ties
  if nan then values[20] = 0 / 0 end
  return mgpu.tensor(values, { dtype = dtype }):reshape(IMAGE)
end

local POOLS = {
  { size = { 2, 2 } },
  { size = { 2, 3 }, strides = { 3, 3 } },
  { size = { 3, 2 }, strides = { 1, 2 } },
  { size = { 2, 2 }, pads = { 0, 0, 0, 1 } },
}

-- relu, max pool and their gradients; the mask of the relu comes before the pool.
local function masked(keep, x, dy, options)
  local y = keep(ops.relu(x))
  local mask = keep(ops.gt(y, 0))
  local pooled = keep(ops.max_pool2d(y, options))
  local grad = keep(ops.max_pool2d_grad(y, pooled, keep(dy * 2), options))
  return ops.where(mask, grad, 0)
end

for i, options in ipairs(POOLS) do
  test(("the relu mask before a max pool is applied to the pooled gradient: %d"):format(i), function()
    for _, dtype in ipairs { "float32", "float16" } do
      for _, nan in ipairs { false, true } do
        local x = image(dtype, nan)
        local dy = ops.max_pool2d(image(dtype, false) + 7, options)
        local dump = compare(function(keep, a, b) return masked(keep, a, b, options) end, x, dy)
        if fuses then
          check.matches(lines(dump, "max_pool2d_grad")[1], "^%%%d+:float%d+{2, 6, 7, 3} = max_pool2d_grad")
          check.equal(#lines(dump, "{2, 6, 7, 3} = fused.*where"), 0, dump)
        end
      end
    end
  end)

  test(("the sum of a max pool's gradient needs no gradient image: %d"):format(i), function()
    -- whole numbers, so that sums are the same in any order
    local x = image("float32", false)
    local dy = ops.max_pool2d(image("float32", false) + 7, options)
    local dump = compare(function(keep, a, b)
      local grad = keep(ops.max_pool2d_grad(a, keep(ops.max_pool2d(a, options)), b, options))
      return ops.sum(grad, { axis = { 1, 2, 3 } })
    end, x, dy)
    check.equal(#lines(dump, "max_pool2d_grad"), i <= 2 and 0 or 1, dump)
  end)
end

test("sums of a max pool's gradient over other axes have the right numbers", function()
  for _, axes in ipairs { { 1, 2 }, { 1 }, { 2, 3 }, { 4 } } do
    compare(function(keep, a)
      local pooled = keep(ops.max_pool2d(a, POOLS[1]))
      local grad = keep(ops.max_pool2d_grad(a, pooled, pooled, POOLS[1]))
      return ops.sum(grad, { axis = axes })
    end, image("float32", false))
  end
end)

-- ---- small groups -------------------------------------------------------------------------------

test("casts of small arguments run together before the first use of one", function()
  local args = {}
  for i = 1, 4 do args[i] = mgpu.rand { 3, 3 } end
  local dump = compare(function(keep, a, b, c, d)
    local h = keep(ops.matmul(keep(a:to "float16"), keep(b:to "float16")))
    h = keep(ops.matmul(h, keep(c:to "float16")))
    return ops.matmul(h, keep(d:to "float16"))
  end, unpack(args))
  if not fuses then check.skip "ref fuses nothing" end
  check.matches(dump, "^4 alike: cast:float16[^\n]*\n  %%%d+:float16{3, 3} = fused")
end)

test("casts of large arguments run when they are needed", function()
  local args = {}
  for i = 1, 3 do args[i] = mgpu.rand { 400, 400 } end
  local step = mgpu.jit(function(a, b, c)
    return ops.matmul(ops.matmul(a:to "float16", b:to "float16"), c:to "float16")
  end)
  step(unpack(args))
  check.equal(#lines(step:dump(), "alike"), 0)
end)

test("the cast of a scalar that updates read is computed with the update of another scalar", function()
  if not fuses then check.skip "ref fuses nothing" end
  local rate = core.variable(mgpu.tensor(0.5, { dtype = "float64" }))
  local counter = core.variable(mgpu.tensor(41, { dtype = "int64" }))
  local w = core.variable(mgpu.ones { 3 })
  local step = mgpu.jit(function(g)
    counter:assign(counter:value() + 1)
    w:assign(w:value() - rate:value():to "float32" * g)
  end)
  step(mgpu.ones { 3 })
  check.equal({ counter:value():item(), w:value():totable() }, { 42, { 0.5, 0.5, 0.5 } })
  local commits = lines(step:dump(), "^commit")
  check.equal(#commits, 2, step:dump())
end)

-- ---- concat and slice ---------------------------------------------------------------------------

test("a slice of a concat that equals one of its operands becomes that operand", function()
  local a, b, c = mgpu.rand { 2, 3 }, mgpu.rand { 2, 1 }, mgpu.rand { 2, 4 }
  for _, case in ipairs { -- start, stop, step, slices left in the plan
    { { 0, 0 }, { 2, 3 }, { 1, 1 }, 0 },
    { { 0, 3 }, { 2, 4 }, { 1, 1 }, 0 },
    { { 0, 4 }, { 2, 8 }, { 1, 1 }, 0 },
    { { 0, 3 }, { 2, 5 }, { 1, 1 }, 1 },
    { { 0, 4 }, { 1, 8 }, { 1, 1 }, 1 },
    { { 0, 4 }, { 2, 8 }, { 1, 2 }, 1 },
    { { 0, 7 }, { 2, 8 }, { 1, 1 }, 1 },
  } do
    local dump = compare(function(keep, x, y, z)
      local whole = keep(ops.concat({ x, y, z }, { axis = 2 }))
      return ops.slice(whole, { start = case[1], stop = case[2], step = case[3] }) * 2
    end, a, b, c)
    check.equal(#lines(dump, "slice"), case[4], dump)
  end
end)

test("equal sums of a max pool's gradient are computed once", function()
  local dump = compare(function(keep, x)
    local pooled = keep(ops.max_pool2d(x, POOLS[1]))
    local grad = keep(ops.max_pool2d_grad(x, pooled, pooled, POOLS[1]))
    return ops.sum(grad, { axis = { 1, 2, 3 } }) * ops.sum(pooled, { axis = { 1, 2, 3 } })
  end, image("float32", false))
  check.equal(#lines(dump, "= sum"), 1, dump)
end)

test("a power of 2 is a product", function()
  local f = mgpu.jit(function(x) return x ^ 2, x ^ 2.5 end)
  local square, other = f(mgpu.tensor { -3, 4 })
  check.equal(square:totable(), { 9, 16 })
  check.equal(other:totable()[2], 32)
  check.matches(f:dump(), "square:float32")
  local _, n = f:dump():gsub("pow:", "")
  check.equal(n, 1)
end)
