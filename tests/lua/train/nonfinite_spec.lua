-- Weights and moving statistics that an update would make infinite, or has made infinite.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local test = check.test
local L = mgpu.layers

-- One step of it gives weights of about -1e40.
local function overflowing(options)
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "d" } }
  options.loss, options.optimizer = "mse", mgpu.optimizers.SGD { 1e38 }
  model:compile(options)
  return model, mgpu.rand { 8, 4 } * 1e3, mgpu.rand { 8, 3 }
end

test("the step that makes a weight infinite fails, and the next is refused; both name the weight", function()
  for _, devices in ipairs { { "ref:0" }, { "ref:0", "ref:1" }, { "cpu:0" } } do
    local model, x, y = overflowing { devices = devices }
    check.raises(function() model:fit(x, y, { batch_size = 8, verbose = 0 }) end,
      "fit: epoch 1, step 1: d/kernel is not finite (NaN or infinite)", "nonfinite")
    for run = 1, 2 do
      if run == 1 then model, x, y = overflowing { devices = devices } end
      check.raises(function() model:train_on_batch(x, y) end,
        "train_on_batch: d/kernel is not finite (NaN or infinite)", "nonfinite")
    end
    check.equal(tonumber(model.optimizer.iterations:item()), 1) -- the second step has not begun
    model:set_weights { mgpu.zeros { 4, 3 }, mgpu.zeros { 3 } }
    model.optimizer.learning_rate = 1e-3
    model:train_on_batch(x, y)
  end
  local model, x, y = overflowing { devices = { "ref:0", "ref:1" }, strategy = "async" }
  check.raises(function() model:fit(x, y, { batch_size = 8, verbose = 0 }) end, "d/kernel is not finite", "nonfinite")
  model, x, y = overflowing { run_eagerly = true }
  check.raises(function() model:train_on_batch(x, y) end, "d/kernel is not finite", "nonfinite")
  model, x, y = overflowing { devices = { "ref:0", "ref:1" }, strategy = "central" }
  check.raises(function() model:train_on_batch(x, y) end, "d/kernel is not finite", "nonfinite")
end)

test("infinite weights are never saved", function()
  local C, path, backup = mgpu.callbacks, check.path "infinite.safetensors", check.path "infinite_backup"
  local function save(model) model:save(path) end
  local savers = {
    function() return C.ModelCheckpoint { path, save_freq = 1 } end,
    function() return C.ModelCheckpoint { path, save_freq = "epoch" } end,
    function() return C.BackupAndRestore { backup, save_freq = 1 } end,
    function() return C.LambdaCallback { on_train_batch_end = function(self) save(self.model) end } end,
    function() return C.LambdaCallback { on_train_end = function(self) save(self.model) end } end,
  }
  for i, saver in ipairs(savers) do
    for _, stop in ipairs { false, true } do
      local model, x, y = overflowing {}
      local callbacks = { saver(), stop and C.TerminateOnNaN() or nil }
      local ok = pcall(model.fit, model, x, y, { batch_size = 8, epochs = 2, verbose = 0, callbacks = callbacks })
      check.equal(ok and not stop, false, "saver " .. i)
      check.equal(core.file_exists(path), false, "saver " .. i)
      check.raises(function() save(model) end, "d/kernel is not finite (NaN or infinite)", "nonfinite")
      check.raises(function() model:save_weights(path) end, "was not saved", "nonfinite")
      check.equal(core.file_exists(path), false)
    end
  end
  local folder = require "mgpu.train.checkpoint.folder"
  check.equal(folder.load(backup, function() end), nil)
end)

test("an optimizer's steps in one call are checked together, and moving statistics of own layers too", function()
  local Counting = mgpu.Layer:extend "Counting"
  function Counting:build() self.count = self:add_weight { name = "count", shape = {}, trainable = false } end
  function Counting:call(x, training)
    if training then self.count:assign(self.count * 1e30 + 1e30) end
    return x
  end
  local model = mgpu.Sequential { L.Input { 4 }, Counting { name = "c" }, L.Dense { 3 } }
  model:compile { loss = "mse", optimizer = "sgd", steps_per_execution = 2 }
  check.raises(function() model:fit(mgpu.rand { 8, 4 }, mgpu.rand { 8, 3 }, { batch_size = 4, verbose = 0 }) end,
    "c/count is not finite", "nonfinite")
end)

test("no callback sees the epoch that ended with infinite weights", function()
  local model, x, y = overflowing {}
  local ends = 0
  local count = mgpu.callbacks.LambdaCallback { on_epoch_end = function() ends = ends + 1 end }
  check.raises(function() model:fit(x, y, { verbose = 0, callbacks = { count } }) end, "d/kernel", "nonfinite")
  check.equal(ends, 0)
end)

test("a step that would make moving statistics infinite changes nothing, and the message names the layer", function()
  local model = mgpu.Sequential { L.Input { 4 }, L.BatchNormalization { name = "n" }, L.Dense { 3 } }
  model:compile { loss = "mse", optimizer = "sgd" }
  local before = {}
  for i, w in ipairs(model:get_weights()) do before[i] = w:totable() end
  check.raises(function() model:fit(mgpu.rand { 8, 4 } * 1e30, mgpu.rand { 8, 3 }, { verbose = 0 }) end,
    'fit: epoch 1, step 1: BatchNormalization "n": the moving statistics are not finite', "nonfinite")
  for i, w in ipairs(model:get_weights()) do check.equal(w:totable(), before[i]) end
end)

test("a jitted loop with opt:apply fails for bad gradients and for bad new values, and names them", function()
  for _, device in ipairs { "ref:0", "cpu:0" } do
    local v = mgpu.variable(mgpu.ones { 3 }:to(device), { name = "w" })
    local x = mgpu.variable(mgpu.tensor(1):to(device), { name = "x", trainable = false })
    local opt = mgpu.optimizers.SGD { 0.1 }
    local step = mgpu.jit(function()
      local _, grads = mgpu.value_and_grad(function() return (v * v * x):sum() end, { v })()
      opt:apply(grads, { v })
    end)
    step()
    check.near(v:totable(), { 0.8, 0.8, 0.8 }, 1e-6)
    x:assign(1 / 0)
    check.raises(step, "apply: the gradient of w is not finite", "nonfinite")
    check.near(v:totable(), { 0.8, 0.8, 0.8 }, 1e-6)
    x:assign(1e38)
    v:assign(mgpu.tensor { 1, 1e-30, 1 })
    opt.learning_rate = 1e10
    check.raises(step, "w is not finite (NaN or infinite): the update overflowed", "nonfinite")
    check.equal(v:totable()[1], -1 / 0)
    x:assign(1)
    check.raises(step, "w is not finite (NaN or infinite): the update overflowed", "nonfinite")
    v:assign(mgpu.ones { 3 })
    opt.learning_rate = 0.1
    step()
    check.near(v:totable(), { 0.8, 0.8, 0.8 }, 1e-6)
  end
end)

test("each trace checks the variables, also after a trace that failed", function()
  local v = mgpu.variable(mgpu.ones { 2 }, { name = "w" })
  local opt, fails = mgpu.optimizers.SGD { 1e10 }, true
  local function step(x)
    opt:apply({ x }, { v })
    if fails then error "a mistake in the function" end
  end
  check.raises(function() mgpu.jit(step)(mgpu.ones { 2 }) end, "a mistake")
  fails = false
  for _ = 1, 2 do
    v:assign(mgpu.ones { 2 })
    check.raises(function() mgpu.jit(function(x) step(x * 1e30) end)(mgpu.ones { 2 }) end,
      "w is not finite (NaN or infinite): the update overflowed", "nonfinite")
  end
end)

test("many variables share guards; the message names first and last, or the one that became infinite", function()
  local variables = {}
  for i = 1, 300 do variables[i] = mgpu.variable(1, { name = "v" .. i }) end
  local factor = mgpu.variable(1, { name = "factor", trainable = false })
  local opt = mgpu.optimizers.SGD { 0.1 }
  local step = mgpu.jit(function()
    local _, grads = mgpu.value_and_grad(function()
      local sum = variables[1] * 1
      for i = 2, 300 do sum = sum + variables[i] * (i == 5 and factor or 1) end
      return sum
    end, variables)()
    opt:apply(grads, variables)
  end)
  step()
  factor:assign(0 / 0)
  check.raises(step, "apply: the gradient of v4 or one up to v6 is not finite", "nonfinite")
  factor:assign(1)
  variables[299]:assign(0 / 0)
  check.raises(step, "v299 is not finite", "nonfinite")
end)
