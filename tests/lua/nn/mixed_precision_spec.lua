-- Mixed precision: policies, the dtypes in which layers compute, and training under a policy; layers are
-- compared with Keras (golden set mixed_layers). loss_scale_spec tests loss scaling.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local load_golden = require "golden.load"
local comparing = require "golden.comparing"

local test = check.test
local L = mgpu.layers
local POLICIES = { mixed_bfloat16 = "bfloat16", mixed_float16 = "float16" }

-- Calls fn under the policy, and restores the old policy even after an error.
local function under(policy, fn) return mgpu.mixed_precision.with_policy(mgpu.mixed_precision.get(policy), fn) end

-- ---- policies -----------------------------------------------------------------------------------

test("a policy has a dtype for computing and one for weights", function()
  for name, dtype in pairs(POLICIES) do
    local policy = mgpu.mixed_precision.Policy(name)
    check.equal({ policy.name, policy.compute_dtype, policy.variable_dtype }, { name, dtype, "float32" })
    check.equal(mgpu.mixed_precision.get(policy:get_config()), policy)
  end
  local wide = mgpu.mixed_precision.DTypePolicy "f64"
  check.equal({ wide.name, wide.compute_dtype, wide.variable_dtype }, { "float64", "float64", "float64" })
end)

test("with_policy takes a policy or its name, and refuses an unknown name before it calls the function", function()
  local function dtype() return L.Dense(2)(mgpu.zeros { 1, 3 }):dtype() end
  local with_policy = mgpu.mixed_precision.with_policy
  check.equal(with_policy("mixed_bfloat16", dtype), "bfloat16")
  check.equal(with_policy(mgpu.mixed_precision.Policy "mixed_float16", dtype), "float16")
  check.raises(function() with_policy("mixed16", error) end, 'with_policy: unknown policy "mixed16"', "usage")
  check.equal(mgpu.policy().name, "float32")
end)

test("without a policy layers compute in the current floatx", function()
  check.equal(mgpu.policy().name, "float32")
  mgpu.set_floatx "float64"
  local name, layer = mgpu.policy().name, L.Dense { 2 }
  mgpu.set_floatx "float32"
  check.equal({ name, layer.compute_dtype }, { "float64", "float64" })
end)

test("set_policy applies to layers made afterwards and is known by all of Keras's names", function()
  local precision = mgpu.mixed_precision
  under(nil, function()
    local before = L.Dense { 2 }
    for _, set in ipairs { mgpu.set_policy, mgpu.set_dtype_policy, precision.set_global_policy } do
      mgpu.set_policy "float32"
      set "mixed_bfloat16"
      check.equal({ mgpu.policy().name, mgpu.dtype_policy().name, precision.global_policy().name },
        { "mixed_bfloat16", "mixed_bfloat16", "mixed_bfloat16" })
    end
    local layer = L.Dense { 2 }
    check.equal({ before.dtype_policy.name, layer.dtype_policy.name }, { "float32", "mixed_bfloat16" })
    check.equal({ layer.compute_dtype, layer.variable_dtype, layer.dtype }, { "bfloat16", "float32", "float32" })
    mgpu.set_policy(precision.Policy "mixed_float16")
    check.equal(L.Dense { 2 }.compute_dtype, "float16")
    check.equal(L.Dense { 2, dtype = "float32" }.compute_dtype, "float32")
    check.equal(L.Dense { 2, dtype = precision.Policy "mixed_bfloat16" }.compute_dtype, "bfloat16")
  end)
  check.equal(mgpu.policy().name, "float32")
end)

test("an unknown policy is refused with the nearest name", function()
  check.raises(function() mgpu.set_policy "mixed_bfloat" end,
    'set_policy: unknown policy "mixed_bfloat" (did you mean "mixed_bfloat16"?)', "usage")
  check.raises(function() mgpu.set_policy() end, "set_policy: the policy is missing", "usage")
  check.raises(function() mgpu.set_policy(16) end, "set_policy: a policy is a name", "usage")
  check.raises(function() mgpu.set_policy "int32" end, "int32 is not a floating point dtype", "usage")
  check.raises(function() L.Dense { 2, name = "d", dtype = "flaot32" } end,
    'Dense "d": unknown policy "flaot32" (did you mean "float32"?)', "usage")
  check.raises(function() L.Dense { 2, dtype = 32 } end, 'option "dtype" must be a name', "usage")
  check.equal(mgpu.policy().name, "float32")
end)

-- ---- layers -------------------------------------------------------------------------------------

-- Tolerances, in units in the last place: 2^-7 for bfloat16, 2^-10 for float16. Both frameworks round sums of
-- a few terms to the dtype, but in another order, and one may round once more (a bias added before or after
-- rounding); the next op continues from there: two units. Normalisation computes in float32 on both sides and
-- rounds once at the end: half a unit, where the two float32 numbers round to different neighbours.
local UNIT = { mixed_bfloat16 = 2 ^ -7, mixed_float16 = 2 ^ -10 }
local UNITS = { BatchNormalization = 0.5, LayerNormalization = 0.5 }

local function compare(case, device)
  local args = comparing.arguments(case)
  args.dtype = case.policy
  local layer = L[case.layer](args)
  local function tensor(recipe, shape) return comparing.tensor(recipe, shape):to "float32":to(device) end
  layer:ensure_built { -1, select(2, unpack(case.input_shape)) }
  local weights, wrt, moving = {}, {}, {}
  for k, recipe in ipairs(case.weights) do weights[k] = tensor(recipe, recipe.shape) end
  layer:set_weights(weights)
  for _, v in ipairs(layer.weights) do table.insert(v.trainable and wrt or moving, v) end
  local x, y = mgpu.variable(tensor(case.input, case.input_shape)), nil
  local _, grads = mgpu.value_and_grad(function()
    y = layer(x:value(), { training = case.training })
    return (y:to "float32" * tensor(case.upstream, y:shape())):sum()
  end, { x, unpack(wrt) })()
  local tolerance = UNIT[case.policy] * (UNITS[case.layer] or 2)
  check.equal(y:dtype(), POLICIES[case.policy])
  comparing.near(y, case.output, tolerance)
  comparing.near(grads[1], case.input_gradient, tolerance)
  for k, wanted in ipairs(case.weight_gradients) do
    check.equal(grads[k + 1]:dtype(), "float32")
    comparing.near(grads[k + 1], wanted, tolerance)
  end
  for k, wanted in ipairs(case.after or {}) do comparing.near(moving[k], wanted, 1e-5) end
end

for i, case in ipairs(load_golden("mixed_layers").cases) do
  test(("%s %d under %s gives Keras's output and gradients"):format(case.layer, i, case.policy), function()
    local before = core.default_device()
    for _, device in ipairs { "ref:0", before } do
      core.default_device(device)
      local ok, message = pcall(compare, case, device)
      core.default_device(before)
      if not ok then error(device .. ": " .. message, 0) end
    end
  end)
end

local IMAGE, STEPS, ROW, VOLUME = { 2, 6, 6, 4 }, { 2, 6, 4 }, { 2, 12 }, { 2, 4, 4, 4, 2 }
local COLORS = { 2, 6, 6, 3 }

-- For each class its options, or a function that makes them, and the shape of its input, or an array of shapes for
-- several inputs.
local CASES = {
  ActivityRegularization = { { 0.1 }, ROW }, LocallyConnected1D = { { 3, 2 }, STEPS },
  LocallyConnected2D = { { 3, 2, implementation = 3 }, IMAGE }, ThresholdedReLU = { { 0.1 }, ROW },
  Activation = { { "gelu" }, ROW }, Add = { {}, { ROW, ROW } },
  Average = { {}, { ROW, ROW } }, Operation = { { "Multiply", { x1 = { input = 1 }, x2 = 3 } }, ROW },
  AveragePooling1D = { {}, STEPS }, AveragePooling2D = { {}, IMAGE }, BatchNormalization = { {}, IMAGE },
  CustomScaleLayer = { { 0.1 }, { ROW, ROW } }, LayerScale = { { 0.1, 12 }, ROW },
  CenterCrop = { { 2, 2 }, IMAGE }, Normalization = { { mean = 0.5, variance = 2 }, ROW },
  RandomBrightness = { { 0.2 }, IMAGE }, RandomContrast = { { 0.2 }, IMAGE }, RandomCrop = { { 2, 2 }, IMAGE },
  MelSpectrogram = { { fft_length = 8, sequence_stride = 4, num_mel_bins = 2 }, ROW },
  STFTSpectrogram = { { "psd", frame_length = 4 }, STEPS }, Solarization = { { value_range = { 0, 1 } }, IMAGE },
  RandomGrayscale = { { 0.5 }, COLORS }, RandomColorDegeneration = { { 0.5 }, COLORS },
  RandomSaturation = { { 0.5, { 0, 1 } }, COLORS }, RandomHue = { { 0.5, { 0, 1 } }, COLORS },
  RandomSharpness = { { 0.5 }, IMAGE }, RandomErasing = { { value_range = { 0, 1 } }, IMAGE },
  MixUp = { {}, IMAGE }, CutMix = { {}, IMAGE }, RandomPerspective = { {}, IMAGE },
  RandomElasticTransform = { { value_range = { 0, 1 } }, IMAGE },
  RandomGaussianBlur = { { value_range = { 0, 1 } }, IMAGE },
  RandomShear = { { 0.2, 0.1 }, IMAGE }, RandAugment = { { { 0, 1 } }, COLORS },
  AugMix = { { { 0, 1 } }, COLORS }, ContrastLimitedAdaptiveHistogramEqualization = { { { 0, 1 } }, IMAGE },
  MaxNumBoundingBoxes = { { 2 }, IMAGE }, Pipeline = { function() return { { L.Dense { 3 } } } end, ROW },
  RandomColorJitter = { { { 0, 1 }, brightness_factor = 0.1, contrast_factor = 0.1, hue_factor = 0.1 }, COLORS },
  AutoContrast = { { value_range = { 0, 1 } }, IMAGE }, Equalization = { { { 0, 1 } }, IMAGE },
  RandomInvert = { { value_range = { 0, 1 } }, IMAGE }, RandomPosterization = { { 4, value_range = { 0, 1 } }, IMAGE },
  RandomFlip = { {}, IMAGE }, RandomRotation = { { 0.1 }, IMAGE }, RandomTranslation = { { 0.1, 0.1 }, IMAGE },
  RandomZoom = { { 0.1 }, IMAGE }, Rescaling = { { 0.5 }, ROW }, Resizing = { { 3, 3 }, IMAGE },
  Concatenate = { {}, { ROW, ROW } }, Conv1D = { { 3, 2 }, STEPS }, Conv2D = { { 3, 2 }, IMAGE },
  Conv2DTranspose = { { 3, 2 }, IMAGE }, Cropping2D = { { 1 }, IMAGE }, Dense = { { 3 }, ROW },
  DepthwiseConv2D = { { 2 }, IMAGE }, Dot = { { 2, normalize = true }, { ROW, ROW } },
  Dropout = { { 0.5 }, ROW }, ELU = { {}, ROW }, Embedding = { { 300, 3 }, ROW }, Flatten = { {}, IMAGE },
  GaussianNoise = { { 0.1 }, ROW }, GlobalAveragePooling1D = { {}, STEPS },
  GlobalAveragePooling2D = { {}, IMAGE }, GlobalMaxPooling1D = { {}, STEPS },
  GlobalMaxPooling2D = { {}, IMAGE }, Lambda = { { function(x) return x * 2 end }, ROW },
  Masking = { {}, STEPS }, LayerNormalization = { {}, ROW }, LeakyReLU = { {}, ROW }, MaxPooling1D = { {}, STEPS },
  MaxPooling2D = { {}, IMAGE }, Maximum = { {}, { ROW, ROW } }, Multiply = { {}, { ROW, ROW } },
  PReLU = { {}, ROW }, Permute = { { 2, 1 }, STEPS }, ReLU = { {}, ROW }, Reshape = { { 3, 4 }, ROW },
  SeparableConv2D = { { 3, 2 }, IMAGE }, Softmax = { { axis = { 2, 3 } }, STEPS },
  SpatialDropout2D = { { 0.5 }, IMAGE }, Subtract = { {}, { ROW, ROW } },
  Bidirectional = { { L.LSTM { 2 } }, STEPS }, ConvLSTM1D = { { 2, 2 }, IMAGE },
  ConvLSTM2D = { { 2, 2 }, { 2, 2, 3, 3, 1 } },
  ConvLSTM3D = { { 2, 2 }, { 2, 2, 3, 3, 2, 1 } }, GRU = { { 2 }, STEPS }, LSTM = { { 2 }, STEPS },
  RNN = { function() return { L.GRUCell { 2 } } end, STEPS }, SimpleRNN = { { 2 }, STEPS },
  AdditiveAttention = { {}, { STEPS, STEPS } }, Attention = { { use_scale = true }, { STEPS, STEPS } },
  MultiHeadAttention = { { 2, 3 }, { STEPS, STEPS } }, GroupQueryAttention = { { 3, 4, 2 }, { STEPS, STEPS } },
  EinsumDense = { { "ab,bc->ac", 3, bias_axes = "c" }, ROW }, ReversibleEmbedding = { { 300, 3 }, ROW },
  GroupNormalization = { { 2 }, IMAGE }, RMSNormalization = { {}, ROW }, UnitNormalization = { {}, ROW },
  AlphaDropout = { { 0.2 }, ROW }, GaussianDropout = { { 0.2 }, ROW }, SpatialDropout1D = { { 0.2 }, STEPS },
  SpatialDropout3D = { { 0.2 }, VOLUME }, Identity = { {}, ROW }, RepeatVector = { { 2 }, ROW },
  Minimum = { {}, { ROW, ROW } }, Conv1DTranspose = { { 3, 2 }, STEPS }, DepthwiseConv1D = { { 2 }, STEPS },
  SeparableConv1D = { { 3, 2 }, STEPS }, Conv3D = { { 3, 2 }, VOLUME }, Conv3DTranspose = { { 3, 2 }, VOLUME },
  MaxPooling3D = { {}, VOLUME }, AveragePooling3D = { {}, VOLUME }, GlobalMaxPooling3D = { {}, VOLUME },
  GlobalAveragePooling3D = { {}, VOLUME }, ZeroPadding1D = { {}, STEPS }, ZeroPadding3D = { {}, VOLUME },
  Cropping1D = { {}, STEPS }, Cropping3D = { {}, VOLUME }, UpSampling1D = { {}, STEPS }, UpSampling3D = { {}, VOLUME },
  AdaptiveAveragePooling1D = { { 2 }, STEPS }, AdaptiveAveragePooling2D = { { 2 }, IMAGE },
  AdaptiveAveragePooling3D = { { 2 }, VOLUME }, AdaptiveMaxPooling1D = { { 2 }, STEPS },
  AdaptiveMaxPooling2D = { { 2 }, IMAGE }, AdaptiveMaxPooling3D = { { 2 }, VOLUME },
  TimeDistributed = { function() return { L.Dense { 3 } } end, STEPS },
  SpectralNormalization = { function() return { L.Dense { 3 } } end, ROW },
  UpSampling2D = { { 2, interpolation = "bilinear" }, IMAGE }, ZeroPadding2D = { { 1 }, IMAGE },
}

local function sample(shape) return mgpu.Input { { select(2, unpack(shape)) } } end

-- A model with a layer of the class between layers that have weights.
local function model_around(name, case)
  local options = {}
  for key, value in pairs(type(case[1]) == "function" and case[1]() or case[1]) do options[key] = value end
  local layer = L[name](options)
  if name:find "Embedding" then
    local x = sample(case[2])
    return mgpu.Model { inputs = x, outputs = L.Dense { 1 } (L.Flatten {} (layer(x))) }, layer
  end
  local inputs, list = {}, {}
  for i, shape in ipairs(type(case[2][1]) == "table" and case[2] or { case[2] }) do
    inputs[i] = sample(shape)
    list[i] = L.Dense { shape[#shape] } (inputs[i])
  end
  local y = layer(#list > 1 and list or list[1])
  return mgpu.Model { inputs = inputs, outputs = L.Dense { 1 } (L.Flatten {} (y)) }, layer
end

local function data_for(name, case)
  local x = {}
  for i, shape in ipairs(type(case[2][1]) == "table" and case[2] or { case[2] }) do
    x[i] = name:find "Embedding" and mgpu.randint(0, 300, shape) or mgpu.rand(shape)
  end
  return #x > 1 and x or x[1]
end

local function trains(name, case, policy)
  local model, layer = model_around(name, case)
  check.equal(layer.output:dtype(), POLICIES[policy])
  for _, v in ipairs(model.variables) do check.equal(v:dtype(), "float32") end
  local before = model:get_weights()
  -- an initial scale at which no gradient overflows, so that the first step is not skipped
  local optimizer = mgpu.optimizers.LossScaleOptimizer { mgpu.optimizers.SGD { 0.1 }, initial_scale = 8 }
  model:compile { optimizer = optimizer, loss = "mse" }
  local x = data_for(name, case)
  local y = model:predict(x)
  check.equal(y:dtype(), POLICIES[policy])
  local loss = model:train_on_batch(x, mgpu.ones { 2, 1 }).loss
  check.truthy(loss == loss and loss < math.huge, "the loss is a number")
  local moved = false
  for i, w in ipairs(model:get_weights()) do moved = moved or (w - before[i]):abs():max():item() > 0 end
  check.truthy(moved, "a weight has changed")
  check.equal(layer.dtype_policy.name, policy)
end

-- Layers that gradients do not pass, since they make categories; and graphs of ONNX, whose files say in which dtypes
-- they compute (files/onnx_reading_spec.lua).
local OTHERS = { OnnxGraph = true, CategoryEncoding = true, Discretization = true, Hashing = true,
  HashedCrossing = true, IntegerLookup = true, StringLookup = true, TextVectorization = true }

for policy in pairs(POLICIES) do
  test("every layer trains under " .. policy .. " and computes in its dtype", function()
    mgpu.seed(1)
    for _, name in ipairs(L()) do
      -- cells are in the cases of recurrent layers
      if name ~= "Input" and not OTHERS[name] and not L[name].in_loop then
        check.truthy(CASES[name], "CASES lacks " .. name)
        local ok, message = pcall(under, policy, function() trains(name, CASES[name], policy) end)
        if not ok then error(name .. ": " .. message, 0) end
      end
    end
  end)
end

test("a layer casts floating-point inputs to its dtype and leaves integers alone", function()
  local seen
  local layer = L.Lambda { function(x) seen = x:dtype() return x end, dtype = "mixed_bfloat16" }
  for given, wanted in pairs { float32 = "bfloat16", float64 = "bfloat16", bfloat16 = "bfloat16", int32 = "int32" } do
    layer(mgpu.ones({ 2, 2 }, { dtype = given }))
    check.equal({ given, seen }, { given, wanted })
  end
  check.equal(L.Dense { 2, dtype = "float32" } (mgpu.ones({ 1, 2 }, { dtype = "bfloat16" })):dtype(), "float32")
end)

test("a user-defined layer reads its weights in its compute dtype, inner layers in theirs", function()
  local Own = mgpu.Layer:extend "Own"
  function Own:build(shape)
    self.w = self:add_weight { name = "w", shape = { shape[#shape] } }
    self.exact = self:add_weight { name = "exact", shape = { shape[#shape] }, autocast = false }
    self.inner = L.Dense { 2, dtype = "float32" }
  end
  function Own:call(x)
    self.seen = { x:dtype(), self.w:dtype(), self.w:value():dtype(), self.exact:dtype(), self.inner(x):dtype(),
      (self.w * 2):dtype() }
    return x * self.w
  end
  local layer = Own { dtype = "mixed_float16" }
  check.equal(layer(mgpu.ones { 3, 4 }):dtype(), "float16")
  check.equal(layer.seen, { "float16", "float16", "float16", "float32", "float32", "float16" })
  check.equal(layer.w:dtype(), "float32")
  local Plain = mgpu.Layer:extend "Plain"
  Plain.autocast = false
  function Plain:build() self.w = self:add_weight { name = "w", shape = {} } end
  function Plain:call(x) return x * self.w end
  check.equal(Plain { dtype = "mixed_float16" } (mgpu.ones { 2 }):dtype(), "float32")
end)

test("after an error in a layer variables are read in their own dtype again", function()
  local v = mgpu.variable(mgpu.tensor { 1, 1 })
  local layer = L.Lambda { function() error "no" end, output_shape = { 2 }, dtype = "mixed_bfloat16" }
  check.raises(function() layer(mgpu.ones { 1, 2 }) end, "no")
  check.equal((v * 1):dtype(), "float32")
end)

test("a gradient with respect to a variable can be taken inside a layer that casts", function()
  local layer = L.Lambda { function(x)
    local w = mgpu.variable(mgpu.tensor { 2 })
    local _, grads = mgpu.value_and_grad(function() return (w * w):sum() end, { w })()
    return x * grads[1]
  end, output_shape = { 1 }, dtype = "mixed_bfloat16" }
  check.equal(layer(mgpu.ones { 1, 1 }), { { 4 } })
end)

-- ---- losses and metrics -------------------------------------------------------------------------

test("losses and metrics of 16-bit predictions are float32", function()
  local y, p = mgpu.tensor { { 1, 0 }, { 0, 1 } }, mgpu.tensor { { 0.3, 0.7 }, { 0.2, 0.8 } }
  local half = p:to "float16"
  for _, name in ipairs { "mse", "categorical_crossentropy", "kl_divergence" } do
    local loss = mgpu.losses[name]
    check.equal(loss(y, half):dtype(), "float32")
    check.near(loss(y, half):item(), loss(y, half:to "float32"):item(), 1e-7)
    check.equal(loss.per_sample(y, half):dtype(), "float32")
  end
  local custom
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 2, dtype = "mixed_bfloat16" } }
  model:compile { optimizer = "sgd", metrics = { "mse" }, loss = function(a, b)
    custom = { a:dtype(), b:dtype() }
    return (a - b):square():mean(-1)
  end }
  model:train_on_batch(mgpu.ones { 2, 2 }, y)
  check.equal(custom, { "float32", "float32" })
  local mse = mgpu.metrics.MeanSquaredError {}
  mse:update(y, half)
  check.near(mse:result(), ((y - half:to "float32") ^ 2):mean():item(), 1e-7)
end)

test("the cross-entropy of a 16-bit softmax is computed from its logits in float32", function()
  local x = mgpu.tensor({ { 12, -12, 3 } }, { dtype = "float16" })
  local y = mgpu.tensor({ 1 }, { dtype = "int32" })
  -- log(softmax) is -24 here; the probability 4e-11 would be 0 in float16
  local loss = mgpu.losses.sparse_categorical_crossentropy(y, x:softmax())
  check.near(loss:item(), 24 + math.log(1 + math.exp(-24) + math.exp(-9)), 1e-6)
  local bits = mgpu.losses.binary_crossentropy(mgpu.tensor { { 0 } }, mgpu.tensor({ { 20 } },
    { dtype = "bfloat16" }):sigmoid())
  check.near(bits:item(), 20, 1e-6)
end)

test("regularizers see weights and activity in float32", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 2, kernel_regularizer = "l2",
    activity_regularizer = "l2", dtype = "mixed_bfloat16" } }
  model(mgpu.ones { 2, 2 }, { training = true })
  for _, loss in ipairs(model:losses()) do check.equal(loss:dtype(), "float32") end
  check.near(model:losses()[1]:item(), 0.01 * model.variables[1]:value():square():sum():item(), 1e-7)
end)

test("mean, variance and norm of 16-bit tensors are computed in float32", function()
  local x = (mgpu.ones { 300, 300 } * 3):to "float16" -- the sum 270000 is above float16's largest, 65504
  check.equal({ x:mean():item(), x:var():item(), x:mean():dtype() }, { 3, 0, "float16" })
  check.equal((mgpu.ones { 4, 4 } * 150):to "float16":norm():item(), 600)
end)

-- ---- models -------------------------------------------------------------------------------------

local function small(policy)
  return under(policy, function()
    return mgpu.Sequential { L.Input { 6, 6, 1 }, L.Conv2D { 3, 3, activation = "relu", name = "c" },
      L.BatchNormalization { name = "b" }, L.Flatten {}, L.LayerNormalization { name = "n" },
      L.Dense { 3, name = "d" }, L.Activation { "softmax", dtype = "float32", name = "s" } }
  end)
end

local function batch(rows)
  mgpu.seed(7)
  return mgpu.rand { rows, 6, 6, 1 }, mgpu.randint(0, 3, { rows })
end

test("compile's option precision sets the policy of all layers without one", function()
  local model, x, y = small "float32", batch(4)
  local exact = model:predict(x)
  model:compile { loss = "sparse_categorical_crossentropy", precision = "mixed_bfloat16" }
  check.equal({ model.layers[1].compute_dtype, model.layers[6].compute_dtype }, { "bfloat16", "float32" })
  local half = model:predict(x)
  check.truthy((half - exact):abs():max():item() > 0, "predictions are rounded")
  check.near(half, exact, 0.02) -- a few roundings to bfloat16 of numbers below 1
  model:train_on_batch(x, y)
  model:compile { loss = "sparse_categorical_crossentropy", precision = "float32" }
  check.equal(model.layers[1].compute_dtype, "float32")
  check.raises(function() model:compile { loss = "mse", precision = "float64" } end,
    'precision = "float64" wants float64 weights, but the weights of Conv2D "c" are float32', "usage")
  check.raises(function() model:compile { loss = "mse", precision = "mixed16" } end,
    'compile: precision: unknown policy "mixed16"', "usage")
end)

test("a saved mixed-precision model has float32 weights and is loaded with its policies", function()
  local model, x, y = small "mixed_bfloat16", batch(4)
  local path = check.path "mixed.safetensors"
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
  model:train_on_batch(x, y)
  model:save(path)
  for name, t in pairs(core.store_load(path)) do
    if not name:find "^optimizer" then check.equal({ name, t:dtype() }, { name, "float32" }) end
  end
  local again = mgpu.load_model(path)
  check.equal(again.dtype_policy.name, "mixed_bfloat16")
  for i, layer in ipairs(again.layers) do
    check.equal({ layer.dtype_policy.name, layer.states_policy },
      { model.layers[i].dtype_policy.name, model.layers[i].states_policy })
  end
  check.equal(again:predict(x), model:predict(x))
  check.equal(mgpu.policy().name, "float32")
  check.equal(again:get_config().dtype, "mixed_bfloat16")
  check.equal(again:get_config().layers[1].config.dtype, nil)
  check.equal(again.layers[1]:get_config().dtype, "mixed_bfloat16")
  check.equal(again:get_config().layers[6].config.dtype, "float32")
end)

test("a functional model with a nested model is loaded with its policies", function()
  local path = check.path "functional.safetensors"
  local model = under("mixed_float16", function()
    local inner = mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "i" }, name = "inner" }
    local a = mgpu.Input { 4, name = "a" }
    return mgpu.Model { inputs = a, outputs = L.Dense { 2, name = "o", dtype = "float32" } (inner(a)), name = "m" }
  end)
  check.equal(model.outputs[1]:dtype(), "float32")
  local x = mgpu.rand { 3, 4 }
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again:get_layer "inner":get_layer "i".compute_dtype, "float16")
  check.equal(again:get_layer "o".compute_dtype, "float32")
  check.equal(again:predict(x), model:predict(x))
end)

test("the summary shows the policy and the layers that have another", function()
  local text = require "mgpu.nn.summary".text(small "mixed_bfloat16")
  check.matches(text, "s (Activation) float32")
  check.matches(text, "Policy: mixed_bfloat16 (computes in bfloat16, weights in float32)")
  check.falsy(require "mgpu.nn.summary".text(small "float32"):find "Policy", "a line on the policy")
end)

test("steps on two and four devices equal those on one, to the rounding of bfloat16", function()
  local x, y = batch(24)
  local function trained(devices)
    mgpu.reset_names()
    mgpu.seed(3)
    local model = small "mixed_bfloat16"
    model:compile { optimizer = mgpu.optimizers.SGD { 0.1 }, loss = "sparse_categorical_crossentropy",
      devices = devices }
    local losses = {}
    for i = 1, 4 do losses[i] = model:train_on_batch(x, y).loss end
    return losses, model:get_weights()
  end
  local losses, weights = trained "ref:0"
  for _, n in ipairs { 2, 4 } do
    local names = {}
    for i = 1, n do names[i] = "ref:" .. i - 1 end
    local theirs, own = trained(names)
    -- Each device's gradient is rounded to bfloat16 (a relative error of 2^-9) before the all-reduce adds
    -- them in float32; the learning rate of 0.1 makes a tenth of that.
    check.near(theirs, losses, 2e-3)
    for i, w in ipairs(own) do check.near(w, weights[i]:totable(), 2e-3) end
  end
end)

test("the all-reduce of 16-bit gradients adds in float32", function()
  -- bfloat16 cannot represent the sum 1 + 2^-8, but can represent the two devices' parts of it.
  local w = mgpu.variable(mgpu.zeros { 1, 1 })
  local x = mgpu.tensor { { 1 }, { 2 ^ -8 } }
  local step = core.jit(function(t)
    t = core.ops.shard(t)
    local _, grads = mgpu.value_and_grad(function()
      return mgpu.matmul(t:to "bfloat16", w:value():to "bfloat16"):to "float32":sum()
    end, { w })()
    w:assign(w - grads[1])
  end, { devices = { "ref:0", "ref:1" } })
  step(x)
  check.equal(w:value(), { { -1 - 2 ^ -8 } })
end)

local devices = { core.default_device() }
if not devices[1]:find "^cuda" and devices[1] ~= "ref:0" then devices[2] = "ref:0" end -- with a GPU as without one

for policy in pairs(POLICIES) do
  for _, device in ipairs(devices) do
    test(("lenet5 learns digits under %s on %s"):format(policy, device), function()
      check.slow()
      mgpu.seed(5)
      local train = mgpu.datasets.digits(320)
      local model = under(policy, function() return mgpu.models.lenet5 { classes = 10 } end)
      model:compile { optimizer = mgpu.optimizers.Adam { 2e-3 }, loss = "sparse_categorical_crossentropy",
        metrics = "accuracy", devices = device }
      local x = train.x:reshape { 320, 28, 28, 1 }:to "float32" / 255
      local h = model:fit(x, train.y, { batch_size = 32, epochs = 5, verbose = 0 }).history
      check.truthy(h.accuracy[5] > 0.8, ("accuracy %g after %g"):format(h.accuracy[5], h.accuracy[1]))
      check.truthy(h.loss[5] < 0.5 * h.loss[1], "the loss falls")
    end)
  end
end
