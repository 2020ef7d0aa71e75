-- predict and predict_on_batch.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function model()
  mgpu.seed(5)
  return mgpu.Sequential { L.Input { 3 }, L.Dense { 4, activation = "relu" }, L.Dropout { 0.5 },
    L.Dense { 2, activation = "softmax" } }
end

local function rows(n)
  local x = {}
  for i = 1, n do x[i] = { i % 7 / 7, i % 5 / 5, i % 3 / 3 } end
  return mgpu.tensor(x)
end

test("predict needs no compile and gives one output row for each input row", function()
  local p = model():predict(rows(10))
  check.equal(p:shape(), { 10, 2 })
end)

test("predict gives the numbers of the model called for inference", function()
  local m, x = model(), rows(70)
  check.near(m:predict(x), m(x):totable(), 1e-6)
end)

test("the batch size does not change predictions", function()
  local m, x = model(), rows(11)
  local whole = m:predict(x):totable()
  for _, batch_size in ipairs { 1, 2, 3, 10, 11, 100 } do
    check.near(m:predict(x, { batch_size = batch_size }), whole, 1e-6)
  end
end)

test("the predictions of hundreds of batches are concatenated", function()
  local m, x = model(), rows(600)
  check.near(m:predict(x, { batch_size = 1 }), m(x):totable(), 1e-6)
end)

test("predict uses changed weights", function()
  local m, x = model(), rows(4)
  local before = m:predict(x):totable()
  m:compile { optimizer = mgpu.optimizers.SGD { learning_rate = 1 }, loss = "mse" }
  m:fit(x, { { 1, 0 }, { 1, 0 }, { 1, 0 }, { 1, 0 } }, { verbose = 0 })
  check.near(m:predict(x), m(x):totable(), 1e-6)
  check.truthy(m:predict(x):totable()[1][1] > before[1][1], "the prediction")
end)

test("predict_on_batch takes all rows at once", function()
  local m, x = model(), rows(40)
  check.near(m:predict_on_batch(x), m:predict(x):totable(), 1e-6)
end)

test("bad input of predict is an error", function()
  check.raises(function() model():predict(mgpu.zeros { 0, 3 }) end, "predict: x is empty", "usage")
  check.raises(function() model():predict "x" end, "predict: x must be a tensor", "usage")
  check.raises(function() model():predict(rows(2), { batch_size = 0 }) end, "batch_size", "usage")
  check.raises(function() model():predict(mgpu.zeros { 2, 4 }) end, "{2, 4}", "usage")
end)
