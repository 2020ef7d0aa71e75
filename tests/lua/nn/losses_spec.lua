-- Losses: values, gradients, shapes, options, and the errors about them.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local losses = mgpu.losses
local ops = require "mgpu.core".ops

local P = { { 0.7, 0.2, 0.1 }, { 0.1, 0.3, 0.6 } }
local ONE_HOT = { { 1, 0, 0 }, { 0, 0, 1 } }
local EXPECTED = { -math.log(0.7), -math.log(0.6) }

local function int(values) return mgpu.tensor(values, { dtype = "int32" }) end

test("categorical cross-entropy is minus the log of the probability of the right class", function()
  local loss = losses.categorical_crossentropy
  check.near(loss.per_sample(ONE_HOT, mgpu.tensor(P)), EXPECTED)
  check.near(loss(ONE_HOT, mgpu.tensor(P)):item(), (EXPECTED[1] + EXPECTED[2]) / 2)
end)

test("sparse categorical cross-entropy of class ids gives the same number", function()
  local loss = losses.sparse_categorical_crossentropy
  check.near(loss.per_sample(int { 0, 2 }, mgpu.tensor(P)), EXPECTED)
  check.near(loss.per_sample(int { { 0 }, { 2 } }, mgpu.tensor(P)), EXPECTED)
end)

test("binary cross-entropy averages over the last axis", function()
  local expected = { -(math.log(0.9) + math.log(0.8)) / 2 }
  local loss = losses.binary_crossentropy
  check.near(loss.per_sample({ { 1, 0 } }, mgpu.tensor { { 0.9, 0.2 } }), expected)
end)

test("binary cross-entropy takes y of shape {n} for predictions of shape {n, 1}", function()
  local loss = losses.binary_crossentropy
  check.near(loss.per_sample({ 1, 0 }, mgpu.tensor { { 0.9 }, { 0.2 } }),
    { -math.log(0.9), -math.log(0.8) })
end)

test("mean squared error averages the squares over the last axis", function()
  check.near(losses.mean_squared_error.per_sample({ { 0, 0 }, { 1, 1 } },
    mgpu.tensor { { 1, 3 }, { 1, 2 } }), { 5, 0.5 })
end)

test("short names are names of the same losses", function()
  check.truthy(losses.mse == losses.mean_squared_error)
  check.truthy(losses.bce == losses.binary_crossentropy)
end)

test("a loss of logits equals the loss of their softmax", function()
  local logits = mgpu.tensor { { 1, 2, 3 }, { 0, -1, 4 } }
  local p = mgpu.softmax(logits):totable()
  for _, name in ipairs { "CategoricalCrossentropy", "SparseCategoricalCrossentropy" } do
    local y = name:find "Sparse" and int { 2, 0 } or mgpu.tensor { { 0, 0, 1 }, { 1, 0, 0 } }
    check.near(losses[name] { from_logits = true }.per_sample(y, logits),
      losses[name] {}.per_sample(y, mgpu.tensor(p)), 1e-5)
  end
end)

test("a softmax before the loss is computed from its logits: no log of zero", function()
  local logits = mgpu.variable(mgpu.tensor { { 200, 0 } })
  local value, grads = mgpu.value_and_grad(function()
    return losses.categorical_crossentropy({ { 0, 1 } }, mgpu.softmax(logits))
  end, { logits })()
  check.near(value:item(), 200)
  check.near(grads[1], { { 1, -1 } })
end)

test("a sigmoid before the loss is computed from its logits", function()
  local logits = mgpu.variable(mgpu.tensor { { 200 } })
  local value, grads = mgpu.value_and_grad(function()
    return losses.binary_crossentropy({ { 0 } }, mgpu.sigmoid(logits))
  end, { logits })()
  check.near(value:item(), 200)
  check.near(grads[1], { { 1 } })
end)

-- The composed form of the cross-entropies that run as one kernel.
local function composed(y, x, axis)
  local log_p = ops.log_softmax(x, { axis = axis })
  if y:rank() == x:rank() then return -ops.sum(y * log_p, { axis = axis }) end
  local shape, of = y:shape(), x:shape()
  table.insert(shape, axis, 1)
  for i in ipairs(of) do of[i] = i == axis and of[i] or 1 end
  local ids = ops.iota { shape = of, axis = axis, dtype = "int32" }
  local own = ops.eq(ops.reshape(y, { shape = shape }), ids)
  return -ops.sum(ops.where(own, log_p, 0), { axis = axis })
end

local function with_gradient(fn, x)
  local variable = mgpu.variable(x)
  local value, grads = mgpu.value_and_grad(function() return fn(variable:value()) end, { variable })()
  local row = grads[1]:reshape({ x:count() }):totable()
  row[#row + 1] = value:item()
  return row
end

-- Both NaN, or equal up to rounding.
local function check_same(got, expected)
  for i = 1, #expected do
    local both_nan = got[i] ~= got[i] and expected[i] ~= expected[i]
    if not both_nan and got[i] ~= expected[i] then check.near(got[i], expected[i], 1e-6) end
  end
  check.equal(#got, #expected)
end

test("cross-entropy of logits over any axis has the value and gradient of log_softmax", function()
  mgpu.seed(5)
  for _, case in ipairs { { { 4, 5 }, 2 }, { { 3, 4, 5 }, 2 }, { { 3, 4, 5 }, 3 }, { { 2, 6, 3, 2 }, 2 } } do
    local shape, axis = case[1], case[2]
    local x, dense = mgpu.randn(shape) * 3, mgpu.softmax(mgpu.randn(shape), axis)
    local sparse = mgpu.argmax(mgpu.randn(shape), axis)
    mgpu.eval(x, dense, sparse)
    for name, y in pairs { categorical_crossentropy = dense, sparse_categorical_crossentropy = sparse } do
      local options = { from_logits = true, axis = axis, reduction = "sum" }
      check_same(with_gradient(function(t) return losses[name](y, t, options) end, x),
        with_gradient(function(t) return composed(y, t, axis):sum() end, x))
    end
  end
end)

test("a target of 0 at a logit of -inf gives NaN; class ids ignore the logits of other classes", function()
  local inf, nan = 1 / 0, 0 / 0
  local options = { from_logits = true, reduction = "sum" }
  for _, row in ipairs { { 1, -inf, 2 }, { -inf, 0, 1 }, { inf, 0, 1 }, { nan, 0, 1 }, { -inf, -inf, -inf } } do
    local x = mgpu.tensor { row }
    for i = 0, 2 do
      local dense = mgpu.tensor { { i == 0 and 1 or 0, i == 1 and 1 or 0, i == 2 and 1 or 0 } }
      check_same(with_gradient(function(t) return losses.categorical_crossentropy(dense, t, options) end, x),
        with_gradient(function(t) return composed(dense, t, 2):sum() end, x))
      check_same(with_gradient(function(t) return losses.sparse_categorical_crossentropy(int { i }, t, options) end,
        x), with_gradient(function(t) return composed(int { i }, t, 2):sum() end, x))
    end
  end
  local masked = mgpu.tensor { { 1, -inf } }
  check.truthy(losses.categorical_crossentropy({ { 1, 0 } }, masked, options):item() ~=
    losses.categorical_crossentropy({ { 1, 0 } }, masked, options):item(), "0 * -inf")
  check.equal(losses.sparse_categorical_crossentropy(int { 0 }, masked, options):item(), 0)
end)

test("a softmax over another axis than the classes is not replaced by its logits", function()
  local x = mgpu.tensor { { 1, 2 }, { 3, 5 } }
  local p = mgpu.softmax(x, { axis = 1 })
  local y = { { 1, 0 }, { 0, 1 } }
  check.near(losses.categorical_crossentropy.per_sample(y, p),
    losses.categorical_crossentropy.per_sample(y, mgpu.tensor(p:totable())))
end)

test("the gradient of softmax and cross-entropy is (p - y) / batch size", function()
  local logits = mgpu.variable(mgpu.tensor { { 1, 2, 3 }, { 0, 0, 0 } })
  local _, grads = mgpu.value_and_grad(function()
    return losses.sparse_categorical_crossentropy(int { 2, 1 }, mgpu.softmax(logits))
  end, { logits })()
  local expected = mgpu.softmax(logits):totable()
  expected[1][3], expected[2][2] = expected[1][3] - 1, expected[2][2] - 1
  check.near(grads[1] * 2, expected)
end)

test("label smoothing mixes the targets with the uniform distribution", function()
  local p = mgpu.tensor { { 0.7, 0.2, 0.1 } }
  local loss = losses.CategoricalCrossentropy { label_smoothing = 0.3 }
  check.near(loss.per_sample({ { 1, 0, 0 } }, p),
    { -(0.8 * math.log(0.7) + 0.1 * math.log(0.2) + 0.1 * math.log(0.1)) })
  check.near(losses.categorical_crossentropy({ { 1, 0, 0 } }, p, { label_smoothing = 0.3 }):item(),
    loss({ { 1, 0, 0 } }, p):item())
end)

test("a label out of range is an error, not a silent zero", function()
  check.raises(function()
    losses.sparse_categorical_crossentropy(int { 0, 3 }, mgpu.tensor(P))
  end, "a label is not in 0 .. 2", "data")
end)

test("class ids for categorical cross-entropy are an error that suggests to_categorical", function()
  check.raises(function()
    losses.categorical_crossentropy(int { 0, 2 }, mgpu.tensor(P))
  end, "mgpu.to_categorical(y, 3)", "usage")
end)

test("one-hot targets for the sparse loss are an error that names the other loss", function()
  check.raises(function()
    losses.sparse_categorical_crossentropy(ONE_HOT, mgpu.tensor(P))
  end, "y looks one-hot: use categorical_crossentropy", "usage")
end)

test("a label that is not a whole number is an error", function()
  check.raises(function()
    losses.sparse_categorical_crossentropy(mgpu.tensor { 0, 1.5 }, mgpu.tensor(P))
  end, "a label is not in 0 .. 2", "data")
end)

-- ---- options of a call --------------------------------------------------------------------------

local FAR = mgpu.tensor { { 3, -2 }, { 1, 4 } }
local ZEROS = mgpu.zeros { 2, 2 }

test("options of a call override those of the loss", function()
  local y, p = { { 1, 0 } }, mgpu.tensor { { 3, -2 } }
  local loss = losses.BinaryCrossentropy { from_logits = true }
  local smooth = losses.BinaryCrossentropy { from_logits = true, label_smoothing = 0.2 }
  check.near(loss(y, p, { label_smoothing = 0.2 }):item(), smooth(y, p):item())
  check.near(loss.per_sample(y, p, { label_smoothing = 0.2 }), smooth.per_sample(y, p))
  check.near(losses.bce(y, p, { from_logits = true, sample_weight = { 3 } }):item(), 3 * loss(y, p):item())
  check.equal(loss.options.label_smoothing, 0)
end)

test("every reduction of {6.5, 8.5} is right with and without weights", function()
  local function value(reduction, weight)
    return losses.mse(ZEROS, FAR, { reduction = reduction, sample_weight = weight }):totable()
  end
  check.equal(value("sum_over_batch_size"), 7.5)
  check.equal(value("mean"), 7.5)
  check.equal(value("mean_with_sample_weight"), 7.5)
  check.equal(value("sum"), 15)
  check.equal(value("none"), { 6.5, 8.5 })
  check.equal(value("sum_over_batch_size", { 3, 1 }), 14)
  check.equal(value("mean", { { 3 }, { 1 } }), 14)
  check.equal(value("mean_with_sample_weight", { 3, 1 }), 7)
  check.equal(value("mean_with_sample_weight", 2), 7.5)
  check.equal(value("sum", 2), 30)
  check.equal(value("none", { 3, 1 }), { 19.5, 8.5 })
end)

test("weights whose sum is 0 give a loss of 0 and no NaN in the gradient", function()
  local loss = losses.MeanSquaredError { reduction = "mean_with_sample_weight" }
  local p = mgpu.variable(FAR)
  local value, grads = mgpu.value_and_grad(function()
    return loss(ZEROS, p:value(), { sample_weight = { 0, 0 } })
  end, { p })()
  check.equal(value:item(), 0)
  check.equal(grads[1], { { 0, 0 }, { 0, 0 } })
end)

test("a function as a loss takes weights and reductions", function()
  local Loss = require "mgpu.nn.losses.loss"
  local loss = Loss.from_function(function(y, p) return mgpu.sum(mgpu.abs(y - p), { axis = 2 }) end)
  check.equal(loss(ZEROS, FAR):item(), 5)
  check.equal(loss(ZEROS, FAR, { sample_weight = { 1, 0 } }):item(), 2.5)
  check.equal(loss(ZEROS, FAR, { reduction = "sum" }):item(), 10)
end)

test("integer predictions are converted to floats, instead of y to integers", function()
  check.equal(losses.mse({ { 0.5 } }, mgpu.tensor({ { 1 } }, { dtype = "int32" })):item(), 0.25)
end)

test("a softmax over the classes' axis is computed from its logits", function()
  local logits = mgpu.variable(mgpu.tensor { { { 200 }, { 0 } } })
  for _, case in ipairs { { "categorical_crossentropy", { { { 0 }, { 1 } } } },
    { "sparse_categorical_crossentropy", { { 1 } } } } do
    local value, grads = mgpu.value_and_grad(function()
      return losses[case[1]](case[2], mgpu.softmax(logits, { axis = 2 }), { axis = 2 })
    end, { logits })()
    check.near(value:item(), 200)
    check.near(grads[1], { { { 1 }, { -1 } } })
  end
end)

test("fit uses reduction, ignore_class and weights as a direct call of the loss does", function()
  local L = mgpu.layers
  local x, y = mgpu.tensor { { 1, 0 }, { 0, 1 }, { 1, 1 } }, int { 0, -1, 2 }
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 3 } }
  for _, reduction in ipairs { "sum", "sum_over_batch_size", "mean_with_sample_weight" } do
    local loss = losses.SparseCategoricalCrossentropy { from_logits = true, ignore_class = -1,
      reduction = reduction, name = "mine" }
    model:compile { optimizer = "sgd", loss = loss, metrics = { "accuracy" } }
    check.near(model:test_on_batch(x, y).loss, loss(y, model(x)):item())
    check.near(model:test_on_batch(x, y, { sample_weight = { 1, 2, 3 } }).loss,
      loss(y, model(x), { sample_weight = { 1, 2, 3 } }):item())
    model:fit(x, y, { epochs = 1, verbose = 0 })
  end
end)

-- ---- Keras's reductions of values with several axes ---------------------------------------------

local comparing = require "golden.comparing"
local load_golden = require "golden.load"
local hash = require "golden.hash"
local golden = load_golden "loss_reductions"

local TARGETS = { ids = { 5, { 4, 3 } }, ids_from_minus_1 = { 5, { 4, 3 } }, ids_of_axis_1 = { 3, { 4, 5 } } }

local function inputs(case, dtype)
  local shape, kind = golden.shape, TARGETS[case.truth]
  local p = case.prediction == "raw" and comparing.array(shape, dtype, 61, 0.45, 0.5)
    or comparing.array(shape, dtype, 60, 4)
  if case.prediction == "tiny" then p = p * 1e-8 end
  if kind then
    local ids = int(hash.labels(kind[2][1] * kind[2][2], 64, kind[1])):reshape(kind[2])
    return case.truth == "ids_from_minus_1" and ids - 1 or ids, p
  elseif case.truth == "bits" then
    return mgpu.tensor(hash.labels(60, 63, 2), { dtype = dtype }):reshape(shape), p
  end
  local soft = comparing.array(shape, dtype, 62, 0.5, 0.5)
  return case.truth == "shares" and soft / mgpu.sum(soft, { axis = 2, keepdims = true }) or soft, p
end

local function check_reductions(case, dtype, tolerance)
  local y, p = inputs(case, dtype)
  local weights = { plain = false, rows = comparing.array({ 4 }, dtype, 65, 1, 1),
    every = comparing.array(case.values_shape, dtype, 66, 1, 1) }
  local options = {}
  for key, value in pairs(case.args) do options[key] = value end
  if options.axis == 1 then options.axis = 2 end -- Keras counts axes from 0, mgpu from 1
  local loss = losses[case.loss].new(options)
  check.near(loss(y, p, { reduction = "none" }):reshape { -1 }, case.none, tolerance)
  check.near(mgpu.mean(loss.per_sample(y, p), { axis = 1 }):item() * #case.none,
    case.plain_sum, tolerance)
  for key, weight in pairs(weights) do
    for _, reduction in ipairs { "sum_over_batch_size", "sum", "mean_with_sample_weight" } do
      local expected = case[key .. "_" .. reduction]
      if expected then
        local given = { reduction = reduction, sample_weight = weight or nil }
        check.near(loss(y, p, given):item(), expected, tolerance)
        local jitted = mgpu.jit(function(a, b) return loss(a, b, given) end)
        check.near(jitted(y, p):item(), expected, tolerance)
      end
    end
  end
  local variable = mgpu.variable(p)
  local _, grads = mgpu.value_and_grad(function()
    return loss(y, variable:value(), { reduction = "mean_with_sample_weight", sample_weight = weights.every })
  end, { variable })()
  check.near(grads[1]:reshape { -1 }, case.gradient, 100 * tolerance)
end

for i, case in ipairs(golden.cases) do
  test(("loss %d of several axes, %s, has Keras's reductions"):format(i, case.loss), function()
    check_reductions(case, "float64", 1e-12)
    -- the squares of tiny predictions, 1e-16, are lost in float32
    if #mgpu.devices "cpu" == 0 or case.prediction == "tiny" then return end
    mgpu.with_device("cpu:0", function() check_reductions(case, "float32", 1e-5) end)
  end)
end

test("with row weights mean_with_sample_weight is a mean, however many values a row has", function()
  local loss = losses.MeanSquaredError { reduction = "mean_with_sample_weight" }
  local p = mgpu.tensor { { { 1 }, { 1 } }, { { 2 }, { 2 } } }
  check.near(loss(mgpu.zeros { 2, 2, 1 }, p, { sample_weight = { 3, 1 } }):item(), (3 * 1 + 1 * 4) / 4)
end)

-- ---- Keras's values of losses of other forms ----------------------------------------------------

-- Axes count from 0 in Keras, from 1 here.
local function with_axes(args)
  local options = {}
  for key, value in pairs(args) do options[key] = value end
  if type(options.axis) == "table" then
    local axes = {}
    for i, axis in ipairs(options.axis) do axes[i] = axis + 1 end
    options.axis = axes
  elseif options.axis and options.axis >= 0 then
    options.axis = options.axis + 1
  end
  return options
end

local function check_form(case, dtype, tolerance)
  local loss, by_id = losses[case.loss](with_axes(case.args)), #case.y_true_shape < #case.y_pred_shape
  local y = mgpu.tensor(case.y_true, { dtype = by_id and "int32" or dtype }):reshape(case.y_true_shape)
  local variable = mgpu.variable(mgpu.tensor(case.y_pred, { dtype = dtype }):reshape(case.y_pred_shape))
  local p = variable:value()
  check.near(loss(y, p, { reduction = "none" }):reshape { -1 }, case.none, tolerance)
  check.near(loss(y, p, { reduction = "sum" }):item(), case.sum, tolerance)
  check.near(mgpu.jit(function(a, b) return loss(a, b) end)(y, p):item(), case.mean, tolerance)
  local _, grads = mgpu.value_and_grad(function() return loss(y, variable:value()) end, { variable })()
  check.near(grads[1]:reshape { -1 }, case.gradient, tolerance)
end

local KERAS_ROUNDS = {
  CTC = 2e-5, -- TensorFlow computes it in float32
  Circle = 1e-6, -- Keras's mean divides by the number of losses above 0 plus 1e-7
}
local ROUNDING, ROUNDING32 = 1e-10, 5e-5 -- sums of float64 and of float32 in another order, through exp and log

for i, case in ipairs(load_golden("loss_forms").cases) do
  test(("loss form %d, %s, has Keras's values and gradient"):format(i,
    comparing.described(case.loss, case.args)), function()
    check_form(case, "float64", KERAS_ROUNDS[case.loss] or ROUNDING)
    if #mgpu.devices "cpu" == 0 then return end
    mgpu.with_device("cpu:0", function() check_form(case, "float32", ROUNDING32) end)
  end)
end

-- ---- errors -------------------------------------------------------------------------------------

test("an unknown loss is an error with the nearest name", function()
  check.raises(function() return losses.categorical_crossentrop end, "categorical_crossentropy", "usage")
end)

for _, case in ipairs {
  { "CategoricalCrossentropy", { from_logit = true }, 'unknown option "from_logit" (did you mean "from_logits"?)' },
  { "BinaryCrossentropy", { label_smoothing = 1.5 }, 'option "label_smoothing" must be at most 1, got 1.5' },
  { "BinaryCrossentropy", { axis = 0.5 }, 'option "axis" must be a whole number' },
  { "Huber", { delta = -1 }, 'option "delta" must be at least 0, got -1' },
  { "Huber", { 0.5 }, "0.5 has no name, but options are given by name, as in {delta = ...}" },
  { "MeanSquaredError", { reduction = "avg" }, 'option "reduction": unknown value "avg"' },
  { "MeanAbsoluteError", { delta = 1 }, 'unknown option "delta"' },
  { "SparseCategoricalCrossentropy", { ignore_class = "x" }, 'option "ignore_class" must be a whole number' },
  { "Hinge", { name = 3 }, 'option "name" must be a name' },
} do
  local message = case[1] .. ": " .. case[3]
  test("an option of a loss: " .. message, function()
    check.raises(function() losses[case[1]](case[2]) end, message, "usage")
  end)
end

for _, case in ipairs {
  { "mse", { { 1, 2 } }, { { 1, 2, 3 } }, nil, "mean_squared_error: y has shape {1, 2} but predictions of shape "
    .. "{1, 3} need {1, 3}" },
  { "mae", { 1, 2 }, { { 1 } }, nil, "mean_absolute_error: y has shape {2}" },
  { "huber", { { 1 } }, { { 1 }, { 2 } }, nil, "huber: y has shape {1, 1}" },
  { "kld", { { 1 } }, { { 1, 2 } }, nil, "kl_divergence: y has shape {1, 1}" },
  { "hinge", { { 1 } }, { { 1, 2 } }, nil, "hinge: y has shape {1, 1}" },
  { "cosine_similarity", { { 1, 2 } }, { { 1, 2 } }, { axis = 1 },
    "cosine_similarity: axis 1 is out of range for predictions with 2 axes (the batch is 1)" },
  { "bce", { { 1, 2 } }, { { 1, 2 } }, { axis = 3 }, "binary_crossentropy: axis 3 is out of range" },
  { "categorical_crossentropy", { { 1, 0 } }, { { 1, 0 } }, { axis = -2 },
    "categorical_crossentropy: axis -2 is out of range" },
  { "sparse_categorical_crossentropy", { 1 }, { { 1, 0 } }, { axis = 0 },
    "sparse_categorical_crossentropy: axis 0 is out of range" },
  { "mse", { { 1 } }, { { 1 } }, { sample_weight = { 1, 2 } },
    "mean_squared_error: sample_weight has shape {2}, but the values it weighs have {1}" },
  { "mse", { { 1 } }, { { 1 } }, { delta = 2 }, 'mean_squared_error: unknown option "delta"' },
  { "mse", { { 1 } }, { { 1 } }, 3, "mean_squared_error: the third argument is a table of options" },
  { "mse", 1, nil, nil, "mean_squared_error: the predictions are missing" },
} do
  test("a call of a loss: " .. case[5], function()
    check.raises(function() losses[case[1]](case[2], case[3], case[4]) end, case[5], "usage")
  end)
end

test("the function of a loss is the mean over the batch, per_sample one value a row", function()
  local y, p = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.zeros { 2, 2 }
  check.near(mgpu.losses.mean_squared_error(y, p):item(), 7.5)
  check.near(mgpu.losses.mean_squared_error.per_sample(y, p), { 2.5, 12.5 })
end)

test("weights of rows weigh the rows at every rank, and zero gradients fall where Keras has them", function()
  local y = mgpu.arange(24):reshape { 2, 2, 2, 3 }
  local loss = mgpu.losses.MeanSquaredError {} (y, y * 0, { sample_weight = mgpu.tensor { 1, 0 } })
  check.near(loss:item(), 21.083333, 1e-6)
  local slope = mgpu.grad(function(p) return mgpu.losses.hinge(mgpu.tensor { { 1 }, { -1 } }, p) * 2 end)
  check.equal(slope(mgpu.tensor { { 1 }, { -1 } }), { { -1 }, { 1 } })
end)

test("circle compares large labels exactly", function()
  local x = mgpu.tensor { { 1, 0 }, { 1, 0 }, { 1, 0 } }
  local large = losses.circle(int { 16777216, 16777217, 16777216 }, x):item() -- one number in float32
  check.near(large, losses.circle(int { 0, 1, 0 }, x):item(), 0)
  check.truthy(large > 1, "the loss of rows with a partner and another label")
end)

test("labels of no length are an error of ctc", function()
  check.raises(function() losses.ctc(mgpu.zeros { 1, 0 }, mgpu.zeros { 1, 3, 2 }) end,
    "ctc needs labels {rows, length} and predictions {rows, steps, classes}, but y has shape {1, 0}", "usage")
end)
