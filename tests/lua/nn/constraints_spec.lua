-- Constraints against Keras (golden set constraints): alone, in trained layers, saved, and misused.
local check = require "check"
local mgpu = require "mgpu"
local comparing = require "golden.comparing"
local hash = require "golden.hash"
local golden = require "golden.load" "constraints"

local L, C = mgpu.layers, mgpu.constraints
local test = check.test

-- Keras's arguments with axes that count from 1.
local function ours(args)
  local own = {}
  for key, value in pairs(args) do own[key] = value end
  if type(own.axis) == "number" then own.axis = own.axis + 1 end
  if type(own.axis) == "table" then
    for i, axis in ipairs(args.axis) do own.axis = i == 1 and {} or own.axis own.axis[i] = axis + 1 end
  end
  return own
end

for i, case in ipairs(golden.alone) do
  test(("constraint %d, %s, gives Keras's value"):format(i, comparing.described(case.constraint, case.args)), function()
    local w = comparing.array(golden.shape, "float64", golden.salt)
    -- Keras rounds the options to float32
    check.near(C[case.constraint](ours(case.args))(w):reshape { -1 }, case.value, 1e-7)
  end)
end

-- A layer of the case in a compiled model, with hashed weights, and the model's data.
local function trained(case, compile)
  local options = {}
  for key, value in pairs(case.args) do options[key] = value end
  for key, value in pairs(case.constraints) do
    options[key .. "_constraint"] = C[value.class_name](ours(value.config))
  end
  options.dtype = "float64"
  local sample = { unpack(case.shape, 2) }
  local layer = L[case.layer](options)
  local ids = case.layer == "Embedding"
  local model = mgpu.Sequential { L.Input { sample, dtype = ids and "int32" or "float64" }, layer }
  local values = {}
  for k, v in ipairs(layer.variables) do values[k] = comparing.array(v:shape(), "float64", golden.salt + k) end
  layer:set_weights(values)
  compile.optimizer, compile.loss = mgpu.optimizers.SGD { learning_rate = golden.learning_rate }, "mse"
  model:compile(compile)
  local x = comparing.array(case.shape, "float64", golden.salt)
  if ids then
    x = mgpu.tensor(hash.labels(check.count(case.shape), golden.salt, 6), { dtype = "int32" }):reshape(case.shape)
  end
  return model, x, mgpu.zeros(model(x):shape(), { dtype = "float64" })
end

for i, case in ipairs(golden.trained) do
  test(("%s, case %d, keeps its constraints as in Keras"):format(case.layer, i), function()
    for _, compile in ipairs { {}, { run_eagerly = true }, { devices = { "cpu:0", "cpu:1" } },
      { devices = { "cpu:0", "cpu:1" }, strategy = "central" } } do
      local model, x, y = trained(case, compile)
      for _ = 1, golden.steps do model:train_on_batch(x, y) end
      for k, v in ipairs(model.variables) do check.near(v:value():reshape { -1 }, case.weights[k], 1e-6) end
    end
  end)
end

test("constraints are saved and act after loading", function()
  local path = check.path "constrained.safetensors"
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2, kernel_constraint = C.MaxNorm { 0.1, axis = 2 },
    bias_constraint = "non_neg" } }
  model:save(path)
  local loaded = mgpu.load_model(path)
  check.equal(loaded.layers[1]:get_config().kernel_constraint,
    { class_name = "MaxNorm", config = { max_value = 0.1, axis = 2 } })
  loaded:compile { optimizer = "sgd", loss = "mse" }
  loaded:fit(mgpu.ones { 4, 3 }, mgpu.full({ 4, 2 }, -1), { verbose = 0 })
  check.truthy(loaded.variables[1]:value():norm(2):max():item() < 0.1 + 1e-6)
  check.truthy(loaded.variables[2]:value():min():item() >= 0)
end)

test("a function is a constraint, and own layers may give one", function()
  local Own = mgpu.Layer:extend("Own", {})
  function Own:build(shape)
    self.w = self:add_weight { name = "w", shape = { shape[2] }, constraint = function(w) return w:clip(2, 3) end }
  end
  function Own:call(x) return x * self.w end
  local model = mgpu.Sequential { L.Input { 3 }, Own {} }
  model:compile { optimizer = "adam", loss = "mse" }
  model:train_on_batch(mgpu.ones { 4, 3 }, mgpu.ones { 4, 3 })
  check.equal(model.variables[1]:value(), { 2, 2, 2 })
end)

test("wrong constraints are errors with the reason", function()
  check.raises(function() L.Dense { 2, kernel_constraint = "max_nrom" } end, 'unknown constraint "max_nrom" %(did you '
    .. 'mean "max_norm"%?%)', "usage")
  check.raises(function() L.Dense { 2, kernel_constraint = 5 } end, "kernel_constraint", "usage")
  check.raises(function() C.MaxNorm { -1 } end, "at least 0", "usage")
  check.raises(function() C.MinMaxNorm { 2, 1 } end, "min_value 2 exceeds max_value 1", "usage")
  check.raises(function() C.UnitNorm { axes = 1 } end, '"axis"', "usage")
  local v = mgpu.variable(mgpu.tensor { 1, 2 }, { name = "v" })
  C.set(v, function() return 3 end)
  check.raises(function() C.apply { v } end, "the constraint of v returned a number", "usage")
end)
