-- Convolutions by cuDNN: bias and relu within the plan or as a kernel after it; the choice of a plan by
-- timing, the cache of choices, and deterministic mode, which times nothing; errors and missing libraries.
local device = require "tests.cuda.device"
local check = require "check"

local test = check.test

-- A script in a process of its own, with settings of the environment -> output, exit status.
local function run(settings, script)
  local path = check.path "script.lua"
  check.write(path, 'local mgpu = require "mgpu"\nlocal core = require "mgpu.core"\n' .. script)
  if not device.real then settings = "MGPU_CUDA_LIBRARIES=build/fake_cuda " .. settings end
  return check.run(settings .. " " .. check.program .. " " .. path)
end

-- relu(conv + bias) on cuda:0 and on ref. Prints for each case the largest difference in units of the last
-- place (ulp) of the largest number; a NaN that is lost or new counts as infinite.
local COMPARE = [[
local function numbers(shape, dtype, on, nan)
  local n, values = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 1, n do values[i] = (0.5 + i * 0.6180339887498949) % 1 * 2 - 1 end
  if nan then values[7] = 0 / 0 end
  return mgpu.tensor(values, { dtype = "float64", device = on }):to(dtype):reshape(shape)
end
local function result(on, dtype, case)
  core.default_device(on)
  local y = core.ops.conv2d(numbers({ 2, 9, 8, 6 }, dtype, on, case.nan),
    numbers({ 3, 2, 6 / (case.groups or 1), 8 }, dtype, on),
    { strides = case.strides, pads = case.pads, dilations = case.dilations, groups = case.groups })
  if not case.no_bias then y = y + numbers({ 8 }, dtype, on) end
  y = core.ops.relu(y)
  collectgarbage() -- results that nobody holds may be fused away
  return y:reshape({ y:count() }):to("float64"):totable()
end
local EPSILON = { float32 = 2 ^ -24, float16 = 2 ^ -11, bfloat16 = 2 ^ -8 }
local function compare(dtype, case)
  local a, b = result("cuda:0", dtype, case), result("ref:0", dtype, case)
  local worst, top, nans = 0, 0, 0
  for i = 1, #b do
    if b[i] ~= b[i] then
      nans = nans + 1
      if a[i] == a[i] then worst = 1 / 0 end
    else
      if a[i] ~= a[i] then worst = 1 / 0 end
      worst = math.max(worst, math.abs(a[i] - b[i]))
      top = math.max(top, math.abs(b[i]))
    end
  end
  print(dtype, #a == #b and top > 0 and nans > 0 == (case.nan or false) and worst / top / EPSILON[dtype])
end
for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
  compare(dtype, {})
  compare(dtype, { no_bias = true })
  compare(dtype, { nan = true })
  compare(dtype, { strides = { 2, 1 }, pads = { 1, 0, 2, 1 } })
  compare(dtype, { groups = 2, dilations = { 2, 1 } })
end
]]

-- Two roundings to nearest may differ by one ulp, and by two if the sum was rounded before the bias was
-- added. On a GPU float32 may go through TF32 with its 11 bits: 2^13 ulp if both factors are rounded to
-- nearest, nearly twice that (13561 here, emulated) if they are cut off.
local function check_compared(out)
  local n = 0
  for dtype, units in out:gmatch "(%a+%d%d)%s+(%S+)\n" do
    n = n + 1
    local most = dtype == "float32" and (device.real and 2 ^ 14 or 16) or 6
    if not (tonumber(units) and tonumber(units) <= most) then
      check.fail(dtype .. ": off by " .. units .. " units of the last place")
    end
  end
  check.equal(n, 15, out)
end

-- For so few channels a real cuDNN may have no plan; our own kernels convolve then.
test("bias and relu are part of the plan", function()
  local out = run("MGPU_LOG=dispatch", COMPARE)
  if not device.real then check.matches(out, "conv2d float16{2, 9, 8, 6} float16{3, 2, 6, 8} float16{8}: cuDNN\n") end
  check_compared(out)
end)

test("deterministic mode times no plans", function()
  local cache = check.path "no-cache"
  check_compared((run("MGPU_CACHE=" .. cache, "core.deterministic(true)\n" .. COMPARE)))
  check.equal((check.run("ls " .. cache .. " | grep -c cudnn-")), "0\n")
end)

-- cuDNN writes the gradient of the weights in its own layout (KRSC). Each of these ops reads such a
-- gradient and must convert it or cope with it.
local ORDER = [[
local function numbers(shape, on)
  local values = {}
  for i = 1, shape[1] * shape[2] * shape[3] * shape[4] do values[i] = (0.5 + i * 0.6180339887498949) % 1 end
  return mgpu.tensor(values, { device = on }):reshape(shape)
end
local function results(on)
  core.default_device(on)
  local x, w = numbers({ 2, 5, 4, 6 }, on), numbers({ 3, 2, 6, 8 }, on)
  local function gradient()
    return core.grad(function(v) local y = core.ops.conv2d(x, v) return (y * y):sum() end)(w) * 1e-3
  end
  local list = { w - gradient(), core.ops.softmax(gradient()), core.ops.moments(gradient()),
    core.ops.max_pool2d(gradient(), { size = { 2, 2 } }), core.ops.matmul(gradient(), numbers({ 3, 2, 8, 5 }, on)),
    core.ops.layer_norm(gradient(), mgpu.ones({ 8 }, { device = on }), mgpu.zeros({ 8 }, { device = on })) }
  collectgarbage() -- nobody holds the gradients, so they may stay in cuDNN's layout
  for i, t in ipairs(list) do list[i] = t:reshape({ t:count() }):totable() end
  return list
end
local got, expected = results "cuda:0", results "ref:0"
for i, list in ipairs(expected) do
  local worst = 0
  for k, v in ipairs(list) do worst = math.max(worst, math.abs(v - got[i][k]) / math.max(1, math.abs(v))) end
  print("off by", worst)
end
]]

-- The tolerance on a GPU: TF32 has 11 bits.
test("other kernels read a gradient that cuDNN left in its own layout", function()
  local out, n = run("MGPU_LOG=dispatch", ORDER), 0
  if not device.real then check.matches(out, "conv2d_grad_weight [^:]*: cuDNN\n") end
  for off in out:gmatch "off by%s+(%S+)" do
    n = n + 1
    check.truthy(tonumber(off) <= (device.real and 2e-2 or 1e-5), ("result %d is off by %s"):format(n, off))
  end
  check.equal(n, 6, out)
end)

if device.real then return end

-- How often a function was called or a kernel launched, by the log of the fake CUDA.
local function calls(log, name)
  return tonumber(check.read(log):match(name .. ": (%d+)") or 0)
end

local CONV = [[
local x, w = mgpu.ones({ 1, 5, 5, 6 }, { device = "cuda:0" }), mgpu.ones({ 3, 3, 6, 4 }, { device = "cuda:0" })
local ok, message = pcall(function() return core.ops.conv2d(x, w):totable()[1][3][3][4] end)
print(ok, message)
]]

test("bias and relu are a kernel after the plan if no engine supports them", function()
  local log, cache = check.path "plain-calls", check.path "plain-cache"
  local settings = ("MGPU_FAKE_CUDA_CUDNN=plain MGPU_CACHE=%s MGPU_FAKE_CUDA_LOG=%s"):format(cache, log)
  check_compared((run(settings, COMPARE)))
  check.equal(calls(log, "kernel bias_relu_vector_f16"), 5)
end)

test("bias and relu are a kernel after the plan if cuDNN's relu loses NaN, also in deterministic mode", function()
  for _, first in ipairs { "", "core.deterministic(true)\n" } do
    local log, cache = check.path("lost-calls" .. #first), check.path("lost-cache" .. #first)
    local settings = ("MGPU_FAKE_CUDA_NAN=lost MGPU_CACHE=%s MGPU_FAKE_CUDA_LOG=%s"):format(cache, log)
    for _ = 1, 2 do
      check_compared((run(settings, first .. COMPARE)))
      check.equal(calls(log, "kernel bias_relu_vector_f16"), 5)
    end
  end
end)

test("bias and relu are a kernel after the plan if there is no memory to try whether relu keeps NaN", function()
  local out = run("MGPU_LOG=dispatch MGPU_MEMORY=cuda:0=700000 MGPU_CACHE=" .. check.path "untried", [[
    core.default_device "cuda:0"
    local x, w, b = mgpu.ones { 1, 32, 32, 64 }, mgpu.ones { 1, 1, 64, 64 }, mgpu.ones { 64 }
    mgpu.eval(x, w, b)
    local y = core.ops.relu(core.ops.conv2d(x, w) + b)
    collectgarbage()
    print(y:totable()[1][3][3][4])
  ]])
  check.matches(out, "bias and relu run after cuDNN: cuDNN's conv2d: no memory to check whether relu keeps NaN")
  check.matches(out, "\n65\n")
end)

test("a plan that fails to run with bias and relu is replaced by one without", function()
  local settings = ("MGPU_CACHE=%s MGPU_FAKE_CUDA_FAIL=cudnnBackendExecute:1:5000"):format(check.path "broken-cache")
  check_compared((run(settings, "core.deterministic(true)\n" .. COMPARE)))
end)

test("the choice of a plan is cached on disk and used by the next process", function()
  local log, cache = check.path "calls", check.path "cache"
  local settings = ("MGPU_CACHE=%s MGPU_FAKE_CUDA_LOG=%s"):format(cache, log)
  check.matches(run(settings, CONV), "true%s+54")
  check.truthy(calls(log, "cudnnBackendExecute") > 2)
  check.matches(run(settings, CONV), "true%s+54")
  check.equal(calls(log, "cudnnBackendExecute"), 1)
  check.matches(run(settings .. " MGPU_FAKE_CUDA_FAIL=cudnnBackendFinalize:1:4000", CONV), "true%s+54")
  check.truthy(calls(log, "cudnnBackendExecute") > 2)
end)

-- First there is memory for the op, but not for timing its algorithms; then for both. Only the timed choice
-- is cached.
local function check_kept_only_if_measured(script, memory, execute, answer)
  local log, cache = check.path(execute .. "-calls"), check.path(execute .. "-cache")
  local settings = ("MGPU_CACHE=%s MGPU_FAKE_CUDA_LOG=%s"):format(cache, log)
  check.matches(run(settings .. " MGPU_FAKE_CUDA_MEMORY=" .. memory, script), answer)
  check.equal(calls(log, execute), 1, "there was memory to measure")
  check.matches(run(settings, script), answer)
  check.truthy(calls(log, execute) > 2)
  check.matches(run(settings, script), answer)
  check.equal(calls(log, execute), 1)
end

test("a choice without timing, for lack of memory, is not cached", function()
  check_kept_only_if_measured([[
local x, w = mgpu.ones({ 1, 32, 32, 64 }, { device = "cuda:0" }), mgpu.ones({ 1, 1, 64, 64 }, { device = "cuda:0" })
print(core.ops.conv2d(x, w):totable()[1][3][3][4])
]], 700000, "cudnnBackendExecute", "^64")
  check_kept_only_if_measured([[
local a, b = mgpu.ones({ 8, 16 }, { device = "cuda:0" }), mgpu.ones({ 16, 8 }, { device = "cuda:0" })
print(core.ops.matmul(a, b):totable()[1][1])
]], 4000000, "cublasLtMatmul", "^16")
end)

test("a plan that fails while it is timed is not chosen", function()
  local cache = check.path "another-cache"
  check.matches(run("MGPU_FAKE_CUDA_FAIL=cudnnBackendExecute:1:3000 MGPU_CACHE=" .. cache, CONV), "true%s+54")
end)

test("errors name the call and cuDNN's status", function()
  local deterministic = "core.deterministic(true)\n" .. CONV
  check.matches(run("MGPU_FAKE_CUDA_FAIL=cudnnBackendExecute:1:5000", deterministic),
    "false%s+.*cuDNN: run a convolution: CUDNN_STATUS 5000")
  check.matches(run("MGPU_FAKE_CUDA_FAIL=cudnnBackendSetAttribute:1:2000", deterministic),
    "false%s+.*cuDNN: describe a convolution: CUDNN_STATUS 2000")
  check.matches(run("MGPU_FAKE_CUDA_FAIL=cudnnCreate:1:1001", deterministic), "false%s+.*cuDNN: start")
end)

-- A folder with the fake driver and NVRTC only.
local function bare_folder()
  local folder = check.path "libraries"
  check.run(("mkdir -p %s; cd build/fake_cuda; cp libcuda.so.1 libnvrtc.so.13 kernels.so %s")
    :format(folder, folder))
  return folder
end

test("without cuDNN our own kernels convolve, and the log says what to install", function()
  local folder, path = bare_folder(), check.path "script.lua"
  check.write(path, 'local mgpu = require "mgpu"\nlocal core = require "mgpu.core"\n' .. CONV)
  local out = check.run(("MGPU_LOG=fallback MGPU_CUDA_LIBRARIES=%s %s %s"):format(folder, check.program, path))
  check.matches(out, "convolutions are slower: cuDNN 9 is missing")
  check.matches(out, "true%s+54")
end)

test("all rows of matmul and conv2d without cuDNN and cuBLASLt", function()
  for _, op in ipairs { "conv2d", "matmul" } do
    local out = check.run(("MGPU_TEST_FAST=1 MGPU_CUDA_LIBRARIES=%s %s tests/check.lua tests/cuda/ops_spec.lua %s")
      :format(bare_folder(), check.program, op))
    check.matches(out, "[1-9]%d* passed, 0 failed")
  end
end)
