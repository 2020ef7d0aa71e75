-- Options that change how steps run but must not change their numbers: accumulate, steps_per_execution,
-- run_eagerly, and datasets instead of tensors.

local check = require "check"
local mgpu = require "mgpu"
local points = require "fixtures".points

local test = check.test
local L = mgpu.layers


-- A small classifier; the names and the seed determine its initial weights.
local function network(options, more)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 2 },
    L.Dense { 8, activation = "tanh", name = "hidden" },
    L.Dropout { more and more.rate or 0, name = "drop" },
    L.Dense { 3, activation = "softmax", name = "classes" } }
  options.loss = options.loss or "sparse_categorical_crossentropy"
  options.optimizer = mgpu.optimizers[options.optimizer or "Adam"] { learning_rate = 0.02 }
  options.metrics = { "accuracy" }
  model:compile(options)
  return model
end

local function fitted(options, given, more)
  local model = network(options, more)
  local x, y = points(50)
  given.verbose = 0
  local history = model:fit(x, y, given).history
  return model, history
end

local function same_weights(a, b, tolerance)
  for i, w in ipairs(a:get_weights()) do
    if tolerance then
      check.near_norm(b:get_weights()[i]:reshape { -1 }, w:reshape { -1 }, tolerance)
    else
      check.equal(b:get_weights()[i], w)
    end
  end
end

-- ---- steps_per_execution ------------------------------------------------------------------------

test("ten steps in one execution give the numbers of ten, with dropout and a short batch", function()
  local one, h1 = fitted({}, { epochs = 2, batch_size = 4 }, { rate = 0.3 })
  local ten, h10 = fitted({ steps_per_execution = 10 }, { epochs = 2, batch_size = 4 }, { rate = 0.3 })
  same_weights(one, ten, 1e-6) -- the same operations in float32, but fused differently
  check.near(h10.loss, h1.loss, 1e-6)
  check.near(h10.accuracy, h1.accuracy, 1e-6)
  check.equal(tonumber(ten.optimizer.iterations:item()), 26)
end)

test("with steps_per_execution callbacks see the last batch of each execution", function()
  local seen = {}
  fitted({ steps_per_execution = 5 }, { batch_size = 4, callbacks = mgpu.callbacks.LambdaCallback {
    on_train_batch_end = function(i) seen[#seen + 1] = i end } })
  check.equal(seen, { 5, 10, 12, 13 })
end)

test("in float64 ten steps in one execution give the same numbers to the last digits", function()
  mgpu.set_floatx "float64"
  local ok, message = pcall(function()
    local one = fitted({ devices = "ref:0" }, { epochs = 2, batch_size = 4 })
    local ten = fitted({ devices = "ref:0", steps_per_execution = 10 }, { epochs = 2, batch_size = 4 })
    same_weights(one, ten, 1e-14)
  end)
  mgpu.set_floatx "float32"
  if not ok then error(message, 0) end
end)

test("a NaN in one of several steps of an execution leaves the weights unchanged", function()
  local model = network({ steps_per_execution = 4 })
  local x, y = points(16)
  local before = model:get_weights()[1]:totable()
  local bad = mgpu.tensor(x:totable()):totable()
  bad[10][1] = 0 / 0
  check.raises(function() model:fit(bad, y, { batch_size = 4, shuffle = false, verbose = 0 }) end,
    "not finite", "nonfinite")
  check.equal(model:get_weights()[1], before)
end)

-- ---- run_eagerly --------------------------------------------------------------------------------

test("run_eagerly gives the same numbers", function()
  local given = { epochs = 2, batch_size = 8, validation_split = 0.2 }
  local jitted, h1 = fitted({}, given, { rate = 0.3 })
  local eager, h2 = fitted({ run_eagerly = true }, given, { rate = 0.3 })
  same_weights(jitted, eager, 1e-6)
  check.near(h2.val_loss, h1.val_loss, 1e-6)
  check.near(eager:predict((points(7))), jitted:predict((points(7))), 1e-6)
end)

-- ---- accumulate ---------------------------------------------------------------------------------

test("accumulated small batches give the numbers of one large batch, also at a short end", function()
  for _, optimizer in ipairs { "SGD", "Adam" } do
    local given = { epochs = 2, shuffle = false }
    given.batch_size = 12
    local large = fitted({ optimizer = optimizer }, given)
    given.batch_size = 3
    local small = fitted({ optimizer = optimizer, accumulate = 4 }, given)
    check.equal(tonumber(small.optimizer.iterations:item()), 10)
    same_weights(large, small, 1e-5)
  end
end)

test("accumulate counts regularizers and sample weights as the large batch does", function()
  local function run(options, batch_size)
    mgpu.seed(3)
    local model = mgpu.Sequential { L.Input { 2 },
      L.Dense { 1, name = "only", kernel_regularizer = "l2" } }
    options.loss, options.optimizer = "mse", mgpu.optimizers.SGD { 0.1 }
    model:compile(options)
    local x, weight = points(10), {}
    for i = 1, 10 do weight[i] = i / 5 end
    model:fit(x, x:sum { axis = 2 }, { batch_size = batch_size, sample_weight = weight, verbose = 0,
      shuffle = false })
    return model
  end
  same_weights(run({}, 10), run({ accumulate = 4 }, 3), 1e-6)
end)

test("accumulate and steps_per_execution cannot be combined", function()
  check.raises(function() network { accumulate = 2, steps_per_execution = 2 } end, "only one of", "usage")
  check.raises(function() network { accumulate = 0 } end, "accumulate", "usage")
end)

-- ---- validation options -------------------------------------------------------------------------

test("validation_freq, validation_steps and validation_batch_size limit the validation", function()
  local model = network {}
  local x, y = points(20)
  local batches = 0
  local h = model:fit(x, y, { epochs = 4, verbose = 0, validation_data = { x, y }, validation_freq = 2,
    validation_batch_size = 5, validation_steps = 2, callbacks = mgpu.callbacks.LambdaCallback {
      on_test_begin = function() batches = batches + 1 end } }).history
  check.equal(batches, 2)
  check.equal(#h.val_loss, 2)
  local first = model:evaluate(x:slice { { 1, 10 }, {} }, y:slice { { 1, 10 } }, { verbose = 0 })
  check.near(h.val_loss[2], first.loss, 1e-6)
end)

-- ---- datasets -----------------------------------------------------------------------------------

local function dataset(x, y) return mgpu.data.from_tensors { x, y } end

test("fit over a dataset gives the numbers of fit over its tensors", function()
  local x, y = points(50)
  local by_tensors = fitted({}, { epochs = 2, batch_size = 8, shuffle = false })
  local model = network {}
  local h = model:fit(dataset(x, y):batch(8), { epochs = 2, verbose = 0,
    validation_data = dataset(x, y):batch(20) })
  same_weights(by_tensors, model, 1e-6)
  check.equal(h.params.steps, 7)
  check.near(h.history.val_loss[2], model:evaluate(x, y, { verbose = 0 }).loss, 1e-5)
  check.near(model:evaluate(dataset(x, y):batch(7), { verbose = 0 }).loss, h.history.val_loss[2], 1e-5)
  check.near(model:predict(mgpu.data.from_tensors { x }:batch(9)), model:predict(x), 1e-6)
end)

test("an endless dataset needs steps_per_epoch and continues from epoch to epoch", function()
  local x, y = points(12)
  local model = network {}
  local endless = dataset(x, y):cycle():batch(5)
  check.raises(function() model:fit(endless, { verbose = 0 }) end, "give steps_per_epoch", "usage")
  model:fit(endless, { steps_per_epoch = 3, epochs = 2, verbose = 0 })
  check.equal(tonumber(model.optimizer.iterations:item()), 6)
end)

test("a finite dataset with steps_per_epoch starts again when it ends", function()
  local x, y = points(12)
  local model = network {}
  model:fit(dataset(x, y):batch(5), { steps_per_epoch = 4, epochs = 2, verbose = 0 })
  check.equal(tonumber(model.optimizer.iterations:item()), 8)
end)

test("a third tensor in a dataset's batches holds the sample weights", function()
  local x, y = points(10)
  local weight = mgpu.ones { 10 } * 0.5
  local model = network {}
  local plain = model:evaluate(x, y, { verbose = 0 }).loss
  local weighted = model:evaluate(mgpu.data.from_tensors { x, y, weight }:batch(5), { verbose = 0 }).loss
  check.near(weighted, plain / 2, 1e-6)
end)

test("options that make no sense with a dataset are refused", function()
  local x, y = points(10)
  local model = network {}
  check.raises(function() model:fit(dataset(x, y):batch(5), { validation_split = 0.5 }) end,
    "use take and skip", "usage")
  check.raises(function() model:fit(dataset(x, y):batch(5), y, {}) end, "give no y", "usage")
  check.raises(function() model:fit(dataset(x, y + 7):batch(5), { verbose = 0 }) end, "the label in row",
    "usage")
  check.raises(function() model:fit(mgpu.data.from_tensors { x }:batch(5), { verbose = 0 }) end,
    "y is missing", "usage")
end)
