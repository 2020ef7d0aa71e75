-- compile's lr_scale: the learning rate times the number of devices of all processes, or its square root.

local check = require "check"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test, printed = check.test, fixtures.printed
local L, O, C = mgpu.layers, mgpu.optimizers, mgpu.callbacks

check.needs "cpu"

local function network()
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 5, activation = "tanh" }, L.Dropout { 0.2 }, L.Dense { 1 } }
  local x = mgpu.rand { 30, 4 }
  return model, x, x:sum { axis = 2, keepdims = true }
end

-- The weights, the history and the model after a fit on these devices.
local function train(optimizer, lr_scale, devices, options)
  local model, x, y = network()
  model:compile { optimizer = optimizer, loss = "mse", lr_scale = lr_scale, devices = devices }
  options = options or {}
  options.epochs, options.batch_size, options.verbose = options.epochs or 3, 8, options.verbose or 0
  local history = model:fit(x, y, options)
  return model:get_weights(), history.history, model
end

-- The rates times 2 or 4 are exact, so that all bits are equal.
local function check_equal(make, lr_scale, factor, devices, options)
  local scaled, found = train(make(1), lr_scale, devices, options and options())
  local explicit, expected = train(make(factor), false, devices, options and options())
  check.equal(scaled, explicit)
  check.equal(found.loss, expected.loss)
  return found, expected
end

local function sgd(factor) return O.SGD { 0.04 * factor, momentum = 0.9, weight_decay = 0.01 } end

test("the training is that with an explicitly scaled rate", function()
  check_equal(sgd, "linear", 4, "cpu:0-3")
  check_equal(sgd, "sqrt", 2, "cpu:0-3")
  check_equal(sgd, "linear", 1, "cpu:0")
  check_equal(function(factor) return O.Adam { 0.02 * factor } end, "linear", 2, { ["cpu:0"] = 3, ["cpu:1"] = 1 })
  check_equal(sgd, "linear", 2, { "cpu:0", "cpu:1" }, function() return { shuffle = false, epochs = 1 } end)
end)

test("a schedule is scaled as a whole", function()
  check_equal(function(factor)
    return O.RMSprop { mgpu.schedules.ExponentialDecay { 0.02 * factor, 3, 0.5 }, momentum = 0.5 }
  end, "linear", 4, "cpu:0-3")
end)

test("callbacks set and see the rate before it is scaled", function()
  local found, expected = check_equal(sgd, "linear", 2, "cpu:0-1", function()
    return { callbacks = C.LearningRateScheduler(function(epoch, rate) return epoch == 1 and rate or rate / 2 end) }
  end)
  check.equal(found.learning_rate, { 0.04, 0.02, 0.01 })
  check.equal(expected.learning_rate, { 0.08, 0.04, 0.02 })
  found = check_equal(sgd, "linear", 2, "cpu:0-1", function()
    return { callbacks = C.ReduceLROnPlateau { monitor = "loss", factor = 0.5, patience = 1, min_delta = 10 } }
  end)
  check.truthy(found.learning_rate[3] < 0.04)
end)

test("a warm-up begins near the rate of one device and ends at the scaled one", function()
  local rates
  local function show()
    rates = {}
    local seen = { on_train_batch_end = function(self) rates[#rates + 1] = self.model.optimizer.learning_rate end }
    return { callbacks = { C.LearningRateWarmup { warmup_epochs = 2, momentum_correction = false }, seen } }
  end
  train(O.SGD { 0.04 }, "linear", "cpu:0-3", show())
  check.near(rates[1] * 4, 0.04 * (1 + 3 * 1 / 8), 1e-15) -- rounding of a few products
  check.near(rates[8] * 4, 0.16, 1e-15)
  train(O.SGD { 0.04 }, "sqrt", "cpu:0-3", show())
  check.near(rates[1] * 2, 0.04 * (1 + 1 * 1 / 8), 1e-15)
end)

test("with loss scaling the inner optimizer's rate is scaled", function()
  check_equal(function(factor) return O.LossScaleOptimizer { sgd(factor) } end, "linear", 2, "cpu:0-1")
end)

test("train_on_batch scales, too", function()
  local function weights(rate, lr_scale)
    local model, x, y = network()
    model:compile { optimizer = O.SGD { rate }, loss = "mse", lr_scale = lr_scale, devices = "cpu:0-1" }
    for _ = 1, 3 do model:train_on_batch(x, y) end
    return model:get_weights()
  end
  check.equal(weights(0.04, "linear"), weights(0.08))
end)

test("fit says the factor, once it is not 1", function()
  local function said(lr_scale, devices, verbose)
    return printed(function() train(sgd(1), lr_scale, devices, { verbose = verbose, epochs = 1 }) end)
      :match "fit: lr_scale[^\n]*"
  end
  check.equal(said("linear", "cpu:0-3", 2),
    'fit: lr_scale = "linear": the learning rate is multiplied by 4, for 4 devices')
  check.equal({ said("linear", "cpu:0", 2) or 0, said("linear", "cpu:0-3", 0) or 0, said(false, "cpu:0-3", 2) or 0 },
    { 0, 0, 0 })
end)

test("training that goes on with other devices keeps the factor, from a checkpoint and from a file", function()
  local folder = check.path "run"
  local whole = train(sgd(1), "linear", "cpu:0-3", { epochs = 4, resume = check.path "whole" })
  train(sgd(1), "linear", "cpu:0-3", { epochs = 2, resume = folder })
  local found
  local text = printed(function() found = { train(sgd(1), "linear", "cpu:0-1", { epochs = 4, resume = folder }) } end)
  check.matches(text, "fit: lr_scale: keeps the factor 4 of the first run; 2 devices would give 2\n")
  for i, w in ipairs(whole) do check.near(found[1][i], w, 1e-6) end -- float32 sums in another order
  found[3]:save(check.path "m.safetensors")
  local loaded = mgpu.load_model(check.path "m.safetensors")
  local _, x, y = network()
  text = printed(function() loaded:fit(x, y, { verbose = 0 }) end)
  check.matches(text, "fit: lr_scale: keeps the factor 4 of the first run; 1 device would give 1\n")
end)

test("a Keras file has no lr_scale, which save says", function()
  local _, _, model = train(O.Adam { 0.01 }, "linear", "cpu:0-1")
  local function said(name) return printed(function() model:save(check.path(name)) end) end
  check.equal(said "m.keras", "save: a Keras file has no lr_scale: training that goes on from it has the learning rate "
    .. "before it is multiplied by 2\n")
  check.near(mgpu.load_model(check.path "m.keras").optimizer.learning_rate, 0.01, 1e-9)
  check.equal(said "m.safetensors", "")
end)

test("an optimizer that is compiled again without lr_scale is not scaled", function()
  local optimizer = sgd(1)
  train(optimizer, "linear", "cpu:0-3")
  local n = #optimizer:variables()
  local model = network()
  model:compile { optimizer = optimizer, loss = "mse" }
  check.equal({ #optimizer:variables(), optimizer.rate_scale }, { n - 1, false })
end)

test("what lr_scale cannot be is an error", function()
  local model = network()
  for _, value in ipairs { "square", true, 2 } do
    check.raises(function() model:compile { loss = "mse", lr_scale = value } end,
      'compile: lr_scale must be "linear", "sqrt" or false, got ' .. tostring(value))
  end
  check.raises(function()
    model:compile { loss = "mse", lr_scale = "linear", strategy = "async", devices = "cpu:0-1" }
  end, 'compile: lr_scale cannot be combined with strategy "async", whose steps are of one device each: leave it out')
end)
