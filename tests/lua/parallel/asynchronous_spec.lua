-- Training with strategy = "async": each device pulls the weights, computes gradients and pushes them
-- without waiting for the other devices.

local check = require "check"
local mgpu = require "mgpu"
local points = require "fixtures".points

local test = check.test
local L = mgpu.layers

local function classifier(options)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 16, activation = "tanh", name = "h" },
    L.Dropout { 0.1, name = "d" }, L.BatchNormalization { name = "b" },
    L.Dense { 3, activation = "softmax", name = "o" } }
  options.loss = "sparse_categorical_crossentropy"
  options.optimizer = options.optimizer or mgpu.optimizers.SGD { 0.2 }
  options.metrics = { "accuracy" }
  model:compile(options)
  return model
end

local THREE = { "ref:0", "ref:1", "ref:2" }

test("asynchronous training learns, counts every batch once, and reports the staleness", function()
  local x, y = points(90)
  local model = classifier { devices = THREE, strategy = "async" }
  local h = model:fit(x, y, { epochs = 20, batch_size = 10, verbose = 0, validation_data = { x, y } }).history
  check.truthy(h.loss[20] < h.loss[1] / 2, "the loss falls")
  check.truthy(h.val_accuracy[20] > 0.9)
  check.equal(tonumber(model.optimizer.iterations:item()), 180)
  check.truthy(h.staleness_max[1] >= 1, "three devices cannot all be first")
  check.truthy(h.staleness_mean[1] > 0 and h.staleness_mean[1] <= h.staleness_max[1])
end)

test("asynchronous training on one device gives the numbers of serial training", function()
  local x, y = points(30)
  local a, b = classifier {}, classifier { devices = "ref:0", strategy = "async" }
  mgpu.seed(4)
  a:fit(x, y, { epochs = 2, batch_size = 7, verbose = 0 })
  mgpu.seed(4)
  b:fit(x, y, { epochs = 2, batch_size = 7, verbose = 0 })
  for i, w in ipairs(a:get_weights()) do check.near(b:get_weights()[i], w, 1e-5) end
end)

test("evaluate and predict afterwards use the same weights as one device", function()
  local x, y = points(31)
  local model = classifier { devices = THREE, strategy = "async" }
  model:fit(x, y, { verbose = 0 })
  local three = model:evaluate(x, y, { verbose = 0 })
  model:set_devices "ref:0"
  check.near(model:evaluate(x, y, { verbose = 0 }).loss, three.loss, 1e-6)
end)

test("a NaN stops training, no device keeps working, and training can go on", function()
  local x, y = points(60)
  local bad = x:totable()
  bad[31][1] = 0 / 0
  local model = classifier { devices = THREE, strategy = "async" }
  check.raises(function() model:fit(bad, y, { batch_size = 5, shuffle = false, verbose = 0 }) end,
    "not finite", "nonfinite")
  model:fit(x, y, { batch_size = 5, verbose = 0 })
end)

test("a callback can stop asynchronous training in the middle of an epoch", function()
  local x, y = points(60)
  local model = classifier { devices = THREE, strategy = "async" }
  model:fit(x, y, { batch_size = 5, verbose = 0, callbacks = mgpu.callbacks.LambdaCallback {
    on_train_batch_begin = function(i) model.stop_training = i == 4 end } })
  check.equal(tonumber(model.optimizer.iterations:item()), 4)
end)

-- An asynchronous run whose n devices finish every batch at once, so that only the order in which
-- gradients are taken decides the staleness.
local function instant(n)
  local model = classifier { devices = THREE, strategy = "async" }
  local async = require "mgpu.parallel.asynchronous".new(model.compiled, model)
  local step = { submit = function()
    return { done = function() return true end, wait = function() return {} end }
  end }
  async.apply = function() end
  for i = 1, n do async.jobs[i] = { step = step } end
  return async
end

test("gradients of equally fast devices are taken in turn: the staleness is n devices - 1", function()
  local async = instant(4)
  for _ = 1, 100 do
    async:train_batch(function() return { rows = 1, tensors = {} } end)
  end
  local values = {}
  async:report(values)
  check.equal(values.staleness_max, 3)
  check.near(values.staleness_mean, (0 + 1 + 2 + 3 * 97) / 100, 1e-12)
  local function nothing() end
  while async:train_batch(nothing) do end -- the jobs that are still running
  async:report(values)
  check.equal(values.staleness_max, 3)
  check.falsy(async:train_batch(nothing))
end)

test("on_train_batch_end sees the weights with that batch's gradients, in logs and saved files", function()
  local x, y = points(30)
  local model, path = classifier { devices = THREE, strategy = "async" }, check.path "async.safetensors"
  local updates, steps, losses, begun, last = {}, {}, {}, 0, nil
  model:fit(x, y, { batch_size = 4, verbose = 0, callbacks = mgpu.callbacks.LambdaCallback {
    on_train_batch_begin = function(step)
      begun = begun + 1
      check.equal(step, begun)
    end,
    on_train_batch_end = function(step, logs)
      steps[step], updates[step] = step, tonumber(model.optimizer.iterations:item())
      losses[step] = logs.loss > 0
      model:save(path)
      last = model:predict(x)
    end } })
  check.equal(updates, { 1, 2, 3, 4, 5, 6, 7, 8 })
  check.equal(steps, updates)
  check.equal(losses, { true, true, true, true, true, true, true, true })
  check.equal(begun, 8)
  check.equal(model:predict(x), last)
  check.near(mgpu.load_model(path):predict(x), last, 1e-6)
end)

test("strategy async refuses options that it does not support", function()
  check.raises(function() classifier { devices = { ["ref:0"] = 3, ["ref:1"] = 1 }, strategy = "async" } end,
    "cannot split rows by weight", "usage")
  check.raises(function() classifier { devices = THREE, strategy = "async", accumulate = 2 } end,
    "cannot be combined with device groups, accumulate or", "usage")
end)
