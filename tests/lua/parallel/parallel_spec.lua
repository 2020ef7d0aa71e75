-- Data parallelism: training on 1 to n devices gives the same weights; a device that fails; errors.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local in_float64 = require "fixtures".in_float64

local test = check.test
local L = mgpu.layers

local function devices(kind, n)
  local list = {}
  for i = 1, n do list[i] = ("%s:%d"):format(kind, i - 1) end
  return list
end

-- ---- networks and data --------------------------------------------------------------------------

-- A narrow mnist_cnn; the names and the seed determine its initial weights.
local function narrow()
  mgpu.seed(1)
  return mgpu.Sequential { L.Input { 12, 12, 1 },
    L.Conv2D { 4, 3, activation = "relu", name = "c1" },
    L.Conv2D { 8, 3, activation = "relu", name = "c2" }, L.BatchNormalization { name = "bn" },
    L.Conv2D { 4, 3, activation = "relu", name = "c3" }, L.MaxPooling2D { 2 },
    L.Dropout { 0.25, name = "d1" }, L.Flatten {}, L.Dense { 16, activation = "relu", name = "f1" },
    L.Dropout { 0.5, name = "d2" }, L.Dense { 10, activation = "softmax", name = "f2" } }
end

local function images(rows)
  mgpu.seed(7)
  local x = mgpu.rand({ rows, 12, 12, 1 }, { dtype = mgpu.ones { 1 }:dtype() })
  local y = mgpu.randint(0, 10, { rows })
  mgpu.eval(x, y)
  return x, y
end

-- A model with two inputs, two outputs, a shared layer and a regularizer.
local function two_inputs()
  mgpu.seed(1)
  local a, b = mgpu.Input { 5, name = "a" }, mgpu.Input { 5, name = "b" }
  local shared = L.Dense { 6, activation = "tanh", name = "shared", kernel_regularizer = "l2" }
  local sum = L.Add { name = "sum" } { shared(a), shared(b) }
  return mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 1, name = "price" } (sum),
    L.Dense { 3, activation = "softmax", name = "kind" } (sum) } }
end

local function pairs_of_rows(rows)
  mgpu.seed(9)
  local dtype = { dtype = mgpu.ones { 1 }:dtype() }
  local a, b = mgpu.rand({ rows, 5 }, dtype), mgpu.rand({ rows, 5 }, dtype)
  local kind = mgpu.randint(0, 3, { rows })
  mgpu.eval(a, b, kind)
  return { a, b }, { a:sum { axis = 2, keepdims = true }, kind }
end

local function fit(model, list, x, y, given)
  given = given or {}
  mgpu.seed(5) -- for the shuffles and dropout masks
  model:compile { optimizer = given.optimizer or mgpu.optimizers.RMSprop { 1e-3 },
    loss = given.loss or "sparse_categorical_crossentropy", metrics = given.metrics, devices = list,
    bn = given.bn, strategy = given.strategy, accumulate = given.accumulate,
    steps_per_execution = given.steps_per_execution }
  return model:fit(x, y, { epochs = given.epochs or 1, batch_size = given.batch_size or 10, verbose = 0,
    sample_weight = given.sample_weight, validation_data = given.validation_data }).history
end

-- Asserts ||a - b|| <= tolerance * ||a|| for every weight.
local function same_weights(serial, parallel, tolerance)
  local a, b = serial:get_weights(), parallel:get_weights()
  for i = 1, #a do check.near_norm(b[i]:reshape { -1 }, a[i]:reshape { -1 }, tolerance) end
end

-- ---- parallel equals serial ---------------------------------------------------------------------

-- 46 rows in batches of 10: the last batch has 6 rows, so some of 8 devices get empty shards.
for _, batch_size in ipairs { 10, 3 } do
  test(("batches of %d on 2, 3, 4 and 8 devices train mnist_cnn as on one device (float64)")
    :format(batch_size), function()
    in_float64(function()
      local x, y = images(46)
      local given = { epochs = 30 / math.ceil(46 / batch_size) + 1, batch_size = batch_size,
        metrics = { "accuracy" } }
      given.epochs = math.floor(given.epochs)
      local serial = narrow()
      local h = fit(serial, devices("ref", 1), x, y, given)
      for _, n in ipairs { 2, 3, 4, 8 } do
        local parallel = narrow()
        local hp = fit(parallel, devices("ref", n), x, y, given)
        same_weights(serial, parallel, 1e-12) -- 30 and more steps of sums in another order
        check.near(hp.loss, h.loss, 1e-12)
        check.equal(hp.accuracy, h.accuracy)
      end
    end)
  end)
end

test("a model with two inputs and outputs trains as on one device (float64)", function()
  in_float64(function()
    local x, y = pairs_of_rows(22)
    local given = { loss = { "mse", "sparse_categorical_crossentropy" }, epochs = 10, batch_size = 8 }
    local serial = two_inputs()
    local h = fit(serial, devices("ref", 1), x, y, given)
    for _, n in ipairs { 2, 3, 8 } do
      local parallel = two_inputs()
      local hp = fit(parallel, devices("ref", n), x, y, given)
      same_weights(serial, parallel, 1e-12)
      check.near(hp.price_loss, h.price_loss, 1e-12)
    end
  end)
end)

test("LeNet-5 in float32 on several cpu devices has the losses of one device at every step", function()
  check.needs "cpu"
  local train = mgpu.datasets.digits(320)
  local function run(n)
    mgpu.seed(3)
    mgpu.reset_names() -- the names and the seed determine the initial weights
    local model = mgpu.models.lenet5 { classes = 10 }
    local losses = {}
    model:compile { optimizer = mgpu.optimizers.SGD { 0.05 }, loss = "sparse_categorical_crossentropy",
      devices = devices("cpu", n) }
    local x = train.x:to "float32" / 255
    for i = 1, 10 do
      local first = (i - 1) % 10 * 32 + 1
      local batch = { first, first + 31 }
      losses[i] = model:train_on_batch(x:slice { batch, {}, {} }:reshape { 32, 28, 28, 1 },
        train.y:slice { batch }).loss
    end
    return model, losses
  end
  local serial, losses = run(1)
  for _, n in ipairs { 2, 3 } do
    local parallel, again = run(n)
    -- float32, sums in another order. Not many more steps: sooner or later two values of a pooling window are equal but
    -- for rounding; their gradient then goes to another element than on one device, and the runs part.
    for i = 1, 10 do check.near(again[i], losses[i], 1e-6) end
    same_weights(serial, parallel, 2e-6)
  end
end)

test("sample weights, steps_per_execution and accumulate give one device's numbers", function()
  in_float64(function()
    local x, y = images(24)
    local weight = {}
    for i = 1, 24 do weight[i] = i % 5 / 2 end
    for _, more in ipairs { { sample_weight = weight }, { steps_per_execution = 2 }, { accumulate = 2 } } do
      local serial, parallel = narrow(), narrow()
      more.epochs, more.batch_size = 2, 7
      fit(serial, devices("ref", 1), x, y, more)
      fit(parallel, devices("ref", 3), x, y, more)
      same_weights(serial, parallel, 1e-12)
    end
  end)
end)

test("every optimizer with global_clipnorm trains as on one device", function()
  in_float64(function()
    local x, y = images(20)
    for _, make in ipairs { mgpu.optimizers.SGD, mgpu.optimizers.Adam } do
      local serial, parallel = narrow(), narrow()
      local function optimizer() return make { 0.01, global_clipnorm = 0.5, weight_decay = 0.01 } end
      fit(serial, devices("ref", 1), x, y, { optimizer = optimizer(), epochs = 2 })
      fit(parallel, devices("ref", 4), x, y, { optimizer = optimizer(), epochs = 2 })
      same_weights(serial, parallel, 1e-12)
    end
  end)
end)

test("predictions come back in order, with the same bits on ref", function()
  local x = images(23)
  local model = narrow()
  local serial = model:predict(x, { batch_size = 8 })
  for _, n in ipairs { 2, 3, 8 } do
    model:compile { loss = "mse", devices = devices("ref", n) }
    local p = model:predict(x, { batch_size = 8 })
    check.equal(p:shape(), { 23, 10 })
    check.near(p, serial, 1e-6)
  end
  model:compile { loss = "mse", devices = devices("ref", 1) }
  local one = model:predict(x, { batch_size = 8 })
  model:set_devices(devices("ref", 4))
  check.equal(model:predict(x, { batch_size = 8 }), one)
end)

test("evaluate and validation give the loss and metrics of one device", function()
  local x, y = images(23)
  local model = narrow()
  model:compile { loss = "sparse_categorical_crossentropy", metrics = { "accuracy" },
    devices = devices("ref", 1) }
  local one = model:evaluate(x, y, { verbose = 0, batch_size = 8 })
  model:set_devices(devices("ref", 3))
  local three = model:evaluate(x, y, { verbose = 0, batch_size = 8 })
  check.near(three.loss, one.loss, 1e-6)
  check.equal(three.accuracy, one.accuracy)
end)

test("the rows of a batch can be divided by given shares", function()
  in_float64(function()
    local x, y = images(20)
    local serial, parallel = narrow(), narrow()
    fit(serial, devices("ref", 1), x, y)
    fit(parallel, { ["ref:0"] = 3, ["ref:1"] = 1 }, x, y)
    same_weights(serial, parallel, 1e-12)
  end)
end)

test("two equal runs give the same bits", function()
  check.needs "cpu"
  local x, y = images(30)
  local a, b = narrow(), narrow()
  fit(a, devices("cpu", 3), x, y)
  fit(b, devices("cpu", 3), x, y)
  for i, w in ipairs(a:get_weights()) do check.equal(b:get_weights()[i], w) end
end)

-- ---- batch normalization ------------------------------------------------------------------------

test("bn = local normalises with each device's rows and averages moving statistics by rows", function()
  in_float64(function()
    local function model()
      mgpu.seed(1)
      return mgpu.Sequential { L.Input { 2 }, L.BatchNormalization { name = "bn", momentum = 0 } }
    end
    local x = mgpu.tensor({ { 1, 2 }, { 3, 6 }, { 5, 1 }, { 9, 0 }, { 2, 2 } }, { dtype = "float64" })
    local m = model()
    m:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0 }, devices = devices("ref", 2),
      bn = "local" }
    m:train_on_batch(x, x)
    -- rows 1..3 and 4..5: means {3, 3} and {5.5, 1}, variances {8/3, 14/3} and {12.25, 1}
    check.near(m:get_weights()[3], { (3 * 3 + 2 * 5.5) / 5, (3 * 3 + 2 * 1) / 5 }, 1e-12)
    check.near(m:get_weights()[4], { (3 * 8 / 3 + 2 * 12.25) / 5, (3 * 14 / 3 + 2 * 1) / 5 }, 1e-12)
    local sync = model()
    sync:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0 }, devices = devices("ref", 2) }
    sync:train_on_batch(x, x)
    check.near(sync:get_weights()[3], { 4, 2.2 }, 1e-12)
    check.near(sync:get_weights()[4], { 8, 4.16 }, 1e-12)
  end)
end)

test("gradients under bn = local are those of the statistics of each device's rows", function()
  in_float64(function()
    local x, y = mgpu.rand { 5, 3 }, mgpu.rand { 5, 4 }
    mgpu.seed(1)
    local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 4, use_bias = false }, L.BatchNormalization {} }
    local w = mgpu.variable(model.trainable_variables[1]:value())
    local function normalised(rows)
      local h = rows:matmul(w)
      return h:batch_norm(h:moments(), mgpu.ones { 4 }, mgpu.zeros { 4 }, { epsilon = 1e-3 })
    end
    local _, grads = mgpu.value_and_grad(function() -- rows 1..3 and 4..5
      local h = mgpu.concat({ normalised(x:slice { { 1, 3 } }), normalised(x:slice { { 4, 5 } }) }, 1)
      return ((h - y) ^ 2):mean()
    end, { w })()
    local expected = (w:value() - grads[1] * 0.5):reshape({ -1 }):totable()
    model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.5 }, devices = devices("ref", 2), bn = "local" }
    model:train_on_batch(x, y)
    check.near(model.trainable_variables[1]:value():reshape { -1 }, expected, 1e-12)
  end)
end)

test("with bn = local a device without rows does not disturb training", function()
  local x, y = images(21)
  local m = narrow()
  local h = fit(m, devices("ref", 4), x, y, { bn = "local", batch_size = 6, epochs = 2 })
  check.truthy(h.loss[2] == h.loss[2] and h.loss[2] < 10)
end)

-- ---- changing devices, saving -------------------------------------------------------------------

test("a model trained on 4 devices and saved continues the same on 1, 2 and 8", function()
  in_float64(function()
    local x, y = images(20)
    local function optimizer() return mgpu.optimizers.Adam { 0.01 } end
    local straight = narrow()
    fit(straight, devices("ref", 4), x, y, { optimizer = optimizer(), epochs = 2 })
    local path = check.path "four.safetensors"
    for _, n in ipairs { 1, 2, 8 } do
      local model = narrow()
      fit(model, devices("ref", 4), x, y, { optimizer = optimizer() })
      local state = mgpu.rng_state()
      model:save(path)
      local again = mgpu.load_model(path)
      again:compile { optimizer = again.optimizer, loss = "sparse_categorical_crossentropy",
        devices = devices("ref", n) }
      mgpu.rng_state(state)
      again:fit(x, y, { batch_size = 10, verbose = 0 })
      same_weights(straight, again, 1e-12)
    end
  end)
end)

test("set_devices keeps weights, slots and counters", function()
  in_float64(function()
    local x, y = images(20)
    local straight, moved = narrow(), narrow()
    fit(straight, devices("ref", 1), x, y, { epochs = 2 })
    fit(moved, devices("ref", 3), x, y, {})
    -- the shuffle continues from the step count, the dropout masks from the generator's state
    moved:set_devices(devices("ref", 2))
    moved:fit(x, y, { batch_size = 10, verbose = 0 })
    same_weights(straight, moved, 1e-12)
    check.equal(tonumber(moved.optimizer.iterations:item()), 4)
  end)
end)

-- Devices before and after set_devices in a callback, with steps_per_epoch over the data.
for i, change in ipairs { { "ref:0", { "ref:0", "ref:1" } }, { "ref:0", "ref:1" }, { { "ref:0", "ref:1" }, "ref:2" },
  { nil, { "ref:1", "ref:2" } }, { { "ref:0", "ref:1" }, { "ref:2", "ref:3", "ref:4" }, "central" } } do
  test(("set_devices in a callback takes effect in the next epoch, case %d (float64)"):format(i), function()
    in_float64(function()
      local x, y = images(23)
      local function trained(from, to, strategy)
        local model, during = narrow(), nil
        mgpu.seed(5)
        model:compile { loss = "sparse_categorical_crossentropy", devices = from, strategy = strategy }
        local h = model:fit(x, y, { epochs = 3, batch_size = 5, steps_per_epoch = 3, verbose = 0,
          validation_split = 0.2, callbacks = mgpu.callbacks.LambdaCallback {
            on_train_batch_end = function(step)
              if to and step == 2 then model:set_devices(to) end
              during = during or model.compiled.devices or "none"
            end } }).history
        if to then check.equal(model.compiled.devices, type(to) == "table" and to or { to }) end
        check.equal(during, type(from) == "string" and { from } or from or "none")
        return model, h
      end
      local default = core.default_device()
      local serial, hs = trained "ref:0"
      local model, h = trained(unpack(change, 1, 3))
      same_weights(serial, model, 1e-12)
      check.near(h.loss, hs.loss, 1e-12)
      check.near(h.val_loss, hs.val_loss, 1e-12)
      check.equal(core.default_device(), default)
    end)
  end)
end

test("set_devices after fit, or in its last callback, takes effect in the next fit", function()
  local x, y = images(20)
  local model = narrow()
  fit(model, "ref:0", x, y)
  model:set_devices "ref:1"
  model:fit(x, y, { verbose = 0, callbacks = { mgpu.callbacks.LambdaCallback {
    on_train_end = function() model:set_devices { "ref:2", "ref:3" } end } } })
  check.equal(model.variables[1]:device(), "ref:1")
  model:fit(x, y, { verbose = 0 })
  check.equal(model.variables[1]:device(), "ref:2")
end)

test("weights assigned between two fits reach every device", function()
  local x, y = images(20)
  local model = narrow()
  fit(model, devices("ref", 3), x, y)
  local zeros = {}
  for i, w in ipairs(model:get_weights()) do zeros[i] = mgpu.zeros(w:shape(), { device = "ref:0" }) end
  model:set_weights(zeros)
  check.near(model:predict(x), mgpu.full({ 20, 10 }, 0.1), 1e-6)
end)

-- ---- errors -------------------------------------------------------------------------------------

for what, case in pairs {
  ["an unknown strategy"] = { function() narrow():compile { loss = "mse", strategy = "miror" } end,
    'unknown strategy "miror"' },
  ["a device given twice"] = { function()
    narrow():compile { loss = "mse", devices = { "ref:0", "ref:0" } }
  end, "ref:0 is given twice" },
  ["a hole among devices"] = { function()
    narrow():compile { loss = "mse", devices = { "ref:0", nil, "ref:1" } }
  end, "devices: entry 2 is missing" },
  ["a name among devices"] = { function()
    narrow():compile { loss = "mse", devices = { "ref:0", x = "ref:1" } }
  end, 'devices: the name "x" stands in an array' },
  ["a device that is not there"] = { function()
    narrow():compile { loss = "mse", devices = { "ref:0", "tpu:0" } }
  end, "tpu" },
  ["more devices than there are"] = { function() narrow():compile { loss = "mse", devices = 999 } end,
    "999 devices were asked for" },
  ["a negative weight"] = { function()
    narrow():compile { loss = "mse", devices = { ["ref:0"] = -1 } }
  end, "with a weight above 0" },
  ["devices for a parallel model"] = { function()
    mgpu.parallel.make_parallel(narrow(), { "ref:0", "ref:1" }):compile { loss = "mse", devices = "ref:3" }
  end, "parallel already" },
  ["run_eagerly on several devices"] = { function()
    narrow():compile { loss = "mse", devices = { "ref:0", "ref:1" }, run_eagerly = true }
  end, "one device only" },
  ["a number as the model"] = { function() mgpu.parallel.make_parallel(5, { "ref:0" }) end, "must be a model" },
} do
  test("an error: " .. what, function() check.raises(case[1], case[2], "usage") end)
end

test("a NaN on one device stops the step on all devices, and nothing is committed", function()
  local x, y = images(20)
  local bad = x:totable()
  bad[17][1][1][1] = 0 / 0
  local model = narrow()
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = devices("ref", 3) }
  local before = model:get_weights()[1]:totable()
  check.raises(function() model:fit(bad, y, { batch_size = 20, verbose = 0 }) end, "not finite", "nonfinite")
  check.equal(model:get_weights()[1], before)
  model:fit(x, y, { batch_size = 20, verbose = 0 })
end)

-- ---- weights on the host ------------------------------------------------------------------------

test("central keeps the weights on one device, which may compute or not (float64)", function()
  in_float64(function()
    local x, y = images(23)
    local serial = narrow()
    fit(serial, devices("ref", 1), x, y, { epochs = 3 })
    for _, home in ipairs { "ref:0", "ref:1", "ref:9" } do
      local model = mgpu.parallel.make_parallel(narrow(), devices("ref", 3), { ps_device = home })
      fit(model, nil, x, y, { epochs = 3 })
      same_weights(serial, model, 1e-12)
      check.equal(model.variables[1]:device(), home)
      check.near(model:predict(x), serial:predict(x), 1e-12)
    end
  end)
end)

test("strategy central keeps the weights on cpu:0", function()
  check.needs "cpu"
  local x, y = images(20)
  local model = narrow()
  fit(model, devices("cpu", 2), x, y, { strategy = "central" })
  check.equal(model.variables[1]:device(), "cpu:0")
end)

-- ---- failures -----------------------------------------------------------------------------------

-- Trains a model whose second step fails as planned; returns the model, its weights before that step, and
-- the message.
local function failing(fault, code)
  local x, y = images(20)
  local model = narrow()
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = devices("ref", 3) }
  model:train_on_batch(x, y)
  local before = {}
  for i, w in ipairs(model:get_weights()) do before[i] = w:totable() end
  core.fault(fault)
  local message = check.raises(function()
    model:fit(x, y, { batch_size = 20, verbose = 0 })
  end, "ref:1", code or "device")
  core.fault()
  return model, before, message, x, y
end

test("a device failure during a step names step and op, keeps the weights, and the others can go on",
  function()
    local model, before, message, x, y = failing { device = "ref:1", op = "conv2d_grad_weight" }
    check.matches(message, "fit: epoch 1, step 1: ref:1: conv2d_grad_weight: failed")
    for i, w in ipairs(model:get_weights()) do check.equal(w, before[i]) end
    model:set_devices { "ref:0", "ref:2" }
    model:fit(x, y, { verbose = 0 })
    check.truthy(model:get_weights()[1]:totable()[1][1][1][1] ~= before[1][1][1][1][1])
  end)

test("a device failure in the commit phase leaves the new weights on the other devices", function()
  local model, before, _, x, y = failing { device = "ref:1", phase = "commit" }
  local straight = narrow()
  straight:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = devices("ref", 3) }
  check.truthy(model:get_weights()[1]:totable()[1][1][1][1] ~= before[1][1][1][1][1])
  check.equal(tonumber(model.optimizer.iterations:item()), 2)
  model:set_devices { "ref:0", "ref:2" }
  model:fit(x, y, { verbose = 0 })
end)

test("a device that does not answer fails the step after the deadline", function()
  local program = [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    local L = mgpu.layers
    local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2 } }
    model:compile { loss = "mse", devices = { "ref:0", "ref:1" } }
    core.fault { device = "ref:1", op = "matmul", stuck = true }
    local ok, message = pcall(model.fit, model, mgpu.ones { 4, 3 }, mgpu.ones { 4, 2 }, { verbose = 0 })
    print(ok, message)
    core.fault()
    model:fit(mgpu.ones { 4, 3 }, mgpu.ones { 4, 2 }, { verbose = 0 })
    print "went on"
  ]]
  local path = check.path "stuck.lua"
  check.write(path, program)
  local output = check.run("MGPU_DEADLINE=0.3 " .. check.program .. " " .. path)
  check.matches(output, "false")
  check.matches(output, "ref:1: matmul: did not answer")
  check.matches(output, "went on")
end)

test("training continues without a lost device, and the program can end", function()
  local path = check.path "lost.lua"
  check.write(path, [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    local L = mgpu.layers
    core.default_device "ref:0" -- this device is lost, too
    local function model_on(devices)
      mgpu.seed(1)
      local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2, name = "d" } }
      model:compile { loss = "mse", optimizer = "adam", devices = devices }
      return model
    end
    local x, y = mgpu.ones { 6, 3 }, mgpu.ones { 6, 2 }
    local function step(model) return pcall(model.fit, model, x, y, { batch_size = 6, verbose = 0 }) end
    local model, twin = model_on { "ref:0", "ref:1", "ref:2" }, model_on { "ref:3", "ref:4" }
    step(model) step(twin)
    core.fault { device = arg[1], op = arg[2], phase = arg[3], lost = true }
    print(step(model))
    core.fault()
    print(step(model))
    print(pcall(model.set_devices, model, { arg[1], "ref:2" }))
    local rest = {}
    for i = 0, 2 do
      local name = "ref:" .. i
      if name ~= arg[1] then rest[#rest + 1] = name end
    end
    model:set_devices(rest)
    for i = 1, 2 do assert(step(model)) end
    for i = 1, arg[3] == "commit" and 3 or 2 do assert(step(twin)) end -- commit: the others finished the step
    local worst = 0
    for i, w in ipairs(model:get_weights()) do
      worst = math.max(worst, (w:to "ref:3" - twin:get_weights()[i]):abs():max():item())
    end
    print("went on", worst < 1e-6, model:predict(x):shape()[1])
  ]])
  for _, case in ipairs { "ref:1 matmul compute", "ref:0 all_reduce compute", "ref:2 fused commit" } do
    local output, status = check.run(("MGPU_DEADLINE=0.3 MGPU_GRACE=0.3 %s %s %s"):format(check.program, path, case))
    local device, op = case:match "(%S+) (%S+)"
    check.matches(output, ("fit: epoch 1, step 1: %s: %s: did not come back within [%%d.]+ seconds: the device "
      .. "is lost"):format(device, op))
    check.matches(output, device .. " is lost: it did not come back from an earlier step; choose other devices")
    check.matches(output, "went on\ttrue")
    check.equal(status, 0)
  end
end)

-- ---- memory, and the networks themselves ---------------------------------------------------------

test("a batch larger than each device's memory can be trained on: only its shards are copied", function()
  check.needs "cpu"
  local path = check.path "large.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local L = mgpu.layers
    local model = mgpu.Sequential { L.Input { 1000 }, L.Dense { 4, name = "d" } }
    local x, y = mgpu.rand { 400, 1000 }, mgpu.rand { 400, 4 } -- 1.6 MB on the default device
    mgpu.eval(x, y)
    for _, strategy in ipairs { "mirrored", "central" } do
      model:compile { loss = "mse", optimizer = "sgd", devices = { "cpu:1", "cpu:2", "cpu:3", "cpu:4" },
        strategy = strategy }
      model:fit(x, y, { batch_size = 400, verbose = 0 })
      model:train_on_batch(x, y)
      model:predict(x, { batch_size = 400 })
    end
    print("trained", mgpu.memory "cpu:1".peak <= 1200000)
  ]])
  local output = check.run("MGPU_MEMORY=cpu:1=1200K,cpu:2=1200K,cpu:3=1200K,cpu:4=1200K "
    .. check.program .. " " .. path)
  check.matches(output, "trained\ttrue")
end)

test("mnist_cnn with batches of 10 on three cpu devices has one device's gradients", function()
  check.needs "cpu"
  check.slow()
  mgpu.seed(1) -- other data may have a relu input so near 0 that rounding moves it across
  local x, y = mgpu.rand { 10, 28, 28, 1 }, mgpu.one_hot(mgpu.randint(0, 10, { 10 }), 10)
  mgpu.eval(x, y)
  local function run(n)
    mgpu.seed(3)
    mgpu.reset_names()
    local model = mgpu.models.mnist_cnn { classes = 10 }
    model:compile { optimizer = mgpu.optimizers.SGD { 1 }, loss = "categorical_crossentropy",
      devices = devices("cpu", n) }
    local before = {}
    for i, v in ipairs(model.trainable_variables) do before[i] = v:value() end
    mgpu.seed(4)
    local loss = model:train_on_batch(x, y).loss
    for i, v in ipairs(model.trainable_variables) do before[i] = before[i] - v:value() end
    return before, loss -- SGD(1) has subtracted the gradient
  end
  local one, loss = run(1)
  local three, again = run(3)
  check.near(again, loss, 1e-5)
  -- two layers of Winograd convolutions, whose passes each round by up to 1e-5
  for i, g in ipairs(one) do check.near_norm(three[i]:reshape { -1 }, g:reshape { -1 }, 3e-5) end
end)
