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

test("a value that on_epoch_end adds to the logs goes into the history and the printed line", function()
  local printed, output = {}, mgpu.output
  mgpu.output = function(text) printed[#printed + 1] = text end
  local ok, h = pcall(model().fit, model(), X, Y, { epochs = 2, verbose = 2, callbacks = {
    on_epoch_end = function(_, epoch, logs) logs.extra = epoch end } })
  mgpu.output = output
  check.equal({ ok, h.history.extra }, { true, { 1, 2 } })
  check.matches(table.concat(printed), " %- extra: 2.0000\n$")
end)

-- Numbers of steps whose values were read while the model trained for 4 steps.
local function reads(m, callback)
  local n, read = 0, m.compiled.metrics.read
  m.compiled.metrics.read = function(...)
    n = n + 1
    return read(...)
  end
  fit(m, { batch_size = 1, steps_per_epoch = 4, callbacks = callback })
  m.compiled.metrics.read = nil
  return n
end

test("the values of a step are read only when a callback reads a field", function()
  local m = model()
  local epoch = reads(m, {})
  check.equal(reads(m, { on_batch_end = function() end }), epoch)
  check.equal(reads(m, { on_batch_end = function(_, batch, logs)
    if batch == 2 then return { logs.loss, logs.mse } end
  end }), epoch + 1)
end)

test("the logs of a batch can be read until the next one, in validation and after an evaluation too", function()
  for _, devices in ipairs { "cpu:0", { "cpu:0", "cpu:1" } } do
    local m, seen, kept = model(), {}, {}
    m:set_devices(devices)
    fit(m, { batch_size = 1, epochs = 2, validation_data = { X, Y }, callbacks = { {
      on_batch_end = function(_, batch, logs)
        kept[batch] = logs
        if batch == 2 then
          check.raises(function() return kept[1].loss end,
            "callbacks_spec.lua:%d+: the logs of a batch can be read until the next one", "usage")
          m:evaluate(X, Y, { verbose = 0 })
          seen[2] = logs.loss
        end
      end,
      on_test_begin = function() seen.validation = kept[3] and kept[3].loss end,
      on_epoch_end = function(_, _, logs)
        check.equal({ kept[2].loss, kept[3].loss, seen.validation }, { seen[2], logs.loss, logs.loss })
        kept = {}
      end,
    } } })
  end
end)

test("acc and accuracy are one key of the logs, and so are val_acc and val_accuracy", function()
  local m, seen = model(), {}
  m:compile { loss = "mse", metrics = "accuracy" }
  fit(m, { validation_data = { X, Y }, callbacks = { on_epoch_end = function(_, _, logs)
    seen = { logs.acc == logs.accuracy, logs.val_acc == logs.val_accuracy, logs.acc ~= nil, logs.bcc }
    logs.acc = 5
    seen[5] = logs.accuracy
    seen[6] = 0
    for name in callbacks.Callback.each(logs) do seen[6] = seen[6] + (name:find "acc" and 1 or 0) end
  end } })
  check.equal(seen, { true, true, true, nil, 5, 2 })
end)

-- The calls of a callback that has all methods, as "name number" and the names in the logs.
local function calls_of(run)
  local seen, callback = {}, {}
  for _, name in ipairs(callbacks.Callback.METHODS) do
    if not name:find "^on_batch" then
      callback[name] = function(_, number, logs)
        local names = {}
        for key in callbacks.Callback.each(logs or number) do names[#names + 1] = key end
        seen[#seen + 1] = name .. (logs and number or "") .. "(" .. table.concat(names, ",") .. ")"
      end
    end
  end
  run(callback)
  return table.concat(seen, " ")
end

test("validation, evaluate and predict call their methods, with batches and logs", function()
  local m = model()
  local test_calls = "on_test_begin() on_test_batch_begin1() on_test_batch_end1(loss,mse) "
    .. "on_test_batch_begin2() on_test_batch_end2(loss,mse) on_test_end(loss,mse)"
  check.equal(calls_of(function(callback)
    m:evaluate(X, Y, { batch_size = 2, verbose = 0, callbacks = callback })
  end), test_calls)
  check.equal(calls_of(function(callback)
    fit(m, { batch_size = 3, callbacks = { callback }, validation_data = { X, Y }, validation_batch_size = 2 })
  end), "on_train_begin() on_epoch_begin1() on_train_batch_begin1() on_train_batch_end1(loss,mse) " .. test_calls
    .. " on_epoch_end1(loss,mse,val_loss,val_mse) on_train_end(loss,mse,val_loss,val_mse)")
  check.equal(calls_of(function(callback) m:predict(X, { batch_size = 2, callbacks = callback }) end),
    "on_predict_begin() on_predict_batch_begin1() on_predict_batch_end1(outputs) "
      .. "on_predict_batch_begin2() on_predict_batch_end2(outputs) on_predict_end()")
end)

test("on_batch_end is another name of on_train_batch_end, which comes first", function()
  local seen = {}
  local function note(name) return function(_, i) seen[#seen + 1] = name .. i end end
  fit(model(), { batch_size = 2, callbacks = { { on_batch_begin = note "b", on_batch_end = note "e" },
    { on_batch_end = note "no", on_train_batch_end = note "t" } } })
  check.equal(table.concat(seen, " "), "b1 e1 t1 b2 e2 t2")
end)

test("stop_evaluating and stop_predicting end the loop after a batch", function()
  local m, batches = model(), 0
  m:evaluate(X, Y, { batch_size = 1, verbose = 0, callbacks = { on_test_batch_end = function(self, batch)
    batches, self.model.stop_evaluating = batch, batch == 2
  end } })
  check.equal(batches, 2)
  local p = m:predict(X, { batch_size = 1, callbacks = { on_predict_batch_end = function(self)
    self.model.stop_predicting = true
  end } })
  check.equal(p:shape(), { 1, 1 })
end)

test("evaluate and predict name themselves when a callback is wrong", function()
  local m = model()
  check.raises(function() m:evaluate(X, Y, { callbacks = { on_tset_end = print } }) end,
    'evaluate: callbacks has a function "on_tset_end", .* %(did you mean "on_test_end"%?%)', "usage")
  check.raises(function() m:predict(X, { callbacks = { 1 } }) end, "predict: callbacks%[1%] must be made by", "usage")
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

test("a value that is not a callback, or a misspelled method, is an error before training", function()
  local Typo = callbacks.Callback:extend("Typo", {})
  function Typo:on_epoch_edn() end -- luacheck: no self
  local nearest = 'has a function "on_epoch_edn", which is never called %(did you mean "on_epoch_end"%?%)'
  for _, row in ipairs {
    { { on_epoch_edn = print }, "callbacks " .. nearest },
    { { { on_epoch_end = print }, { on_epoch_edn = print } }, "callbacks%[2%] " .. nearest },
    { Typo {}, "callbacks " .. nearest },
    { { epoch_end = print }, "callbacks has none of the functions on_train_begin, " },
    { { "EarlyStopping" }, 'callbacks%[1%] must be made by mgpu.callbacks .* got "EarlyStopping"' },
    { { 1 }, "callbacks%[1%] must be made by mgpu.callbacks .* got a number" },
    { { callbacks.History }, "callbacks%[1%] is a class: call it, as in History {}" },
    { { callbacks.History {}, on_epoch_end = print }, 'callbacks is an array, but has an entry "on_epoch_end"' },
    { { nil, callbacks.History {} }, "callbacks%[1%] is nil: an array has no holes" },
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
