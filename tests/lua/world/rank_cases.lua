--- Trainings whose numbers must not depend on how many processes and devices share them, for ranks_spec.lua.
--
-- A case is {name, fn(given), ...}; fn returns a table of numbers, arrays and tensors by name. given.devices goes to
-- compile. Field `floatx` is the dtype of the case, "float64" if absent: then a sum in another order changes about the
-- 16th digit, and anything else shows. Field `bound` is how far the numbers may differ from those of one device.
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local L, with = mgpu.layers, fixtures.with

local M = {}

-- ---- data ---------------------------------------------------------------------------------------

local function floats(shape)
  local x = mgpu.rand(shape, { dtype = mgpu.ones { 1 }:dtype() })
  mgpu.eval(x)
  return x
end

local function ids(classes, rows)
  local y = mgpu.randint(0, classes, { rows })
  mgpu.eval(y)
  return y
end

-- `rows` points with their sums as targets.
local function sums(rows)
  local x = floats { rows, 5 }
  return x, x:sum { axis = 2, keepdims = true }
end

-- ---- training and what is recorded ----------------------------------------------------------------

local COMPILE = { "optimizer", "loss", "metrics", "weighted_metrics", "loss_weights", "bn", "strategy", "accumulate",
  "steps_per_execution" }
local FIT = { "epochs", "sample_weight", "class_weight", "validation_data", "validation_split", "shuffle", "callbacks",
  "steps_per_epoch", "validation_freq", "validation_steps" }

local function picked(given, names, into)
  for _, name in ipairs(names) do into[name] = given[name] end
  return into
end

local function compile(model, given)
  local options = picked(given, COMPILE, { devices = given.devices })
  options.optimizer = options.optimizer or mgpu.optimizers.Adam { 0.01 }
  options.loss = options.loss or "mse"
  model:compile(options)
  return model
end

-- Weights, and optionally more, as the result of a case.
local function result(model, more)
  more = more or {}
  for i, w in ipairs(model:get_weights()) do more[("weight %d"):format(i)] = w end
  for i, v in ipairs(model.compiled.optimizer:variables()) do more[("state %d"):format(i)] = v:value() end
  return more
end

-- Trains and evaluates on the data, predicts, and returns all of it.
local function train(model, given, x, y)
  compile(model, given)
  local rows = given.batch_size or 10
  local history = model:fit(x, y, picked(given, FIT, { epochs = given.epochs or 2, batch_size = rows, verbose = 0 }))
  local more = result(model, { history = history.history })
  more.evaluated = model:evaluate(x, y, { batch_size = rows, verbose = 0 })
  more.predicted = model:predict(x, { batch_size = rows })
  return more
end

local function stack(...)
  local list = { L.Input { 5 }, ... }
  list[#list + 1] = L.Dense { 1 }
  return mgpu.Sequential(list)
end

local function dense(...) return stack(L.Dense { 7, activation = "tanh" }, ...) end

local function add(name, fn, more)
  local case = more or {}
  case.name, case.fn = name, fn
  M[#M + 1] = case
end

-- A case of `dense` on sums(23), with these options of compile and fit.
local function add_options(name, options, more)
  add(name, function(given)
    local x, y = sums(options.rows or 23)
    return train(dense(), with(given, type(options) == "function" and options() or options), x, y)
  end, more)
end

-- ---- models -------------------------------------------------------------------------------------

add_options("dense layers", {})
add_options("rows in order", { shuffle = false })
add_options("batches of one row", { rows = 5, batch_size = 1 })
add_options("batches of two rows and a last one of one", { rows = 5, batch_size = 2 })
add_options("more rows in a batch than there are", { rows = 3, batch_size = 64 })

-- Gradients of 3 MB, which travel in pieces. Of the weights, some and their sums are recorded.
local function wide(given)
  local x, y = sums(9)
  local model = compile(stack(L.Dense { 60001, activation = "tanh" }, L.Dense { 3 }), given)
  local found = { history = model:fit(x, y, { epochs = 2, batch_size = 6, verbose = 0 }).history }
  for i, w in ipairs(model:get_weights()) do
    local flat, some = w:reshape { -1 }, {}
    local all = flat:totable()
    for at = 1, #all, 1009 do some[#some + 1] = all[at] end
    found["weight " .. i] = { flat:sum():item(), flat:abs():max():item(), some }
  end
  return found
end
add("weights of megabytes", wide)

local function convolutional(given)
  local x, y = floats { 14, 8, 8, 1 }, ids(3, 14)
  return train(mgpu.Sequential { L.Input { 8, 8, 1 }, L.Conv2D { 4, 3, activation = "relu" }, L.MaxPooling2D { 2 },
    L.Conv2D { 4, 2, padding = "same", activation = "relu" }, L.AveragePooling2D { 2, strides = 1 },
    L.GlobalMaxPooling2D {}, L.Dense { 3, activation = "softmax" } },
    with(given, { loss = "sparse_categorical_crossentropy", metrics = { "accuracy" }, batch_size = 5 }), x, y)
end
add("convolutions and pooling", convolutional)

add("dropout and noise", function(given)
  local x, y = sums(23)
  return train(stack(L.GaussianNoise { 0.2 }, L.Dense { 7, activation = "tanh" }, L.Dropout { 0.4 }, L.Dense { 6 },
    L.Dropout { 0.2, noise_shape = { 1, 6 } }), given, x, y)
end)

add("batch normalization", function(given)
  local x, y = sums(23)
  return train(stack(L.Dense { 7, use_bias = false }, L.BatchNormalization { momentum = 0.8 }), given, x, y)
end)

-- Other numbers than one device's, by design.
add("batch normalization of each device alone", function(given)
  local x, y = sums(23)
  return train(stack(L.Dense { 7, use_bias = false }, L.BatchNormalization { momentum = 0.8 }),
    with(given, { bn = "local" }), x, y)
end, { bound = math.huge })

add("layer normalization, scales and images drawn at random", function(given)
  local x, y = floats { 13, 6, 6, 2 }, floats { 13, 1 }
  return train(mgpu.Sequential { L.Input { 6, 6, 2 }, L.RandomFlip {}, L.RandomRotation { 0.1 },
    L.RandomContrast { 0.2 }, L.DepthwiseConv2D { 3 }, L.PReLU {}, L.SpatialDropout2D { 0.2 },
    L.LayerNormalization {}, L.Flatten {}, L.LayerScale { 0.5, 32 }, L.Dense { 1 } }, given, x, y)
end)

add("regularizers and constraints", function(given)
  local x, y = sums(23)
  return train(stack(L.Dense { 7, kernel_regularizer = "l2", activity_regularizer = "l1",
    kernel_constraint = "max_norm" }, L.ActivityRegularization { 0.01, 0.02 }), given, x, y)
end)

add("a masked mean of words", function(given)
  local x, y = mgpu.randint(0, 4, { 23, 6 }), floats { 23, 1 }
  mgpu.eval(x)
  return train(mgpu.Sequential { L.Input { 6, dtype = "int32" }, L.Embedding { 4, 3, mask_zero = true },
    L.GlobalAveragePooling1D {}, L.Dense { 1 } }, given, x, y)
end)

add("masked time steps", function(given)
  local x = mgpu.randint(0, 3, { 23, 6, 2 }):to(mgpu.ones { 1 }:dtype())
  mgpu.eval(x)
  return train(mgpu.Sequential { L.Input { 6, 2 }, L.Masking { 0 }, L.Dense { 4, activation = "tanh" },
    L.Dense { 1 } }, given, x, floats { 23, 6, 1 })
end)

local function two_ends(given, more)
  local a, b = mgpu.Input { 5, name = "a" }, mgpu.Input { 5, name = "b" }
  local shared = L.Dense { 6, activation = "tanh", kernel_regularizer = "l2" }
  local sum = L.Add {} { shared(a), shared(b) }
  local model = mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 1, name = "price" } (sum),
    L.Dense { 3, activation = "softmax", name = "kind" } (sum) } }
  local x, y = floats { 23, 5 }, floats { 23, 5 }
  return train(model, with(with(given, { loss = { "mse", "sparse_categorical_crossentropy" } }), more), { x, y },
    { x:sum { axis = 2, keepdims = true }, ids(3, 23) })
end
add("two inputs and two outputs", function(given)
  return two_ends(given, { loss_weights = { 0.3, 2 }, metrics = { price = { "mae" }, kind = { "accuracy" } } })
end)
add("sample weights for each output", function(given)
  return two_ends(given, { sample_weight = { floats { 23 }, floats { 23 } } })
end)

-- Layers on two devices, once for each device that other cases use.
add("device groups", function(given)
  local groups = {}
  for i = 0, tonumber(given.devices:match "%-(%d+)$" or 0) do
    groups[i + 1] = { "cpu:" .. 2 * i, "cpu:" .. 2 * i + 1 }
  end
  local x, y = sums(23)
  return train(stack(L.Dense { 7, activation = "tanh", device = 1, kernel_regularizer = "l2" },
    L.Dense { 4, device = 2, activity_regularizer = "l2" }, L.Dropout { 0.3, device = 1 }),
    with(given, { devices = groups }), x, y)
end)

-- ---- options ------------------------------------------------------------------------------------

add("sample weights", function(given)
  local x, y = sums(23)
  return train(dense(), with(given, { sample_weight = floats { 23 }, weighted_metrics = { "mae" },
    metrics = { "mse" } }), x, y)
end)

add("class weights", function(given)
  local x, y = floats { 23, 5 }, ids(3, 23)
  return train(mgpu.Sequential { L.Input { 5 }, L.Dense { 3, activation = "softmax" } },
    with(given, { loss = "sparse_categorical_crossentropy", class_weight = { [0] = 1, [1] = 5, [2] = 0.25 } }), x, y)
end)

add_options("accumulated gradients", { accumulate = 3, batch_size = 4 })
add_options("several steps per execution", { steps_per_execution = 3, batch_size = 4 })
add_options("steps that do not divide a pass", { steps_per_epoch = 4, epochs = 3, batch_size = 4 })
add_options("validation split", { validation_split = 0.3, metrics = { "mae" } })
add("validation data", function(given)
  local x, y = sums(23)
  local vx, vy = sums(11)
  return train(dense(), with(given, { validation_data = { vx, vy, floats { 11 } }, validation_freq = 2, epochs = 4,
    weighted_metrics = { "mae" } }), x, y)
end)

for _, name in ipairs(fixtures.optimizer_classes()) do
  add("optimizer " .. name, function(given)
    local x, y = sums(13)
    return train(dense(), with(given, { optimizer = mgpu.optimizers[name] { learning_rate = 0.01, global_clipnorm = 0.1,
      use_ema = true, momentum = (name == "SGD" or name == "RMSprop") and 0.9 or nil } }), x, y)
  end)
end
add("a schedule of the learning rate", function(given)
  local x, y = sums(13)
  return train(dense(), with(given, { optimizer = mgpu.optimizers.SGD { learning_rate =
    mgpu.schedules.ExponentialDecay { 0.1, 3, 0.5 }, momentum = 0.9, nesterov = true, clipvalue = 0.05 } }),
    x, y)
end)

-- ---- precision ------------------------------------------------------------------------------------

-- float32: the first steps of Adam divide gradients by themselves, so that the rounding of small ones shows.
add("convolutions and pooling in float32", convolutional, { floatx = "float32", bound = 2e-4 })

local function in_halves(given)
  local x, y = sums(23)
  return train(mgpu.Sequential { L.Input { 5 }, L.Dense { 7, activation = "tanh" }, L.Dense { 1, dtype = "float32" } },
    with({ optimizer = mgpu.optimizers.SGD { 0.01 } }, given), x, y)
end
-- Some sums of products rounded to 8 or 11 bits, which round to other neighbours in another order.
add("mixed_bfloat16", in_halves, { floatx = "float32", policy = "mixed_bfloat16", bound = 2 ^ -7 })
-- Gradients overflow with the second scale: sums over fewer rows do so later.
for _, each in ipairs { { 1024, 2 ^ -10 }, { 2 ^ 40, math.huge } } do
  local scale, bound = unpack(each)
  add(("mixed_float16 with loss scale %g"):format(scale), function(given)
    local inner = mgpu.optimizers.SGD { 0.01 }
    return in_halves(with(given, { epochs = 12,
      optimizer = mgpu.optimizers.LossScaleOptimizer { inner, initial_scale = scale, dynamic_growth_steps = 10 } }))
  end, { floatx = "float32", policy = "mixed_float16", bound = bound })
end

-- ---- metrics --------------------------------------------------------------------------------------

add("metrics of one probability", function(given)
  local x, y = floats { 1000, 4 }, ids(2, 1000)
  local K = mgpu.metrics
  return train(mgpu.Sequential { L.Input { 4 }, L.Dense { 1, activation = "sigmoid" } },
    with(given, { loss = "binary_crossentropy", epochs = 1, batch_size = 300, sample_weight = floats { 1000 },
      metrics = { "acc", K.AUC {}, K.AUC { curve = "PR", name = "pr" }, K.Precision {}, K.Recall {}, "mae", "mse" },
      weighted_metrics = { K.BinaryAccuracy { name = "weighted" }, K.AUC { name = "weighted_auc" } } }), x, y)
end)

add("metrics of classes", function(given)
  local x, y = floats { 50, 4 }, ids(7, 50)
  local K = mgpu.metrics
  return train(mgpu.Sequential { L.Input { 4 }, L.Dense { 7, activation = "softmax" } },
    with(given, { loss = "sparse_categorical_crossentropy", batch_size = 16,
      metrics = { "acc", K.SparseTopKCategoricalAccuracy { k = 3 }, "sparse_categorical_accuracy",
        function(_, p) return p:max { axis = -1 } end } }), x, y)
end)

add("metrics of one-hot classes and of regressions", function(given)
  local x, y = floats { 50, 4 }, mgpu.one_hot(ids(7, 50), 7):to(mgpu.ones { 1 }:dtype())
  local K = mgpu.metrics
  return train(mgpu.Sequential { L.Input { 4 }, L.Dense { 7, activation = "softmax" } },
    with(given, { loss = "categorical_crossentropy", batch_size = 16,
      metrics = { "acc", K.TopKCategoricalAccuracy { k = 2 }, "categorical_accuracy", K.LogCoshError {}, K.Poisson {},
        K.MeanAbsoluteError {}, K.MeanSquaredError {}, K.CategoricalAccuracy { name = "again" } } }), x, y)
end)

add("acc counts each row once", function(given)
  local x = mgpu.ones { 1000, 2 }
  local y = mgpu.arange(0, 1000):reshape { 1000, 1 } -- the model predicts 1 everywhere
  local model = mgpu.Sequential { L.Input { 2 },
    L.Dense { 1, kernel_initializer = "zeros", bias_initializer = "ones" } }
  compile(model, with(given, { metrics = { "acc", mgpu.metrics.BinaryAccuracy { threshold = 0.5, name = "binary" } } }))
  local found = model:evaluate(x, (y:lt(637)):to(mgpu.ones { 1 }:dtype()), { batch_size = 128, verbose = 0 })
  return { evaluated = found }
end)

-- ---- one batch at a time ------------------------------------------------------------------------------

add("train_on_batch, test_on_batch and predict_on_batch", function(given)
  local x, y = sums(7)
  local model = compile(dense(L.Dropout { 0.3 }), with(given, { metrics = { "mae" } }))
  local losses = {}
  for i = 1, 3 do losses[i] = model:train_on_batch(x, y, { sample_weight = floats { 7 } }).loss end
  local one = model:train_on_batch(x:slice { { 1, 1 }, {} }, y:slice { { 1, 1 }, {} })
  return result(model, { losses = losses, one = one, tested = model:test_on_batch(x, y),
    predicted = model:predict_on_batch(x) })
end)

-- A user's own step, by plain gradient descent.
add("a step of mgpu.jit", function(given)
  local x, y = sums(23)
  local w, losses = mgpu.variable(mgpu.zeros({ 5, 1 }, { dtype = "float64" })), {}
  local step = mgpu.jit(function(a, b)
    local loss, gradients = mgpu.value_and_grad(function()
      return ((a:shard():matmul(w:value()) - b:shard()) ^ 2):mean()
    end, { w })()
    w:assign(w:value() - gradients[1] * 0.1)
    return loss
  end, { devices = given.devices or "cpu:0" })
  for i = 1, 4 do losses[i] = step(x, y):item() end
  return { losses = losses, weights = w:value() }
end)

-- ---- datasets ---------------------------------------------------------------------------------------

local function add_dataset(name, make)
  add(name, function(given)
    local x, y = sums(23)
    local ds = make(x, y)
    local model = compile(dense(), with(given, { metrics = { "mae" } }))
    local history = model:fit(ds, { epochs = 2, verbose = 0, validation_data = ds,
      steps_per_epoch = name:find "endless" and 3 or nil, validation_steps = name:find "endless" and 2 or nil })
    return result(model, { history = history.history, predicted = model:predict(ds, { steps = 2 }),
      evaluated = model:evaluate(ds, { verbose = 0, steps = 2 }) })
  end)
end

add_dataset("a dataset in batches", function(x, y) return mgpu.data.from_tensors { x, y }:batch(6) end)
add_dataset("a shuffled dataset with prefetch", function(x, y)
  return mgpu.data.from_tensors { x, y }:shuffle(10, 3):batch(5):prefetch(2)
end)
add_dataset("a shuffled dataset without a seed, from a cache", function(x, y)
  return mgpu.data.from_tensors { x, y }:cache():shuffle(10):batch(5):prefetch(2)
end)
add_dataset("a dataset whose map draws random numbers", function(x, y)
  return mgpu.data.from_tensors { x, y }:map(function(a, b) return a + mgpu.rand({ 5 }, { dtype = "float64" }), b end)
    :batch(6)
end)
add("an augmented dataset", function(given)
  local x, y = mgpu.randint(0, 256, { 13, 8, 8, 3 }):to "uint8", floats { 13, 1 }
  local ds = mgpu.data.from_tensors { x, y }:shuffle(13):augment { horizontal_flip = true, rotation = 20 }:batch(5)
  local model = compile(mgpu.Sequential { L.Input { 8, 8, 3 }, L.Rescaling { 1 / 255 }, L.Flatten {}, L.Dense { 1 } },
    given)
  return result(model, { history = model:fit(ds, { epochs = 2, verbose = 0 }).history })
end)
add_dataset("a mapped dataset", function(x, y)
  return mgpu.data.from_tensors { x, y }:map(function(a, b) return a * 2, b end):batch(6)
end)
add_dataset("an endless dataset", function(x, y) return mgpu.data.from_tensors { x, y }:cycle():batch(7) end)
add_dataset("a generator", function(x, y)
  return mgpu.data.generator(function()
    local i = 0
    return function()
      i = i + 1
      if i <= 23 then return x:slice { { i, i }, {} }:reshape { 5 }, y:slice { { i, i }, {} }:reshape { 1 } end
    end
  end):batch(8)
end)

-- ---- several models, saving and the like ------------------------------------------------------------

add("a second fit, new data sizes, and weights set in between", function(given)
  local x, y = sums(23)
  local model = compile(dense(), given)
  model:fit(x, y, { batch_size = 10, verbose = 0 })
  local w = model:get_weights()
  w[1] = w[1] * 0.5
  model:set_weights(w)
  local h = model:fit(x:slice { { 1, 9 }, {} }, y:slice { { 1, 9 }, {} }, { batch_size = 4, verbose = 0 })
  return result(model, { history = h.history })
end)

add("compile_inference before and after steps of training", function(given)
  local x, y = sums(12)
  local model = dense(L.BatchNormalization {})
  local alone, found = mgpu.compile_inference(model), {}
  found.untrained = alone(x)
  compile(model, given)
  local f, full = mgpu.compile_inference(model), mgpu.compile_inference(model, { batch = 12 })
  for round = 1, 2 do
    model:fit(x, y, { batch_size = 6, verbose = 0 })
    for k, fn in ipairs { alone, f, full } do
      found[("function %d, round %d"):format(k, round)] = fn(x)
    end
  end
  found.near = { ((f(x) - model:predict(x)):abs():max():item() < 1e-12) and 1 or 0 }
  return found
end)

add("two models in turn", function(given)
  local x, y = sums(12)
  local a, b = compile(dense(), given), compile(dense(L.Dropout { 0.5 }), given)
  for _ = 1, 2 do
    a:train_on_batch(x, y)
    b:fit(x, y, { batch_size = 5, verbose = 0 })
  end
  return result(a, { b = b:get_weights() })
end)

-- ---- weights ------------------------------------------------------------------------------------

add("weights and rates that only rank 0 has set", function(given)
  local model, x, y = mgpu.Sequential { L.Input { 5 }, L.Dense { 4 }, L.Dense { 1 } }, sums(23)
  if mgpu.world().rank == 0 then model.variables[1]:assign(mgpu.full({ 5, 4 }, 0.5, { dtype = "float64" })) end
  train(model, given, x, y)
  if mgpu.world().rank == 0 then model.optimizer.learning_rate = 0.05 end
  model:fit(x, y, { batch_size = 10, verbose = 0 })
  return result(model)
end)

add("recurrent layers with masks and dropout, and a loop with checkpoint", function(given)
  local Smooth = mgpu.Layer:extend("Smooth", {})
  function Smooth:build(shape)
    self.rate = self:add_weight { name = "rate", shape = { shape[3] }, initializer = "ones" }
  end
  function Smooth:call(x)
    local rate = self.rate:sigmoid()
    return (mgpu.scan(function(h, xt) return h * rate + xt * (1 - rate) end, x:slice { {}, 1 } * 0,
      x:permute { 2, 1, 3 }, { checkpoint = true }))
  end
  function Smooth.output_shape(_, shape) return { shape[1], shape[3] } end
  local x = floats { 14, 9, 3 }
  x = x * (x:sum { axis = 3, keepdims = true }):gt(1.2):cast(x:dtype())
  local model = compile(mgpu.Sequential { L.Input { 9, 3 }, L.Masking {},
    L.Bidirectional { L.LSTM { 4, return_sequences = true, dropout = 0.2, recurrent_dropout = 0.2 } },
    L.GRU { 3, return_sequences = true }, Smooth {}, L.Dense { 1 } }, given)
  mgpu.seed(4)
  model:fit(x, floats { 14, 1 }, { batch_size = 5, epochs = 2, verbose = 0 })
  return result(model)
end)

add("states of a stateful layer that only rank 0 has set", function(given)
  local x, y = floats { 12, 3, 2 }, floats { 12, 1 }
  local model = compile(mgpu.Sequential { L.Input { 3, 2, batch_size = 6 }, L.LSTM { 3, stateful = true },
    L.Dense { 1 } }, given)
  if mgpu.world().rank == 0 then model(floats { 6, 3, 2 }) end
  mgpu.seed(4)
  model:fit(x, y, { batch_size = 6, epochs = 2, verbose = 0, shuffle = false })
  return result(model, { states = { model:kept_states()[1]:value(), model:kept_states()[2]:value() } })
end)

return M
