-- Generated kernels against the reference device: fused groups in all their forms, reductions and scans
-- over any axes.
local check = require "check"
require "tests.cuda.device"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test
local ops = core.ops

local DTYPES = { "bool", "uint8", "int32", "int64", "bfloat16", "float16", "float32", "float64" }

local count = check.count

-- n numbers in [low, high) that differ from their neighbours.
local function numbers(n, low, high)
  local values = {}
  for i = 1, n do values[i] = low + (0.5 + i * 0.6180339887498949) % 1 * (high - low) end
  return values
end

local function tensor(shape, dtype, device, low, high)
  if count(shape) == 0 then return mgpu.zeros(shape, { dtype = dtype, device = device }) end
  local t = mgpu.tensor(numbers(count(shape), low or -3, high or 3), { dtype = "float64", device = device })
  return t:to(dtype or "float32"):reshape(shape)
end

local flat = require("ops.cases").flat

-- make(tensor) with `device` as the default; tensor(shape, dtype, low, high) makes an operand there.
local function on(device, make)
  local previous = core.default_device()
  core.default_device(device)
  local ok, result = pcall(make, function(...)
    local shape, dtype, low, high = ...
    return tensor(shape, dtype, device, low, high)
  end)
  core.default_device(previous)
  if not ok then error(result, 0) end
  return result
end

local function same(a, b, tolerance)
  return a == b or (a ~= a and b ~= b) or math.abs(a - b) <= tolerance
end

-- `make` must give the same on cuda:0 and ref, up to `tolerance` times the largest finite number; 0: exactly
-- the same.
local function agree(make, tolerance, what)
  local gpu = core.default_device()
  local expected, got = flat(on("ref:0", make)), flat(on(gpu, make))
  local top = 0
  for _, v in ipairs(expected) do
    if v == v and math.abs(v) < 1e300 then top = math.max(top, math.abs(v)) end
  end
  check.equal(#got, #expected)
  for i = 1, #got do
    if not same(got[i], expected[i], (tolerance or 0) * top) then
      check.fail(("%s: element %d is %.9g, ref says %.9g"):format(what or "", i, got[i], expected[i]))
    end
  end
end

-- ---- fused groups -------------------------------------------------------------------------------

local EDGES = { 0 / 0, 1 / 0, -1 / 0, -0.0, 0.4, -0.6, 254.5, 255.5, 300, -1, 65519, 65520, 1e10, -1e10,
  2147483646.5, 2147483648, 1e19, -1e19, 1.00048828125, 1.0009765626, 3.4e38, 1e-40 }

test("casts saturate, truncate and round as on ref", function()
  for _, from in ipairs { "float64", "float32", "float16", "bfloat16", "int64", "int32" } do
    for _, to in ipairs(DTYPES) do
      agree(function()
        local edges = mgpu.tensor(EDGES, { dtype = "float64" }):to(from)
        mgpu.eval(edges)
        return edges:to(to)
      end, 0, from .. " to " .. to)
    end
  end
end)

test("each result within a fused group is rounded to its dtype", function()
  for _, dtype in ipairs { "int32", "uint8", "int64", "bfloat16", "float16", "float32" } do
    agree(function(make)
      local f = mgpu.jit(function(x, y) return ((x * y + x) / y):to(dtype) * x - y end)
      return f(make({ 1000 }, dtype, 1, 90), make({ 1000 }, dtype, 1, 90))
    end, 0, dtype)
  end
end)

test("x - x is 0 even if x is a product (no contraction to a fused multiply-add)", function()
  local f = mgpu.jit(function(a, b)
    local x = a * b
    return x - x, ops.isfinite(x)
  end)
  local zero, finite = f(tensor({ 999 }, "float32", nil, 0.1, 0.7), tensor({ 999 }, "float32", nil, -3, 3))
  check.equal(zero:abs():sum():item(), 0)
  check.equal(ops.all(finite):item(), true)
end)

local SHAPES = {
  { { 64, 48 }, { 48 } }, { { 64, 48 }, { 64, 1 } }, { { 64, 48 }, { 1, 1 } }, { { 7, 5 }, { 7, 1 } },
  { { 6, 1, 16 }, { 1, 10, 16 } }, { { 4, 6, 8, 8 }, { 6, 1, 8 } }, { { 2, 3, 4, 5 }, { 2, 1, 4, 1 } },
  { { 2, 3, 2, 3, 2, 3, 2, 4 }, { 3, 1, 3, 1, 3, 1, 4 } }, { { 1, 9 }, { 9, 1 } }, { { 0, 4 }, { 4 } },
  { { 5, 6 }, { 5, 6 } }, { {}, { 3 } }, { { 33000 }, { 1 } }, { { 100, 1000 }, { 100, 1 } },
}

test("broadcasting goes along any axes", function()
  for i, pair in ipairs(SHAPES) do
    for _, dtypes in ipairs(i % 2 == 0 and { { "float32", "float32" }, { "int32", "float64" } }
      or { { "bfloat16", "float32" }, { "uint8", "float16" } }) do
      agree(function(make)
        return make(pair[1], dtypes[1], 0, 9) * 2.5 - make(pair[2], dtypes[2], 0, 9)
      end, 0, dtypes[1] .. " and " .. dtypes[2])
    end
  end
end)

test("a multi-tensor update changes each of many variables", function()
  local sizes = {}
  for i = 1, 150 do sizes[i] = i % 7 == 0 and 3000 + i or i % 5 == 0 and 1 or i % 11 == 0 and 0 or 2 * i end
  agree(function(make)
    local variables = {}
    for i, n in ipairs(sizes) do variables[i] = mgpu.variable(make { n }) end
    local step = mgpu.jit(function(rate)
      for _, v in ipairs(variables) do v:assign(v * 0.9 - rate * v:square()) end
    end)
    for _ = 1, 2 do
      collectgarbage()
      step(make({}, "float32", 0.1, 0.2))
    end
    local all = {}
    for i, v in ipairs(variables) do all[i] = v * 1 end
    return mgpu.concat(all, { axis = 1 })
  end, 3e-7, "updates") -- ref computes with 0.9 in double
end)

-- ---- reductions ---------------------------------------------------------------------------------

local function axes_text(axes) return type(axes) == "table" and table.concat(axes, ",") or tostring(axes) end

local REDUCED = {
  { { 7, 5 }, 1 }, { { 7, 5 }, 2 }, { { 64, 128 }, 1 }, { { 64, 128 }, 2 }, { { 64, 128 }, { 1, 2 } },
  { { 3, 20000 }, 2 }, { { 20000, 3 }, 1 }, { { 20000, 64 }, 1 }, { { 2, 3, 4, 5, 6 }, { 2, 4 } },
  { { 2, 3, 4, 5, 6 }, { 1, 3, 5 } }, { { 40, 1, 8 }, 2 }, { { 40, 1, 8 }, { 1, 2 } }, { { 1, 1 }, { 1, 2 } },
  { { 4, 0 }, 2 }, { { 0, 4 }, 2 }, { { 4, 300, 2, 300 }, { 2, 4 } }, { { 5000, 2, 7 }, { 1 } },
  { { 100000 }, 1 }, { { 3, 700, 8 }, 2 }, { { 2, 9000 }, 1 },
}

-- ref adds in another order and in double.
local TOLERANCE = { float32 = 2e-6, float16 = 1e-3, bfloat16 = 8e-3, float64 = 1e-12 }

test("sums over any axes", function()
  for i, case in ipairs(REDUCED) do
    for _, dtype in ipairs { "float32", DTYPES[i % #DTYPES + 1] } do
      agree(function(make) return ops.sum(make(case[1], dtype, 0, 9), { axis = case[2] }) end,
        TOLERANCE[dtype], "sum " .. dtype .. " over " .. axes_text(case[2]))
    end
  end
end)

test("element-wise ops behind a reduction", function()
  for i, case in ipairs(REDUCED) do
    for _, dtype in ipairs { "float32", ({ "float16", "bfloat16", "float64" })[i % 3 + 1] } do
      for _, name in ipairs(count(case[1]) == 0 and { "sum" } or { "sum", "max", "min" }) do
        local f = mgpu.jit(function(x)
          local y = ops[name](x, { axis = case[2] })
          return (y * 0.25 - y) / 3 + 1
        end)
        -- of sums: what remains of the numbers is three quarters
        agree(function(make) return f(make(case[1], dtype, 0, 9)) end, 2 * TOLERANCE[dtype],
          name .. " " .. dtype .. " over " .. axes_text(case[2]))
      end
    end
  end
end)

test("max, min, all, any and prod over any axes", function()
  for i, case in ipairs(REDUCED) do
    local dtype = DTYPES[(i + 3) % #DTYPES + 1]
    for _, name in ipairs(i % 2 == 0 and { "max", "all", "prod" } or { "min", "any", "prod" }) do
      local empty = count(case[1]) == 0 and (name == "max" or name == "min")
      if not empty then
        agree(function(make)
          return ops[name](make(case[1], dtype, 0.95, 1.05), { axis = case[2] })
        end, name == "prod" and 4e-3 or 0, name .. " " .. dtype .. " over " .. axes_text(case[2]))
      end
    end
  end
end)

test("argmax and argmin: the first of equal elements, and NaN first of all", function()
  local numbers_and_halves = { "float16", "int32", "uint8", "float64" }
  for i, case in ipairs(REDUCED) do
    if type(case[2]) == "number" and count(case[1]) > 0 then
      for _, dtype in ipairs { "float32", numbers_and_halves[i % 4 + 1] } do
        for _, name in ipairs { "argmax", "argmin" } do
          agree(function(make) return ops[name](make(case[1], dtype, 0, 40):floor(), { axis = case[2] }) end,
            0, name .. " " .. dtype)
        end
      end
      for _, name in ipairs { "argmax", "argmin", "max", "min", "sum" } do
        agree(function(make)
          local x = make(case[1], "float32", 0, 40):floor()
          return ops[name](ops.where(ops.eq(x, 17), x / 0 - x / 0, x), { axis = case[2] })
        end, 1e-6, name .. " with NaN")
      end
    end
  end
  for _, name in ipairs { "argmax", "argmin", "max", "min" } do
    for _, limit in ipairs { 1 / 0, -1 / 0 } do
      agree(function() return ops[name](mgpu.full({ 3, 400 }, limit), { axis = 2 }) end, 0, name)
    end
  end
end)

test("a float32 sum of millions of numbers stays near the exact sum", function()
  local x = mgpu.full({ 3000000 }, 0.1)
  check.near(x:sum():item(), 3000000 * 0.10000000149011612, 0.5)
  local columns = mgpu.full({ 300000, 3 }, 0.1)
  check.near(columns:sum({ axis = 1 }):totable()[3], 300000 * 0.10000000149011612, 0.05)
end)

test("cumsum and prod_grad along long and short axes", function()
  for _, case in ipairs { { { 3, 1000 }, 2 }, { { 1000, 3 }, 1 }, { { 5, 300, 40 }, 2 }, { { 7 }, 1 },
    { { 50000 }, 1 }, { { 2, 5000, 3 }, 2 },
    { { 2, 0 }, 2 }, { { 4, 1 }, 2 } } do
    for _, dtype in ipairs { "int32", "float32", "float64", "bool" } do
      agree(function(make) return ops.cumsum(make(case[1], dtype, 0, 2), { axis = case[2] }) end,
        dtype == "float32" and 1e-6 or 1e-15, "cumsum " .. dtype)
    end
  end
  for _, shape in ipairs { { 3, 600 }, { 2, 1 }, { 300, 4 }, { 0, 3 }, { 2, 0 } } do
    for _, dtype in ipairs { "float32", "float64" } do
      agree(function(make) return ops.prod_grad(make(shape, dtype, 0.9, 1.1), make({ shape[1] }, dtype)) end,
        dtype == "float32" and 1e-6 or 1e-13, "prod_grad " .. dtype)
    end
  end
end)

test("all_finite finds one infinite or NaN element among many tensors", function()
  local list = {}
  for i = 1, 130 do list[i] = tensor({ 3 * i }, i % 3 == 0 and "float16" or i % 7 == 0 and "float64" or "float32") end
  local last = tensor({ 20001 })
  local function finite(t)
    local all = { unpack(list) }
    all[#all + 1] = t
    return ops.all_finite(unpack(all)):item()
  end
  check.equal(finite(last), true)
  local at = ops.eq(ops.iota { shape = { 20001 }, dtype = "int32" }, 20000)
  check.equal(finite(ops.where(at, last / 0, last)), false)
  check.equal(finite(ops.where(at, last / 0 - last / 0, last)), false)
end)

-- Steps of a variable for each shape, whose gradients are checked; a gradient is the row of x for it.
local function step_of(shapes, dtypes)
  local variables = {}
  for i, shape in ipairs(shapes) do variables[i] = mgpu.variable(mgpu.zeros(shape, { dtype = dtypes[i] })) end
  local optimizer = mgpu.optimizers.SGD { 1 }
  return mgpu.jit(function(...)
    local x = { ... }
    local _, gradients = mgpu.value_and_grad(function()
      local sum
      for i, v in ipairs(variables) do
        local part = (v:value() * x[i]):sum():to "float32"
        sum = sum and sum + part or part
      end
      return sum
    end, variables)()
    optimizer:apply(gradients, variables)
    return mgpu.zeros {}
  end), variables
end

test("checks of gradients in one launch find an infinite or NaN element of each, and tell which", function()
  local shapes = { { 5 }, { 3, 1000 }, { 1 }, { 8 }, { 40001 }, { 0 }, { 7, 9 } }
  local dtypes = { "float32", "float16", "float32", "float64", "float32", "float32", "bfloat16" }
  local step, variables = step_of(shapes, dtypes)
  local function ones(i, bad, at)
    local x = tensor(shapes[i], dtypes[i]) * 0 + 1
    if not bad then return x end
    local n = x:count()
    local where = ops.eq(ops.iota { shape = { n }, dtype = "int32" }, at == "first" and 0 or n - 1):reshape(shapes[i])
    return ops.where(where, (x * 0 + bad), x)
  end
  local good = 0
  for i = 0, #shapes do
    for _, at in ipairs { "first", "last" } do
      local list = {}
      for k = 1, #shapes do list[k] = ones(k, k == i and i ~= 6 and (at == "first" and 0 / 0 or -1 / 0), at) end
      if i == 0 or i == 6 then
        step(unpack(list)):item()
        good = good + 1
      else
        local message = check.raises(function() step(unpack(list)):item() mgpu.eval(variables[1]:value()) end,
          "is not finite")
        check.matches(message, variables[i].name)
      end
      check.equal(variables[1]:value():totable()[1], -good)
    end
  end
end)

test("the checks of a step's gradients are one launch", function()
  if os.getenv "MGPU_TEST_GPU" then check.skip "the fake CUDA counts launches" end
  local script, log = check.path "checks.lua", check.path "checks.log"
  check.write(script, [[
    local mgpu = require "mgpu"
    require("mgpu.core").default_device "cuda:0"
    local L = mgpu.layers
    local model = mgpu.Sequential { mgpu.Input { 6 }, L.Dense { 8 }, L.Dense { 5 }, L.Dense { 1 } }
    local optimizer, x = mgpu.optimizers.SGD {}, mgpu.ones { 4, 6 }
    local step = mgpu.jit(function(inputs)
      local loss, gradients = mgpu.value_and_grad(function() return model(inputs):square():mean() end,
        model.trainable_variables)()
      optimizer:apply(gradients, model.trainable_variables)
      return loss
    end)
    for _ = 1, 2 do step(x):item() end]])
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_FAKE_CUDA_LOG=%s %s %s"):format(log,
    check.program, script))
  check.equal(status, 0, output)
  check.matches(check.read(log), "kernel all_finite in graph: 2\n") -- gradients; new values
end)

test("a mean is one launch, unless its sum or another value is needed, too", function()
  if os.getenv "MGPU_TEST_GPU" then check.skip "the fake CUDA counts launches" end
  local function launches(body)
    local script = check.path "means.lua"
    check.write(script, ([[
      local mgpu, core = require "mgpu", require "mgpu.core"
      core.default_device "cuda:0"
      local x = mgpu.ones { 40, 30 }
      mgpu.eval(x)
      local y = mgpu.jit(function(v) %s end)(x)
      print("y", y:reshape({ -1 }):totable()[1])]]):format(body))
    local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_LOG=launches %s %s"):format(
      check.program, script))
    check.equal(status, 0, output)
    return tonumber(output:match "y\t([%d.]+)"), select(2, output:gsub("compute sum by", "")),
      select(2, output:gsub("compute fused by", ""))
  end
  check.equal({ launches "return v:mean()" }, { 1, 1, 0 })
  check.equal({ launches "return v:mean { axis = 2 } * 3 - 1" }, { 2, 1, 0 })
  check.equal({ launches "local s = v:sum() return s / 3, s" }, { 400, 1, 1 })
  check.equal({ launches "return v:sum { axis = 2, keepdims = true } * v" }, { 30, 1, 1 })
end)
