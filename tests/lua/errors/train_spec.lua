-- Error texts of compile, fit and training on several devices.
local cases = require "error_cases"
local check = require "check"
local mgpu = require "mgpu"
local L, P = mgpu.layers, mgpu.parallel

local function model() return mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } } end
local function compiled(options)
  local m = model()
  m:compile(options or { loss = "mse" })
  return m
end
local function x(rows) return mgpu.ones { rows or 4, 2 } end
local function y() return mgpu.ones { 4, 1 } end
local function classifier()
  local m = mgpu.Sequential { L.Input { 2 }, L.Dense { 3, activation = "softmax" } }
  m:compile { loss = "sparse_categorical_crossentropy" }
  return m
end

local function fit(options)
  options.verbose = 0
  compiled():fit(x(), y(), options)
end

cases {
  -- ---- compile
  { "compile with a text", function() model():compile "adam" end, "compile: options are a table, got a string" },
  { "a loss that is a number", function() compiled { loss = 3 } end,
    "compile: loss must be a name, a function(y_true, y_pred), or one of mgpu.losses, got" },
  { "a loss without a reduction", function()
    compiled { loss = mgpu.losses.MeanSquaredError { reduction = "none" } }
  end,
    'has reduction = "none": training needs one number' },
  { "a metric that is a number", function() compiled { loss = "mse", metrics = { 3 } } end,
    "a metric must be a name, a function(y_true, y_pred), or made by mgpu.metrics, got" },
  { "two metrics of one name", function()
    local M = mgpu.metrics
    compiled { loss = "mse", metrics = { M.MeanSquaredError { name = "m" }, M.MeanAbsoluteError { name = "m" } } }
  end, 'two metrics are called "m"; give one of them another name' },
  { "devices of a model that is not compiled", function() model():set_devices { "cpu:0" } end,
    "set_devices: call model:compile {optimizer = ..., loss = ...} first" },

  -- ---- data and weights of samples
  { "fit with a number as options", function() compiled():fit(x(), y(), 3) end,
    "fit: options are a table, got a number" },
  { "one number as data", function() compiled():fit(mgpu.tensor(3), y()) end,
    "fit: x is a single number, but its first axis must be rows" },
  { "a table of weights for each sample", function() fit { sample_weight = mgpu.ones { 4, 2 } } end,
    "fit: sample_weight must hold one number a row, but its shape is {4, 2}" },
  { "weights beside a dataset", function()
    compiled():fit(mgpu.data.from_tensors({ x(), y() }):batch(2), { sample_weight = mgpu.ones { 4 }, verbose = 0 })
  end, "sample_weight: a dataset gives weights as the third part of its batches" },
  { "a negative weight of a class", function()
    classifier():fit(x(), mgpu.tensor { 0, 1, 2, 0 }, { class_weight = { [0] = 1, [1] = -1 }, verbose = 0 })
  end, "class_weight[1] must be a number >= 0, got -1" },
  { "a split that leaves nothing to train on", function() fit { validation_split = 0.9, batch_size = 1 } end,
    "leaves nothing to train on" },
  { "a split that leaves nothing to validate on", function() fit { validation_split = 1e-20 } end,
    "validation_split = 1e-20 of 4 rows leaves nothing to validate on" },
  { "validation data that are a number", function() fit { validation_data = 3 } end,
    "fit: validation_data must be {x, y}, {x, y, sample_weight}, a dataset or a generator" },

  -- ---- several devices
  { "training on half a device", function() compiled { loss = "mse", devices = 0.5 } end,
    "devices must be at least 1, got 0.5" },
  { "training on an empty list of devices", function() compiled { loss = "mse", devices = {} } end,
    'devices must be a name, a list of names, a count or "all", got an empty table' },
  { "half a GPU", function() P.get_available_gpus(0.5) end,
    "get_available_gpus: the number of GPUs must be a whole number, got 0.5" },
  { "GPUs that are neither a count nor a list", function() P.multi_gpu_model(model(), { gpus = true }) end,
    "multi_gpu_model: gpus must be a count or a list" },
  { "a plan of a model without weights", function()
    local m = mgpu.Sequential { L.Dense { 1 } }
    m:compile { loss = "mse" }
    mgpu.explain(m)
  end, "explain: the model has no weights yet: give it an Input or call it once" },
  { "a strategy that is a number", function() compiled { loss = "mse", strategy = 3 } end,
    "compile: strategy must be a name or made by mgpu.parallel.strategy, got" },
  { "class weights for a label at each step", function()
    local m = mgpu.Sequential { L.Input { 3, 2 }, L.Dense { 2, activation = "softmax" } }
    m:compile { loss = "categorical_crossentropy" }
    m:fit(mgpu.ones { 2, 3, 2 }, mgpu.ones { 2, 3, 2 }, { verbose = 0, class_weight = { 1, 2 } })
  end, "fit: class_weight needs one label a row" },
  { "a watched metric of two values", function()
    local stop = mgpu.callbacks.EarlyStopping { monitor = "precision", mode = "max" }
    compiled { loss = "mse", metrics = { mgpu.metrics.Precision { thresholds = { 0.25, 0.5 }, name = "precision" } } }
      :fit(x(), y(), { verbose = 0, callbacks = { stop } })
  end, 'fit: EarlyStopping: "precision" has several values: monitor a metric with one' },
  { "checkpoints of a fit inside a fit", function()
    local m = compiled()
    m:fit(x(), y(), { verbose = 0, callbacks = { on_epoch_end = function()
      m:fit(x(), y(), { verbose = 0, resume = check.path "inner" })
    end } })
  end, "fit: a fit inside a callback of another fit of the model cannot save checkpoints" },
  { "a callback whose state contains itself", function()
    local class = mgpu.callbacks.Callback:extend "Endless"
    function class.get_state(callback) return { state = callback.loop } end
    function class.set_state() end
    local callback = class {}
    callback.loop = {}
    callback.loop.loop = callback.loop
    fit { resume = check.path "endless", callbacks = { callback } }
  end, "tables nest deeper than %d+: does one contain itself?" },
  { "a checkpoint of a fit without the metric", function()
    local folder = check.path "plain"
    compiled():fit(x(), y(), { verbose = 0, resume = folder })
    compiled { loss = "mse", metrics = { "mae" } }:fit(x(), y(), { verbose = 0, epochs = 2, resume = folder })
  end, 'does not have the sum "metrics/2/1" that this fit has: its metrics or its trained weights differ' },
  { "the scope of a number", function() P.strategy("mirrored", { devices = { "cpu:0", "cpu:1" } }):scope(3) end,
    "scope: expected a function, got number" },
  { "a model for several GPUs on one", function() P.multi_gpu_model(model(), { gpus = { "cpu:0" } }) end,
    "multi_gpu_model: at least 2 GPUs are needed, but these are visible: " },
  { "a file named by a metric of two values", function()
    local save = mgpu.callbacks.ModelCheckpoint { check.path "w-{precision}.safetensors" }
    compiled { loss = "mse", metrics = { mgpu.metrics.Precision { thresholds = { 0.25, 0.5 }, name = "precision" } } }
      :fit(x(), y(), { verbose = 0, callbacks = { save } })
  end, 'ModelCheckpoint: filepath: the logs have no number "precision" for the field {precision}' },
}
