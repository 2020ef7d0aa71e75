-- Stopping: Ctrl-C and SIGTERM inside a step, devices that do not come back, and what becomes of the step.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local test = check.test
local L = mgpu.layers

local fixtures = require "fixtures"
local START, signalled = fixtures.READY, fixtures.signalled

-- A device that hangs stands for a kernel that takes long.
local HANG = START .. [[
  local devices, strategy, phase = arg[2], arg[3], arg[4]
  local list = {}
  for name in devices:gmatch "[^,]+" do list[#list + 1] = name end
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 }, L.Dense { 2 } }
  model:compile { loss = "mse", optimizer = "adam", devices = list, strategy = strategy }
  local x, y = mgpu.rand { 24, 4 }, mgpu.rand { 24, 2 }
  mgpu.eval(x, y)
  model:fit(x, y, { batch_size = 6, verbose = 0 })
  core.fault { device = list[1], op = phase == "compute" and "matmul" or "", phase = phase, lost = true }
  ready()
  print(pcall(model.fit, model, x, y, { batch_size = 6, verbose = 0 }))
  print(core.interrupted())
]]

test("Ctrl-C and SIGTERM end a step whose device does not answer, whatever the strategy", function()
  for _, case in ipairs { "ref:0 mirrored compute", "ref:0 mirrored commit", "ref:0,ref:1 mirrored compute",
    "ref:0,ref:1 mirrored commit", "ref:0,ref:1 async compute" } do
    for _, signal in ipairs { "INT", "TERM" } do
      local output = signalled(HANG, signal, { arguments = case })
      check.matches(output, "false\t.*fit: epoch 1, step %d+: ") -- the update may name the lost device instead
      check.matches(output, "SIG" .. signal .. "\nstatus 0\n$")
    end
  end
end)

test("a script that is stopped while a device computes ends at once, with the signal's status", function()
  local text = HANG:gsub("print%(pcall%(model.fit, model, (x,[^)]*)%)%)\n.*$", "model:fit(%1)")
  local output = signalled(text, "TERM", { arguments = "ref:0 mirrored compute" })
  check.matches(output, "interrupted; the model can be used and trained on.*status 143\n$")
end)

test("a program may end while a device still computes: nothing that it uses is freed", function()
  check.needs "cpu"
  for _, ending in ipairs { "", "os.exit(3)" } do
    local output = signalled(START .. [[
      local x = mgpu.ones { 3000, 3000 }
      mgpu.eval(x)
      ready()
      print(pcall(function() while true do x:matmul(x):sum():item() end end))]] .. ending, "INT")
    check.matches(output, "^false\t[^\n]*interrupted!?\nstatus " .. (ending == "" and 0 or 3) .. "\n$")
  end
end)

test("a function whose run was interrupted gives right values afterwards", function()
  local output = signalled(START .. [[
    core.default_device "ref:0"
    local f = mgpu.jit(function(x) return x:matmul(x):sum() end)
    local x = mgpu.ones { 600, 600 }
    mgpu.eval(x)
    ready()
    print(pcall(function() while true do f(x):item() end end))
    print(x:matmul(x):sum():item() == 600 ^ 3, f(x):item() == 600 ^ 3)]], "INT")
  check.matches(output, "^false\t[^\n]*interrupted!?\ntrue\ttrue\nstatus 0\n$")
end)

-- The first call computes what depends on weights alone, too; later ones do so because the weights change.
test("Ctrl-C ends a call of compile_inference, and later calls give the numbers of model(x)", function()
  for _, round in ipairs { "first", "later" } do
    local output = signalled(START .. [[
      core.default_device "ref:0"
      local model = mgpu.Sequential { L.Input { 24, 24, 4 }, L.Conv2D { 24, 3, use_bias = false },
        L.BatchNormalization {}, L.ReLU {}, L.Conv2D { 24, 3 }, L.BatchNormalization {}, L.Flatten {}, L.Dense { 3 } }
      for _, v in ipairs(model.variables) do v:assign(mgpu.rand(v:shape()) + 0.1) end
      local x, f = mgpu.rand { 64, 24, 24, 4 }, mgpu.compile_inference(model)
      mgpu.eval(x)
      if arg[2] == "later" then f(x:slice { { 1, 2 } }) end
      ready()
      print(pcall(function()
        while true do
          f(x):sum():item()
          for _, v in ipairs(model.variables) do v:assign(v:value() * 1.01) end
        end
      end))
      local small = x:slice { { 1, 3 } }
      local y = model(small)
      local function share(other) return ((other - y):abs():max() / y:abs():max()):item() end
      print(share(f(small)) < 1e-5, share(model:predict(small)) < 1e-5)]], "INT", { arguments = round })
    check.matches(output, "^false\t[^\n]*interrupted!?\ntrue\ttrue\nstatus 0\n$")
  end
end)

test("every wait ends at MGPU_DEADLINE, and the message names device and op", function()
  for _, case in ipairs { "ref:0 mirrored compute", "ref:0,ref:1 mirrored compute", "ref:0,ref:1 central compute",
    "ref:0,ref:1 async compute" } do
    check.write(check.path "hang.lua", HANG)
    local output = check.run(("MGPU_DEADLINE=0.3 MGPU_GRACE=0.3 %s %s %s %s"):format(check.program,
      check.path "hang.lua", check.path "ready", case))
    check.matches(output, "false\t[^\n]*fit: epoch 1, step %d+: ref:%d: matmul: did not come back within")
  end
end)

test("a failure of one device names it and the op, outside of fit, too", function()
  local x = mgpu.ones { 2, 2 }
  mgpu.eval(x)
  local device = x:device()
  core.fault { device = device, op = "matmul" }
  check.raises(function() x:matmul(x):sum():item() end, device .. ": matmul: failed", "device")
  core.fault { device = device, op = "matmul" }
  check.raises(function() mgpu.jit(function(t) return t:matmul(t) end)(x) end, device .. ": matmul: failed", "device")
  core.fault()
end)

-- ---- a failure in the update --------------------------------------------------------------------

local function model_on(devices, strategy)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 4, name = "a" }, L.Dense { 2, name = "b" } }
  model:compile { loss = "mse", optimizer = mgpu.optimizers.Adam { 0.1 }, devices = devices, strategy = strategy }
  return model
end

-- Devices and strategy.
local CASES = { { { "ref:0" } }, { { "ref:0", "ref:1", "ref:2" } }, { { "ref:0", "ref:1", "ref:2" }, "central" } }

test("a failure in the update leaves no weight behind: the step has happened on all devices", function()
  local x, y = mgpu.rand { 6, 3 }, mgpu.rand { 6, 2 }
  mgpu.eval(x, y)
  for _, case in ipairs(CASES) do
    for at = 1, 3 do
      local model, twin = model_on(unpack(case)), model_on "ref:3"
      local central = case[2] and "cpu:0" or "ref:0" -- where the weights are
      core.fault { device = central, phase = "commit", at = at }
      local ok, message = pcall(model.fit, model, x, y, { batch_size = 6, verbose = 0 })
      core.fault()
      if not ok then
        check.matches(message, "fit: epoch 1, step 1: " .. central .. ": [%w_]+: failed %(injected%); the update was "
          .. "finished all the same: the step counts")
      end
      twin:fit(x, y, { batch_size = 6, verbose = 0 })
      check.equal(tonumber(model.optimizer.iterations:item()), 1)
      for i, w in ipairs(model:get_weights()) do check.near(w:totable(), twin:get_weights()[i]:totable(), 1e-6) end
    end
  end
end)

test("a device that cannot finish the update is left out, or the message says that the weights are lost", function()
  local x, y = mgpu.rand { 6, 3 }, mgpu.rand { 6, 2 }
  mgpu.eval(x, y)
  local function fail(model)
    core.fault { device = "ref:0", phase = "commit", again = true }
    local message = check.raises(function() model:fit(x, y, { batch_size = 6, verbose = 0 }) end, "ref:0", "device")
    core.fault()
    return message
  end
  local model, twin = model_on { "ref:0", "ref:1" }, model_on "ref:3"
  check.matches(fail(model), "the other devices have finished the update: the step counts; go on without this device")
  twin:fit(x, y, { batch_size = 6, verbose = 0 })
  for i, w in ipairs(model:get_weights()) do check.near(w:totable(), twin:get_weights()[i]:totable(), 1e-6) end
  check.matches(fail(model_on "ref:0"), "the update is unfinished and no other device has all weights: load saved ones")
end)

test("central and async training go on without a lost cpu:0", function()
  check.needs "cpu"
  check.write(check.path "lost.lua", START .. [[
    local strategy, n = arg[1], tonumber(arg[2])
    local all, rest = {}, {}
    for i = 0, n - 1 do
      all[i + 1] = "cpu:" .. i
      if i > 0 then rest[i] = all[i + 1] end
    end
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
    model:compile { loss = "mse", optimizer = "adam", devices = all, strategy = strategy }
    local x, y = mgpu.rand { 24, 4 }, mgpu.rand { 24, 3 }
    model:fit(x, y, { batch_size = 12, verbose = 0 })
    core.fault { device = "cpu:0", op = "matmul", lost = true }
    print(pcall(model.fit, model, x, y, { batch_size = 12, verbose = 0 }))
    core.fault()
    model:set_devices(rest)
    model:fit(x, y, { batch_size = 12, verbose = 0 })
    model:save(arg[3])
    print("went on", mgpu.load_model(arg[3]):predict(x):shape()[1]) ]])
  for _, case in ipairs { "central 3", "central 8", "async 3" } do
    local output = check.run(("MGPU_DEADLINE=0.3 MGPU_GRACE=0.3 %s %s %s %s"):format(check.program,
      check.path "lost.lua", case, check.path "lost.safetensors"))
    check.matches(output, "cpu:0: matmul: did not come back within.*went on\t24\n$")
  end
end)
