-- strategy = "async": devices push gradients and pull weights without waiting (API.md, Devices).

local check = require "check"
local mgpu = require "mgpu"

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

local function points(n)
  local x, y = {}, {}
  for i = 1, n do
    local class = i % 3
    x[i] = { class + i % 4 / 10, (class == 1 and 1 or 0) + i % 5 / 10 }
    y[i] = class
  end
  return mgpu.tensor(x), mgpu.tensor(y, { dtype = "int32" })
end

local THREE = { "ref:0", "ref:1", "ref:2" }

test("it learns, counts every batch once, and reports the staleness", function()
  local x, y = points(90)
  local model = classifier { devices = THREE, strategy = "async" }
  local h = model:fit(x, y, { epochs = 20, batch_size = 10, verbose = 0, validation_data = { x, y } }).history
  check.truthy(h.loss[20] < h.loss[1] / 2, "the loss falls")
  check.truthy(h.val_accuracy[20] > 0.9)
  check.equal(tonumber(model.optimizer.iterations:item()), 180)
  check.truthy(h.staleness_max[1] >= 1, "three devices cannot all be first")
  check.truthy(h.staleness_mean[1] > 0 and h.staleness_mean[1] <= h.staleness_max[1])
end)

test("on one device it is serial training", function()
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

test("a NaN stops training; nothing is left at work, and training can go on", function()
  local x, y = points(60)
  local bad = x:totable()
  bad[31][1] = 0 / 0
  local model = classifier { devices = THREE, strategy = "async" }
  check.raises(function() model:fit(bad, y, { batch_size = 5, shuffle = false, verbose = 0 }) end,
    "not finite", "nonfinite")
  model:fit(x, y, { batch_size = 5, verbose = 0 })
end)

test("a callback may stop it in mid-epoch", function()
  local x, y = points(60)
  local model = classifier { devices = THREE, strategy = "async" }
  model:fit(x, y, { batch_size = 5, verbose = 0, callbacks = mgpu.callbacks.LambdaCallback {
    on_train_batch_begin = function(i) model.stop_training = i == 4 end } })
  check.equal(tonumber(model.optimizer.iterations:item()), 4)
end)

test("what does not go with it is refused", function()
  check.raises(function() classifier { devices = THREE, strategy = "async", accumulate = 2 } end,
    "async goes without", "usage")
end)
