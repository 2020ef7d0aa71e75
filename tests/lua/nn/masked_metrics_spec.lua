-- Metrics of masked predictions against Keras (golden set masked_metrics): in updates, in test steps, evaluate and fit,
-- weighted and not, on one device and on several.
local check = require "check"
local mgpu = require "mgpu"
local comparing = require "golden.comparing"
local golden = require "golden.load" "masked_metrics"
local hash = require "golden.hash"
local masks = require "mgpu.nn.masks"

local L = mgpu.layers
local test = check.test
local TOLERANCE = 1e-6 -- of float32; its top_k is the reason, the other golden numbers are float64

-- Metrics that are not made by their name alone.
local MADE = {
  cosine_similarity = function() return mgpu.losses.cosine_similarity end,
  ["a function"] = function() return function(y, p) return (y - p):abs():max(-1) end end,
  ["a function of each number"] = function() return function(y, p) return (y - p):abs() end end,
  top_k_categorical_accuracy = function() return mgpu.metrics.TopKCategoricalAccuracy { k = 2 } end,
  sparse_top_k_categorical_accuracy = function() return mgpu.metrics.SparseTopKCategoricalAccuracy { k = 2 } end,
}

local function inputs(batch)
  local x = comparing.array({ 4, golden.steps[batch], 2 }, "float64", golden.salt + batch - 1):totable()
  for row, steps in ipairs(golden.masked[batch]) do
    for _, step in ipairs(steps) do x[row][step + 1] = { 0, 0 } end
  end
  return mgpu.tensor(x, { dtype = "float64" })
end

local function targets(kind, batch)
  local shape, salt = { 4, golden.steps[batch] }, golden.salt + 9 + batch
  if kind == "floats" then return comparing.array({ shape[1], shape[2], 2 }, "float64", salt) end
  local ids = comparing.ids(shape, salt, kind == "bits" and 2 or 3)
  if kind == "one_hot" then return mgpu.to_categorical(ids, 3):cast "float64" end
  return kind == "ids" and ids or ids:reshape { 4, golden.steps[batch], 1 }:cast "float64"
end

local HEADS = { floats = { 2 }, bits = { 1, "sigmoid" }, ids = { 3, "softmax" }, one_hot = { 3, "softmax" } }

local function model_of(kind)
  return require "mgpu.nn.mixed_precision".with_policy(mgpu.mixed_precision.Policy "float64", function()
    local model = mgpu.Sequential { mgpu.Input { { -1, 2 }, dtype = "float64" }, L.Masking {},
      L.Dense { HEADS[kind][1], activation = HEADS[kind][2] } }
    local values = {}
    for k, v in ipairs(model.variables) do
      values[k] = comparing.array(v:shape(), "float64", golden.salt + 19 + k, 2, k - 1)
    end
    model:set_weights(values)
    return model
  end)
end

local function metric(name) return MADE[name] and MADE[name]() or name end

-- The metric of that name as compile makes it.
local function made(name)
  local outputs = require "mgpu.train.compile_options".outputs({ loss = "mse", metrics = { metric(name) } }, { "y" })
  return outputs[1].metrics[1]
end

for _, case in ipairs(golden.cases) do
  local title = ("%s of %s"):format(case.name, case.kind)

  test(title .. ", masked, is Keras's after updates, jitted and not", function()
    local model = model_of(case.kind)
    for _, jitted in ipairs { false, true } do
      local plain, weighted = made(case.name), made(case.name)
      local function update(x, y, w)
        local p = model(x)
        plain:update(y, p)
        weighted:update(y, p, w)
      end
      if jitted then update = mgpu.jit(update) end
      for batch = 1, 2 do update(inputs(batch), targets(case.kind, batch), mgpu.tensor(golden.weights[batch])) end
      check.near(plain:result(), case.plain, TOLERANCE)
      check.near(weighted:result(), case.weighted, TOLERANCE)
    end
  end)

  test(title .. ", masked, is Keras's in evaluate, on one device and on three", function()
    local model = model_of(case.kind)
    for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1", "cpu:2" } } do
      model:compile { loss = function(y, p) return p:sum(-1) end, devices = devices, -- luacheck: no unused
        metrics = { metric(case.name) }, weighted_metrics = { metric(case.name) } }
      local batch = 0
      local logs = model:evaluate(function()
        batch = batch % 2 + 1
        return inputs(batch), targets(case.kind, batch), mgpu.tensor(golden.weights[batch])
      end, { steps = 2, verbose = 0 })
      check.near({ logs[2], logs[3] }, { case.plain, case.weighted }, TOLERANCE)
    end
  end)
end

-- ---- a model of ones, in every method -----------------------------------------------------------

local function ones_model(devices, strategy)
  local model = mgpu.Sequential { mgpu.Input { { 4, 2 } }, L.Masking {}, L.Dense { 1, kernel_initializer = "ones" } }
  model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0 }, metrics = { "mae" },
    weighted_metrics = { "mse" }, devices = devices, strategy = strategy }
  return model
end

local function ones_data()
  local x = mgpu.tensor(hash.array(24, golden.salt + 30, 2)):reshape { 3, 4, 2 }:totable()
  for _, at in ipairs { { 1, 3 }, { 1, 4 }, { 2, 1 }, { 3, 2 }, { 3, 3 } } do x[at[1]][at[2]] = { 0, 0 } end
  return mgpu.tensor(x), mgpu.tensor(hash.array(12, golden.salt + 31, 3)):reshape { 3, 4, 1 }
end

local RUNS = { { "one device", { "cpu:0" } }, { "three devices", { "cpu:0", "cpu:1", "cpu:2" } },
  { "three devices, asynchronous", { "cpu:0", "cpu:1", "cpu:2" }, "async" } }

for _, run in ipairs(RUNS) do
  for _, how in ipairs { "plain", "weighted" } do
    test(("mae and weighted mse of a masked model are Keras's in every method: %s, %s"):format(run[1], how), function()
      local model, x, y = ones_model(run[2], run[3]), ones_data()
      local weight, expected = how == "weighted" and { 1, 2, 0.5 } or nil, golden.model[how]
      local given = { sample_weight = weight, batch_size = 2, verbose = 0, shuffle = false }
      check.near({ unpack(model:test_on_batch(x, y, { sample_weight = weight })) }, expected.tested, TOLERANCE)
      local on_batch = model:train_on_batch(x, y, { sample_weight = weight })
      check.near({ on_batch.loss, on_batch.mae, on_batch.mse }, expected.tested, TOLERANCE)
      local evaluated = model:evaluate(x, y, { sample_weight = weight, batch_size = 2, verbose = 0 })
      check.near({ evaluated.mae, evaluated.mse }, expected.fitted, TOLERANCE)
      given.validation_data = { x, y, weight and mgpu.tensor(weight) }
      local history = model:fit(x, y, given).history
      check.near({ history.mae[1], history.mse[1] }, expected.fitted, TOLERANCE)
      check.near({ history.val_mae[1], history.val_mse[1] }, expected.fitted, TOLERANCE)
    end)
  end
end

test("a masked output of a layer on another device is masked in the metrics", function()
  local x, y = ones_data()
  local model = mgpu.Sequential { mgpu.Input { { 4, 2 } }, L.Masking { device = "cpu:0" },
    L.Dense { 1, kernel_initializer = "ones", device = "cpu:1" } }
  model:compile { loss = "mse", metrics = { "mae" }, weighted_metrics = { "mse" } }
  check.near({ unpack(model:test_on_batch(x, y)) }, golden.model.plain.tested, TOLERANCE)
end)

test("a function as loss may give a value for each step of a masked output", function()
  local model, x, y = ones_model(), ones_data()
  local expected = model:test_on_batch(x, y).loss
  model:compile { loss = function(a, b) return ((a - b) ^ 2):mean(-1) end }
  check.near(model:test_on_batch(x, y).loss, expected, TOLERANCE)
end)

test("weights of rows and of steps weigh a masked output", function()
  local p, y = L.Masking {} (mgpu.tensor { { { 1 }, { 0 } }, { { 3 }, { 5 } } }), mgpu.zeros { 2, 2, 1 }
  for _, weight in ipairs { { 1, 3 }, { { 1 }, { 3 } }, { { 1, 7 }, { 3, 3 } },
    { { { 1 }, { 7 } }, { { 3 }, { 3 } } } } do
    local mae = mgpu.metrics.MeanAbsoluteError {}
    mae:update(y, p, weight)
    check.near(mae:result(), (1 * 1 + 3 * 3 + 3 * 5) / 7, TOLERANCE)
  end
end)

test("Mean leaves out masked values, and counts rows", function()
  local mean = mgpu.metrics.Mean {}
  mean:update(L.Masking {} (mgpu.tensor { { { 1 }, { 0 } }, { { 3 }, { 5 } } }))
  check.near(mean:result(), 3, TOLERANCE)
  mean:update(mgpu.tensor { { 7, 9, 8, 8 } }, 2)
  check.near(mean:result(), (4.5 + 16) / 3.5, TOLERANCE)
end)

test("a batch without unmasked values changes no metric", function()
  local p = L.Masking {} (mgpu.zeros { 2, 2, 1 })
  for _, name in ipairs { "mae", "binary_accuracy", "precision", "auc" } do
    local one = made(name)
    one:update(mgpu.ones { 2, 2, 1 }, p)
    check.equal({ name, one:result() }, { name, 0 })
  end
end)

test("a metric whose values the mask does not fit is an error", function()
  local p = L.Masking {} (mgpu.ones { 3, 4, 2 })
  check.truthy(masks.get(p))
  local rows = mgpu.metrics.Mean.from_function(function(a, b) return (a - b):mean(3):mean(2) end, "rows")
  check.raises(function() rows:update(mgpu.ones { 3, 4, 2 }, p) end, "rows: the predictions have a mask of shape "
    .. "{3, 4}, but the metric has values of shape {3}: it must give a value for each element of the mask", "usage")
end)
