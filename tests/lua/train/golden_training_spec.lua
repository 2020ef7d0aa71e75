-- Training compared with Keras: gradients and loss curves of networks, losses and accuracies.
-- golden_optimizers_spec has the optimizers, schedules_spec the schedules.

local check = require "check"
local mgpu = require "mgpu"
local in_float64 = require "fixtures".in_float64
local comparing = require "golden.comparing"
local load_golden = require "golden.load"
local hash = require "golden.hash"

local test = check.test
local L = mgpu.layers

-- ---- networks -----------------------------------------------------------------------------------

local function tensor(recipe, shape, dtype)
  return comparing.array(shape, dtype, recipe.salt, recipe.scale, recipe.offset)
end

local count = check.count

local function set_weights(model, golden)
  local weights = {}
  for k, recipe in ipairs(golden.weights) do
    weights[k] = recipe.salt and tensor(recipe, recipe.shape, golden.dtype)
      or mgpu.full(recipe.shape, recipe.default, { dtype = golden.dtype })
  end
  model:set_weights(weights)
end

-- The images and one-hot labels of step s (from 0).
local function batch(golden, s)
  local shape = { golden.batch, unpack(golden.input_shape) }
  local recipe = { salt = golden.images.salt + s, scale = golden.images.scale,
    offset = golden.images.offset }
  local ids = hash.labels(golden.batch, golden.labels.salt + s, golden.classes)
  return tensor(recipe, shape, golden.dtype),
    mgpu.to_categorical(mgpu.tensor(ids, { dtype = "int32" }), golden.classes)
end

local function seed_network(golden, filters, dense)
  local model = mgpu.Sequential {
    L.Input(golden.input_shape),
    L.Conv2D { filters[1], 3, activation = "relu" },
    L.Conv2D { filters[2], 3, activation = "relu" }, L.BatchNormalization {},
    L.Conv2D { filters[3], 3, activation = "relu" }, L.MaxPooling2D { 2 }, L.Dropout { 0 },
    L.Flatten {}, L.Dense { dense, activation = "relu" }, L.Dropout { 0 },
    L.Dense { golden.classes, activation = "softmax" },
  }
  set_weights(model, golden)
  return model
end

-- The losses of train_on_batch at each step.
local function curve(model, golden, device)
  model:compile { optimizer = mgpu.optimizers.RMSprop { learning_rate = golden.learning_rate },
    loss = "categorical_crossentropy", devices = device }
  local losses = {}
  for s = 1, #golden.losses do losses[s] = model:train_on_batch(batch(golden, s - 1)).loss end
  return losses
end

-- float32 against float64: the set's f32_deviation says that Keras's own gradients are up to 1e-3 away. Two values of a
-- pooling window are equal but for rounding; which of them is the larger moves the first layers' gradients by up to
-- 2.4e-3, and their norms by 2.4e-4.
test("mnist_cnn has Keras's loss and gradients in the first step, in float32", function()
  local golden = load_golden "mnist_cnn_gradients"
  local model = seed_network(golden, { 32, 256, 128 }, 128)
  local x, y = batch(golden, 0)
  local loss, grads = mgpu.value_and_grad(function()
    return mgpu.losses.categorical_crossentropy(y, model(x, { training = true }))
  end, model.trainable_variables)()
  check.near(loss:item(), golden.loss, 1e-5)
  for k, expected in ipairs(golden.gradients) do
    local flat = grads[k]:reshape { -1 }
    check.near(mgpu.sqrt(mgpu.sum(mgpu.square(flat:to "float64"))):item(), expected.norm, 3e-4)
    local at = {}
    for j = 1, golden.sample_count do
      at[j] = math.floor(hash.unit(j - 1, expected.sample_salt) * count(expected.shape))
    end
    local samples = mgpu.gather(flat, mgpu.tensor(at, { dtype = "int32" }), { axis = 1 })
    check.near_norm(samples, expected.samples, 3e-3)
  end
end)

test("a narrow mnist_cnn has Keras's loss curve over 20 RMSprop steps in float64", function()
  local golden = load_golden "narrow_cnn_curve"
  in_float64(function()
    local model = seed_network(golden, golden.filters, golden.dense)
    check.near(curve(model, golden, "ref:0"), golden.losses, 1e-9)
    for k, w in ipairs(model:get_weights()) do
      check.near(mgpu.sqrt(mgpu.sum(mgpu.square(w))):item(), golden.final_norms[k], 1e-8)
    end
  end)
end)

test("LeNet-5 has Keras's loss curve over 12 RMSprop steps in float32", function()
  local golden = load_golden "lenet5_curve"
  local model = mgpu.models.lenet5 { input_shape = golden.input_shape, classes = golden.classes }
  model(mgpu.zeros { 1, unpack(golden.input_shape) })
  set_weights(model, golden)
  check.near(curve(model, golden), golden.losses, 1e-5)
  for k, w in ipairs(model:get_weights()) do
    check.near(mgpu.sqrt(mgpu.sum(mgpu.square(w))):item(), golden.final_norms[k], 1e-5)
  end
end)

-- ---- losses and metrics -------------------------------------------------------------------------

local golden_losses = load_golden "losses"

local function shaped(values, shape, dtype)
  return mgpu.tensor(values, { dtype = dtype or "float64" }):reshape(shape)
end

local function truth_of(case)
  local ids = #case.y_true_shape == 1
  return shaped(case.y_true, case.y_true_shape, ids and "int32" or "float64")
end

-- The loss, its gradient and the values of the samples as tensors.
local function evaluated(loss, y, p, weights)
  local variable = mgpu.variable(p)
  local value, grads = mgpu.value_and_grad(function()
    return loss(y, variable:value(), { sample_weight = weights })
  end, { variable })()
  return value, grads[1]:reshape { -1 }, loss.per_sample(y, p)
end

-- float32 cannot represent the clipping limit 1 - 1e-7, so losses of clipped probabilities differ there.
local function is_clipped(case)
  for _, p in ipairs(case.y_pred) do
    if p == 1 then return true end
  end
end

local function check_loss(case, dtype, tolerance)
  if case.args.axis == 1 then case.args.axis = 2 end -- Keras counts axes from 0, mgpu from 1
  local loss, y = mgpu.losses[case.loss].new(case.args), truth_of(case)
  local p = shaped(case.y_pred, { golden_losses.samples, golden_losses.classes }, dtype)
  local weights = shaped(golden_losses.sample_weight, { golden_losses.samples }, dtype)
  local jitted = mgpu.jit(function(a, b, w) return loss(a, b, { sample_weight = w }), loss.per_sample(a, b) end)
  local value, gradient, values = evaluated(loss, y, p)
  check.near(value:item(), case.mean, tolerance)
  check.near(gradient, case.gradient, 100 * tolerance)
  check.near(values, case.per_sample, tolerance)
  value, gradient = evaluated(loss, y, p, weights)
  check.near(value:item(), case.weighted, tolerance)
  check.near(gradient, case.weighted_gradient, 100 * tolerance)
  value, values = jitted(y, p, weights)
  check.near(value:item(), case.weighted, tolerance)
  check.near(values, case.per_sample, tolerance)
end

local FLOAT32_LOG_2 = 2e-9 -- Keras's log_cosh subtracts log 2 in float32

for i, case in ipairs(golden_losses.losses) do
  local name = comparing.described(case.loss, case.args)
  test(("loss %d, %s, has Keras's values and gradients"):format(i, name), function()
    check_loss(case, "float64", case.loss == "log_cosh" and FLOAT32_LOG_2 or 1e-12)
    if #mgpu.devices "cpu" == 0 or is_clipped(case) then return end
    mgpu.with_device("cpu:0", function() check_loss(case, "float32", 1e-5) end)
  end)
end

for i, case in ipairs(golden_losses.metrics) do
  test(("metric %d, %s, has Keras's values"):format(i, case.metric), function()
    local y, shape = truth_of(case), { golden_losses.samples, golden_losses.classes }
    local p = shaped(case.y_pred, shape)
    local plain, weighted = mgpu.metrics[case.metric] {}, mgpu.metrics[case.metric] {}
    plain:update(y, p)
    weighted:update(y, p, shaped(golden_losses.sample_weight, { golden_losses.samples }))
    check.near(plain:result(), case.mean, 1e-12)
    check.near(weighted:result(), case.weighted, 1e-12)
  end)
end
