-- Metrics: means over batches of any size, and the kinds of accuracy.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local metrics = mgpu.metrics

test("Mean averages what it is given, with weights", function()
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

test("categorical accuracy compares the places of the largest", function()
  local accuracy = metrics.CategoricalAccuracy {}
  accuracy:update({ { 0, 1 }, { 1, 0 } }, { { 0.4, 0.6 }, { 0.4, 0.6 } })
  check.near(accuracy:result(), 0.5)
end)

test("binary accuracy has a threshold", function()
  local accuracy = metrics.BinaryAccuracy { threshold = 0.8 }
  accuracy:update({ { 1 }, { 1 }, { 0 } }, { { 0.9 }, { 0.7 }, { 0.1 } })
  check.near(accuracy:result(), 2 / 3)
end)

test("a weight counts its row", function()
  local accuracy = metrics.CategoricalAccuracy {}
  accuracy:update({ { 0, 1 }, { 1, 0 } }, { { 0.4, 0.6 }, { 0.4, 0.6 } }, { 3, 1 })
  check.near(accuracy:result(), 0.75)
end)

test("accuracy chooses its kind by the shapes", function()
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

test("updating inside mgpu.jit adds up", function()
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
  check.raises(function() return metrics.accurcy end, "Accuracy", "usage")
end)

-- ---- Keras's numbers ----------------------------------------------------------------------------

package.path = "tests/golden/?.lua;" .. package.path
local hash = require "hash"
local golden = require "metrics"

-- Targets, predictions and weights of an update, from 0.
local function golden_batch(case, update)
  local rows, width = golden.rows, case.kind == "column" and 1 or golden.classes
  local f64 = { dtype = "float64" }
  local p = mgpu.tensor(hash.array(rows * width, 300 + update, 0.5, 0.5), f64):reshape { rows, width }
  if case.args.from_logits then p = p * 6 - 3 end
  local y = mgpu.tensor(hash.labels(rows, 310 + update, golden.classes), { dtype = "int32" })
  if case.kind == "one_hot" then
    y = mgpu.one_hot(y, golden.classes)
  elseif case.kind ~= "ids" then
    y = mgpu.tensor(hash.labels(rows * width, 320 + update, 2), f64):reshape { rows, width }
  end
  return y, p, mgpu.tensor(hash.array(rows, 330 + update, 1, 1), f64)
end

local function near(actual, expected)
  if type(actual) == "number" then actual = { actual } end
  if type(expected) == "number" then expected = { expected } end
  check.near(actual, expected, 1e-6) -- Keras's metrics compute in float32
end

for i, case in ipairs(golden.cases) do
  test(("metric %d, %s (%s), has Keras's results over updates, in jit too"):format(i, case.metric,
    case.kind), function()
    local class = mgpu.metrics[case.metric]
    local plain, weighted, jitted = class(case.args), class(case.args), class(case.args)
    local step = mgpu.jit(function(y, p) jitted:update(y, p) end)
    for u = 0, golden.updates - 1 do
      local y, p, weight = golden_batch(case, u)
      plain:update(y, p)
      weighted:update(y, p, weight)
      step(y, p)
      near(plain:result(), case.plain[u + 1])
    end
    near(jitted:result(), case.plain[golden.updates])
    near(weighted:result(), case.weighted)
    weighted:reset()
    local saved = plain:save()
    plain:reset()
    plain:restore(saved)
    near(plain:result(), case.plain[golden.updates])
  end)
end

for what, make in pairs {
  ["a threshold above 1"] = { function() mgpu.metrics.Precision { thresholds = 2 } end, "0 to 1" },
  ["no thresholds"] = { function() mgpu.metrics.Recall { thresholds = {} } end, "empty" },
  ["k below 1"] = { function() mgpu.metrics.TopKCategoricalAccuracy { k = 0 } end, "at least 1" },
  ["a class that is not there"] = { function()
    mgpu.metrics.Recall { class_id = 3 }:update(mgpu.ones { 2, 3 }, mgpu.ones { 2, 3 })
  end, "class_id is 3" },
  ["shapes that differ"] = { function()
    mgpu.metrics.Precision {}:update(mgpu.ones { 2, 3 }, mgpu.ones { 2, 2 })
  end, "the predictions have {2, 2}" },
  ["an unknown curve"] = { function() mgpu.metrics.AUC { curve = "ROK" } end, "ROC" },
  ["an unknown option"] = { function() mgpu.metrics.AUC { treshold = 1 } end, "thresholds" },
} do
  test("an error: " .. what, function() check.raises(make[1], make[2], "usage") end)
end
