-- Callbacks decide as Keras's do: recorded histories (golden set callbacks) are given to them in a fit.

local check = require "check"
local golden = require "golden.load" "callbacks"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local ROWS = 5
local X, Y = mgpu.ones { ROWS, 1 }, mgpu.zeros { ROWS, 1 }

local function new_model(steps_per_execution)
  local model = mgpu.Sequential { L.Input { 1 }, L.Dense { 1, use_bias = false } }
  model:compile { optimizer = mgpu.optimizers.SGD { golden.start_rate }, loss = "mse", metrics = { "mae", "accuracy" },
    steps_per_execution = steps_per_execution }
  return model
end

-- Fits for as many epochs as the case has values. RETURNS the history, and the learning rate after each epoch.
local function replay(model, case, callback)
  local rates = {}
  local before = { on_epoch_end = function(_, epoch, logs)
    local value = case.values[epoch]
    logs[case.args.monitor] = value == "nan" and 0 / 0 or value
    model:set_weights { mgpu.tensor { { epoch } } }
  end }
  local after = { on_epoch_end = function(_, epoch) rates[epoch] = model.optimizer.learning_rate end }
  local h = model:fit(X, Y, { epochs = #case.values, batch_size = ROWS, verbose = 0, validation_data = { X, Y },
    callbacks = { before, callback, after } })
  return h, rates
end

local replays = {}

function replays.EarlyStopping(case)
  local model, callback = new_model(), mgpu.callbacks.EarlyStopping(case.args)
  local h = replay(model, case, callback)
  check.equal({ #h.epoch, callback.stopped_epoch, model:get_weights()[1]:item() },
    { case.epochs, case.stopped_epoch, case.weight })
end

function replays.ReduceLROnPlateau(case)
  local _, rates = replay(new_model(), case, mgpu.callbacks.ReduceLROnPlateau(case.args))
  check.near(rates, case.rates, 1e-6) -- Keras's rate is a float32
end

-- Notes the names of the files that the model is told to save.
local function note_saves(model)
  local saved = {}
  rawset(model, "save", function(_, path) saved[#saved + 1] = path:match "([^/]*)%.safetensors$" end)
  return saved
end

function replays.ModelCheckpoint(case)
  local model, args = new_model(case.steps_per_execution), { check.path "{epoch}.safetensors" }
  for key, value in pairs(case.args or {}) do args[key] = value end
  local saved = note_saves(model)
  if case.values then
    replay(model, case, mgpu.callbacks.ModelCheckpoint(args))
    for i, epoch in ipairs(saved) do saved[i] = tonumber(epoch) end
  else
    model:fit(X, Y, { epochs = 3, batch_size = 1, verbose = 0, callbacks = mgpu.callbacks.ModelCheckpoint {
      check.path "{epoch}-{batch}.safetensors", save_freq = case.save_freq } })
    saved = table.concat(saved, " ")
  end
  check.equal(saved, case.saved)
end

for i, case in ipairs(golden.cases) do
  test(("%s decides as Keras: case %d"):format(case.callback, i), function() replays[case.callback](case) end)
end
