-- evaluate and test_on_batch: exact means over batches of any size.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

-- A model that returns its input, so that the expected numbers are easy to compute.
local function identity(loss, metrics)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 2, kernel_initializer = "identity" } }
  model:compile { loss = loss, metrics = metrics }
  return model
end

local X = { { 0.9, 0.1 }, { 0.2, 0.8 }, { 0.6, 0.4 }, { 0.7, 0.3 }, { 0.5, 0.5 } }
local Y = { { 1, 0 }, { 1, 0 }, { 1, 0 }, { 0, 1 }, { 0, 1 } }

local function mse(rows)
  local sum = 0
  for _, i in ipairs(rows) do
    sum = sum + ((X[i][1] - Y[i][1]) ^ 2 + (X[i][2] - Y[i][2]) ^ 2) / 2
  end
  return sum / #rows
end

test("evaluate gives loss and metrics by name and by position", function()
  local model = identity("mse", { "accuracy" })
  local r = model:evaluate(X, Y, { verbose = 0 })
  check.near(r.loss, mse { 1, 2, 3, 4, 5 })
  check.near(r.accuracy, 2 / 5)
  check.equal(r.acc, r.accuracy)
  local loss, accuracy = unpack(r)
  check.equal(tostring(r), ("{loss = %.4g, accuracy = %.4g}"):format(loss, accuracy))
  check.equal(loss, r.loss)
  check.equal(accuracy, r.accuracy)
end)

test("the batch size does not change the result: a short batch counts by its rows", function()
  local model = identity("mse", "accuracy")
  for batch_size = 1, 6 do
    local r = model:evaluate(X, Y, { verbose = 0, batch_size = batch_size })
    check.near(r.loss, mse { 1, 2, 3, 4, 5 }, 1e-6)
    check.near(r.accuracy, 2 / 5)
  end
end)

test("evaluate changes no weight and no running statistics", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 3 }, L.BatchNormalization {},
    L.Dense { 2 } }
  model:compile { loss = "mse" }
  model:fit(X, Y, { verbose = 0 })
  local before = {}
  for i, w in ipairs(model:get_weights()) do before[i] = w:totable() end
  model:evaluate(X, Y, { verbose = 0 })
  for i, w in ipairs(model:get_weights()) do check.equal(w:totable(), before[i]) end
end)

test("sample weights apply to the loss and not to the metrics", function()
  local model = identity("mse", { "accuracy" })
  local r = model:evaluate(X, Y, { verbose = 0, sample_weight = { 1, 1, 0, 0, 0 } })
  check.near(r.loss, mse { 1, 2 } * 2 / 5)
  check.near(r.accuracy, 2 / 5)
end)

test("several metrics are kept apart", function()
  local model = identity("mse", { "accuracy", "binary_crossentropy",
    function(y, p) return mgpu.sum(mgpu.abs(y - p), { axis = -1 }) end })
  local r = model:evaluate(X, Y, { verbose = 0 })
  check.equal(#r, 4)
  check.near(r.metric_3, (0.2 + 1.6 + 0.8 + 1.4 + 1) / 5)
end)

test("test_on_batch gives the numbers of evaluate on one batch", function()
  local model = identity("mse", { "accuracy" })
  check.near({ unpack(model:test_on_batch(X, Y)) },
    { unpack(model:evaluate(X, Y, { verbose = 0 })) })
end)

test("evaluate before compile is an error", function()
  check.raises(function()
    mgpu.Sequential { L.Input { 2 }, L.Dense { 2 } }:evaluate(X, Y)
  end, "evaluate: call model:compile", "usage")
end)

test("evaluate checks labels as fit does", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 2, activation = "softmax" } }
  model:compile { loss = "sparse_categorical_crossentropy" }
  check.raises(function()
    model:evaluate({ { 1, 2 }, { 3, 4 } }, mgpu.tensor({ 0, 2 }, { dtype = "int32" }))
  end, "evaluate: the label in row 2 of y is 2", "usage")
end)

test("an evaluation that fails inside an epoch leaves the sums of the epoch alone", function()
  local bad = { iter = function()
    local at = 0
    return function()
      at = at + 1
      if at == 2 then error "no more data" end
      return mgpu.tensor(X), mgpu.tensor(X)
    end
  end }
  local function loss_of(callbacks)
    local model = identity("mse", nil)
    model:compile { optimizer = mgpu.optimizers.SGD { 0 }, loss = "mse" }
    return model:fit(X, Y, { batch_size = 1, verbose = 0, shuffle = false, callbacks = callbacks }).history.loss[1]
  end
  local failed = 0
  local loss = loss_of { { on_train_batch_end = function(self)
    check.raises(function() self.model:evaluate(bad, { verbose = 0 }) end, "no more data")
    failed = failed + 1
  end } }
  check.equal(failed, 5)
  check.near(loss, mse { 1, 2, 3, 4, 5 })
end)
