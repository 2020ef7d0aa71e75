-- Losses in Keras's configurations: each class is written as Keras writes it and read back the same; on several
-- devices each has the value that it has on one.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L, losses = mgpu.layers, mgpu.losses

local CASES = {
  { "BinaryFocalCrossentropy", { gamma = 3, alpha = 0.5, apply_class_balancing = true } },
  { "CTC", {} },
  { "CategoricalFocalCrossentropy", { alpha = { 0.5, 1, 2 }, from_logits = true } },
  { "CategoricalGeneralizedCrossEntropy", { q = 0.25 } },
  { "CategoricalHinge", {} },
  { "Circle", { gamma = 8, margin = 0.2 } },
  { "Dice", { axis = { 2, 3 } } },
  { "Dice", {} },
  { "MeanAbsolutePercentageError", { reduction = "sum" } },
  { "MeanSquaredLogarithmicError", { name = "logs" } },
  { "SquaredHinge", {} },
  { "Tversky", { alpha = 0.25, beta = 0.75, axis = 2 } },
}

for i, case in ipairs(CASES) do
  test(("case %d, a compiled %s, is the same after saving in Keras's form"):format(i, case[1]), function()
    local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 } }
    model:compile { loss = losses[case[1]](case[2]) }
    model:save(check.path "m.keras")
    local loaded = mgpu.load_model(check.path "m.keras").compiled.outputs[1].loss
    local wanted = losses[case[1]](case[2])
    check.equal(loaded.kind, wanted.kind)
    check.equal(loaded.name, wanted.name)
    check.equal(core.json_encode(loaded.options), core.json_encode(wanted.options))
  end)
end

-- ---- Keras's null, and its class Accuracy -------------------------------------------------------

local training = require "mgpu.nn.keras.training"
local origin = require "mgpu.nn.keras.origin"

test("a loss of Keras whose reduction is null has none, and is refused for training", function()
  local at = origin.source("m.keras", {}, "3.15.1", {})
  local entry = { class_name = "Huber", config = { reduction = core.null, delta = 1 } }
  check.equal(training.loss_from(entry, at).config.reduction, "none")
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 } }
  check.raises(function()
    training.from_keras(model, { optimizer = { class_name = "SGD", config = {} }, loss = entry }, {}, nil, at)
  end, 'm.keras: the loss "Huber" has no reduction, but training needs one number: load with {compile = false}',
    "unsupported")
end)

test("Keras's class Accuracy compares ids, its name accuracy chooses by the shapes; both stay what they are", function()
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 } }
  model:compile { loss = "mse", metrics = { "accuracy", mgpu.metrics.Accuracy { exact = true, name = "equal" },
    mgpu.metrics.SparseTopKCategoricalAccuracy { k = 1, from_sorted_ids = true } } }
  model:save(check.path "m.keras")
  local loaded = mgpu.load_model(check.path "m.keras").compiled.outputs[1].metrics
  check.equal(loaded[1].options.exact, false)
  check.equal(loaded[2].options.exact, true)
  check.equal(loaded[3].options.from_sorted_ids, true)
end)

-- loss, y, the width of the predictions
local TRAINED = {
  { "Dice", function(n) return mgpu.randint(0, 2, { n, 3 }):cast "float32" end, 3 },
  { "Circle", function(n) return mgpu.randint(0, 3, { n }) end, 4 },
  { "CategoricalFocalCrossentropy", function(n) return mgpu.one_hot(mgpu.randint(0, 3, { n }), 3) end, 3 },
  { "CategoricalGeneralizedCrossEntropy", function(n) return mgpu.randint(0, 3, { n }) end, 3 },
}

local function trained(loss, y, width, devices)
  mgpu.seed(3)
  local model = mgpu.Sequential { mgpu.Input { 5 }, L.Dense { width, activation = "softmax" } }
  model:compile { optimizer = "sgd", loss = losses[loss] {}, devices = devices }
  mgpu.seed(4)
  local x = mgpu.randn { 11, 5 }
  return model:fit(x, y(11), { epochs = 2, batch_size = 6, shuffle = false, verbose = 0 }).history.loss
end

for _, case in ipairs(TRAINED) do
  test(case[1] .. " over the whole batch is the same on three devices", function()
    if #mgpu.devices "cpu" == 0 then return check.skip "no cpu device" end
    local one = trained(case[1], case[2], case[3], { "cpu:0" })
    for n = 2, 3 do
      local devices = {}
      for i = 1, n do devices[i] = "cpu:" .. i - 1 end
      check.near(trained(case[1], case[2], case[3], devices), one, 1e-5) -- float32 sums in another order
    end
  end)
end

test("CTC trains a model, also on two devices", function()
  local function curve(devices)
    mgpu.seed(5)
    local model = mgpu.Sequential { mgpu.Input { 6, 4 }, L.Dense { 4 } }
    model:compile { optimizer = mgpu.optimizers.Adam { learning_rate = 0.1 }, loss = "ctc", devices = devices }
    mgpu.seed(6)
    local x, y = mgpu.randn { 5, 6, 4 }, { { 1, 2 }, { 3, 3 }, { 2, 0 }, { 1, 1 }, { 3, 0 } }
    return model:fit(x, mgpu.tensor(y, { dtype = "int32" }), { epochs = 5, batch_size = 5, shuffle = false,
      verbose = 0 }).history.loss
  end
  local one = curve()
  check.truthy(one[5] < one[1])
  if #mgpu.devices "cpu" > 0 then check.near(curve { "cpu:0", "cpu:1" }, one, 1e-4) end -- after several steps
end)

test("CTC of a label that needs more steps than there are is huge, not NaN", function()
  check.truthy(losses.ctc(mgpu.tensor { { 1, 1 } }, mgpu.zeros { 1, 2, 3 }):item() > 1e29)
end)

for _, case in ipairs {
  { "ctc needs labels {rows, length} and predictions {rows, steps, classes}, but y has shape {2} and the predictions "
    .. "{2, 3, 4}", function() return losses.ctc(mgpu.zeros { 2 }, mgpu.zeros { 2, 3, 4 }) end },
  { "circle: the predictions must be vectors, {rows, n}, but have 3 axes",
    function() return losses.circle(mgpu.zeros { 2 }, mgpu.zeros { 2, 3, 4 }) end },
  { 'option "axis" names axis 4 of predictions with 2 axes',
    function() return losses.Dice { axis = 4 } (mgpu.zeros { 2, 3 }, mgpu.zeros { 2, 3 }) end },
  { 'option "alpha" has 2 numbers for 3 classes', function()
    return losses.CategoricalFocalCrossentropy { alpha = { 1, 2 } } (mgpu.zeros { 2, 3 }, mgpu.ones { 2, 3 })
  end },
  { 'option "q" must be above 0, got 0', function() return losses.CategoricalGeneralizedCrossEntropy { q = 0 } end },
} do
  test("a wrong call: " .. case[1], function() check.raises(case[2], case[1], "usage") end)
end

test("a label that CTC does not know is an error", function()
  check.raises(function() return losses.ctc(mgpu.tensor { { 5 } }, mgpu.zeros { 1, 2, 3 }):item() end,
    "ctc: a label is not in 0 .. 2", "data")
end)

test("a weight multiplies the one value of a batch, as in Keras", function()
  local y, p = mgpu.tensor { { 1, 0 }, { 1, 1 } }, mgpu.tensor { { 1, 1 }, { 0, 1 } }
  local plain = losses.dice(y, p):item()
  check.near(losses.dice(y, p, { sample_weight = { 1, 3 } }):item(), 2 * plain)
end)
