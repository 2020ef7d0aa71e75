-- NCCL: steps on two GPUs that fail.
local device = require "tests.cuda.device"
local ffi = require "ffi"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

-- A model on these devices, and a step of it.
local function steps(devices)
  mgpu.seed(3)
  mgpu.Layer.reset_names()
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu" }, L.Dense { 3 } }
  model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.1 }, devices = devices }
  local x, y = (mgpu.arange(54):to "float32" % 11):reshape { 9, 6 } / 11, mgpu.ones { 9, 3 }
  return model, function() model:train_on_batch(x, y) end
end

local function fail(step)
  core.fault { device = "cuda:1", op = "matmul" }
  check.raises(step, "cuda:1: matmul: failed", "device")
  core.fault()
end

test("a GPU that fails after its steps were recorded: an error, and the next steps go on", function()
  if #core.devices "cuda" < 2 then check.skip "one GPU" end
  local serial, step = steps { "ref:0" }
  local model, step_on_two = steps { "cuda:0", "cuda:1" }
  for i = 1, 8 do
    if i == 2 or i == 5 or i == 6 then fail(step_on_two) end
    step()
    step_on_two()
  end
  for i, w in ipairs(model:get_weights()) do
    check.near(w, serial:get_weights()[i], 1e-5) -- float32 sums in another order
  end
end)

if device.real then return end

ffi.cdef "long long standin_count(const char *what);"
local driver = ffi.load "build/standin/libcuda.so.1"

test("recordings with a communicator that was aborted are given up at the next step", function()
  local _, step = steps { "cuda:0", "cuda:1" }
  for _ = 1, 4 do step() end
  fail(step)
  local before = driver.standin_count "cuGraphExecDestroy"
  step()
  check.truthy(driver.standin_count "cuGraphExecDestroy" >= before + 2, "one of each GPU at least")
end)

test("a program may end when a step has failed", function()
  local path = check.path "script.lua"
  check.write(path, [[
local core, mgpu = require "mgpu.core", require "mgpu"
local model = mgpu.Sequential { mgpu.layers.Input { 6 }, mgpu.layers.Dense { 3 } }
model:compile { loss = "mse", optimizer = "sgd", devices = { "cuda:0", "cuda:1" } }
local x, y = mgpu.ones { 8, 6 }, mgpu.ones { 8, 3 }
for _ = 1, 3 do model:train_on_batch(x, y) end
core.fault { device = "cuda:1", op = "matmul" }
print(pcall(model.train_on_batch, model, x, y))
if arg[1] == "at once" then os.exit(3) end]])
  for how, code in pairs { ["at once"] = 3, ["in order"] = 0 } do
    local out, status = check.run(("timeout 20 %s %s '%s'"):format(check.program, path, how))
    check.matches(out, "cuda:1: matmul: failed")
    check.equal(status, code)
  end
end)
