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
