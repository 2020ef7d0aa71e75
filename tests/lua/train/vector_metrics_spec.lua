-- Metrics whose sums have the size of the predictions, and whose results are arrays: in fit, in the history, in files,
-- and on several devices.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L, metrics = mgpu.layers, mgpu.metrics

local function data()
  mgpu.seed(2)
  return mgpu.randn { 23, 5 }, mgpu.one_hot(mgpu.randint(0, 3, { 23 }), 3)
end

local function compiled(devices)
  mgpu.seed(1)
  local model = mgpu.Sequential { mgpu.Input { 5 }, L.Dense { 3, activation = "softmax" } }
  model:compile { optimizer = "sgd", loss = "categorical_crossentropy", devices = devices,
    metrics = { metrics.F1Score {}, metrics.R2Score { class_aggregation = "none" }, "pearson_correlation",
      metrics.OneHotMeanIoU { num_classes = 3 }, metrics.TruePositives { thresholds = { 0.3, 0.4 } } } }
  return model
end

local NAMES = { "f1_score", "r2_score", "pearson_correlation", "one_hot_mean_io_u", "true_positives" }

local function history(devices, callbacks)
  local x, y = data()
  return compiled(devices):fit(x, y, { epochs = 2, batch_size = 8, shuffle = false, verbose = 0,
    validation_split = 0.2, callbacks = callbacks }).history
end

test("a score of each class is an array in the history, of training and validation", function()
  local seen = history()
  for _, prefix in ipairs { "", "val_" } do
    check.equal(#seen[prefix .. "f1_score"], 2)
    check.equal(#seen[prefix .. "f1_score"][2], 3)
    check.equal(#seen[prefix .. "r2_score"][1], 3)
    check.equal(#seen[prefix .. "true_positives"][1], 2)
  end
end)

test("scores of classes are the same on two and three devices", function()
  if #mgpu.devices "cpu" == 0 then return check.skip "no cpu device" end
  local one = history { "cpu:0" }
  for n = 2, 3 do
    local devices = {}
    for i = 1, n do devices[i] = "cpu:" .. i - 1 end
    local several = history(devices)
    for _, name in ipairs(NAMES) do
      -- float32 sums in another order
      check.near(several[name], one[name], 1e-5)
      check.near(several["val_" .. name], one["val_" .. name], 1e-5)
    end
  end
end)

test("a score of each class goes to the progress bar and to a CSV file", function()
  local x, y = data()
  local lines, output = {}, mgpu.output
  mgpu.output = function(text) lines[#lines + 1] = text end
  local ok, problem = pcall(function()
    compiled():fit(x, y, { epochs = 1, batch_size = 8, verbose = 2,
      callbacks = { mgpu.callbacks.CSVLogger { check.path "log.csv" } } })
  end)
  mgpu.output = output
  check.truthy(ok, problem)
  check.truthy(table.concat(lines):find("f1_score: ", 1, true), table.concat(lines))
  check.truthy(check.read(check.path "log.csv"):find("f1_score", 1, true))
end)

-- A metric of each class with options, as it is after saving a compiled model in Keras's form.
local SAVED = {
  { "FBetaScore", { beta = 2, average = "macro", threshold = 0.5 } }, { "F1Score", {} },
  { "R2Score", { class_aggregation = "none", num_regressors = 2 } }, { "CosineSimilarity", {} },
  { "IoU", { num_classes = 3, target_class_ids = { 0, 2 }, sparse_y_pred = false } },
  { "OneHotIoU", { num_classes = 3, target_class_ids = { 1 }, ignore_class = 2 } },
  { "MeanIoU", { num_classes = 3, sparse_y_pred = false } }, { "OneHotMeanIoU", { num_classes = 3 } },
  { "BinaryIoU", { target_class_ids = { 1 }, threshold = 0.25 } },
  { "SensitivityAtSpecificity", { specificity = 0.5, class_id = 1 } },
  { "SpecificityAtSensitivity", { sensitivity = 0.5 } }, { "PrecisionAtRecall", { recall = 0.5 } },
  { "RecallAtPrecision", { precision = 0.25, num_thresholds = 20 } }, { "TrueNegatives", { thresholds = 0.25 } },
  { "FalsePositives", {} }, { "FalseNegatives", { thresholds = { 0.25, 0.5 } } },
  { "SparseCategoricalCrossentropy", { from_logits = true, ignore_class = 1 } },
  { "BinaryCrossentropy", { label_smoothing = 0.25 } }, { "PearsonCorrelation", {} }, { "RootMeanSquaredError", {} },
  { "KLDivergence", { name = "kl" } }, { "SquaredHinge", {} }, { "MeanAbsolutePercentageError", {} },
}

for i, case in ipairs(SAVED) do
  test(("case %d, the metric %s, is the same after saving in Keras's form"):format(i, case[1]), function()
    local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 } }
    model:compile { loss = "mse", metrics = { metrics[case[1]](case[2]) } }
    model:save(check.path "m.keras")
    local loaded = mgpu.load_model(check.path "m.keras").compiled.outputs[1].metrics[1]
    local wanted = metrics[case[1]](case[2])
    check.equal(tostring(getmetatable(loaded)), tostring(getmetatable(wanted)))
    check.equal(loaded.name, wanted.name)
    check.equal(core.json_encode(loaded.options), core.json_encode(wanted.options))
  end)
end

for _, case in ipairs {
  { "f1_score: the predictions must be {rows, classes}, but have shape {2, 3, 4}",
    function() metrics.F1Score {}:update(mgpu.zeros { 2, 3, 4 }, mgpu.zeros { 2, 3, 4 }) end },
  { "r2_score: the predictions must be {rows, outputs}, but have shape {2}",
    function() metrics.R2Score {}:update(mgpu.zeros { 2 }, mgpu.zeros { 2 }) end },
  { 'option "target_class_ids" has 3, but there are the classes 0 to 2',
    function() metrics.IoU { num_classes = 3, target_class_ids = { 3 } } end },
  { 'option "target_class_ids" is empty', function() metrics.IoU { num_classes = 3, target_class_ids = {} } end },
  { "y has classes of shape {2}, but the predictions have classes of shape {3}",
    function() metrics.MeanIoU { num_classes = 3 }:update(mgpu.zeros { 2 }, mgpu.zeros { 3 }) end },
  { 'option "beta" must be above 0, got 0', function() metrics.FBetaScore { beta = 0 } end },
} do
  test("a wrong call: " .. case[1], function() check.raises(case[2], case[1], "usage") end)
end
