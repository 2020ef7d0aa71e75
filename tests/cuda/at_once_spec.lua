-- A step on several GPUs is enqueued at once on all of them: compute, guards and commit in one graph launch for each,
-- which the host does not wait for. A failure anywhere changes the weights of all devices or of none.
local device = require "tests.cuda.device"
local check = require "check"

if device.real then return end

local test = check.test

local HEAD = [[
local core, mgpu = require "mgpu.core", require "mgpu"
local L = mgpu.layers
core.precision "highest"
mgpu.set_floatx "float64"
local function gpus(n)
  local list = {}
  for i = 1, n do list[i] = "cuda:" .. i - 1 end
  return list
end
-- A model on these devices, and a function that does a step on its rows or on the given ones.
local function steps(devices)
  mgpu.seed(3)
  mgpu.reset_names()
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.2 }, L.Dense { 3 } }
  model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.1, momentum = 0.9 }, devices = devices }
  local x, y = (mgpu.arange(216):to "float64" % 11):reshape { 36, 6 } / 11, mgpu.ones { 36, 3 }
  mgpu.eval(x, y)
  return model, function(rows) model:fit(rows or x, y, { batch_size = 36, verbose = 0, shuffle = false }) end, x
end
local function difference(a, b)
  local most = 0
  for i, w in ipairs(a:get_weights()) do
    most = math.max(most, (w:to "ref:0" - b:get_weights()[i]:to "ref:0"):abs():max():item())
  end
  return most
end
]]

-- Runs a script on n fake GPUs -> output, status, number of calls of a function.
local function run(n, script, settings, ...)
  local path, log = check.path "script.lua", check.path "calls"
  check.write(path, HEAD .. script)
  local out, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_CUDA_AUTOTUNE=1 MGPU_CUDA_KEPT=%d "
    .. "MGPU_FAKE_CUDA_GPUS=%d MGPU_FAKE_CUDA_LOG=%s %s timeout 250 %s %s %s"):format(2 ^ 28, n, log, settings or "",
    check.program, path, table.concat({ ... }, " ")))
  local text = check.read(log) or ""
  return out, status, function(name) return tonumber(text:match("%f[%w]" .. name .. ": (%d+)")) or 0 end
end

for _, n in ipairs { 1, 2, 3, 4, 8 } do
  test(("%d GPUs train as ref does"):format(n), function()
    for _, order in ipairs { "", "MGPU_FAKE_CUDA_STREAMS=late", "MGPU_FAKE_CUDA_STREAMS=early" } do
      local out = run(n, [[
local serial, step = steps { "ref:0" }
local model, step_on_all = steps(gpus(tonumber(arg[1])))
mgpu.seed(5)
for _ = 1, 6 do step() end
mgpu.seed(5)
for _ = 1, 6 do step_on_all() end
print(difference(serial, model) < 1e-12)]], order, n)
      check.equal(out, "true\n", order)
    end
  end)
end

-- What `count` further steps on n GPUs add to the calls of a function.
local function added(n, name, count)
  local script = "local _, step = steps(gpus(%d)) for _ = 1, 12 + arg[1] do step() end"
  local _, _, few = run(n, script:format(n), nil, 0)
  local _, _, many = run(n, script:format(n), nil, count)
  return many(name) - few(name)
end

test("a step is one launch for each GPU, and the host waits as rarely as for one", function()
  local one = { wait = added(1, "cuMemcpyDtoHAsync", 20), launch = added(1, "cuGraphLaunch", 20) }
  for _, n in ipairs { 2, 4 } do
    check.equal(added(n, "cuGraphLaunch", 20), one.launch + 20 * (n - 1))
    check.truthy(added(n, "cuMemcpyDtoHAsync", 20) <= one.wait, "reads of the host")
    check.equal(added(n, "ncclAllReduce", 20), 0)
  end
end)

test("collectives in a graph have the highest priority, and no other kernels have one", function()
  local log = check.path "calls"
  run(2, "local _, step = steps(gpus(2)) for _ = 1, 6 do step() end")
  local text = check.read(log)
  local captured = tonumber(text:match "nccl captures of rank 0: (%d+)") + tonumber(text:match "of rank 1: (%d+)")
  check.equal(tonumber(text:match "\nnccl with priority %-5: (%d+)"), captured)
  check.equal(tonumber(text:match "cuGraphKernelNodeSetAttribute: (%d+)"), captured)
end)

-- No step beside a reduction that is under way may get its memory: it has none but that of the result.
test("gradients are reduced in place", function()
  local out = run(2, [[
local w = mgpu.variable(mgpu.zeros { 1000, 500 })
local step = mgpu.jit(function(x)
  local loss, grads = mgpu.value_and_grad(function() return x:shard():matmul(w:value()):square():sum() end, { w })()
  w:assign(w:value() - grads[1] * 0.1)
  return loss
end, { devices = gpus(2) })
step(mgpu.ones { 4, 1000 }):item()
print(step:report()[1].arena_bytes < 1.5 * 1000 * 500 * 8, step:report()[2].arena_bytes >= 1000 * 500 * 8)]])
  check.equal(out, "true\ttrue\n")
end)

-- Each step is first tried with a fault; arg: the number of GPUs, the one that fails, its op and the phase.
local FAULTS = [[
local n, at, op, phase = tonumber(arg[1]), 0, arg[3], arg[4]
local serial, step = steps { "ref:0" }
local model, step_on_all = steps(gpus(n))
local failures, counted = 0, 0
for i = 1, 40 do
  at = at + 1
  mgpu.seed(i)
  step_on_all()
  mgpu.seed(i)
  step()
  core.fault { device = "cuda:" .. arg[2], op = op, at = at, phase = phase }
  mgpu.seed(100 + i)
  local before = model:get_weights()
  local ok, message = pcall(step_on_all)
  core.fault()
  if ok then
    mgpu.seed(100 + i)
    step()
    break
  end
  failures = failures + 1
  if message:find "the step counts" then
    counted = counted + 1
    mgpu.seed(100 + i)
    step()
  elseif not message:find("cuda:" .. arg[2], 1, true) then
    print(message)
  else
    for k, w in ipairs(model:get_weights()) do
      if (w - before[k]):abs():max():item() ~= 0 then print("weights changed", message) end
    end
  end
end
print(failures, counted, difference(serial, model) < 1e-11)]]

test("a fault at any collective changes nothing on any GPU, and training continues", function()
  for _, case in ipairs { { 2, 0, "all_reduce", 3 }, { 2, 1, "all_reduce", 3 }, { 4, 2, "all_reduce", 3 },
    { 2, 0, "all_gather", 1 }, { 3, 1, "all_gather", 1 } } do
    local out = run(case[1], FAULTS, nil, case[1], case[2], case[3], "compute")
    local failures = tonumber(out:match "^(%d+)\t0\ttrue\n$")
    check.truthy(failures and failures >= case[4], out)
  end
end)

test("a fault at any launch before commit changes nothing on any GPU", function()
  local out = run(3, FAULTS, nil, 3, 1, "''", "compute")
  local failures = tonumber(out:match "^(%d+)\t0\ttrue\n$")
  check.truthy(failures and failures >= 10, out)
end)

-- The other GPUs may have agreed when the communicator is aborted: then the step counts.
test("a GPU that cannot finish its commit phase is left out, or the step changes nothing", function()
  local out = run(3, [[
local serial, step = steps { "ref:0" }
local model, step_on_all = steps(gpus(3))
for i = 1, 12 do
  local fails, before = i % 3 == 0, model:get_weights()
  mgpu.seed(i)
  step()
  mgpu.seed(i)
  if fails then core.fault { device = "cuda:1", op = "", phase = "commit", at = 1, again = true } end
  local ok, message = pcall(step_on_all)
  core.fault()
  if ok == fails or fails and not message:find "cuda:1: [^\n]*failed" then print(i, ok, message) end
  if fails and not message:find "the other devices have finished the update: the step counts" then
    for k, w in ipairs(model:get_weights()) do
      if (w - before[k]):abs():max():item() ~= 0 then print("weights changed", message) end
    end
    mgpu.seed(i)
    step_on_all()
  end
end
print(difference(serial, model) < 1e-11)]])
  check.equal(out, "true\n")
end)

test("calls of NCCL that fail change nothing on any GPU, and training continues", function()
  for call = 1, 40, 7 do
    local out = run(2, [[
local serial, step = steps { "ref:0" }
local model, step_on_all = steps(gpus(2))
for i = 1, 5 do
  mgpu.seed(i)
  local ok, message = pcall(step_on_all)
  if not ok then
    print(message)
    mgpu.seed(i)
    step_on_all()
  end
  mgpu.seed(i)
  step()
end
print(difference(serial, model) < 1e-12)]], ("MGPU_FAKE_CUDA_FAIL=ncclAllReduce:%d:2"):format(call))
    check.matches(out, "true\n$")
  end
end)

test("an error that NCCL finds while the GPUs are at work changes nothing, or the step counts on all", function()
  for _, call in ipairs { 35, 48, 60 } do
    local out = run(2, [[
local serial, step = steps { "ref:0" }
local model, step_on_all = steps(gpus(2))
local failed, last = 0, 400
for i = 1, 400 do
  local before = model:get_weights()
  mgpu.seed(i)
  local ok, message = pcall(function()
    step_on_all()
    model:get_weights()
  end)
  local counts = not ok and message:find "the step counts" -- all GPUs had finished it
  if ok or counts then
    mgpu.seed(i)
    step()
  end
  if not ok then
    failed, last = failed + 1, math.min(last, i + 4)
    if not message:find "NCCL: " and not message:find "the step has changed nothing" then print(message) end
    for k, w in ipairs(counts and {} or model:get_weights()) do
      if (w - before[k]):abs():max():item() ~= 0 then print("weights changed", message) end
    end
  end
  if i >= last then break end
end
print(failed > 0, difference(serial, model) < 1e-11)]], ("MGPU_FAKE_CUDA_FAIL=ncclCommGetAsyncError:%d:6"):format(call))
    check.equal(out, "true\ttrue\n", call)
  end
end)

test("a failed guard keeps the weights on all GPUs, whichever device is used next", function()
  local out = run(2, [[
local serial, step, x = steps { "ref:0" }
local model, step_on_all = steps(gpus(2))
local bad = x * (0 / 0)
mgpu.eval(bad)
local total = mgpu.variable(mgpu.tensor({ 0 }, { device = "cuda:1" }))
local add = mgpu.jit(function(w) total:assign(total:value() + w:sum():reshape { 1 }) end)
for i = 1, 5 do
  mgpu.seed(i)
  step()
  mgpu.seed(i)
  step_on_all()
  local before = model:get_weights()
  local ok, message = pcall(function()
    step_on_all(bad)
    step_on_all()
  end)
  if not message:find "NaN" then print(message) end
  for k, w in ipairs(model:get_weights()) do
    if (w - before[k]):abs():max():item() ~= 0 then print("weights changed", k) end
  end
end
print(difference(serial, model) < 1e-12)]])
  check.equal(out, "true\n")
end)
