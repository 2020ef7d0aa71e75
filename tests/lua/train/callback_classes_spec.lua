-- The classes of mgpu.callbacks: what they do, their files and lines, and their errors before training starts.
-- golden_callbacks_spec.lua compares their decisions with Keras; model_checkpoint_spec.lua is about ModelCheckpoint.

local check = require "check"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local printed = fixtures.printed
local L = mgpu.layers
local C = mgpu.callbacks

local X, Y = fixtures.line(12)

local function fit(callbacks, options, model)
  options = options or {}
  options.verbose, options.batch_size = options.verbose or 0, options.batch_size or 4
  options.callbacks = callbacks
  model = model or fixtures.linear { metrics = "mae" }
  return model:fit(X, Y, options), model
end

-- ---- names and options --------------------------------------------------------------------------

test("a name that the logs will not have is an error before training starts", function()
  local begun = false
  local first = { on_train_begin = function() begun = true end }
  local have = "; they have loss, mae$"
  for _, row in ipairs {
    { C.EarlyStopping {}, 'EarlyStopping: option "monitor": the logs have no value "val_loss", '
      .. "since no epoch has validation data" .. have },
    { C.EarlyStopping "los", 'EarlyStopping: .*"los" %(did you mean "loss"%?%)' .. have },
    { C.ReduceLROnPlateau "acc", 'ReduceLROnPlateau: .* "acc"; they have loss, mae, learning_rate$' },
    { C.ModelCheckpoint { check.path "m.safetensors", save_best_only = true }, "ModelCheckpoint: .*" .. have },
    { C.ModelCheckpoint(check.path "{val_loss:.2f}.safetensors"), 'option "filepath": .*"val_loss"' },
    { C.ModelCheckpoint(check.path "{batch}.safetensors"), 'option "filepath": .*"batch"' },
  } do
    check.raises(function() fit({ first, row[1] }) end, "callback_classes_spec.lua:%d+: fit: .*" .. row[2], "usage")
  end
  check.raises(function()
    fit(C.ModelCheckpoint { check.path "{val_loss}.safetensors", save_freq = 1 }, { validation_split = 0.5 })
  end, '"val_loss" after a batch, only after an epoch; they have loss, mae', "usage")
  check.raises(function()
    fit(C.ModelCheckpoint(check.path "{val_loss}.safetensors"), { validation_split = 0.5, validation_freq = 2,
      epochs = 2 })
  end, 'only every n%-th epoch has "val_loss"', "usage")
  check.equal(begun, false)
end)

test("a name that a callback of the user adds may be monitored; if it is missing, a line says so once", function()
  local stop = C.EarlyStopping { "f1", mode = "max" }
  local h = fit { { on_epoch_end = function(_, epoch, logs) logs.f1 = -epoch end }, stop }
  check.equal({ #h.epoch, stop.best }, { 1, -1 })
  local text = printed(fit, { { on_epoch_end = function() end }, stop }, { epochs = 3 })
  check.equal(text, 'EarlyStopping: the logs have no value "f1"; they have loss, mae\n')
  check.equal(printed(fit, C.EarlyStopping {}, { epochs = 3, validation_split = 0.5, validation_freq = 2 }), "")
end)

test("acc may be monitored where the logs have accuracy, and a value that another callback adds", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  model:compile { loss = "mse", metrics = "accuracy" }
  for _, stop in ipairs { C.EarlyStopping "acc", C.EarlyStopping "val_acc",
    C.EarlyStopping { "learning_rate", mode = "min" } } do
    fit({ C.LearningRateScheduler(function(_, rate) return rate end), stop }, { validation_split = 0.5 }, model)
    check.truthy(stop.best)
  end
end)

test("the staleness of asynchronous training may be monitored, and only there", function()
  local stop = C.EarlyStopping { "staleness_max", mode = "min" }
  fit(stop, {}, fixtures.linear { devices = { "cpu:0", "cpu:1" }, strategy = "async" })
  check.truthy(stop.best >= 1) -- more than 1 where the machine stops one device's thread for a while
  check.raises(function() fit(stop) end, 'the logs have no value "staleness_max"', "usage")
end)

test("mode auto takes the direction of the metric, and needs one", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  local function own(y, p) return mgpu.sum(y - p, { axis = -1 }) end
  model:compile { loss = "mse", metrics = { "accuracy", "mae", "binary_crossentropy", own, mgpu.metrics.AUC {} } }
  for name, direction in pairs { loss = "min", accuracy = "max", mae = "min", binary_crossentropy = "min",
    auc = "max", val_loss = "min", val_accuracy = "max" } do
    local stop = C.EarlyStopping(name)
    pcall(fit, stop, { validation_split = 0.5 }, model)
    check.equal(stop.direction, direction)
  end
  check.raises(function() fit(C.EarlyStopping "metric_4", {}, model) end,
    'EarlyStopping: whether "metric_4" should rise or fall is not known: give mode = "max" or mode = "min"', "usage")
end)

test("unknown options, modes and settings are errors where the callback is made", function()
  for _, row in ipairs {
    { function() C.EarlyStopping { patiense = 3 } end, 'EarlyStopping: unknown option "patiense" .*"patience"' },
    { function() C.EarlyStopping { mode = "mix" } end, 'EarlyStopping: option "mode": unknown value "mix"' },
    { function() C.EarlyStopping { patience = -1 } end, "at least 0" },
    { function() C.ReduceLROnPlateau { factor = 1 } end, 'option "factor" must be below 1' },
    { function() C.LearningRateScheduler {} end, 'option "schedule" is missing' },
    { function() C.CSVLogger {} end, 'option "filename" is missing' },
    { function() C.CSVLogger "a.csv\0b" end, 'option "filename" must name a file' },
    { function() C.CSVLogger { "a.csv", separator = ", " } end, 'option "separator" must be one character' },
    { function() C.ModelCheckpoint {} end, 'option "filepath" is missing' },
    { function() C.ModelCheckpoint { "a.h5", save_freq = "batch" } end, '"save_freq" must be "epoch" or a number' },
    { function() C.ModelCheckpoint "{epoch" end, "a brace that is not closed" },
    { function() C.ModelCheckpoint "{epoch:x}" end, "{epoch:x} is not understood: write {epoch} or {epoch:02d}" },
    { function() C.ModelCheckpoint "{loss:d}" end, "{loss:d} is not understood: write {loss} or {loss:.3f}" },
    { function() C.ModelCheckpoint "{}" end, "{} is not a field" },
    { function() C.SamplesPerSec { batch_size = 0 } end, "at least 1" },
  } do
    check.raises(row[1], "callback_classes_spec.lua:%d+: .*" .. row[2], "usage")
  end
end)

-- ---- EarlyStopping ------------------------------------------------------------------------------

test("restore_best_weights gives the weights of the best epoch, on any devices", function()
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1", "cpu:2", "cpu:3" } } do
    for _, strategy in ipairs { "mirrored", "central", "async" } do
      local model, weights = fixtures.linear { devices = devices, strategy = strategy }, {}
      local stop = C.EarlyStopping { "loss", patience = 2, restore_best_weights = true }
      local h = fit({ { on_epoch_end = function(_, epoch, logs)
        logs.loss = math.abs(epoch - 3)
        weights[epoch] = model:get_weights()[1]:totable()
      end }, stop }, { epochs = 9 }, model)
      check.equal({ #h.epoch, stop.stopped_epoch, stop.best_epoch, stop.best }, { 5, 5, 3, 0 })
      check.equal(model:get_weights()[1], weights[3])
    end
  end
end)

test("EarlyStopping says what it does, with verbose", function()
  local stop = C.EarlyStopping { "loss", restore_best_weights = true, verbose = 1 }
  local worse = { on_epoch_end = function(_, epoch, logs) logs.loss = epoch end }
  check.equal(printed(fit, { worse, stop }, { epochs = 9 }),
    "Epoch 2: early stopping\nRestoring model weights from the end of the best epoch: 1.\n")
end)

-- ---- learning rates -----------------------------------------------------------------------------

test("LearningRateScheduler sets the rate of each epoch, from epoch 1 on, and logs it", function()
  local seen = {}
  local text = printed(function()
    local h = fit(C.LearningRateScheduler { function(epoch, rate)
      seen[epoch] = rate
      return rate / 2
    end, verbose = 1 }, { epochs = 2 })
    check.equal(h.history.learning_rate, { 0.05, 0.025 })
  end)
  check.equal(seen, { 0.1, 0.05 })
  check.equal(text, "\nEpoch 1: LearningRateScheduler setting learning rate to 0.05.\n"
    .. "\nEpoch 2: LearningRateScheduler setting learning rate to 0.025.\n")
  for _, wrong in ipairs { "fast", -1, 0 / 0, math.huge } do
    check.raises(function() fit(C.LearningRateScheduler(function() return wrong end)) end,
      "schedule%(1, 0.1%) must return a number of at least 0, got ", "usage")
  end
end)

test("an optimizer with a schedule is refused by the callbacks that set the rate, before training", function()
  local schedule = mgpu.schedules.ExponentialDecay { 0.1, decay_steps = 10, decay_rate = 0.5 }
  for _, wrap in ipairs { function(o) return o end, function(o) return mgpu.optimizers.LossScaleOptimizer { o } end } do
    local model = fixtures.linear { optimizer = wrap(mgpu.optimizers.SGD { learning_rate = schedule }) }
    for _, callback in ipairs { C.LearningRateScheduler(print), C.LearningRateWarmup {}, C.ReduceLROnPlateau "loss" } do
      check.raises(function() fit(callback, {}, model) end,
        "fit: " .. callback.class .. ": the learning_rate of .* is a schedule and cannot be set", "usage")
    end
  end
end)

test("ReduceLROnPlateau logs the rate of the epoch and says when it lowers it", function()
  local text = printed(function()
    local worse = { on_epoch_end = function(_, epoch, logs) logs.loss = epoch end }
    local h = fit({ worse, C.ReduceLROnPlateau { "loss", patience = 1, factor = 0.5, verbose = 1 } }, { epochs = 3 })
    check.equal(h.history.learning_rate, { 0.1, 0.1, 0.05 })
  end)
  check.equal(text, "\nEpoch 2: ReduceLROnPlateau reducing learning rate to 0.05.\n"
    .. "\nEpoch 3: ReduceLROnPlateau reducing learning rate to 0.025.\n")
end)

-- Rates of the steps of 3 epochs of 3 batches.
local function warmup_rates(options, fit_options, model)
  local rates = {}
  fit_options = fit_options or {}
  fit_options.epochs = 3
  fit({ C.LearningRateWarmup(options), { on_train_batch_begin = function(self)
    rates[#rates + 1] = self.model.optimizer.learning_rate
  end } }, fit_options, model)
  return rates
end

test("LearningRateWarmup follows Horovod's formula", function()
  local function horovod(initial, size, warmup)
    local rates = {}
    for step = 0, 8 do -- Horovod counts from 0
      local epoch = step / 3 + 1 / 3
      if math.floor(step / 3) < warmup then rates[step + 1] = initial / size * (epoch * (size - 1) / warmup + 1) end
      rates[step + 1] = rates[step + 1] or rates[step]
    end
    return rates
  end
  check.near(warmup_rates { 0.8, warmup_epochs = 2, size = 4 }, horovod(0.8, 4, 2), 1e-12)
  check.near(warmup_rates { size = 3 }, horovod(0.1, 3, 5), 1e-12)
  check.near(warmup_rates({ 0.4 }, {}, fixtures.linear { devices = { "cpu:0", "cpu:1" } }), horovod(0.4, 2, 5), 1e-12)
  check.near(warmup_rates { 0.4 }, horovod(0.4, 1, 5), 1e-12)
  check.near(warmup_rates { warmup_epochs = 0, size = 2 }, { 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 }, 1e-12)
end)

test("LearningRateWarmup scales the momentum with the rate, and says when it is over", function()
  for _, correct in ipairs { true, false } do
    local model = mgpu.Sequential { L.Input { 1 }, L.Dense { 1, use_bias = false, kernel_initializer = "zeros" } }
    model:compile { optimizer = mgpu.optimizers.SGD { 0.1, momentum = 0.5 },
      loss = function(_, p) return mgpu.mean(p, { axis = -1 }) end } -- the gradient is 1
    local text = printed(function()
      model:fit(mgpu.ones { 2, 1 }, mgpu.ones { 2, 1 }, { batch_size = 1, epochs = 1, verbose = 0,
        callbacks = C.LearningRateWarmup { 1, warmup_epochs = 1, size = 4, verbose = 1,
          momentum_correction = correct } })
    end)
    local first, second = 0.25 * (0.5 * 3 + 1), 1
    local momentum = -first
    local weight = momentum
    momentum = 0.5 * momentum * (correct and second / first or 1) - second
    check.near(model:get_weights()[1]:item(), weight + momentum, 1e-6)
    check.equal(text, "\nEpoch 1: finished gradual learning rate warmup to 1.\n")
  end
end)

test("LearningRateWarmup needs the number of steps", function()
  local warmup = C.LearningRateWarmup {}
  warmup.model, warmup.params = fixtures.linear(), {} -- of a dataset whose length is not known
  check.raises(function() warmup:check_fit() end,
    "LearningRateWarmup: the length of the dataset is not known: give steps_per_epoch", "usage")
  local rates = warmup_rates { 1, size = 2, warmup_epochs = 1, steps_per_epoch = 6 }
  check.near({ rates[1], rates[3] }, { 0.5 * (1 / 6 + 1), 0.75 }, 1e-12)
end)

-- ---- TerminateOnNaN -----------------------------------------------------------------------------

test("TerminateOnNaN ends the training at a step that is not finite, with the weights before it", function()
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1" } } do
    local model, ended = fixtures.linear { devices = devices }, 0
    local x = X:totable()
    x[7][1] = 0 / 0 -- in the second batch
    local function run(callback)
      return model:fit(x, Y, { batch_size = 4, epochs = 3, shuffle = false, verbose = 0, callbacks = { callback,
        { on_train_end = function() ended = ended + 1 end } } })
    end
    local h
    check.equal(printed(function() h = run(C.TerminateOnNaN {}) end), "Batch 2: Invalid loss, terminating training\n")
    check.equal({ #h.epoch, h.history.loss[1] < math.huge, ended, model.stop_training }, { 1, true, 1, true })
    for _, w in ipairs(model:get_weights()) do check.equal(w:isfinite():all():item(), true) end
    check.raises(function() run(C.TerminateOnNaN { raise_error = true }) end, "epoch 1, step 2: the loss is not finite",
      "nonfinite")
    check.equal(ended, 1)
  end
end)

test("TerminateOnNaN ends the training with loss scaling too, which skips steps that are not finite", function()
  local model, x = fixtures.linear { optimizer = mgpu.optimizers.LossScaleOptimizer { "sgd" } }, X:totable()
  x[7][1] = 0 / 0
  local function run(callback)
    return model:fit(x, Y, { batch_size = 4, epochs = 3, shuffle = false, verbose = 0, callbacks = callback })
  end
  local h
  check.equal(printed(function() h = run(C.TerminateOnNaN {}) end), "Batch 2: Invalid loss, terminating training\n")
  check.equal({ #h.epoch, model.stop_training }, { 1, true })
  check.raises(function() run(C.TerminateOnNaN { raise_error = true }) end,
    "fit: epoch 1, step 2: the loss is not finite", "nonfinite")
  check.equal(#run({}).epoch, 3)
end)

-- ---- timing -------------------------------------------------------------------------------------

local TIME = "%d+%.%d%d%d%d%d"
local EPOCH_LINE = "\nEpoch timing %- batch %(median%): " .. TIME .. ", epoch: " .. TIME
  .. " %(sec%), overhead %(epoch %- steps%*batch%): %-?" .. TIME .. " %(sec%)\n"
local OVERALL_LINE = "\nOverall %- batch %(median%): " .. TIME .. ", epoch %(median%): " .. TIME .. " %(sec%)\n"

test("BatchTiming and SamplesPerSec print the lines of keras_experiments", function()
  for _, options in ipairs { {}, { steps_per_execution = 2 },
    { devices = { "cpu:0", "cpu:1" }, strategy = "async" } } do
    local timing, rate = C.BatchTiming {}, C.SamplesPerSec(4)
    local text = printed(fit, { timing, rate }, { epochs = 2 }, fixtures.linear(options))
    local rate_line = "\nSamples/sec: %d+%.%d%d\n"
    check.matches(text, "^" .. EPOCH_LINE .. rate_line .. EPOCH_LINE .. rate_line .. OVERALL_LINE .. "$")
    check.equal({ #timing.batch_times, #timing.epoch_times }, { 6, 2 })
    for _, seconds in ipairs(timing.batch_times) do check.truthy(seconds > 0) end
  end
end)

test("SamplesPerSec takes fit's batch size, and needs one for a dataset", function()
  local rate = C.SamplesPerSec {}
  printed(fit, rate, {})
  check.equal(#rate.rates, 3)
  check.raises(function()
    fixtures.linear():fit(mgpu.data.from_tensors({ X, Y }):batch(4), { verbose = 0, callbacks = rate })
  end, "SamplesPerSec: the batch size of a dataset is not known: give batch_size", "usage")
end)

test("medians are those of numpy", function()
  local median = require "mgpu.train.callbacks.timing".BatchTimer.median
  check.equal({ median { 3 }, median { 3, 1 }, median { 9, 1, 2 }, median { 4, 1, 2, 8 } }, { 3, 2, 2, 3 })
  local many = {}
  for i = 1, 50001 do many[i] = i end
  check.equal({ median(many), many[1] }, { 25001, 1 })
end)

-- ---- CSVLogger ----------------------------------------------------------------------------------

-- Adds known values to the logs, in place of the values of the training.
local function values(list)
  return { on_epoch_end = function(_, epoch, logs)
    for key, value in pairs(list[epoch]) do logs[key] = value end
  end }
end

test("CSVLogger writes a row for each epoch, sorted by name", function()
  local path = check.path "log.csv"
  check.write(path, "old")
  fit({ values { { loss = 0.1, mae = 1 / 3 }, { loss = 1e-300, mae = 0 / 0, more = "is not logged" },
    { loss = 2, mae = math.huge } }, C.CSVLogger(path) }, { epochs = 3 })
  check.equal(check.read(path), "epoch,loss,mae\n1,0.1,0.3333333333333333\n2,1e-300,nan\n3,2,inf\n")
end)

test("CSVLogger quotes text, takes another separator, and writes NA where an epoch has no value", function()
  local path = check.path "log.csv"
  fit({ values { { loss = 1, mae = 2, note = 'a;"b"' }, { loss = 1, mae = 2, note = "plain" } },
    C.CSVLogger { path, separator = ";" } }, { epochs = 2, validation_split = 0.5, validation_freq = 2 })
  local lines = {}
  for line in check.read(path):gmatch "[^\n]+" do lines[#lines + 1] = line end
  check.equal({ lines[1], lines[2] }, { "epoch;loss;mae;note;val_loss;val_mae", '1;1;2;"a;""b""";NA;NA' })
  check.matches(lines[3], "^2;1;2;plain;%d[^;]*;%d[^;]*$")
end)

test("CSVLogger appends below the rows of a file, drops a row that was cut off and keeps the columns", function()
  local path = check.path "log.csv"
  check.write(path, "epoch,mae,loss\n1,5,6\n2,7,8\n3,9")
  fit({ values { [3] = { loss = 0.5, mae = 0.25 } }, C.CSVLogger { path, append = true } },
    { initial_epoch = 2, epochs = 3 })
  check.equal(check.read(path), "epoch,mae,loss\n1,5,6\n2,7,8\n3,0.25,0.5\n")
  check.write(path, "name,age\nx,3\n")
  check.raises(function() fit(C.CSVLogger { path, append = true }) end,
    "CSVLogger: .*log.csv: append = true, but its first line does not begin with epoch,", "io")
  check.equal(check.read(path), "name,age\nx,3\n")
end)

test("CSVLogger refuses a file that cannot be written before training, and goes on if writing fails later", function()
  check.raises(function() fit(C.CSVLogger(check.path "missing/log.csv")) end,
    "CSVLogger: .*missing/log.csv: No such file", "io")
  local folder, path = check.path "folder", check.path "folder/log.csv"
  check.run("mkdir " .. folder)
  local text = printed(fit, { values { { loss = 1, mae = 1 }, { loss = 2, mae = 2 }, { loss = 3, mae = 3 } },
    { on_epoch_begin = function(_, epoch)
      if epoch == 2 then check.run(("mv %s %s.away"):format(folder, folder)) end
      if epoch == 3 then check.run(("mv %s.away %s"):format(folder, folder)) end
    end }, C.CSVLogger(path) }, { epochs = 3 })
  check.equal(text, ("CSVLogger: epoch 2 was not written, it is tried again with the next one: cannot open %s: "
    .. "No such file or directory\n"):format(path))
  check.equal(check.read(path), "epoch,loss,mae\n1,1,1\n2,2,2\n3,3,3\n")
end)

-- ---- states -------------------------------------------------------------------------------------

-- The values of the epochs for all state tests: no improvement after the second epoch.
local HISTORY = {}
for epoch = 1, 8 do HISTORY[epoch] = { loss = epoch == 2 and 0.5 or 1, mae = epoch } end

-- What the callback did in epochs first + 1 .. last, continuing from a state.
local function continued(make, first, last, state)
  local model, callback, rates = fixtures.linear { metrics = "mae" }, make(), {}
  rawset(model, "save", function(_, path) rates[#rates + 1] = path end)
  local h
  local text = printed(function()
    h = fit({ values(HISTORY), callback, {
      on_train_begin = function() if state then callback:set_state(state) end end,
      on_epoch_end = function(self, epoch) rates[#rates + 1] = epoch .. ":" .. self.model.optimizer.learning_rate end,
    } }, { initial_epoch = first, epochs = last }, model)
  end)
  return { text, h.epoch, rates }, callback:get_state()
end

test("a callback that continues from its state decides as without the interruption", function()
  for _, make in ipairs {
    function() return C.EarlyStopping { "loss", patience = 3, verbose = 1 } end,
    function()
      return C.ModelCheckpoint { check.path "{epoch}.safetensors", monitor = "loss", save_best_only = true }
    end,
    function() return C.ModelCheckpoint { check.path "{epoch}.safetensors", save_freq = 5 } end,
  } do
    local whole = continued(make, 0, 7)
    for at = 1, 4 do
      local first, state = continued(make, 0, at)
      local second = continued(make, at, 7, state)
      check.equal({ first[1] .. second[1], #first[2] + #second[2] }, { whole[1], #whole[2] })
      for _, entry in ipairs(second[3]) do first[3][#first[3] + 1] = entry end
      check.equal(first[3], whole[3])
    end
  end
end)

test("ReduceLROnPlateau continues from its state", function()
  local function make()
    return C.ReduceLROnPlateau { "loss", patience = 2, factor = 0.5, verbose = 1, cooldown = 1 }
  end
  local _, state = continued(make, 0, 3)
  check.equal(state, { wait = 1, cooldown_counter = 0, best = 0.5 })
  check.equal(continued(make, 3, 4, state)[1], "\nEpoch 4: ReduceLROnPlateau reducing learning rate to 0.05.\n")
end)

test("CSVLogger continues from its state: rows of epochs that are done again are dropped", function()
  local path = check.path "log.csv"
  local function make() return C.CSVLogger(path) end
  local _, state = continued(make, 0, 2)
  check.write(path, check.read(path) .. "3,0,0\n4,")
  continued(make, 2, 3, state)
  check.equal(check.read(path), "epoch,loss,mae\n1,1,1\n2,0.5,2\n3,1,3\n")
end)

test("a CSVLogger that appends and continues from before its first row keeps only the rows of earlier runs", function()
  local path = check.path "log.csv"
  check.write(path, "epoch,loss,mae\n1,7,7\n")
  local _, state = continued(function() return C.CSVLogger { path, append = true } end, 0, 0)
  check.write(path, check.read(path) .. "1,0,0\n") -- written after the checkpoint, before the kill
  continued(function() return C.CSVLogger { path, append = true } end, 0, 2, state)
  check.equal(check.read(path), "epoch,loss,mae\n1,7,7\n1,1,1\n2,0.5,2\n")
end)

test("timing, warm-up and history continue from their states", function()
  for name, make in pairs { BatchTiming = function() return C.BatchTiming {} end,
    SamplesPerSec = function() return C.SamplesPerSec {} end } do
    local _, state = continued(make, 0, 1)
    local _, later = continued(make, 1, 3, state)
    check.equal(#(later.batch_times or later.rates), 9)
    check.truthy(name)
  end
  local warmup = C.LearningRateWarmup {}
  warmup:set_state { target = 3 }
  check.equal(warmup:get_state(), { target = 3 })
  local h, again = fit({ values(HISTORY) }, { epochs = 2 }), C.History {}
  again:set_state(h:get_state())
  check.equal({ again.epoch, again.history.loss, again.history.mae }, { { 1, 2 }, { 1, 0.5 }, { 1, 2 } })
end)
