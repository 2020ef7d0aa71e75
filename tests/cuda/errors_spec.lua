-- Errors of cuda devices: missing libraries, errors of calls, out of memory, a lost device, failed guards.
-- On the fake CUDA, whose calls fail on request; the messages about missing libraries on any machine.
local device = require "tests.cuda.device"
local check = require "check"

local test = check.test
local fake_cuda = "MGPU_CUDA_LIBRARIES=build/fake_cuda "

-- Runs a script in a process of its own with environment settings -> output, exit status.
local function run(settings, script)
  local path = check.path "script.lua"
  check.write(path, 'local mgpu = require "mgpu"\n' .. script)
  return check.run(settings .. " " .. check.program .. " " .. path)
end

-- Six training steps; a step that fails prints its message and whether the weights are as before.
local TRAIN = [[
local model = mgpu.Sequential { mgpu.layers.Input { 8 }, mgpu.layers.Dense { 4, activation = "relu" },
  mgpu.layers.Dense { 1 } }
model:compile { loss = "mse", optimizer = "sgd", devices = "cuda:0" }
local x, y = mgpu.ones { 32, 8 }, mgpu.ones { 32, 1 }
for i = 1, 6 do
  local before = model:get_weights()[1]:totable()
  local ok, message = pcall(model.train_on_batch, model, x, y)
  local kept, after = true, nil
  if not ok then
    print(i, message)
    ok, after = pcall(function() return model:get_weights()[1]:totable() end)
    for r = 1, ok and #before or 0 do
      for c = 1, #before[r] do kept = kept and before[r][c] == after[r][c] end
    end
    print("weights kept", ok and kept)
  end
end
]]

test("a missing driver is one sentence that says what to install", function()
  local out, status = run("MGPU_CUDA_LIBRARIES=/nowhere",
    'print(pcall(mgpu.ones, { 2 }, { device = "cuda:0" }))')
  check.equal(status, 0)
  check.matches(out, "the NVIDIA driver is missing: there is no libcuda.so.1 in /nowhere; install")
end)

test("without a driver cuda is listed as not available with the reason, and the cpu is the default", function()
  local out = check.run("MGPU_CUDA_LIBRARIES=/nowhere " .. check.program .. " --list-devices")
  check.matches(out, "cuda     not available: the NVIDIA driver is missing")
  out = run("MGPU_CUDA_LIBRARIES=/nowhere", "print(mgpu.ones({ 2 }):device())")
  check.falsy(out:find "cuda")
end)

if device.real then return end

test("GPUs are listed with memory and compute capability, without making contexts", function()
  local log = check.path "calls"
  local out, status = check.run(fake_cuda .. "MGPU_FAKE_CUDA_LOG=" .. log .. " " .. check.program
    .. " --list-devices")
  check.equal(status, 0)
  check.matches(out, "cuda:0   Fake GPU, compute capability 9.0, 1.0 GiB")
  check.matches(out, "cuda:1 ")
  check.falsy(check.read(log):find "cuDevicePrimaryCtxRetain")
end)

test("CUDA_VISIBLE_DEVICES hides GPUs", function()
  local out = check.run(fake_cuda .. "CUDA_VISIBLE_DEVICES=1 " .. check.program .. " --list-devices")
  check.matches(out, "cuda:0 ")
  check.falsy(out:find "cuda:1")
  out = check.run(fake_cuda .. "CUDA_VISIBLE_DEVICES= " .. check.program .. " --list-devices")
  check.matches(out, "cuda     not available: [^\n]*no GPU")
end)

test("a device beyond the last one is named", function()
  local out = run(fake_cuda, 'print(pcall(mgpu.ones, { 2 }, { device = "cuda:7" }))')
  check.matches(out, 'device "cuda:7" does not exist: there are 2 of its kind')
end)

test("only the GPU that is used gets a context", function()
  local log = check.path "calls"
  run(fake_cuda .. "MGPU_FAKE_CUDA_LOG=" .. log,
'require("mgpu.core").set_devices { "cuda:1" } print(mgpu.ones({ 2 }):sum():item())')
  check.matches(check.read(log), "cuDevicePrimaryCtxRetain: 1\n")
end)

test("a training step is one graph launch after it was recorded", function()
  local log = check.path "calls"
  local out = run(fake_cuda .. "MGPU_FAKE_CUDA_LOG=" .. log, TRAIN:gsub("1, 6", "1, 50"))
  check.equal(out, "")
  local launches = tonumber(check.read(log):match "cuGraphLaunch: (%d+)")
  check.truthy(launches >= 40 and launches <= 50, launches .. " launches of graphs")
  local kernels = tonumber(check.read(log):match "cuLaunchKernel: (%d+)")
  check.truthy(kernels < 50 * 20, kernels .. " launches of kernels")
end)

test("fit records its step a few times, not at each step", function()
  local log = check.path "calls"
  local out = run(fake_cuda .. "MGPU_CUDA_KEPT= MGPU_FAKE_CUDA_LOG=" .. log, [[
local L = mgpu.layers
local model = mgpu.Sequential { L.Input { 8 }, L.Dense { 4, activation = "relu" }, L.Dropout { 0.3 },
  L.Dense { 3 } }
model:compile { metrics = { "accuracy" },
  loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true } }
model:fit(mgpu.rand { 640, 8 }, mgpu.randint(0, 3, { 640 }), { batch_size = 16, epochs = 4, verbose = 0 })
]])
  check.equal(out, "")
  local calls = check.read(log)
  check.equal(tonumber(calls:match "cuGraphLaunch: (%d+)") > 150, true)
  check.truthy(tonumber(calls:match "cuStreamBeginCapture: (%d+)") < 20)
  check.truthy(tonumber(calls:match "cuMemAllocFromPoolAsync: (%d+)") < 100)
  -- All 160 steps draw random numbers, whose state advances on the GPU without a copy from the host.
  check.truthy(tonumber(calls:match "cuMemcpyHtoDAsync: (%d+)") < 80, calls:match "cuMemcpyHtoDAsync: (%d+)")
end)

test("a custom training loop with new tensors at each step is recorded a few times", function()
  local log = check.path "calls"
  local out = run(fake_cuda .. "MGPU_CUDA_KEPT= MGPU_FAKE_CUDA_LOG=" .. log, [[
local w, sums = mgpu.variable(mgpu.ones { 4, 2 }), {}
local step = mgpu.jit(function(x)
  local loss = x:matmul(w:value()):sum()
  w:assign(w:value() + 1)
  return loss, x * 2
end)
for i = 1, 60 do
  local loss, twice = step(mgpu.full({ 3, 4 }, i))
  sums[i] = loss
  if i == 60 then print(twice:sum():item()) end
end
for i = 1, 60 do assert(sums[i]:item() == 24 * i * i, i) end
]])
  check.equal(out, "1440\n")
  check.truthy(tonumber(check.read(log):match "cuStreamBeginCapture: (%d+)") < 10)
end)

-- name, the call that fails, its error, a pattern of the message, whether the step was done before it failed
for _, case in ipairs {
  { "a copy of a result that fails", "cuMemcpyDtoHAsync:12", 1,
    "cuda:0: copy from the GPU: [^\n]*CUDA_ERROR_INVALID_VALUE", true },
  { "a kernel that does not start", "cuLaunchKernel:12", 701,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", false },
  { "a graph that does not start", "cuGraphLaunch:3", 1,
    "start a graph: [^\n]*CUDA_ERROR_INVALID_VALUE", false },
} do
  local name, call, code, message, done = unpack(case)
  test(("%s: the error names it, the weights %s, and training goes on"):format(name,
    done and "have changed" or "stay"), function()
    local out, status = run(fake_cuda .. ("MGPU_FAKE_CUDA_FAIL=%s:%d"):format(call, code), TRAIN)
    check.matches(out, message)
    check.matches(out, "weights kept\t" .. tostring(not done))
    check.equal(status, 0)
  end)
end

test("an update that runs out of memory half-way is finished, but the step is not repeated", function()
  for call = 1, 5 do -- calls 1 and 2 fail while it is recorded, call 4 between the two variables
    local out = run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cuGraphInstantiate:-1:2", ([[
local ffi = require "ffi"
ffi.cdef "void fake_cuda_fail(const char *function, int n, int error);"
local a, b = mgpu.variable(mgpu.ones { 3 }), mgpu.variable(mgpu.ones({ 5 }, { dtype = "int32" }))
local step = mgpu.jit(function()
  a:assign(a:value() + 1)
  b:assign(b:value() * 2)
end)
for _ = 1, 3 do step() end
ffi.load("build/fake_cuda/libcuda.so.1").fake_cuda_fail("cuLaunchKernel", %d, 2)
local ok, message = pcall(step)
print(ok or message:match "the GPU's memory is full", a:value():totable()[1], b:value():totable()[1])
]]):format(call))
    local fails = call == 3 or call == 4
    check.equal(out:match "([^\n]*\n)$", (fails and "the GPU's memory is full" or "true") .. "\t5\t16\n")
  end
end)

test("a step that runs out of memory before its update is repeated", function()
  local out = run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cuGraphInstantiate:-1:2", [[
local ffi = require "ffi"
ffi.cdef "void fake_cuda_fail(const char *function, int n, int error);"
local a = mgpu.variable(mgpu.ones { 3 })
local step = mgpu.jit(function(x) a:assign(a:value() + x:sum()) end)
local x = mgpu.ones { 4 }
for _ = 1, 3 do step(x) end
ffi.load("build/fake_cuda/libcuda.so.1").fake_cuda_fail("cuLaunchKernel", 3, 2)
print(pcall(step, x), a:value():totable()[1])
]])
  check.equal(out:match "([^\n]*\n)$", "true\t17\n")
end)

test("a compile error names the kernel, and the next use compiles it again", function()
  local out, status = run(fake_cuda .. "MGPU_CACHE=" .. check.path "cache"
    .. " MGPU_FAKE_CUDA_FAIL=nvrtcCompileProgram:2:6", [[
local function step() return (mgpu.ones({ 9 }, { device = "cuda:0" }) * 3 + 1):sum():item() end
print(pcall(step))
print(pcall(step))
]])
  check.equal(status, 0)
  check.matches(out, "false\t[^\n]*the source of kernel %w+ does not compile: NVRTC_ERROR_COMPILATION")
  check.matches(out, "true\t36\n")
end)

test("a kernel for several GPUs is compiled once, also without a cache on disk", function()
  local function compiled(devices)
    local log = check.path "calls"
    local out = run(fake_cuda .. "MGPU_CACHE=/dev/null/none MGPU_FAKE_CUDA_LOG=" .. log, ([[
for _, name in ipairs { %s } do
  print(((mgpu.ones({ 9, 30 }, { device = name }) * 3 + 1):exp() + 1):log():sum():item() > 1000)
end
]]):format(devices))
    check.equal(out:gsub("true\n", ""), "")
    return tonumber(check.read(log):match "nvrtcCompileProgram: (%d+)")
  end
  local one = compiled '"cuda:0"'
  check.truthy(one >= 2)
  check.equal(compiled '"cuda:0", "cuda:1", "cuda:0/1"', one)
end)

test("after a fatal error the device is lost, and a program that ends with it has status 77", function()
  local out = run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cuEventQuery:9:700", TRAIN)
  check.matches(out, "CUDA_ERROR_ILLEGAL_ADDRESS")
  check.matches(out, "cuda:0 is lost: start the program again: [^\n]*CUDA_ERROR_ILLEGAL_ADDRESS")
  -- Memory of a lost GPU cannot be freed: that is not a leak.
  local _, status = run(fake_cuda .. "ASAN_OPTIONS=detect_leaks=0 MGPU_FAKE_CUDA_FAIL=cuEventQuery:9:700",
    (TRAIN:gsub("pcall%(model.train_on_batch, model, x, y%)", "true, model:train_on_batch(x, y)")))
  check.equal(status, 77)
end)

test("an error of earlier work that shows in an allocation is not reported as out of memory", function()
  local out, status = run(fake_cuda .. "ASAN_OPTIONS=detect_leaks=0 MGPU_CUDA_KEPT=0 "
    .. "MGPU_FAKE_CUDA_FAIL=cuMemAllocFromPoolAsync:30:700", TRAIN) -- memory of a lost GPU is not a leak
  check.matches(out, "cuda:0[^\n]*: allocate memory: [^\n]*CUDA_ERROR_ILLEGAL_ADDRESS")
  check.falsy(out:find "out of memory")
  check.equal(status, 77)
end)

for _, what in ipairs { "cuStreamCreate", "cuMemPoolCreate", "cuMemAllocHost", "cuModuleLoadData" } do
  test("opening a device reports a failure of " .. what, function()
    local out, status = run(fake_cuda .. ("MGPU_FAKE_CUDA_FAIL=%s:-1:2"):format(what),
      'print(pcall(mgpu.ones, { 2 }, { device = "cuda:0" }))')
    check.equal(status, 0)
    check.matches(out, "false\t[^\n]*cuda:0: [^\n]*memory is full")
  end)
end

test("a wrong MGPU_CUDA_GRAPH is an error that lists the values", function()
  local out = run(fake_cuda .. "MGPU_CUDA_GRAPH=banana", 'print(pcall(mgpu.ones, { 2 }, { device = "cuda:0" }))')
  check.matches(out, 'MGPU_CUDA_GRAPH is "banana": it must be parallel, chain or no')
end)

for _, way in ipairs { "chain", "no" } do
  test("MGPU_CUDA_GRAPH=" .. way .. " gives the same weights", function()
    local script = TRAIN .. 'print("sum", model:get_weights()[1]:sum():item())'
    check.equal(run(fake_cuda .. "MGPU_CUDA_GRAPH=" .. way, script), run(fake_cuda, script))
  end)
end

test("out of memory reports the request, use, limit and owners; then training continues", function()
  local out, status = run(fake_cuda .. "MGPU_FAKE_CUDA_MEMORY=4000000", TRAIN .. [[
print(pcall(function() return mgpu.ones({ 1000, 1000 }, { device = "cuda:0" }):clone():item() end))
print(pcall(function() return (mgpu.ones({ 2000, 1000 }, { device = "cuda:0" }) * 2):clone():totable() end))
print("loss", model:train_on_batch(x, y).loss)
]])
  check.equal(status, 0)
  check.matches(out, "cuda:0: out of memory: asked [%d.]+ MiB, used [%d.]+ KiB %(work space of plans")
  check.matches(out, "limit the device's, 3.8 MiB")
  check.matches(out, "\nloss\t[%d.e-]+\n")
end)

test("a failed guard is raised at the next step at the latest, and the weights stay as they were", function()
  local out = run(fake_cuda, [[
local model = mgpu.Sequential { mgpu.layers.Input { 4 }, mgpu.layers.Dense { 3, activation = "softmax" } }
model:compile { loss = "sparse_categorical_crossentropy", optimizer = "sgd", devices = "cuda:0" }
local x = mgpu.ones { 9, 4 }
local good, bad = mgpu.zeros({ 9 }, { dtype = "int32" }), mgpu.full({ 9 }, 7, { dtype = "int32" })
model:train_on_batch(x, good)
local before = model:get_weights()[1]:totable()
print(pcall(model.train_on_batch, model, x, bad))
local after = model:get_weights()[1]:totable()
for r = 1, 4 do for c = 1, 3 do assert(before[r][c] == after[r][c]) end end
print("goes on", model:train_on_batch(x, good).loss)
]])
  check.matches(out, "false\t[^\n]*class")
  check.matches(out, "goes on\t")
end)

test("a guard that fails in a plan's last run is raised even after the plan was collected", function()
  local out = run(fake_cuda, [[
local core = require "mgpu.core"
core.default_device "cuda:0"
local w = mgpu.variable(mgpu.ones { 3 })
local x = mgpu.zeros { 3 }
mgpu.eval(x)
do
  local step = mgpu.jit(function(v)
    core.guard_finite({ v }, "v is not finite")
    w:assign(w:value() + v)
  end)
  step(1 / x)
end
collectgarbage()
collectgarbage()
print(pcall(function() return w:value():totable() end))
print(unpack(w:value():totable()))
]])
  check.matches(out, "false\t[^\n]*v is not finite")
  check.matches(out, "1\t1\t1")
end)

local OVERFLOWING = [[
mgpu.seed(1)
local model = mgpu.Sequential { mgpu.layers.Input { 4 }, mgpu.layers.Dense { 3, name = "d" } }
model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 1e38 }, devices = "cuda:0" }
local x, y = mgpu.rand { 8, 4 } * 1e3, mgpu.rand { 8, 3 }
local path = arg[1]
local function report(...) print(pcall(...)) end
]]

test("infinite weights are neither saved nor trained on, although the host detects them later", function()
  local path = check.path "m.safetensors"
  local script = OVERFLOWING .. ([[
report(model.fit, model, x, y, { batch_size = 8, verbose = 0,
  callbacks = { mgpu.callbacks.ModelCheckpoint { %q, save_freq = 1 } } })
report(model.save, model, %q)
report(model.train_on_batch, model, x, y)
print(pcall(function() return model.optimizer.iterations:item() end))
model:set_weights { mgpu.zeros { 4, 3 }, mgpu.zeros { 3 } }
model.optimizer.learning_rate = 1e-3
report(model.train_on_batch, model, x, y)
print(model:get_weights()[1]:abs():max():item() < 1e9)
]]):format(path, path)
  local out = run(fake_cuda, script)
  local lines = {}
  for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
  for i = 1, 3 do check.matches(lines[i], "^false\t[^\n]*d/kernel is not finite %(NaN or infinite%)") end
  check.matches(lines[4], "^true\t1")
  check.matches(lines[5], "^true\t")
  check.equal(lines[6], "true")
  check.equal(io.open(path), nil)
end)

test("a step that overflows is found by the next step and by reading, in a loop and in a submitted run", function()
  local script = [[
local core = require "mgpu.core"
core.default_device "cuda:0"
local function new()
  local w, x = mgpu.variable(mgpu.ones { 3 }, { name = "w" }), mgpu.variable(1e38, { trainable = false })
  local opt = mgpu.optimizers.SGD { 1e10 }
  opt:build { w }
  return w, core.jit(function()
    local _, grads = mgpu.value_and_grad(function() return (w * x):sum() end, { w })()
    opt:apply(grads, { w })
  end), opt
end
local w, step, opt = new()
mgpu.eval(w:value())
step()
print(pcall(step))
print(pcall(step))
print(tonumber(opt.iterations:item()))
w, step, opt = new()
step()
print(pcall(function() return w:totable() end))
print(unpack(w:totable()))
w, step, opt = new()
print(pcall(function() step:submit():wait() end))
print(pcall(step))
w:assign(mgpu.ones { 3 })
opt.learning_rate = 0
print(pcall(step))
print(unpack(w:totable()))
]]
  local out = run(fake_cuda, script)
  local lines = {}
  for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
  local lost = "^false\t[^\n]*w is not finite %(NaN or infinite%): the update overflowed"
  check.matches(lines[1], lost)
  check.matches(lines[2], lost)
  check.equal(lines[3], "1")
  check.matches(lines[4], lost)
  check.equal(lines[5], "-inf\t-inf\t-inf")
  check.matches(lines[6], lost)
  check.matches(lines[7], lost)
  check.equal(lines[8], "true")
  check.equal(lines[9], "1\t1\t1")
end)

-- ---- errors of libraries --------------------------------------------------------------------------

local PRODUCT = [[
local x = mgpu.tensor({ { 1, 2 }, { 3, 4 } }, { device = "cuda:0" })
print(pcall(function() return mgpu.matmul(x + 0, x):totable() end))
]]

test("a product that cuBLASLt cannot compute is an error with the device, the library and its message", function()
  local out = run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cublasLtMatmul:-1:13",
    PRODUCT:gsub("{ { 1.*4 } }", "mgpu.ones({ 64, 64 }):totable()"))
  check.matches(out, "cuda:0: cuBLASLt: matmul: CUBLAS_STATUS_EXECUTION_FAILED")
end)

test("a kernel that the plug-in lacks is named", function()
  local out = run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cuModuleGetFunction:-1:500", PRODUCT)
  check.matches(out, "cuda:0: the plug%-in has no kernel called ")
end)

test("a failure of NCCL is an error with the call and NCCL's message", function()
  for call, words in pairs { ["ncclCommInitRankConfig:-1:2"] = "NCCL: start: an error of the fake NCCL",
    ["ncclAllReduce:-1:3"] = "NCCL: all_reduce: an error of the fake NCCL" } do
    local out = run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=" .. call, TRAIN:gsub('"cuda:0"', '"cuda:0-1"'))
    check.matches(out, words)
  end
end)

test("a GPU that is too old is refused, with its capability and the required one", function()
  check.matches(run(fake_cuda .. "MGPU_FAKE_CUDA_CAPABILITY=7", PRODUCT),
    "cuda:0: the Fake GPU has compute capability 7.0, 8.0 or newer is needed")
end)

test("an error that the driver has no text for is reported as unknown", function()
  check.matches(run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cuModuleLoadData:-1:12345", PRODUCT),
    "cuda:0: load the kernels: unknown error (no name)")
end)

test("a product whose algorithms all fail when they are timed is an error", function()
  check.matches(run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=cublasLtMatmulAlgoGetHeuristic:2:15 MGPU_CACHE="
    .. check.path "no-algorithms", PRODUCT:gsub("{ { 1.*4 } }", "mgpu.ones({ 64, 64 }):totable()")),
    "matmul: cuBLASLt offered an algorithm before, and offers none now")
end)

test("an id that NCCL cannot make is an error with NCCL's message", function()
  check.matches(run(fake_cuda .. "MGPU_FAKE_CUDA_FAIL=ncclGetUniqueId:-1:2", [[
    local ffi = require "ffi"
    ffi.cdef "void *mg_device_find(const char *); int mg_device_make_id(void *, char *);"
    ffi.cdef "const char *mg_error_message(void);"
    ffi.C.mg_device_make_id(ffi.C.mg_device_find "cuda:0", ffi.new "char[128]")
    print(ffi.string(ffi.C.mg_error_message()))
  ]]), "NCCL: cannot make an id: ")
end)
