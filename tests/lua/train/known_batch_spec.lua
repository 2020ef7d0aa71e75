-- train_on_batch and test_on_batch again, for batches like the one before: the numbers, errors and sums of the call
-- with all checks; what has changed is noticed.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function value(t)
  core.eval(t)
  return t
end

-- Makes the next call check everything.
local function forget(model) rawset(model, "known_batches", nil) end

local function is_known(model, kind)
  local known = rawget(model, "known_batches")
  return known ~= nil and known[kind] ~= nil
end

local function classifier()
  mgpu.seed(3)
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.3 }, L.Dense { 3, activation = "softmax" } }
  model:compile { optimizer = mgpu.optimizers.Adam { 0.01 }, loss = "sparse_categorical_crossentropy",
    metrics = { "accuracy" }, weighted_metrics = { "accuracy" } }
  return model
end

local function two_outputs()
  mgpu.seed(3)
  local a, b = mgpu.Input { 4, name = "a" }, mgpu.Input { 3, name = "b" }
  local h = L.Concatenate {} { a, b }
  local model = mgpu.Model { inputs = { a, b },
    outputs = { L.Dense { 3, name = "class", activation = "softmax" } (h), L.Dense { 1, name = "amount" } (h) } }
  model:compile { optimizer = "sgd", loss = { "categorical_crossentropy", "mse" }, loss_weights = { 1, 0.5 },
    metrics = { class = { mgpu.metrics.F1Score {}, mgpu.metrics.AUC {} }, amount = { "mae" } } }
  return model
end

local function batches(rows, n)
  local list = {}
  for i = 1, n do
    local ids = {}
    for row = 1, rows do ids[row] = (row * i) % 3 end
    list[i] = { value(mgpu.rand { rows, 4 }), value(mgpu.tensor(ids, { dtype = "int32" })) }
  end
  return list
end

local function batches_of_two(rows, n)
  local list = {}
  for i, batch in ipairs(batches(rows, n)) do
    list[i] = { { batch[1], value(mgpu.rand { rows, 3 }) },
      { value(mgpu.one_hot(batch[2], 3)), value(mgpu.rand { rows, 1 }) } }
  end
  return list
end

local function copy_of(logs)
  local copy = {}
  for name, number in mgpu.callbacks.Callback.each(logs) do copy[#copy + 1] = { name, number } end
  return copy
end

-- The logs of training and testing on the batches, and the weights.
local function run(model, list, before)
  local logs = {}
  for _, batch in ipairs(list) do
    before(model)
    logs[#logs + 1] = copy_of(model:train_on_batch(batch[1], batch[2]))
    before(model)
    logs[#logs + 1] = copy_of(model:test_on_batch(batch[1], batch[2]))
  end
  local weights = {}
  for i, v in ipairs(model.variables) do weights[i] = v:value():totable() end
  return logs, weights
end

test("repeated batches give the numbers of the calls with all checks, bit by bit", function()
  for name, case in pairs { classifier = { classifier, batches }, two = { two_outputs, batches_of_two } } do
    local list = case[2](8, 6)
    mgpu.seed(5)
    local logs, weights = run(case[1](), list, forget)
    mgpu.seed(5)
    local model = case[1]()
    local again, again_weights = run(model, list, function() end)
    check.truthy(is_known(model, "train") and is_known(model, "test"), name)
    check.equal(again, logs)
    check.equal(again_weights, weights)
  end
end)

test("batches of other sizes and dtypes are checked", function()
  local model = classifier()
  local list = batches(8, 2)
  for _, batch in ipairs(list) do model:train_on_batch(batch[1], batch[2]) end
  local other = batches(5, 1)[1]
  check.truthy(model:train_on_batch(other[1], other[2]).loss > 0)
  check.raises(function() model:train_on_batch(value(mgpu.rand { 5, 3 }), other[2]) end, "the model takes {None, 4}")
  check.raises(function() model:train_on_batch(other[1], list[1][2]) end, "x has 5 rows but y has 8")
  check.raises(function() model:train_on_batch(other[1]) end, "y is missing")
  check.raises(function() model:train_on_batch { other[1], other[2] } end, "x has an entry 2, but the model has one")
  check.raises(function() model:train_on_batch(other[1], other[2], { wieght = 1 }) end, "wieght")
end)

test("a label out of range is named with its row, and nothing is trained", function()
  local model = classifier()
  local batch = batches(4, 1)[1]
  for _ = 1, 3 do model:train_on_batch(batch[1], batch[2]) end
  for _ = 1, 2 do model:test_on_batch(batch[1], batch[2]) end
  local before = model.variables[1]:value():totable()
  local wrong = value(mgpu.tensor({ 0, 1, 3, 2 }, { dtype = "int32" }))
  for _, kind in ipairs { "train", "test" } do
    local message = check.raises(function() model[kind .. "_on_batch"](model, batch[1], wrong) end,
      "the label in row 3 of y is 3, but the model has 3 classes, numbered 0 to 2")
    check.matches(message, kind .. "_on_batch: ")
  end
  check.equal(model.variables[1]:value():totable(), before)
  check.truthy(model:train_on_batch(batch[1], batch[2]).loss > 0)
end)

test("a loss that is not finite is refused with the place", function()
  local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse" }
  local x, y = value(mgpu.ones { 2, 2 }), value(mgpu.ones { 2, 1 })
  for _ = 1, 3 do model:train_on_batch(x, y) end
  local bad = value(mgpu.full({ 2, 1 }, 1 / 0))
  check.raises(function() model:train_on_batch(x, bad) end, "train_on_batch: the loss is not finite", "nonfinite")
  check.truthy(model:train_on_batch(x, y).loss >= 0)
end)

test("what has changed between the calls is noticed", function()
  local model = classifier()
  local batch = batches(8, 1)[1]
  local function step() return model:train_on_batch(batch[1], batch[2]) end
  for _ = 1, 3 do step() end
  local first = model.layers[1]
  first.trainable = false
  local kernel = first.kernel:value():totable()
  step()
  check.equal(first.kernel:value():totable(), kernel)
  first.trainable = true
  step()
  check.truthy(first.kernel:value():totable()[1][1] ~= kernel[1][1])
  model.optimizer.learning_rate = 0
  local v = model.variables[1]:value():totable()
  step()
  check.equal(model.variables[1]:value():totable(), v)
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  check.equal(step().accuracy, nil)
  step()
  check.equal(model.optimizer:steps_taken(), 2)
  model:add(L.Dense { 3, activation = "softmax", name = "more" })
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  local more = model.layers[#model.layers].kernel:value():totable()
  for _ = 1, 3 do step() end
  check.truthy(model.layers[#model.layers].kernel:value():totable()[1][1] ~= more[1][1])
  model.layers[#model.layers]:enable_lora(2)
  local adapted = model.trainable_variables[#model.trainable_variables]
  local low = adapted:value():totable()
  for _ = 1, 3 do step() end
  check.truthy(adapted:value():totable()[1][1] ~= low[1][1])
  function model.train_step() end
  check.raises(step, "the model has a train_step")
end)

test("the sums of an epoch in progress, and the logs of its batches, stay", function()
  local Probe = mgpu.callbacks.Callback:extend "Probe"
  local model, other = classifier(), batches(4, 1)[1]
  for _ = 1, 3 do model:test_on_batch(other[1], other[2]) end
  function Probe:on_train_batch_end(_, logs)
    model:test_on_batch(other[1], other[2])
    self.loss = logs.loss
  end
  local x, y = value(mgpu.rand { 16, 4 }), value(mgpu.tensor({ 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0 }))
  local probe = Probe {}
  local h = model:fit(x, y, { batch_size = 4, verbose = 0, callbacks = probe })
  check.equal(probe.loss, h.history.loss[1])
  check.truthy(is_known(model, "test"))
end)

test("weights of rows and classes, accumulated gradients, and steps without jit take the long way", function()
  local batch = batches(6, 1)[1]
  local model = classifier()
  for _ = 1, 3 do model:train_on_batch(batch[1], batch[2]) end
  local weight = value(mgpu.zeros { 6 })
  check.equal(model:test_on_batch(batch[1], batch[2], { sample_weight = weight }).loss, 0)
  check.equal(model:train_on_batch(batch[1], batch[2], { class_weight = { [0] = 0, 0, 0 } }).loss, 0)
  for _, how in ipairs { { accumulate = 2 }, { run_eagerly = true } } do
    how.optimizer, how.loss = "sgd", "sparse_categorical_crossentropy"
    model:compile(how)
    for _ = 1, 4 do check.truthy(model:train_on_batch(batch[1], batch[2]).loss > 0) end
    check.falsy(is_known(model, "train") and model.known_batches.train.compiled == model.compiled)
  end
end)

test("two cpu devices give the numbers of one", function()
  check.needs "cpu"
  local batch = batches(6, 1)[1]
  local one, two = classifier(), classifier()
  local function compile(model, devices)
    model:pop()
    model:add(L.Dense { 3, activation = "softmax", kernel_initializer = "ones", name = "last" })
    model.layers[3].rate = 0
    model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = devices }
  end
  compile(one)
  compile(two, { "cpu:0", "cpu:1" })
  for _ = 1, 5 do
    check.near(two:train_on_batch(batch[1], batch[2]).loss, one:train_on_batch(batch[1], batch[2]).loss, 1e-5)
  end
  one:set_devices { "cpu:0", "cpu:1" }
  for _ = 1, 3 do
    check.near(two:train_on_batch(batch[1], batch[2]).loss, one:train_on_batch(batch[1], batch[2]).loss, 1e-5)
  end
end)
