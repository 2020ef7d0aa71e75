-- Fused groups that also sum the columns of one of their results in the same pass (kernels/fused_sums.h):
-- the gradients of a bias and of its activation together.
local device = require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops

local count = check.count

-- The numbers of all axes but the last.
local function rows_of(shape)
  local axes = {}
  for i = 1, #shape - 1 do axes[i] = i end
  return axes
end

-- ---- numbers ------------------------------------------------------------------------------------

-- Numbers that differ from their neighbours.
local function numbers(shape, dtype, on)
  local values = {}
  for i = 1, count(shape) do values[i] = (i * 0.6180339887498949) % 1 * 2 - 0.9 end
  return mgpu.tensor(values, { device = on, dtype = "float64" }):to(dtype):reshape(shape)
end

-- The results of fn for tensors of these shapes on a device, as lists of numbers.
local function results(fn, shapes, dtype, on)
  local given = {}
  for i, shape in ipairs(shapes) do given[i] = numbers(shape, dtype, on) end
  mgpu.eval(unpack(given))
  local made = { mgpu.jit(fn)(unpack(given)) }
  for i, t in ipairs(made) do made[i] = t:to("float64"):reshape({ t:count() }):totable() end
  return made
end

-- fn must give the same on cuda:0 and ref, up to `tolerance` times the largest number.
local function agree(fn, shapes, dtype, tolerance)
  local expected, got = results(fn, shapes, dtype, "ref:0"), results(fn, shapes, dtype, "cuda:0")
  for r = 1, #expected do
    local top, worst = 0, 0
    for i, v in ipairs(expected[r]) do
      top = math.max(top, math.abs(v))
      worst = math.max(worst, math.abs(v - got[r][i]))
    end
    check.equal(#got[r], #expected[r])
    check.truthy(top > 0 and worst <= tolerance * top,
      ("result %d is off by %g, the largest is %g"):format(r, worst, top))
  end
end

-- ref adds in another order and in double; the summands are rounded the same way.
local TOLERANCE = { float32 = 2e-6, float16 = 1e-3, bfloat16 = 8e-3, float64 = 1e-12 }

-- The gradients dz and db of y = relu(x + b).
local function relu_backward(y, dy)
  local dz = ops.where(ops.gt(y, 0), dy * 0.5, 0)
  return dz, dz:sum { axis = rows_of(y:shape()) }
end

-- Many rows; few rows of many columns; columns that are not a multiple of a vector; one column; one row; one
-- vector more columns than a block has.
local SHAPES = { { 64, 40, 32 }, { 2, 3, 11000 }, { 8192, 10 }, { 33, 45, 45 }, { 65536, 1 }, { 70001, 1 },
  { 1, 70000 }, { 300, 257 }, { 70, 1028 } }

for dtype, tolerance in pairs(TOLERANCE) do
  for _, shape in ipairs(SHAPES) do
    test(("column sums are those of ref: %s, %s"):format(dtype, table.concat(shape, " x ")), function()
      agree(relu_backward, { shape, shape }, dtype, tolerance)
    end)
  end

  test("column sums with broadcast inputs, and of one of several results: " .. dtype, function()
    -- the formula of batch normalisation's gradient
    for _, shape in ipairs { { 64, 33, 32 }, { 9, 90, 90 } } do
      local channels = { shape[3] }
      agree(function(x, dy, mean, slope, offset)
        local dx = ops.where(ops.gt(x, 0), dy + (x - mean) * slope + offset, 0)
        return dx, dx:sum { axis = { 1, 2 } }
      end, { shape, shape, channels, channels, channels }, dtype, tolerance)
    end
    agree(function(x, rows, first)
      local twice = x * rows
      local rest = twice - first
      return twice, rest, rest:sum { axis = { 1, 2 } }
    end, { { 50, 40, 36 }, { 50, 1, 1 }, { 40, 1 } }, dtype, tolerance)
  end)
end

test("a group that computes in double sums its float32 result", function()
  agree(function(x, i)
    local y = (x * i:to "float64"):to "float32"
    return y, y:sum { axis = 1 }
  end, { { 700, 100 }, { 700, 100 } }, "float32", TOLERANCE.float32)
end)

test("equal inputs give equal bits, and infinite or NaN elements affect only their column", function()
  local x = numbers({ 3000, 30 }, "float32", "cuda:0")
  local at = ops.eq(ops.iota { shape = { 3000, 30 }, axis = 2, dtype = "int32" }, 7)
  local step = mgpu.jit(function(v, where) return ops.where(where, v / 0, v * 3):sum { axis = 1 } end)
  local first = step(x, at):totable()
  check.truthy(first[8] ~= first[8])
  for _ = 1, 3 do
    for i, v in ipairs(step(x, at):totable()) do
      if i ~= 8 then check.equal(v, first[i]) end
    end
  end
end)

test("a float32 column sum of many rows stays near the exact sum", function()
  local sums = mgpu.jit(function(x) return (x * 0.5):sum { axis = 1 } end)(mgpu.full({ 300000, 3 }, 0.2))
  for _, v in ipairs(sums:totable()) do check.near(v, 300000 * 0.10000000149011612, 2e-6) end
end)

test("the sums reuse the memory of an input only after it was read", function()
  local function fn(x, b)
    local shift = ops.exp(b) -- its last use is here, so its memory could be reused
    local y = x - shift
    return y, y:sum { axis = 1 } * 0.5
  end
  agree(fn, { { 9000, 8 }, { 8 } }, "float32", TOLERANCE.float32)
end)

-- The gradient of a 2 x 2 max pool behind a relu, and its column sums.
local function pool_backward(strides)
  return function(x, dy)
    local how = { size = { 2, 2 }, strides = { strides, strides } }
    local y = ops.max_pool2d(x, how)
    local dx = ops.max_pool2d_grad(x, y, ops.where(ops.gt(y, 0), dy * 0.5, 0), how)
    return dx, dx:sum { axis = { 1, 2, 3 } }
  end
end

for dtype, tolerance in pairs(TOLERANCE) do
  test("column sums behind a max pool: " .. dtype, function()
    agree(pool_backward(2), { { 8, 64, 64, 12 }, { 8, 32, 32, 12 } }, dtype, tolerance)
    agree(pool_backward(1), { { 8, 33, 33, 12 }, { 8, 32, 32, 12 } }, dtype, tolerance)
  end)
end

if device.real then return end

-- ---- which steps are fused ---------------------------------------------------------------------

-- Runs a script in a process of its own -> its output, with the log of the chosen kernels.
local runs = 0
local function run(script, settings)
  runs = runs + 1
  local path = check.path("script" .. runs .. ".lua")
  check.write(path, 'local mgpu, core = require "mgpu", require "mgpu.core"\nlocal ops = core.ops\n'
    .. 'core.default_device "cuda:0"\n' .. script)
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_LOG=dispatch %s %s %s"):format(
    settings or "", check.program, path))
  check.equal(status, 0, output)
  return output
end

local function count_of(text, pattern) return select(2, text:gsub(pattern, "")) end

local JOINED = "fused [^\n]*: generated with sums\n"

test("the gradient of a convolution's bias is fused with the gradient of its relu", function()
  local output = run [[
local x, w = mgpu.variable(mgpu.ones { 8, 32, 32, 3 }), mgpu.variable(mgpu.ones { 3, 3, 3, 12 })
local b, v = mgpu.variable(mgpu.ones { 12 }), mgpu.ones { 8, 30, 30, 12 }
local _, grads = mgpu.jit(function()
  local loss, grads = mgpu.value_and_grad(function()
    return (ops.relu(ops.conv2d(x:value(), w:value()) + b:value()) * v):sum()
  end, { w, b })()
  return loss, grads
end)()
print(unpack(grads[2]:totable()))
]]
  check.matches(output, "\n7200" .. ("\t7200"):rep(11) .. "\n")
  check.equal(count_of(output, JOINED), 1)
  check.equal(count_of(output, "sum float32[^\n]*: generated\n"), 1) -- the loss
end)

test("column sums cost one more launch, which adds the partial sums", function()
  local function launches(script)
    local log = check.path "calls"
    run("local x = mgpu.ones { 9000, 8 }\nmgpu.eval(x)\n" .. script, "MGPU_FAKE_CUDA_LOG=" .. log)
    return tonumber(check.read(log):match "cuLaunchKernel: (%d+)")
  end
  local alone = launches "mgpu.eval(mgpu.jit(function(v) return v * 2 end)(x))"
  check.equal(launches "mgpu.eval(mgpu.jit(function(v) return v * 2, (v * 2):sum { axis = 1 } end)(x))", alone + 1)
end)

-- A name; a function of x {9000, 8}, w {9000, 8}, i {9000, 8} of int32 and small {900, 8}, all ones; the sum
-- of its result; how many fused groups have sums.
for _, case in ipairs {
  { "sums of a reshaped result", "function(x) return (x * 2):reshape({ 90, 100, 8 }):sum { axis = { 1, 2 } } end",
    144000, 1 },
  { "two groups with sums", "function(x, w) return (x * 2):sum { axis = 1 } + ops.matmul(x * 2, ops.exp(w) * 0,"
    .. " { transpose_b = true }):sum() + ops.exp(ops.cumsum(x, { axis = 1 }) * 0):sum { axis = 1 } end", 216000, 2 },
  { "sums with keepdims", "function(x) return (x * 2):sum { axis = 1, keepdims = true } end", 144000, 1 },
  { "sums of two results, of which one is fused",
    "function(x) return (x * 2):sum { axis = 1 } + (x * 2 + 1):sum { axis = 1 } end", 360000, 1 },
  { "sums over other axes", "function(x) return (x * 2):sum { axis = 2 } + (x * 3):sum() / 9000 end", 360000, 0 },
  { "sums of regrouped columns", "function(x) return (x * 2):reshape({ 4500, 16 }):sum { axis = 1 } end", 144000, 0 },
  { "sums of an input of the group", "function(x) return (x * 2):sum() + x:sum { axis = 1 } end", 8 * 153000, 0 },
  { "sums of integers", "function(_, _, i) return (i * 2):sum { axis = 1 } end", 144000, 0 },
  { "sums of few rows", "function(_, _, _, small) return (small * 2):sum { axis = 1 } end", 14400, 0 },
} do
  local name, fn, sum, joined = unpack(case)
  test(name .. (joined > 0 and " are fused" or " are a separate step"), function()
    local output = run(([[
local function ones(...) return mgpu.ones({ ... }) end
local x, w, i, small = ones(9000, 8), ones(9000, 8), ones(9000, 8):to "int32", ones(900, 8)
mgpu.eval(x, w, i, small)
print("sum", mgpu.jit(%s)(x, w, i, small):sum():item())
]]):format(fn))
    check.equal(tonumber(output:match "sum\t(%d+)"), sum)
    check.equal(count_of(output, JOINED), joined, output)
  end)
end

test("sums behind a max pool are fused if its windows do not overlap", function()
  local script = [[
local x, dy = mgpu.ones { 8, 64, 64, 12 }, mgpu.ones { 8, SIZE, SIZE, 12 }
mgpu.eval(x, dy)
local sums = mgpu.jit(function()
  local how = { size = { 2, 2 }, strides = { STRIDE, STRIDE } }
  local dx = ops.max_pool2d_grad(x, ops.max_pool2d(x, how), dy * 2, how)
  return dx:RESHAPEsum { axis = AXES }
end)()
print("sums", sums:count(), sums:sum():item())
]]
  local function try(size, stride, reshape, axes)
    local output = run((script:gsub("SIZE", size):gsub("STRIDE", stride):gsub("RESHAPE", reshape)
      :gsub("AXES", axes)))
    return tonumber(output:match "sums\t%d+\t(%d+)"), count_of(output, JOINED)
  end
  local sum, joined = try(32, 2, "", "{ 1, 2, 3 }")
  check.equal({ sum, joined }, { 8 * 32 * 32 * 12 * 2, 1 })
  sum, joined = try(32, 2, "reshape({ 32768, 12 }):", "1")
  check.equal({ sum, joined }, { 8 * 32 * 32 * 12 * 2, 1 })
  sum, joined = try(32, 2, "reshape({ 16384, 24 }):", "1")
  check.equal({ sum, joined }, { 8 * 32 * 32 * 12 * 2, 0 })
  sum, joined = try(63, 1, "", "{ 1, 2, 3 }")
  check.equal({ sum, joined }, { 8 * 63 * 63 * 12 * 2, 0 })
end)

test("sums that cuBLASLt can make as an epilogue are left to it", function()
  local output = run [[
local x, z = mgpu.ones { 9000, 8 }, mgpu.ones { 9000, 16 }
mgpu.eval(x, z)
local w, b = mgpu.jit(function()
  local dz = z * 2
  return ops.matmul(x, dz, { transpose_a = true }), dz:sum { axis = 1 }
end)()
print("sums", w:sum():item(), b:sum():item())
]]
  check.matches(output, "sums\t2304000\t288000")
  check.equal(count_of(output, JOINED), 0)
  check.equal(count_of(output, "sum float32{9000, 16}: generated"), 0)
end)

test("sums of new values of variables are fused too", function()
  local output = run [[
local a, b = mgpu.variable(mgpu.ones { 9000, 8 }), mgpu.variable(mgpu.ones { 8000, 10 })
local sums = mgpu.variable(mgpu.zeros { 8 })
local step = mgpu.jit(function()
  local next_a, next_b = a:value() * 2, b:value() * 2
  a:assign(next_a)
  b:assign(next_b)
  sums:assign(next_a:sum { axis = 1 } + next_b:sum { axis = 1 }:sum())
end)
for _ = 1, 3 do step() end
print("sums", a:value():sum():item(), b:value():sum():item(), sums:value():sum():item())
]]
  check.matches(output, "sums\t576000\t640000\t5696000\n")
  check.equal(count_of(output, JOINED), 2)
end)

test("without NVRTC the group and the sums run on the host, separately", function()
  local folder = check.path "no_compiler"
  check.run(("mkdir -p %s; cp build/fake_cuda/libcuda.so.1 build/fake_cuda/kernels.so %s"):format(folder, folder))
  local path = check.path "script.lua"
  check.write(path, [[
local mgpu, core = require "mgpu", require "mgpu.core"
core.default_device "cuda:0"
print("sum", mgpu.jit(function(x) return (x * 2):sum { axis = 1 } end)(mgpu.ones { 9000, 8 }):sum():item())
]])
  local output = check.run(("MGPU_LOG=fallback,dispatch MGPU_CUDA_LIBRARIES=%s %s %s"):format(folder, check.program,
    path))
  check.matches(output, "sum\t144000\n")
  check.matches(output, "generated with sums refuses: there is no compiler\n")
  check.equal(count_of(output, JOINED), 0)
end)
