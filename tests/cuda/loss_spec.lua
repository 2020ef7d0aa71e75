-- A cross-entropy and its gradient are one launch (graph/loss_fusion.c), with the numbers of ref.
local gpu = require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test, ops, count = check.test, core.ops, check.count

local function numbers(shape, dtype, on, low, high)
  local values = {}
  for i = 1, count(shape) do values[i] = low + (0.5 + i * 0.6180339887498949) % 1 * (high - low) end
  local t = mgpu.tensor(values, { device = on, dtype = "float64" }):to(dtype):reshape(shape)
  mgpu.eval(t)
  return t
end

-- o: rows, classes, dtype; labels; cast: the logits are 16-bit; weights: of the rows, else the mean;
-- late: the weights depend on the loss.
-- RETURNS the loss and the gradient of the logits, as lists of numbers.
local function results(o, on)
  local x = core.variable(numbers({ o.rows, o.classes }, o.cast or o.dtype, on, -4, 4), { name = "x" })
  local targets, labels = numbers({ o.rows, o.classes }, o.dtype, on, 0, 1), {}
  for i = 1, o.rows do labels[i] = i * 7 % o.classes end
  labels = mgpu.tensor(labels, { dtype = "int32", device = on })
  local weights = numbers({ o.rows }, o.dtype, on, 0.5, 1.5)
  local step = mgpu.jit(function()
    local loss, gradients = mgpu.value_and_grad(function()
      local logits = o.cast and x:value():to(o.dtype) or x:value()
      local rows = o.labels and ops.sparse_softmax_cross_entropy(logits, labels)
        or ops.softmax_cross_entropy(logits, targets)
      if o.late then rows = rows * rows end
      return o.weights and (rows * weights):sum() or rows:mean()
    end, { x })()
    return loss, gradients[1]
  end)
  local loss, gradient = step()
  return { loss:to("float64"):item(), unpack(gradient:to("float64"):reshape({ o.rows * o.classes }):totable()) }
end

local TOLERANCE = { float64 = 1e-13, float32 = 3e-6, float16 = 2e-3, bfloat16 = 1.6e-2 } -- of one rounding, and sums

for _, o in ipairs {
  { rows = 33, classes = 10, dtype = "float32" }, { rows = 5, classes = 1500, dtype = "float32" },
  { rows = 33, classes = 10, dtype = "float32", labels = true }, { rows = 9, classes = 45, dtype = "float64" },
  { rows = 5, classes = 1500, dtype = "float64", labels = true }, { rows = 20, classes = 40, dtype = "float16" },
  { rows = 20, classes = 40, dtype = "bfloat16", labels = true },
  { rows = 33, classes = 10, dtype = "float32", cast = "float16" },
  { rows = 5, classes = 1500, dtype = "float32", cast = "float16", labels = true },
  { rows = 33, classes = 10, dtype = "float32", cast = "bfloat16", weights = true },
  { rows = 33, classes = 10, dtype = "float32", weights = true },
  { rows = 33, classes = 10, dtype = "float32", labels = true, late = true },
  { rows = 33, classes = 10, dtype = "float32", cast = "float16", late = true },
} do
  test(("a cross-entropy and its gradient: %d x %d, %s%s%s%s%s"):format(o.rows, o.classes, o.dtype,
    o.cast and " from " .. o.cast or "", o.labels and ", labels" or "", o.weights and ", weights" or "",
    o.late and ", dy from the loss" or ""), function()
    local got, wanted = results(o, "cuda:0"), results(o, "ref:0")
    local top = 0
    for i = 2, #wanted do top = math.max(top, math.abs(wanted[i])) end
    check.equal(#got, #wanted)
    check.near(got[1], wanted[1], TOLERANCE[o.dtype] * math.abs(wanted[1]))
    -- a gradient in 16 bits may be rounded to the neighbouring number
    for i = 2, #wanted do check.near(got[i], wanted[i], TOLERANCE[o.cast or o.dtype] * top) end
  end)
end

if gpu.real then return end

-- The launches of a function's plan whose names match.
local function launches(body)
  local path = check.path "script.lua"
  check.write(path, ([[
local mgpu, core = require "mgpu", require "mgpu.core"
local ops = core.ops
core.default_device "cuda:0"
local x, t = core.variable(mgpu.ones({ 8, 10 }, { dtype = "float16" })), mgpu.ones { 8, 10 }
mgpu.eval(t)
%s
print("done")]]):format(body))
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_LOG=launches %s %s"):format(check.program,
    path))
  check.equal(status, 0, output)
  check.matches(output, "done")
  return select(2, output:gsub("by cross_entropy", "")), select(2, output:gsub("compute full", "")),
    select(2, output:gsub("compute fused", ""))
end

local STEP = [[
mgpu.jit(function()
  local loss, gradients = mgpu.value_and_grad(function()
    local logits = x:value():to "float32"
    local rows = ops.softmax_cross_entropy(logits, t)
    return %s
  end, { x })()
  return loss, gradients[1], %s
end)()]]

test("the loss, its gradient, the casts around them and a constant dy are one launch", function()
  check.equal({ launches(STEP:format("rows:sum()", "1")) }, { 1, 2, 0 }) -- x and t are made by two launches of full
end)

test("logits that something else reads are cast in a step of their own", function()
  local losses, _, casts = launches(STEP:format("rows:sum() + logits:sum() * 0", "1"))
  check.equal(losses, 1)
  check.truthy(casts >= 1)
end)

test("a gradient that depends on the loss is a launch of its own", function()
  check.equal((launches(STEP:format("(rows * rows):sum()", "1"))), 2)
end)
