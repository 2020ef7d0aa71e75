-- Metrics: means over batches of any size, the kinds of accuracy, AUC and others; their numbers compared
-- with Keras (golden set metrics).

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local metrics = mgpu.metrics

test("Mean averages its values, with and without weights", function()
  local mean = metrics.Mean {}
  check.equal(mean:result(), 0)
  mean:update(2)
  mean:update(mgpu.tensor { 4, 6 })
  check.near(mean:result(), 4)
  mean:reset()
  mean:update(1, 3)
  mean:update(5, 1)
  check.near(mean:result(), 2)
end)

test("batches of different sizes count by their rows", function()
  local accuracy = metrics.SparseCategoricalAccuracy {}
  local p = mgpu.tensor { { 0.9, 0.1 }, { 0.8, 0.2 }, { 0.3, 0.7 } }
  accuracy:update(mgpu.tensor({ 0, 0, 1 }, { dtype = "int32" }), p)
  accuracy:update(mgpu.tensor({ 1 }, { dtype = "int32" }), mgpu.tensor { { 0.9, 0.1 } })
  check.near(accuracy:result(), 0.75)
end)

test("categorical accuracy compares the indexes of the largest values", function()
  local accuracy = metrics.CategoricalAccuracy {}
  accuracy:update({ { 0, 1 }, { 1, 0 } }, { { 0.4, 0.6 }, { 0.4, 0.6 } })
  check.near(accuracy:result(), 0.5)
end)

test("binary accuracy has a threshold", function()
  local accuracy = metrics.BinaryAccuracy { threshold = 0.8 }
  accuracy:update({ { 1 }, { 1 }, { 0 } }, { { 0.9 }, { 0.7 }, { 0.1 } })
  check.near(accuracy:result(), 2 / 3)
end)

test("a sample weight multiplies the value of its row", function()
  local accuracy = metrics.CategoricalAccuracy {}
  accuracy:update({ { 0, 1 }, { 1, 0 } }, { { 0.4, 0.6 }, { 0.4, 0.6 } }, { 3, 1 })
  check.near(accuracy:result(), 0.75)
end)

test("accuracy chooses its kind from the shapes", function()
  local accuracy = metrics.accuracy {}
  accuracy:update({ { 1 }, { 0 } }, { { 0.9 }, { 0.2 } })
  check.equal(accuracy:result(), 1)
  accuracy:reset()
  accuracy:update({ { 0, 1 }, { 1, 0 } }, { { 0.4, 0.6 }, { 0.4, 0.6 } })
  check.equal(accuracy:result(), 0.5)
  accuracy:reset()
  accuracy:update(mgpu.tensor({ 1, 1, 0 }, { dtype = "int32" }),
    { { 0.4, 0.6 }, { 0.4, 0.6 }, { 0.1, 0.9 } })
  check.near(accuracy:result(), 2 / 3)
end)

test("acc means accuracy", function()
  check.truthy(metrics.acc == metrics.accuracy)
end)

test("updates inside mgpu.jit accumulate", function()
  local mean = metrics.Mean {}
  local step = mgpu.jit(function(x) mean:update(x) end)
  for i = 1, 4 do step(mgpu.tensor { i, i }) end
  check.near(mean:result(), 2.5)
end)

test("a million equal values add up exactly", function()
  local mean = metrics.Mean {}
  for _ = 1, 10 do mean:update(mgpu.full({ 100000 }, 0.1)) end
  check.near(mean:result(), 0.10000000149011612, 1e-12)
end)

test("an unknown metric is an error with the nearest name", function()
  check.raises(function() return metrics.accurcy end, "accuracy", "usage")
end)

-- ---- Keras's numbers ----------------------------------------------------------------------------

local comparing = require "golden.comparing"
local load_golden = require "golden.load"
local hash = require "golden.hash"
local golden = load_golden "metrics"

-- Targets, predictions and weights of an update, counted from 0.
local function golden_batch(case, update, dtype)
  local rows, width = golden.rows, golden.classes
  if case.kind == "column" or case.kind == "flat" then width = 1 end
  local shape = case.kind == "flat" and { rows } or { rows, width }
  local options = { dtype = dtype }
  local p = mgpu.tensor(hash.array(rows * width, 300 + update, 0.5, 0.5), options):reshape(shape)
  if case.args.from_logits then p = p * 6 - 3 end
  local y = mgpu.tensor(hash.labels(rows, 310 + update, golden.classes), { dtype = "int32" })
  if case.kind == "one_hot" then
    y = mgpu.one_hot(y, golden.classes)
  elseif case.kind ~= "ids" then
    y = mgpu.tensor(hash.labels(rows * width, 320 + update, 2), options):reshape(shape)
    if case.kind == "ones" then y = y + 1 end
  end
  return y, p, mgpu.tensor(hash.array(rows, 330 + update, 1, 1), options)
end

-- The results after each update, the weighted result after all of them, and the metric. `via` wraps the
-- functions that update: the identity, or mgpu.jit.
local function run_golden(case, class, dtype, via)
  local plain, weighted, results = class(case.args), class(case.args), {}
  local update = via(function(y, p) plain:update(y, p) end)
  local weigh = via(function(y, p, weight) weighted:update(y, p, weight) end)
  for u = 0, golden.updates - 1 do
    local y, p, weight = golden_batch(case, u, dtype)
    update(y, p)
    weigh(y, p, weight)
    results[u + 1] = plain:result()
  end
  return results, weighted:result(), plain
end

local function as_it_is(fn) return fn end

local ROUNDED = { LogCoshError = 1e-8 } -- Keras rounds log 2 to float32
-- Keras computes the quotients of IoU in float32.
for _, name in ipairs { "IoU", "BinaryIoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU" } do ROUNDED[name] = 1e-7 end

local function same_everywhere(case, class)
  local tolerance = ROUNDED[case.metric] or 1e-10
  for _, via in ipairs { as_it_is, mgpu.jit } do
    local results, weighted = run_golden(case, class, "float64", via)
    check.near(results, case.plain, tolerance)
    check.near(weighted, case.weighted, tolerance)
  end
  if #mgpu.devices "cpu" == 0 then return end
  mgpu.with_device("cpu:0", function()
    for _, via in ipairs { as_it_is, mgpu.jit } do
      local results, weighted = run_golden(case, class, "float32", via)
      check.near(results, case.plain, 1e-5)
      check.near(weighted, case.weighted, 1e-5)
    end
  end)
end

local function described(case)
  return comparing.described(case.metric, case.args) .. ", " .. case.kind
end

for i, case in ipairs(golden.cases) do
  test(("metric %d, %s, has Keras's results"):format(i, described(case)), function()
    same_everywhere(case, metrics[case.metric])
    local short = case.metric:find "TopK" and metrics.top_k
      or case.metric:find "CategoricalAccuracy" and metrics.accuracy
    if short then same_everywhere(case, short) end -- the short name chooses the kind from the shapes
  end)

  test(("metric %d, %s, is saved, reset and restored"):format(i, described(case)), function()
    local _, _, metric = run_golden(case, metrics[case.metric], "float64", as_it_is)
    local tolerance = ROUNDED[case.metric] or 1e-10
    local expected, fresh = case.plain[golden.updates], metrics[case.metric](case.args)
    fresh:build { golden.rows, golden.classes }
    local saved = metric:save()
    metric:reset()
    check.equal(metric:result(), fresh:result())
    for _, v in ipairs(metric:variables()) do check.equal(mgpu.sum(v:value()):item(), 0) end
    metric:restore(saved)
    check.near(metric:result(), expected, tolerance)
    local y, p = golden_batch(case, 0, "float64")
    metric:reset()
    metric:update(y, p)
    check.near(metric:result(), case.plain[1], tolerance)
  end)
end

test("a metric's variables are its running sums", function()
  local names = {}
  for i, v in ipairs(metrics.Recall {}:variables()) do names[i] = v.name end
  check.equal(names, { "true_positives", "false_negatives" })
  check.equal(metrics.AUC { num_thresholds = 7 }:variables()[4]:shape(), { 7 })
  check.equal(#metrics.mse {}:variables(), 2)
end)

-- ---- what goes wrong silently elsewhere ---------------------------------------------------------

test("a threshold is rounded to the dtype of the predictions, so 0.3 is not above 0.3", function()
  local precision = metrics.Precision { thresholds = 0.3 }
  precision:update({ 1, 0, 1 }, mgpu.tensor({ 0.3, 0.9, 0.8 }, { dtype = "float32" }))
  check.equal(precision:result(), 0.5)
end)

test("weights of shape {rows, 1} apply to rows", function()
  local accuracy, precision = metrics.CategoricalAccuracy {}, metrics.Precision {}
  accuracy:update({ { 0, 1 }, { 1, 0 } }, { { 0.4, 0.6 }, { 0.4, 0.6 } }, { { 3 }, { 1 } })
  check.equal(accuracy:result(), 0.75)
  precision:update({ 0, 1 }, { 0.9, 0.9 }, { { 3 }, { 1 } })
  check.equal(precision:result(), 0.25)
end)

test("a class id outside the classes never counts as a hit", function()
  local top = metrics.SparseTopKCategoricalAccuracy { k = 2 }
  top:update(mgpu.tensor({ 7, -1, 0 }, { dtype = "int32" }), { { 0, -1, -2 }, { 0, -1, -2 }, { 0, -1, -2 } })
  check.near(top:result(), 1 / 3)
end)

test("of equal predictions the first are among the top k", function()
  local precision = metrics.Precision { top_k = 2 }
  precision:update({ { 1, 1, 0, 0 } }, { { 0.5, 0.5, 0.5, 0.1 } })
  check.equal(precision:result(), 1)
end)

test("predictions with more than two axes have top-k and weights for each row", function()
  local top = metrics.TopKCategoricalAccuracy { k = 1 }
  local y = mgpu.tensor { { { 1, 0 }, { 1, 0 } }, { { 0, 1 }, { 0, 1 } } }
  local p = mgpu.tensor { { { 0.9, 0.1 }, { 0.2, 0.8 } }, { { 0.2, 0.8 }, { 0.2, 0.8 } } }
  top:update(y, p)
  check.equal(top:result(), 0.75)
  top:reset()
  top:update(y, p, { 3, 1 })
  check.equal(top:result(), (3 * 1 + 1 * 2) / 8)
end)

test("predictions beyond 0 and 1 count as 0 and 1 in an AUC", function()
  local auc = metrics.AUC {}
  auc:update({ 0, 0, 1, 1 }, { -3, 0.2, 0.9, 7 })
  check.equal(auc:result(), 1)
end)

test("without num_labels the first predictions tell an AUC its labels", function()
  local x, y = { { 0.1, 0.8 }, { 0.4, 0.3 }, { 0.35, 0.6 }, { 0.8, 0.1 } }, { { 0, 1 }, { 0, 0 }, { 1, 0 }, { 1, 1 } }
  local told, found = metrics.AUC { multi_label = true, num_labels = 2 }, metrics.AUC { multi_label = true }
  check.equal(found:result(), 0)
  for _, metric in ipairs { told, found } do
    metric:update(y, x)
    metric:update(y, x)
  end
  check.equal(found:result(), told:result())
  local again = metrics.AUC { multi_label = true }
  again:restore(found:save())
  check.equal(again:result(), told:result())
  check.raises(function() found:update({ { 1, 0, 0 } }, { { 1, 0, 0 } }) end,
    "multi_label wants predictions {rows, labels} with 2 labels, got {1, 3}")
end)

test("a metric without updates gives 0 for every threshold", function()
  check.equal(metrics.Precision { thresholds = { 0.1, 0.9 } }:result(), { 0, 0 })
  check.equal(metrics.AUC { curve = "PR" }:result(), 0)
end)

test("compile takes metrics by name and gives sample weights to weighted_metrics", function()
  local model = mgpu.Sequential { mgpu.layers.Input { 3 }, mgpu.layers.Dense { 4, activation = "softmax" } }
  model:compile { loss = "sparse_categorical_crossentropy", metrics = { "top_k", "acc" } }
  local y = mgpu.tensor({ 0, 3 }, { dtype = "int32" })
  check.equal(model:test_on_batch(mgpu.ones { 2, 3 }, y).top_k, 1)
  local binary = mgpu.losses.BinaryCrossentropy { name = "mine" }
  model:compile { loss = binary, metrics = { "accuracy" }, weighted_metrics = { "auc", "precision", "recall" } }
  local r = model:test_on_batch(mgpu.ones { 2, 3 }, mgpu.zeros { 2, 4 }, { sample_weight = { 1, 2 } })
  check.equal(r.recall, 0)
  -- 4 columns: the largest one counts, whatever the loss
  check.equal(r.accuracy, mgpu.mean(mgpu.eq(model(mgpu.ones { 2, 3 }):argmax(-1), 0):to "float32"):item())
end)

-- ---- errors -------------------------------------------------------------------------------------

local function fed(name, options, y, p, weight)
  return function() metrics[name](options):update(y, p, weight) end
end

local two, three, ids = mgpu.ones { 2, 2 }, mgpu.ones { 2, 3 }, mgpu.tensor({ 0, 1, 1 }, { dtype = "int32" })

for _, case in ipairs {
  { "Precision", { thresholds = 2 }, 'Precision: option "thresholds" must be from 0 to 1, got 2' },
  { "Recall", { thresholds = { 0.5, -0.1 } }, 'Recall: option "thresholds" must be from 0 to 1, got -0.1' },
  { "Recall", { thresholds = { "a" } }, 'Recall: option "thresholds" must be from 0 to 1, got a' },
  { "Recall", { thresholds = {} }, 'Recall: option "thresholds" is empty' },
  { "Precision", { top_k = 0 }, 'Precision: option "top_k" must be at least 1, got 0' },
  { "Precision", { class_id = -1 }, 'Precision: option "class_id" must be at least 0, got -1' },
  { "Precision", { treshold = 1 }, 'Precision: unknown option "treshold" (did you mean "thresholds"?)' },
  { "AUC", { thresholds = { 0, 1.5 } }, 'AUC "auc": option "thresholds" must be from 0 to 1, got 1.5' },
  { "AUC", { curve = "ROK" }, 'AUC: option "curve": unknown value "ROK" (did you mean "ROC"?)' },
  { "AUC", { summation_method = "left" }, 'AUC: option "summation_method": unknown value "left"' },
  { "AUC", { num_thresholds = 1 }, 'AUC: option "num_thresholds" must be at least 2, got 1' },
  { "AUC", { treshold = 1 }, 'AUC: unknown option "treshold" (did you mean "thresholds"?)' },
  { "AUC", { num_labels = 2 }, 'AUC "auc": option "num_labels" goes with multi_label = true only' },
  { "AUC", { label_weights = { -1 } }, 'AUC "auc": option "label_weights": number 1 must be at least 0, got -1' },
  { "AUC", { multi_label = true, num_labels = 2, label_weights = { 1 } },
    'AUC "auc": option "label_weights" has 1 numbers for 2 labels' },
  { "TopKCategoricalAccuracy", { k = 0 }, 'TopKCategoricalAccuracy: option "k" must be at least 1, got 0' },
  { "SparseTopKCategoricalAccuracy", { k = 1.5 },
    'SparseTopKCategoricalAccuracy: option "k" must be a whole number, got 1.5' },
  { "TopK", { k = -1 }, 'TopK: option "k" must be at least 1, got -1' },
  { "BinaryAccuracy", { threshold = "x" }, 'BinaryAccuracy: option "threshold" must be a number' },
} do
  test("an option of a metric: " .. case[3], function()
    check.raises(function() metrics[case[1]](case[2]) end, case[3], "usage")
  end)
end

for _, case in ipairs {
  { fed("Recall", { class_id = 3 }, three, three), 'recall: option "class_id" is 3, but the predictions have '
    .. "shape {2, 3}" },
  { fed("Recall", { class_id = 0 }, { 1, 0 }, { 1, 0 }), 'recall: option "class_id" is 0' },
  { fed("Precision", { top_k = 4 }, three, three), 'precision: option "top_k" is 4, but the predictions have '
    .. "shape {2, 3}" },
  { fed("Precision", {}, three, two), "precision: y has shape {2, 3} but predictions of shape {2, 2}" },
  { fed("Precision", { name = "mine" }, three, two), "mine: y has shape {2, 3}" },
  { fed("AUC", {}, three, two), "auc: y has shape {2, 3} but predictions of shape {2, 2}" },
  { fed("AUC", { multi_label = true, num_labels = 2 }, three, three),
    'AUC "auc": multi_label wants predictions {rows, labels} with 2 labels, got {2, 3}' },
  { fed("AUC", { multi_label = true }, { 1, 0 }, { 1, 0 }),
    'AUC "auc": multi_label wants predictions {rows, labels}, got {2}' },
  { fed("AUC", { label_weights = { 1, 2 } }, three, three), 'AUC "auc": option "label_weights" has 2 numbers, '
    .. "but the predictions have shape {2, 3}" },
  { fed("CategoricalAccuracy", {}, three, two), "categorical_accuracy: y has shape {2, 3}" },
  { fed("SparseCategoricalAccuracy", {}, ids, two), "sparse_categorical_accuracy: y has shape {3}" },
  { fed("BinaryAccuracy", {}, three, two), "binary_accuracy: y has shape {2, 3}" },
  { fed("accuracy", {}, three, two), "accuracy: y has shape {2, 3}" },
  { fed("accuracy", {}, ids, two), "accuracy: y has shape {3}" },
  { fed("TopKCategoricalAccuracy", {}, three, two), "top_k_categorical_accuracy: y has shape {2, 3}" },
  { fed("SparseTopKCategoricalAccuracy", {}, ids, two), "sparse_top_k_categorical_accuracy: y has shape {3}" },
  { fed("TopK", {}, three, two), "top_k: y has shape {2, 3}" },
  { fed("TopK", {}, 1, 1), "top_k: the predictions must have an axis of classes" },
  { fed("MeanSquaredError", {}, three, two), "mean_squared_error: y has shape {2, 3}" },
  { fed("MeanAbsoluteError", {}, three, two), "mean_absolute_error: y has shape {2, 3}" },
  { fed("CategoricalAccuracy", {}, two, two, { 1, 2, 3 }), "categorical_accuracy: sample_weight has shape {3}, "
    .. "but the values it weighs have {2}: give one weight a row" },
  { fed("AUC", {}, two, two, { 1, 2, 3 }), "auc: sample_weight has shape {3}" },
  { fed("mse", {}, two, two, { { 1, 2 } }), "mean_squared_error: sample_weight has shape {1, 2}" },
} do
  test("an update of a metric: " .. case[2], function() check.raises(case[1], case[2], "usage") end)
end

test("a metric copies data from another device to the device of its sums", function()
  local kind = core.default_device():match "^%a+"
  if kind == "cuda" then kind = "cpu" end
  local other = kind .. ":1"
  for _, metric in ipairs { mgpu.metrics.AUC {}, mgpu.metrics.MeanSquaredError {}, mgpu.metrics.Precision {} } do
    local y, p = mgpu.tensor { { 0 }, { 1 }, { 1 }, { 0 } }, mgpu.tensor { { 0.1 }, { 0.9 }, { 0.4 }, { 0.6 } }
    local weight = mgpu.tensor { 1, 2, 1, 3 }
    metric:update(y, p, weight)
    local here = metric:result()
    metric:reset()
    metric:update(y:to(other), p:to(other), weight:to(other))
    check.equal(metric:result(), here)
  end
  local mean = mgpu.metrics.Mean {}
  mean:update(mgpu.tensor(3):to(other))
  check.equal(mean:result(), 3)
end)

test("accuracy of several columns takes the largest one, also with binary_crossentropy", function()
  local y, p = mgpu.tensor { { 1, 0, 1 }, { 0, 1, 0 } }, mgpu.tensor { { 0.9, 0.2, 0.8 }, { 0.6, 0.4, 0.1 } }
  local model = mgpu.Sequential { mgpu.layers.Input { 3 }, mgpu.layers.Activation "linear" }
  model:compile { loss = "binary_crossentropy", metrics = { "accuracy", "binary_accuracy" } }
  local r = model:test_on_batch(p, y)
  check.near({ r.accuracy, r.binary_accuracy }, { 0.5, 4 / 6 }, 1e-6)
end)

test("a metric whose sums come with the first predictions takes those of another one", function()
  local a, b = mgpu.metrics.F1Score {}, mgpu.metrics.F1Score {}
  a:update(mgpu.tensor { { 1, 0 }, { 0, 1 } }, mgpu.tensor { { 0.9, 0.1 }, { 0.2, 0.8 } })
  b:restore(a:save())
  check.equal(b:result(), a:result())
  check.near(mgpu.tensor(a:result()), { 1, 1 }, 1e-6) -- less an epsilon of 1e-7
end)
