-- model:quantize: copies with ranges from data, weights of 8 and 4 bits in place, and wrong arguments.

local check = require "check"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test

local function flat(t) return t:reshape { -1 }:totable() end

-- Every element of a and b is nearer than `share` of the largest magnitude of b.
local function close(a, b, share)
  check.equal(a:shape(), b:shape())
  check.near(a:reshape { -1 }, flat(b), share * b:abs():max():item())
end

local function images(n)
  mgpu.seed(5)
  return mgpu.randn { n, 10, 9, 3 }
end

-- Random numbers in every weight, so that norms and biases matter.
local function shaken(model)
  for _, v in ipairs(model.variables) do v:assign(v:value() + mgpu.rand(v:shape()) * 0.3) end
  return model
end

-- 8 bits of weights and of inputs in a few layers: 2 % of the largest result.
local SHARE = 0.02

test("a copy is near the model; norms and relus behind a layer are joined with it", function()
  local x = images(40)
  local model = shaken(mgpu.Sequential { mgpu.Input { 10, 9, 3 },
    L.Conv2D { 8, 3, use_bias = false, name = "a" }, L.BatchNormalization { name = "norm" }, L.ReLU { 6 },
    L.Conv2D { 12, { 3, 2 }, strides = 2, padding = "same", activation = "relu", name = "b" },
    L.DepthwiseConv2D { 3, name = "deep" }, L.Conv2D { 5, 2, dilation_rate = 2, padding = "same", activation = "tanh" },
    L.Flatten {}, L.Dense { 7, name = "c" }, L.BatchNormalization { scale = false }, L.Activation { "relu" },
    L.Dense { 4, activation = "softmax", use_bias = false } })
  local before = flat(model(x))
  local copy, report = model:quantize { calibration = x }
  close(copy(x), model(x), SHARE)
  check.equal(flat(model(x)), before)
  local names = {}
  for i, entry in ipairs(report.layers) do names[i] = entry[1] end
  check.equal(names, { "a", "b", names[3], "c", names[5] })
  check.equal(report.layers[1][2], "with norm")
  check.equal(report.kept, { { "deep", "is no Dense or Conv2D layer" } })
  check.equal(copy:get_layer "a".activation, "relu6")
  check.equal(copy:get_layer "norm".class_name, "Activation")
  check.equal(report.bytes < report.bytes_before / 2, true)
  local path = check.path "copy.safetensors"
  copy:save(path)
  check.equal(flat(mgpu.load_model(path)(x)), flat(copy(x)))
  check.equal(flat(copy:predict(x)), flat(copy(x)))
  for _, ending in ipairs { "keras", "h5" } do
    local path_there = check.path("copy." .. ending)
    check.raises(function() copy:save(path_there) end, "save the model as .safetensors", "unsupported")
  end
end)

test("a functional model with branches, channels first, and a model inside", function()
  local x = images(24)
  local function branch()
    local input = mgpu.Input { 10, 9, 3 }
    local shared = L.Conv2D { 4, 1, name = "shared" }
    local a = shared(input)
    local b = L.BatchNormalization {}(a)
    return mgpu.Model { inputs = input, outputs = L.Add {} { L.ReLU {}(a), b } }
  end
  local inner, input = branch(), mgpu.Input { 10, 9, 3 }
  local y = L.Permute { { 3, 1, 2 } }(inner(input))
  y = L.Conv2D { 6, 3, data_format = "channels_first", activation = "relu" }(y)
  local model = shaken(mgpu.Model { inputs = input, outputs = L.Dense { 3 }(L.Flatten {}(y)) })
  local copy, report = model:quantize { calibration = x, batch_size = 7 }
  close(copy(x), model(x), SHARE)
  check.equal(#report.layers, 3)
  check.equal(report.layers[1], { "shared", "" }) -- two read it, so nothing is joined
end)

test("percentiles cut outliers off; layers can be kept", function()
  local x = mgpu.randn { 200, 8 }
  local wild = mgpu.concat(x, mgpu.full({ 1, 8 }, 1e4), { axis = 1 })
  local model = mgpu.Sequential { mgpu.Input { 8 }, L.Dense { 16, activation = "relu" }, L.Dense { 3, name = "last" } }
  local rough, fine = model:quantize { calibration = wild, batch_size = 201 },
    model:quantize { calibration = wild, batch_size = 201, percentile = 99 }
  local function off(m) return (m(x) - model(x)):abs():mean():item() end
  check.equal(off(fine) < off(rough) / 4, true)
  local _, report = model:quantize { calibration = x, keep = { "last" } }
  check.equal(#report.layers, 1)
  check.equal(report.kept, { { "last", "is among those to keep" } })
end)

test("evaluate compares the accuracy of both", function()
  local x = mgpu.rand { 64, 5 }
  local model = mgpu.Sequential { mgpu.Input { 5 }, L.Dense { 3 } }
  local y = model(x):argmax(-1)
  local _, report = model:quantize { calibration = x, evaluate = { x, y } }
  check.equal(report.accuracy_before, 1)
  check.equal(report.accuracy > 0.9, true)
  local one_hot = mgpu.one_hot(y, 3)
  local _, again = model:quantize { calibration = x, evaluate = { x = x, y = one_hot } }
  check.equal(again.accuracy, report.accuracy)
end)

test("int8 and int4 in place, as in Keras", function()
  local ids = mgpu.tensor({ { 1, 2, 3 }, { 0, 5, 4 } }, { dtype = "int32" })
  for _, mode in ipairs { "int8", { "int4", block_size = 4 }, { "int4", block_size = -1 }, "int4" } do
    local model = mgpu.Sequential { mgpu.Input { 3, dtype = "int32" }, L.Embedding { 6, 9 },
      L.EinsumDense { "abc,cd->abd", { -1, 8 }, activation = "relu", bias_axes = "d" }, L.Flatten {}, L.Dense { 4 } }
    model:compile { optimizer = "sgd", loss = "mse" }
    model:fit(ids, mgpu.zeros { 2, 4 }, { verbose = 0 })
    local y, predicted = model(ids), model:predict(ids)
    model:quantize(mode)
    close(model(ids), y, mode == "int8" and 0.03 or 0.4)
    check.equal(flat(model:predict(ids)), flat(model(ids)))
    check.equal(flat(predicted), flat(y))
    check.equal(model.layers[1].embeddings:dtype(), "uint8")
    check.raises(function() model:fit(ids, mgpu.zeros { 2, 4 }, { verbose = 0 }) end, "which cannot be trained")
    for _, ending in ipairs { "keras", "safetensors" } do
      local path = check.path("in_place." .. ending)
      model:save(path, { include_optimizer = false })
      check.equal(flat(mgpu.load_model(path)(ids)), flat(model(ids)))
    end
  end
end)

test("the summary tells what is quantized", function()
  local model = mgpu.Sequential { mgpu.Input { 8 }, L.Dense { 4, name = "d" }, L.Dense { 2, name = "e" } }
  model:quantize { "int8", keep = { "e" } }
  local text = require "mgpu.nn.summary".text(model)
  check.matches(text, "d (Dense) int8")
  check.matches(text, "Quantized: 1 layer, 104 bytes of weights")
end)

test("wrong arguments and data are refused", function()
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, name = "d" } }
  local x = mgpu.rand { 8, 4 }
  local function refused(given, why, code, who)
    check.raises(function() (who or model):quantize(given) end, why, code or "usage")
  end
  refused("int9", "int9")
  refused({ calibraton = x }, 'did you mean "calibration"')
  refused({ calibration = 5 }, "calibration must be a tensor")
  refused({ calibration = mgpu.zeros { 0, 4 } }, "calibration has no rows")
  refused({ calibration = mgpu.rand { 8, 5 } }, "a batch of shape {8, 5} was given")
  refused({ calibration = mgpu.full({ 8, 4 }, 0 / 0) }, "not finite", "data")
  refused({ calibration = x, percentile = 50 }, "percentile")
  refused({ "int4", calibration = x }, 'calibration is for the mode "int8"')
  refused({ calibration = x, keep = { "no" } }, 'keep names "no"')
  refused({ calibration = x, keep = { "d" } }, "no Dense or Conv2D layer")
  refused({ calibration = x, evaluate = { x } }, "evaluate must be {x, y}")
  refused({ calibration = x, evaluate = { x, mgpu.zeros { 3 } } }, "")
  refused({ evaluate = { x, x } }, "evaluate needs calibration")
  refused({ "int8", block_size = 3 }, "block_size is for")
  refused({ "int4", block_size = 0 }, "block_size must be")
  refused("int8", "no layer that could be quantized", nil, mgpu.Sequential { mgpu.Input { 4 }, L.Flatten {} })
  refused("int8", "has no weights yet", nil, mgpu.Sequential { L.Dense { 3 } })
  local copy = model:quantize { calibration = x }
  refused({ calibration = x }, "no Dense or Conv2D layer", nil, copy)
  check.raises(function() copy(x, { training = true }) end, "has weights of 8 bits, which cannot be trained")
  check.raises(function() mgpu.mixed_precision.get "gptq/4/128_from_float32" end, "GPTQ", "unsupported")
end)

test("numbers that are not finite are refused, in weights and in data", function()
  local function net()
    return mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, name = "a" }, L.BatchNormalization { name = "norm" },
      L.Dense { 2, name = "last" } }
  end
  for _, bad in ipairs { 0 / 0, math.huge, -math.huge } do
    local model, x = net(), mgpu.rand { 8, 4 }
    model:get_layer "last".bias:assign(mgpu.tensor { 0, bad })
    for _, given in ipairs { "int8", "int4", { calibration = x } } do
      check.raises(function() model:quantize(given) end, 'Dense "last" has weights that are not finite', "nonfinite")
    end
    check.equal(model:get_layer "a".dtype_policy.name, "float32") -- nothing was changed
    for _, percentile in ipairs { 100, 90 } do
      local data = mgpu.concat({ x, mgpu.tensor { { 0, 0, bad, 0 } } }, { axis = 1 })
      check.raises(function() net():quantize { calibration = data, percentile = percentile } end,
        'the input of Dense "a" has numbers that are not finite', "data")
    end
  end
  local model = net()
  model:get_layer "norm".moving_variance:assign(mgpu.full({ 3 }, -1))
  check.raises(function() model:quantize { calibration = mgpu.rand { 8, 4 } } end,
    "has numbers that are not finite", "data")
end)

test("the data may be given by the names of the inputs", function()
  local a, b = mgpu.Input { 3, name = "a" }, mgpu.Input { 2, name = "b" }
  local model = mgpu.Model { inputs = { a, b },
    outputs = L.Add {} { L.Dense { 4 } (a), L.Dense { 4 } (b) } }
  local data = { a = mgpu.rand { 9, 3 }, b = mgpu.rand { 9, 2 } * 5 }
  local copy = model:quantize { calibration = data }
  check.equal(flat(copy(data)), flat(model:quantize { calibration = { data.a, data.b } }(data)))
  check.raises(function() model:quantize { calibration = { a = data.a } } end, 'the input "b" is missing', "usage")
end)

test("weights as halves in files, and in memory for prediction", function()
  mgpu.set_policy "float32" -- a policy that was set, not the default
  local x = images(3)
  local model = shaken(mgpu.Sequential { mgpu.Input { 10, 9, 3 }, L.Conv2D { 4, 3 }, L.BatchNormalization {},
    L.Flatten {}, L.Dense { 2 } })
  local bits = { float16 = 2 ^ -10, bfloat16 = 2 ^ -7 } -- twice the rounding of a weight; terms cancel in part
  for _, ending in ipairs { "safetensors", "keras", "h5" } do
    for dtype, share in pairs(bits) do
      local path = check.path("halves." .. ending)
      model:save(path, { dtype = dtype })
      local whole, halves = mgpu.load_model(path), mgpu.load_model(path, { dtype = dtype })
      check.equal({ whole.layers[1].kernel:dtype(), whole.layers[1].trainable }, { "float32", true })
      check.equal({ halves.layers[1].kernel:dtype(), halves.layers[1].trainable }, { dtype, false })
      close(whole(x), model(x), share * 4)
      check.equal(flat(halves(x)), flat(whole(x)))
      check.equal(halves(x):dtype(), "float32")
      halves:save(path)
      check.equal(flat(mgpu.load_model(path)(x)), flat(whole(x)))
    end
  end
  local path = check.path "halves.weights.h5"
  model:save_weights(path, { dtype = "float16" })
  model:load_weights(path)
  local function refused(name, why, code)
    local there = check.path(name)
    check.raises(function() model:save(there, { dtype = "float16" }) end, why, code)
  end
  refused("a.onnx", "dtype is for .safetensors", "usage")
  check.raises(function() model:save(check.path "a.keras", { dtype = "float64" }) end, "dtype", "usage")
  model.layers[1].kernel:assign(model.layers[1].kernel * 1e6)
  refused("a.keras", "beyond 65504", "data")
  for _, ending in ipairs { "safetensors", "keras" } do
    local there = check.path("large." .. ending)
    model:save(there)
    check.raises(function() mgpu.load_model(there, { dtype = "float16" }) end, "beyond 65504", "data")
    check.truthy(mgpu.load_model(there, { dtype = "bfloat16" })(x):isfinite():all():item(), "finite as bfloat16")
  end
end)

test("a quantized model is not written to .onnx files", function()
  local model = mgpu.Sequential { mgpu.Input { 8 }, L.Dense { 4 } }
  model:quantize "int8"
  check.raises(function() model:save(check.path "q.onnx") end, "not written to .onnx files", "unsupported")
end)
