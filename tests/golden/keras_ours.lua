-- Writes model files for `keras_files.py check FOLDER`, which loads them in Keras:
--
--     build/mgpulua tests/golden/keras_ours.lua FOLDER
--
-- If Keras accepts FOLDER/reference_nested.*, copy them to keras/reference.*: keras_files_spec.lua compares with them.
-- For each file expected.safetensors holds inputs NAME/x/1, ..., predictions NAME/y/1, ... and, where the model is
-- compiled, NAME/target/1 and the weights NAME/after/1, ... after one more step.

local mgpu = require "mgpu"
local core = require "mgpu.core"

local L = mgpu.layers
local folder = arg[1] or error "which folder?"
core.make_folder(folder)
mgpu.seed(5)

local numbers = {}

local function put(name, what, list)
  for i, t in ipairs(list) do numbers[("%s/%s/%d"):format(name, what, i)] = t end
end

-- Random weights: batch normalization would else do nothing.
local function randomize(model)
  for _, v in ipairs(model.variables) do
    local noise = mgpu.rand(v:shape())
    v:assign(v.name:find "variance" and noise + 0.2 or noise - 0.5)
  end
end

local function inputs_of(model)
  local list = {}
  local symbols = model.inputs
  for i, s in ipairs(symbols) do
    local shape = s:shape()
    shape[1] = 3
    local x = s:dtype():find "int" and mgpu.randint(0, 7, shape) or mgpu.randn(shape)
    core.eval(x)
    list[i] = x
  end
  return list
end

local function save(model, name, endings)
  randomize(model)
  local x = inputs_of(model)
  local y = model:predict(#x == 1 and x[1] or x, { verbose = 0 })
  put(name, "x", x)
  put(name, "y", type(y) == "table" and y or { y })
  for _, ending in ipairs(endings or { ".h5", ".keras", ".weights.h5" }) do
    local method = ending == ".weights.h5" and "save_weights" or "save"
    model[method](model, folder .. "/" .. name .. ending)
  end
end

-- ---- models -------------------------------------------------------------------------------------

for _, name in ipairs { "lenet5", "mlp", "mnist_cnn" } do
  save(mgpu.models[name] { input_shape = { 12, 12, 1 } }, name)
end

local function two_inputs()
  local a, b = mgpu.Input { 4, name = "a" }, mgpu.Input { 4, name = "b" }
  local shared = L.Dense { 4, activation = "tanh", name = "shared", kernel_regularizer = "l2" }
  local u, v = shared(a), shared(b)
  local both = L.Concatenate { axis = 2 } { u, L.Dense { 3, use_bias = false } (v) }
  local total = L.Add {} { L.Dense { 2 } (both), L.Dense { 2 } (L.Dropout { 0.3 } (b)) }
  return mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 1 } (total), L.Multiply {} { u, v } }, name = "two" }
end
save(two_inputs(), "two_inputs")

local function nested()
  local x, i = mgpu.Input { 4 }, mgpu.Input { 6 }
  local inner = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 }, L.BatchNormalization {}, name = "inner" }
  inner.layers[1].trainable = false
  local deep = mgpu.Model { inputs = i, outputs = L.Dense { 2, activation = "softplus" } (i), name = "deep" }
  local both = deep(L.Concatenate {} { inner(x), inner(L.Dense { 4 } (x)) })
  return mgpu.Model { inputs = x, outputs = { both, deep(L.Concatenate {} { x, both }) }, name = "nested" }
end
save(nested(), "model_nested")

local function every_layer()
  local I, R = mgpu.initializers, mgpu.regularizers
  local image, steps = mgpu.Input { 6, 6, 4, name = "image" }, mgpu.Input { 8, 4, name = "steps" }
  local row, ids = mgpu.Input { 5, name = "row" }, mgpu.Input { 4, name = "ids", dtype = "int32" }
  return mgpu.Model { name = "every_layer", inputs = { image, steps, row, ids }, outputs = {
    L.Dense { 3, activation = "selu", use_bias = false, kernel_initializer = I.he_normal { seed = 4 },
      kernel_constraint = mgpu.constraints.MinMaxNorm { 0.1, 1.5, axis = 1 },
      activity_regularizer = "l1" } (row),
    L.Activation "swish" (row), L.Flatten {} (steps), L.Reshape { -1, 8 } (steps), L.Permute { 2, 1 } (steps),
    L.Dropout { 0.4, noise_shape = { -1, 1, 4 }, seed = 3 } (steps), L.SpatialDropout2D { 0.3 } (image),
    L.GaussianNoise { 0.2, seed = 1 } (row),
    L.Conv1D { 4, 3, strides = 2, padding = "same", groups = 2, activation = "elu",
      bias_initializer = I.constant { 0.1 } } (steps),
    L.Conv2D { 4, { 3, 2 }, strides = { 2, 1 }, padding = "same", groups = 2, activation = "gelu",
      kernel_regularizer = R.L1L2 { l1 = 0.01, l2 = 0.02 } } (image),
    L.Conv2D { 3, 2, dilation_rate = { 2, 1 }, use_bias = false,
      kernel_initializer = I.variance_scaling { scale = 2, mode = "fan_out", distribution = "uniform" } } (image),
    L.Conv2DTranspose { 2, 3, strides = 2, padding = "same", output_padding = 1 } (image),
    L.DepthwiseConv2D { { 2, 3 }, strides = 2, padding = "same", depth_multiplier = 2, activation = "tanh" } (image),
    L.SeparableConv2D { 3, 3, depth_multiplier = 2, padding = "same", use_bias = false } (image),
    L.MaxPooling1D { 3, strides = 2, padding = "same" } (steps), L.AveragePooling1D { 2 } (steps),
    L.MaxPooling2D { { 3, 2 }, strides = 1 } (image), L.AveragePooling2D { 2, padding = "same" } (image),
    L.GlobalMaxPooling1D {} (steps), L.GlobalAveragePooling1D { keepdims = true } (steps),
    L.GlobalMaxPooling2D { keepdims = true } (image),
    L.GlobalAveragePooling2D { data_format = "channels_first" } (image),
    L.ZeroPadding2D { { { 1, 2 }, { 0, 3 } } } (image), L.Cropping2D { { { 1, 0 }, { 2, 1 } } } (image),
    L.UpSampling2D { { 2, 3 }, interpolation = "bilinear" } (image),
    L.BatchNormalization { axis = 2, momentum = 0.9, epsilon = 0.01, scale = false } (image),
    L.BatchNormalization { center = false, trainable = false } (row),
    L.LayerNormalization { axis = { 2, 3 }, epsilon = 0.1 } (image), L.LayerNormalization { center = false } (row),
    L.Embedding { 7, 3, embeddings_initializer = "random_normal" } (ids),
    L.Subtract {} { row, L.ReLU { max_value = 1, negative_slope = 0.2, threshold = 0.1 } (row) },
    L.Multiply {} { row, L.LeakyReLU { 0.15 } (row) }, L.Average {} { row, L.ELU { 0.7 } (row) },
    L.Maximum {} { steps, L.PReLU { shared_axes = 2 } (steps) }, L.Concatenate { axis = 2 } { steps, steps },
    L.Dot { { 3, 3 }, normalize = true } { steps, steps }, L.Softmax { axis = 2 } (steps),
    L.Add {} { row, row },
  } }
end
save(every_layer(), "every_layer")

local reference = dofile "tests/golden/keras_reference.lua" ()
local batch = inputs_of(reference)
put("reference_nested", "x", batch)
put("reference_nested", "y", reference:predict(batch, { verbose = 0 }))
for _, ending in ipairs { ".h5", ".keras" } do reference:save(folder .. "/reference_nested" .. ending) end
reference:save_weights(folder .. "/reference_nested.weights.h5")

-- ---- compiled models ----------------------------------------------------------------------------

local O = mgpu.optimizers
local rate = mgpu.schedules.ExponentialDecay { initial_learning_rate = 0.05, decay_steps = 2, decay_rate = 0.5 }
local optimizers = {
  sgd = O.SGD { 0.1 }, momentum = O.SGD { 0.1, momentum = 0.9, nesterov = true },
  adam = O.Adam { 0.01, amsgrad = true, clipnorm = 1 }, adamw = O.AdamW { learning_rate = rate, weight_decay = 0.01 },
  rmsprop = O.RMSprop { 0.01, momentum = 0.5, centered = true }, adagrad = O.Adagrad { 0.1 },
  adadelta = O.Adadelta { 1 }, adamax = O.Adamax { 0.01 }, nadam = O.Nadam { 0.01 },
}
for name, optimizer in pairs(optimizers) do
  local model = mgpu.Sequential { name = name, L.Input { 3 }, L.Dense { 3, activation = "relu", name = "one" },
    L.Dense { 2, activation = "softmax", name = "two" } }
  model:compile { optimizer = optimizer, loss = mgpu.losses.CategoricalCrossentropy { label_smoothing = 0.1 },
    metrics = { "accuracy", mgpu.metrics.TopK { k = 1, name = "first" } } }
  local x, target = mgpu.rand { 4, 3 }, mgpu.tensor { { 1, 0 }, { 0, 1 }, { 0, 1 }, { 1, 0 } }
  core.eval(x)
  for _ = 1, 3 do model:train_on_batch(x, target) end
  for _, ending in ipairs { ".h5", ".keras" } do model:save(folder .. "/" .. name .. ending) end
  put(name, "x", { x })
  put(name, "y", { model:predict(x, { verbose = 0 }) })
  put(name, "target", { target })
  model:train_on_batch(x, target)
  put(name, "after", model:get_weights())
end

core.store_save(folder .. "/expected.safetensors", numbers)
