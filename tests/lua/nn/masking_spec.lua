-- Masks against Keras (golden set masking), and where they are made, passed on, dropped and refused.
local check = require "check"
local mgpu = require "mgpu"
local comparing = require "golden.comparing"
local golden = require "golden.load" "masking"
local masks = require "mgpu.nn.masks"

local L = mgpu.layers
local test = check.test

local heads = {
  Dense = function(h) return L.Dense { 2 } (L.Dropout { 0.5 } (h)) end,
  GlobalAveragePooling1D = function(h) return L.Dense { 2 } (L.GlobalAveragePooling1D {} (h)) end,
  BatchNormalization = function(h) return L.Dense { 2 } (L.BatchNormalization {} (h)) end,
  Conv1D = function(h) return L.Conv1D { 2, 1 } (h) end,
  Softmax = function(h) return L.Dense { 2 } (L.Softmax { axis = 2 } (h)) end,
  SoftmaxFeatures = function(h) return L.Dense { 2 } (L.Softmax {} (h)) end,
  SoftmaxBoth = function(h) return L.Dense { 2 } (L.Softmax { axis = { 2, 3 } } (h)) end,
  Add = function(h, other) return L.Dense { 2 } (L.Add {} { h, L.Masking { 0.5 } (other) }) end,
  Multiply = function(h, other) return L.Dense { 2 } (L.Multiply {} { h, other }) end,
  Concatenate = function(h, other)
    return L.Dense { 2 } (L.Concatenate { axis = 2 } { h, L.Masking { 0.5 } (other) })
  end,
}

local function model_of(case)
  return require "mgpu.nn.mixed_precision".with_policy(mgpu.mixed_precision.Policy "float64", function()
    local ids, other = mgpu.Input { { 4 }, dtype = "int32" }, mgpu.Input { { 4, 3 }, dtype = "float64" }
    local h = L.Embedding { 5, 3, mask_zero = true } (ids)
    local model = mgpu.Model { inputs = { ids, other }, outputs = heads[case.name](h, other) }
    local values = {}
    for k, v in ipairs(model.variables) do
      values[k] = comparing.array(v:shape(), "float64", golden.salt + k - 1) + (v.name:find "moving" and 2 or 0)
    end
    model:set_weights(values)
    return model
  end)
end

local function data()
  local rows = comparing.array({ 3, 4, 3 }, "float64", golden.salt + 20):totable()
  for step = 3, 4 do rows[2][step] = { 0.5, 0.5, 0.5 } end
  return { mgpu.tensor(golden.ids, { dtype = "int32" }), mgpu.tensor(rows, { dtype = "float64" }) }
end

for i, case in ipairs(golden.cases) do
  test(("masks through %s, case %d, give Keras's output and loss"):format(case.name, i), function()
    local model, x = model_of(case), data()
    check.near(model(x):reshape { -1 }, case.output, 1e-7)
    local y = comparing.array(case.shape, "float64", golden.salt + 30)
    for _, devices in ipairs { { "cpu:0" }, { "ref:0" } } do
      model:compile { loss = "mse", optimizer = "sgd", devices = devices }
      check.near(model:test_on_batch(x, y).loss, case.loss, 1e-6)
      check.near(model:test_on_batch(x, y, { sample_weight = { 1, 2, 0.5 } }).loss, case.weighted, 1e-6)
    end
    -- last, since it moves the moving statistics; the model is on the last device
    x = { x[1]:to "ref:0", x[2]:to "ref:0" }
    if case.training then check.near(model(x, { training = true }):reshape { -1 }, case.training, 1e-6) end
  end)
end

test("a masked model trains, is saved and loaded, and its masked steps have no gradient", function()
  local model = mgpu.Sequential { L.Input { { 4 }, dtype = "int32" }, L.Embedding { 5, 3, mask_zero = true },
    L.Dense { 1 } }
  model:compile { loss = "mse", optimizer = "sgd" }
  local x, before = mgpu.tensor(golden.ids, { dtype = "int32" }), model.variables[1]:value():totable()
  local loss = model:fit(x, mgpu.ones { 3, 4, 1 }, { verbose = 0, epochs = 3 }).history.loss
  check.truthy(loss[3] < loss[1])
  check.equal(model.variables[1]:value():totable()[1], before[1]) -- id 0
  local path = check.path "masked.safetensors"
  model:save(path)
  check.truthy(masks.get(mgpu.load_model(path)(x)))
end)

test("Masking masks the steps that equal its value, other layers pass masks on or drop them", function()
  local x = mgpu.tensor { { { 1, 2 }, { 7, 7 }, { 7, 1 } } }
  local y = L.Masking { 7 } (x)
  check.equal(y, { { { 1, 2 }, { 0, 0 }, { 7, 1 } } })
  check.equal(masks.get(y), { { true, false, true } })
  check.equal(masks.get(L.ReLU {} (y)), { { true, false, true } })
  check.equal(masks.get(L.Permute { 2, 1 } (y)), nil)
  check.equal(masks.get(L.Add {} { y, x }), nil)
  local z = L.Masking { 1 } (mgpu.tensor { { { 1, 1 }, { 1, 1 }, { 3, 4 } } })
  check.equal(masks.get(L.Add {} { y, z }), { { true, false, true } })
  check.equal(L.Multiply {} { y, z }, { { { 1, 2 }, { 0, 0 }, { 21, 4 } } })
  check.raises(function() L.Masking {} (mgpu.ones { 2 }) end, "at least 2 axes", "usage")
end)

test("a mask that does not fit the loss is an error", function()
  local flat = mgpu.Sequential { L.Input { 4, 2 }, L.Masking {} }
  flat:compile { loss = function(y, p) return (y - p):sum(2):sum(2) end }
  check.raises(function() flat:test_on_batch(mgpu.ones { 3, 4, 2 }, mgpu.ones { 3, 4, 2 }) end,
    "mask of shape {3, 4}, but the loss has values of shape {3}", "usage")
end)
