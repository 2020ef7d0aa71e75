-- Weights and moving statistics that an update would make infinite, or has made infinite.
local check = require "check"
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

test("fit fails in the step that makes a weight infinite, train_on_batch in the next; both name it", function()
  for _, devices in ipairs { { "ref:0" }, { "ref:0", "ref:1" } } do
    local model, x, y = overflowing { devices = devices }
    check.raises(function() model:fit(x, y, { batch_size = 8, verbose = 0 }) end,
      "fit: epoch 1, step 1: d/kernel is not finite (NaN or infinite)", "nonfinite")
    model, x, y = overflowing { devices = devices }
    model:train_on_batch(x, y) -- does not wait for its step
    check.raises(function() model:train_on_batch(x, y) end, "train_on_batch: d/kernel is not finite",
      "nonfinite")
  end
  local model, x, y = overflowing { devices = { "ref:0", "ref:1" }, strategy = "async" }
  check.raises(function() model:fit(x, y, { batch_size = 8, verbose = 0 }) end, "d/kernel is not finite", "nonfinite")
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

test("a jitted loop with opt:apply fails for gradients and variables that are not finite, and names them", function()
  local v = mgpu.variable(mgpu.ones { 3 }, { name = "w" })
  local x = mgpu.variable(1, { name = "x", trainable = false })
  local opt = mgpu.optimizers.SGD { 0.1 }
  local step = mgpu.jit(function()
    local _, grads = mgpu.value_and_grad(function() return (v * v * x):sum() end, { v })()
    opt:apply(grads, { v })
  end)
  step()
  check.near(v:totable(), { 0.8, 0.8, 0.8 }, 1e-6)
  x:assign(1 / 0)
  check.raises(step, "apply: w, or its gradient, is not finite", "nonfinite")
  check.near(v:totable(), { 0.8, 0.8, 0.8 }, 1e-6)
  x:assign(1)
  v:assign(mgpu.tensor { 1, 1 / 0, 1 })
  check.raises(step, "apply: w, or its gradient, is not finite", "nonfinite")
end)

test("many variables share guards, which name the first and the last", function()
  local variables = {}
  for i = 1, 250 do variables[i] = mgpu.variable(1, { name = "v" .. i }) end
  local opt = mgpu.optimizers.SGD { 0.1 }
  local step = mgpu.jit(function()
    local _, grads = mgpu.value_and_grad(function()
      local sum = variables[1] * 1
      for i = 2, 250 do sum = sum + variables[i] end
      return sum
    end, variables)()
    opt:apply(grads, variables)
  end)
  step()
  variables[5]:assign(0 / 0)
  check.raises(step, "apply: v4 or one up to v6, or its gradient, is not finite", "nonfinite")
end)
