-- Callbacks: when they are called and with what.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers
local callbacks = mgpu.callbacks

local X, Y = { { 1 }, { 2 }, { 3 } }, { { 2 }, { 4 }, { 6 } }

local function model()
  local m = mgpu.Sequential { L.Input { 1 }, L.Dense { 1 } }
  m:compile { optimizer = "sgd", loss = "mse", metrics = { "mse" } }
  return m
end

local function fit(m, options)
  options.verbose = 0
  return m:fit(X, Y, options)
end

test("epochs and batches are counted from 1, in order", function()
  local seen = {}
  local function note(name) return function(_, i) seen[#seen + 1] = name .. (i or "") end end
  fit(model(), { epochs = 2, batch_size = 2, callbacks = {
    on_train_begin = function() seen[#seen + 1] = "begin" end,
    on_train_end = function() seen[#seen + 1] = "end" end,
    on_epoch_begin = note "epoch", on_epoch_end = note "/epoch",
    on_train_batch_begin = note "batch", on_train_batch_end = note "/batch",
  } })
  check.equal(table.concat(seen, " "), "begin epoch1 batch1 /batch1 batch2 /batch2 /epoch1 "
    .. "epoch2 batch1 /batch1 batch2 /batch2 /epoch2 end")
end)

test("logs hold the values by name, and the last batch's values are the epoch's", function()
  local last, epoch
  local h = fit(model(), { batch_size = 2, validation_data = { X, Y }, callbacks = {
    on_train_batch_end = function(_, _, logs) last = logs.loss end,
    on_epoch_end = function(_, _, logs) epoch = logs end,
  } })
  check.equal(epoch.loss, last)
  check.equal(epoch.loss, h.history.loss[1])
  check.equal(epoch.val_mse, h.history.val_mse[1])
  check.near(epoch.mse, epoch.loss, 1e-6)
end)

test("LambdaCallback takes functions without self", function()
  local seen = {}
  fit(model(), { epochs = 2, callbacks = { callbacks.LambdaCallback {
    on_epoch_end = function(epoch, logs) seen[epoch] = logs.loss end,
  } } })
  check.equal(#seen, 2)
end)

test("a user-defined callback has its declared options, the model and the parameters", function()
  local Stop = callbacks.Callback:extend("Stop", { at = "integer" })
  function Stop:on_epoch_end(epoch)
    check.equal(self.params.epochs, 9)
    if epoch == self.at then self.model.stop_training = true end
  end
  local m = model()
  check.equal(fit(m, { epochs = 9, callbacks = Stop { at = 2 } }).epoch, { 1, 2 })
  check.equal(fit(m, { epochs = 9, callbacks = { Stop { at = 3 } } }).epoch, { 1, 2, 3 })
  check.raises(function() Stop { att = 2 } end, '"at"', "usage")
end)

test("a value added to the logs goes into the history", function()
  local h = fit(model(), { callbacks = { callbacks.LambdaCallback {
    on_epoch_begin = function() end,
  }, { on_epoch_end = function(_, _, logs) logs.extra = 7 end } } })
  check.equal(h.history.loss[1] ~= nil, true)
end)

test("History has the parameters of the training", function()
  local h = fit(model(), { epochs = 2, batch_size = 2 })
  check.equal(h.params.epochs, 2)
  check.equal(h.params.steps, 2)
  check.equal(h.params.samples, 3)
end)

test("an unknown callback is an error with the nearest name", function()
  check.raises(function() return callbacks.LambdaCalback end, "LambdaCallback", "usage")
end)

test("a fit inside a callback leaves the batches of the outer fit alone", function()
  local function trained(nested)
    mgpu.seed(1)
    mgpu.reset_names()
    local net = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
    net:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.1 } }
    local x, y = mgpu.arange(24):reshape { 12, 2 } / 24, mgpu.arange(12):reshape { 12, 1 } / 12
    local inside
    local callback = { on_train_batch_end = function()
      if not nested or inside then return end
      inside = true
      local before = net:get_weights()
      net:fit(x, y, { verbose = 0, batch_size = 5, shuffle = false })
      net:set_weights(before)
      inside = false
    end }
    net:fit(x, y, { verbose = 0, batch_size = 2, epochs = 2, shuffle = false,
      callbacks = { callback } })
    return net:get_weights()[1]:totable()
  end
  check.near(trained(true), trained(false), 1e-6)
end)

test("a value that is no callback, or a misspelled method, is an error before training", function()
  local Typo = callbacks.Callback:extend("Typo", {})
  function Typo:on_epoch_edn() end -- luacheck: no self
  local nearest = 'has a function "on_epoch_edn", which fit does not call %(did you mean "on_epoch_end"%?%)'
  for _, row in ipairs {
    { { on_epoch_edn = print }, "callbacks " .. nearest },
    { { { on_epoch_end = print }, { on_epoch_edn = print } }, "callbacks%[2%] " .. nearest },
    { Typo {}, "callbacks " .. nearest },
    { { epoch_end = print }, "callbacks has none of the functions on_train_begin, " },
    { { "EarlyStopping" }, 'callbacks%[1%] must be made by mgpu.callbacks .* got "EarlyStopping"' },
    { { 1 }, "callbacks%[1%] must be made by mgpu.callbacks .* got a number" },
    { { callbacks.History }, "callbacks%[1%] is a class: call it, as in History {}" },
    { { callbacks.History {}, on_epoch_end = print }, 'callbacks is an array, but has an entry "on_epoch_end"' },
  } do
    check.raises(function() fit(model(), { callbacks = row[1] }) end, "callbacks_spec.lua:%d+: fit: " .. row[2],
      "usage")
  end
end)

test("callbacks can be one, an array or none, and can keep any value in their fields", function()
  local calls = 0
  local counter = { seen = 0, on_epoch_end = function(self) self.seen, calls = self.seen + 1, calls + 1 end }
  for _, given in ipairs { counter, { counter }, callbacks.History {}, {} } do
    fit(model(), { callbacks = given })
  end
  check.equal({ counter.seen, calls }, { 2, 2 })
end)
