-- SwapEMAWeights: the averages are in the model while it is evaluated, and at the end of an epoch if asked for.

local check = require "check"
local mgpu = require "mgpu"

-- A test whose variables are gone at its end: the next evaluation drops those that nothing refers to.
local function test(sentence, fn)
  check.test(sentence, function()
    fn()
    collectgarbage()
    collectgarbage()
    mgpu.ones({ 1 }):item()
  end)
end

local function compiled(options)
  local model = mgpu.Sequential { mgpu.Input { 1 }, mgpu.layers.Dense { 1, use_bias = false,
    kernel_initializer = "ones" } }
  options[1] = 0.25
  model:compile { optimizer = mgpu.optimizers.SGD(options), loss = "mse" }
  return model
end

local X, Y = { { 1 } }, { { 0 } } -- each step halves the weight

local function weight(model) return model:get_weights()[1]:item() end

local function fit(model, epochs, callbacks)
  return model:fit(mgpu.tensor(X), mgpu.tensor(Y), { epochs = epochs, batch_size = 1, verbose = 0,
    validation_data = { mgpu.tensor(X), mgpu.tensor(Y) }, callbacks = callbacks })
end

-- The weight that training leaves, its values at the ends of epochs, and the history.
local function fitted(on_epoch)
  local model, seen = compiled { use_ema = true, ema_momentum = 0.5 }, {}
  local history = fit(model, 3, { mgpu.callbacks.SwapEMAWeights(on_epoch), mgpu.callbacks.LambdaCallback {
    on_epoch_end = function() seen[#seen + 1] = weight(model) end } }).history
  return weight(model), seen, history
end

-- weights 1/2, 1/4, 1/8; averages 1/2, 3/8, 1/4
for _, on_epoch in ipairs { false, true } do
  test(("validation uses the averages, training the weights; swap_on_epoch = %s"):format(on_epoch), function()
    local last, seen, history = fitted(on_epoch)
    check.near(history.loss, { 1, 0.25, 0.0625 }, 1e-6)
    check.near(history.val_loss, { 0.25, 0.140625, 0.0625 }, 1e-6)
    check.near(seen, on_epoch and { 0.5, 0.375, 0.25 } or { 0.5, 0.25, 0.125 }, 1e-6)
    check.near({ last }, { 0.25 }, 1e-6)
  end)
end

test("averages that are in the model stay there if another callback ends the training", function()
  local model = compiled { use_ema = true, ema_momentum = 0.5 }
  fit(model, 9, { mgpu.callbacks.SwapEMAWeights { swap_on_epoch = true }, mgpu.callbacks.LambdaCallback {
    on_epoch_end = function(epoch) model.stop_training = epoch == 2 end } })
  check.near({ weight(model) }, { 0.375 }, 1e-6)
end)

test("evaluate and predict use the averages and leave the weights", function()
  local model, x = compiled { use_ema = true, ema_momentum = 0.5 }, mgpu.tensor(X)
  for _ = 1, 3 do model:train_on_batch(x, mgpu.tensor(Y)) end
  local swap = mgpu.callbacks.SwapEMAWeights {}
  check.near({ model:predict(x, { verbose = 0, callbacks = swap }):item() }, { 0.25 }, 1e-6)
  check.near({ model:evaluate(x, mgpu.tensor(Y), { verbose = 0, callbacks = swap }).loss }, { 0.0625 }, 1e-6)
  check.near({ weight(model) }, { 0.125 }, 1e-6)
end)

test("an optimizer without averages is an error", function()
  check.raises(function() fit(compiled {}, 1, mgpu.callbacks.SwapEMAWeights {}) end,
    "SwapEMAWeights: the optimizer keeps no averages: compile with one that has use_ema = true", "usage")
end)
