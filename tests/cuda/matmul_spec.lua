-- matmul by cuBLASLt: epilogues (bias, relu, the gradient of a bias), the choice of an algorithm and its
-- cache.
local device = require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops

-- ---- a dense layer's backward pass ----

-- Numbers that differ from their neighbours.
local function numbers(shape, dtype, on)
  local values = {}
  for i = 1, check.count(shape) do values[i] = (i * 0.6180339887498949) % 1 * 2 - 1 end
  return mgpu.tensor(values, { device = on, dtype = "float64" }):to(dtype):reshape(shape)
end

-- The gradients of a weighted sum of relu(x w + b) for x, w and b on a device, as lists of numbers; `turned`:
-- w is stored transposed, {units, inputs}.
local function gradients(shape, units, dtype, on, turned)
  local inputs, out = shape[#shape], { unpack(shape) }
  out[#out] = units
  local vars = { mgpu.variable(numbers(shape, dtype, on)),
    mgpu.variable(numbers(turned and { units, inputs } or { inputs, units }, dtype, on)),
    mgpu.variable(numbers({ units }, dtype, on)) }
  local weights = numbers(out, dtype, on)
  local step = mgpu.jit(function()
    local _, grads = mgpu.value_and_grad(function()
      local product = ops.matmul(vars[1]:value(), vars[2]:value(), { transpose_b = turned or false })
      return (ops.relu(product + vars[3]:value()) * weights):sum()
    end, vars)()
    return unpack(grads)
  end)
  local made = { step() }
  for i, g in ipairs(made) do made[i] = g:to("float64"):reshape { -1 }:totable() end
  return made
end

-- The tolerance for sums of 37 or 74 products of numbers below 1, in any order and precision of the library.
local TOLERANCE = { float64 = 1e-13, float32 = 1e-5, float16 = 2e-2, bfloat16 = 0.15 }

for dtype, tolerance in pairs(TOLERANCE) do
  for _, case in ipairs { { { 37, 8 }, 16 }, { { 2, 37, 8 }, 16 }, { { 37, 3 }, 1 }, { { 1, 4 }, 6 },
    { { 37, 8 }, 16, true } } do
    local shape, units, turned = unpack(case)
    local name = table.concat(shape, " x ") .. " by " .. units .. (turned and ", turned" or "")
    test(("the gradients of a dense layer are those of ref: %s, %s"):format(dtype, name), function()
      local expected = gradients(shape, units, dtype, "ref:0", turned)
      local got = gradients(shape, units, dtype, "cuda:0", turned)
      for i = 1, 3 do
        check.equal(#got[i], #expected[i])
        for k = 1, #expected[i] do check.near(got[i][k], expected[i][k], tolerance) end
      end
    end)
  end
end

if device.real then return end

-- Runs a script in a process of its own with an empty cache -> its output, the folder of the cache.
local runs = 0
local function run(script, settings)
  runs = runs + 1
  local path, cache = check.path "script.lua", check.path("cache" .. runs)
  check.write(path, 'local mgpu, core = require "mgpu", require "mgpu.core"\ncore.default_device "cuda:0"\n' .. script)
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_CACHE=%s %s %s %s"):format(
    cache, settings or "", check.program, path))
  check.equal(status, 0, output)
  return output, cache
end

-- The backward pass of a dense layer with 16 units; the loss is a sum over all elements.
local DENSE = [[
local function backward(shape, dtype)
  local function ones(...) return mgpu.variable(mgpu.ones({ ... }, { dtype = dtype })) end
  local x, w, b = ones(unpack(shape)), ones(8, 16), ones(16)
  mgpu.jit(function()
    local loss, grads = mgpu.value_and_grad(function()
      local y = core.ops.matmul(x:value(), w:value()) + b:value()
      return (y * y):sum()
    end, { x, w, b })()
    return loss, unpack(grads)
  end)()
  print(b:value():dtype())
end
]]

for _, shape in ipairs { "{ 37, 8 }", "{ 2, 37, 8 }" } do
  test("the gradients of weights and bias are one step: " .. shape, function()
    for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
      local output = run(DENSE .. ("backward(%s, %q)"):format(shape, dtype), "MGPU_LOG=dispatch")
      check.matches(output, "\n" .. dtype .. "\n")
      check.equal(select(2, output:gsub("sum " .. dtype .. "{[^:]*, 16}", "")), 1) -- the loss
    end
  end)
end

test("the gradients of weights and bias are two steps if cuBLASLt refuses", function()
  local output = run(DENSE .. 'backward({ 37, 8 }, "float64")', "MGPU_LOG=dispatch")
  check.matches(output, "matmul with sums: cuBLASLt refuses: no algorithm\n")
  check.equal(select(2, output:gsub("sum float64{37, 16}: generated", "")), 2)
end)

test("sums over other axes, of other tensors, or needed before the product are separate steps", function()
  local output = run([[
local x, z, w = mgpu.ones { 7, 5 }, mgpu.ones { 7, 3 }, mgpu.ones { 7, 3 }
local turn = { transpose_a = true }
local function show(fn) print(unpack(mgpu.jit(fn)():reshape { -1 }:totable())) end
show(function() return core.ops.matmul(x, z, turn):sum() + (z + 1):sum { axis = 2 }:sum() end)
show(function() return core.ops.matmul(x, z, turn) + (w * 2):sum { axis = 1 } end)
show(function() return core.ops.matmul(x * z:sum { axis = 1 }:sum(), z, turn):sum() end)
show(function() return core.ops.matmul(x, z, turn):sum { axis = 1 } + z:sum { axis = 1 } end)
local row = mgpu.ones { 1, 3 }
show(function() return core.ops.matmul((row * 2):sum { axis = 1, keepdims = true }, row * 2, turn) end)
]], "MGPU_LOG=dispatch")
  check.matches(output, "\n147\n") -- 5 * 3 * 7 + 7 * 3 * 2
  check.matches(output, "\n21\t21\t21\t")
  check.matches(output, "\n2205\n") -- 21 * 105
  check.matches(output, "\n42\t42\t42\n")
  check.matches(output, "\n4" .. ("\t4"):rep(8) .. "\n")
  check.equal(select(2, output:gsub("sum float32{7, 3}", "")), 3)
end)

test("the cache distinguishes an operand that a batch shares from one per matrix", function()
  local _, cache = run [[
local a, b = mgpu.ones { 3, 4, 5 }, mgpu.ones { 3, 5, 6 }
local one_a, one_b = mgpu.ones { 1, 4, 5 }, mgpu.ones { 1, 5, 6 }
for _, pair in ipairs { { a, b }, { one_a, b }, { a, b } } do mgpu.eval(core.ops.matmul(pair[1], pair[2])) end
mgpu.eval(core.ops.matmul(mgpu.ones { 3, 5, 4 }, one_b, { transpose_a = true }))
mgpu.eval(core.ops.matmul(mgpu.ones { 3, 5, 4 }, b, { transpose_a = true }))
]]
  check.equal(select(2, check.run("ls " .. cache):gsub("matmul%-", "")), 4)
end)

test("an algorithm that reports that it is not supported is left out", function()
  local output = run [[
core.deterministic(true) -- takes the first one that is supported
print(unpack(core.ops.matmul(mgpu.ones { 2, 3 }, mgpu.ones { 3, 1 }):reshape { -1 }:totable()))
]]
  check.equal(output, "3\t3\n")
end)

test("bias and relu are an epilogue of cuBLASLt", function()
  local output = run([[
local x, w, b = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 1, -1 }, { 1, -1 } }, mgpu.tensor { 1, 5 }
local dense = mgpu.jit(function(v) return core.ops.relu(core.ops.matmul(v, w) + b) end)
print(unpack(dense(x):reshape { -1 }:totable()))
]], "MGPU_LOG=dispatch")
  check.matches(output, "matmul float32{2, 2} float32{2, 2} float32{2}: cuBLASLt\n")
  check.matches(output, "4\t2\t8\t0\n")
end)

local NAN = [[
local w, b = mgpu.full({ 2, 3 }, -1), mgpu.ones { 3 }
local dense = mgpu.jit(function(x) return core.ops.relu(core.ops.matmul(x, w) + b) end)
local plain = mgpu.jit(function(x) return core.ops.relu(core.ops.matmul(x, w)) end)
for _, f in ipairs { dense, plain } do
  print(unpack(f(mgpu.tensor { { 0, 0 / 0 }, { 1, 1 }, { -1, -1 } }):reshape { -1 }:totable()))
end
]]

test("relu of a product keeps NaN, even if cuBLASLt's epilogue loses it", function()
  for _, settings in ipairs { "", "MGPU_FAKE_CUDA_NAN=lost" } do
    for _, first in ipairs { "", "core.deterministic(true)\n" } do
      check.equal((run(first .. NAN, settings):gsub("-nan", "nan")),
        "nan\tnan\tnan\t0\t0\t0\t3\t3\t3\nnan\tnan\tnan\t0\t0\t0\t2\t2\t2\n")
    end
  end
end)
