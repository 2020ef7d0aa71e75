-- Model parallelism: layers on different devices, placed with `device =`, mgpu.with_device or device groups.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local fixtures = require "fixtures"
local in_float64 = fixtures.in_float64

local test = check.test
local L = mgpu.layers

local function network(second, third)
  mgpu.seed(1)
  return mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "tanh", name = "a" },
    L.BatchNormalization { name = "b" }, L.Dense { 8, activation = "relu", name = "c", device = second },
    L.Dropout { 0.3, name = "d" }, L.Dense { 3, activation = "softmax", name = "e", device = third } }
end

local function data()
  mgpu.seed(3)
  local x, y = mgpu.rand({ 22, 6 }, { dtype = "float64" }), mgpu.randint(0, 3, { 22 })
  mgpu.eval(x, y)
  return x, y
end

local function fit(model, devices)
  local x, y = data()
  mgpu.seed(5)
  model:compile { optimizer = mgpu.optimizers.Adam { 0.01, global_clipnorm = 1 },
    loss = "sparse_categorical_crossentropy", metrics = { "accuracy" }, devices = devices }
  return model:fit(x, y, { batch_size = 8, epochs = 3, verbose = 0, validation_data = { x, y } }).history
end

local function same(model, serial, h, hs)
  for i, w in ipairs(serial:get_weights()) do
    check.near_norm(model:get_weights()[i]:reshape { -1 }, w:reshape { -1 }, 1e-12)
  end
  check.near(h.loss, hs.loss, 1e-12)
  check.near(h.val_loss, hs.val_loss, 1e-12)
  check.equal(h.accuracy, hs.accuracy)
end

test("layers on three devices train as on one device (float64)", function()
  in_float64(function()
    local serial, model = network(), network("ref:1", "ref:2")
    local hs, h = fit(serial, "ref:0"), fit(model, "ref:0")
    same(model, serial, h, hs)
    check.equal(model:get_layer "c".kernel:device(), "ref:1")
    check.equal(model:get_layer "e".bias:device(), "ref:2")
    check.equal(model.optimizer.slots[model:get_layer "e".kernel].momentum:device(), "ref:2")
    local x = data()
    check.near(model:predict(x), serial:predict(x), 1e-12)
    check.equal(model:predict(x):device(), model.variables[1]:device())
  end)
end)

local O = mgpu.optimizers
local OPTIMIZERS = {
  ["SGD with momentum"] = function() return O.SGD { 0.1, momentum = 0.9, nesterov = true } end,
  ["Adam, clipped"] = function() return O.Adam { 0.01, global_clipnorm = 1, amsgrad = true } end,
  ["AdamW with averages"] = function() return O.AdamW { 0.01, use_ema = true, ema_overwrite_frequency = 2 } end,
  RMSprop = function() return O.RMSprop { 0.01, centered = true, momentum = 0.5 } end,
  Nadam = function() return O.Nadam { 0.01, clipnorm = 1 } end,
  Adagrad = function() return O.Adagrad { 0.1 } end,
  Adadelta = function() return O.Adadelta { 1 } end,
  Adamax = function() return O.Adamax { 0.01, clipvalue = 0.5 } end,
}
for _, name in ipairs(fixtures.optimizer_classes()) do
  OPTIMIZERS[name] = OPTIMIZERS[name] or function() return O[name] { 0.01 } end
end

for name, optimizer in pairs(OPTIMIZERS) do
  test(name .. " keeps its state on the device of each layer, also when compile gets no devices", function()
    in_float64(function()
      local function trained(second, third)
        local model, x, y = network(second, third), data()
        model:compile { optimizer = optimizer(), loss = "sparse_categorical_crossentropy" }
        local history = model:fit(x, y, { batch_size = 8, epochs = 2, verbose = 0 }).history
        for v, slots in pairs(model.optimizer.slots) do
          for _, slot in pairs(slots) do check.equal(slot:device(), v:device()) end
        end
        return model, history
      end
      mgpu.with_device("ref:0", function()
        local serial, hs = trained()
        local model, h = trained("ref:1", "ref:2")
        for i, w in ipairs(serial:get_weights()) do
          check.near_norm(model:get_weights()[i]:reshape { -1 }, w:reshape { -1 }, 1e-12)
        end
        check.near(h.loss, hs.loss, 1e-12)
      end)
    end)
  end)
end

test("device groups combine model parallelism with data parallelism (float64)", function()
  in_float64(function()
    local serial = network()
    local hs = fit(serial, "ref:0")
    for _, groups in ipairs { { { "ref:0", "ref:1", "ref:2" } },
      { { "ref:0", "ref:1", "ref:2" }, { "ref:3", "ref:4", "ref:5" } },
      { { "ref:0", "ref:1" }, { "ref:2", "ref:3" }, { "ref:4", "ref:5" }, { "ref:6", "ref:7" } } } do
      local model = network(2, #groups[1] == 3 and 3 or 1)
      same(model, serial, fit(model, groups), hs)
    end
  end)
end)

-- Layers that compute a loss on another device than the model's loss.
local function regularized(first, last)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, kernel_regularizer = "l2", name = "a", device = first,
    activity_regularizer = "l2" }, L.Dense { 3, activation = "softmax", name = "b", device = last } }
  return model
end

for what, options in pairs { ["regularizers"] = {}, ["accumulated gradients"] = { accumulate = 2 } } do
  test(what .. " on other devices than the output count as on one device (float64)", function()
    in_float64(function()
      local function trained(devices, first, last)
        local model, x, y = regularized(first, last), data()
        model:compile { optimizer = mgpu.optimizers.Adam { 0.01 }, loss = "sparse_categorical_crossentropy",
          devices = devices, accumulate = options.accumulate }
        return model, model:fit(x, y, { batch_size = 4, epochs = 2, verbose = 0, validation_data = { x, y } }).history
      end
      local serial, hs = trained("ref:0")
      for _, how in ipairs { { "ref:0", "ref:1", "ref:0" }, { "ref:0", "ref:1", "ref:2" },
        { { { "ref:0", "ref:1" } }, 1, 2 }, { { { "ref:0", "ref:1" }, { "ref:2", "ref:3" } }, 1, 2 },
        { { { "ref:0", "ref:1" }, { "ref:2", "ref:3" } }, 2, 1 } } do
        local model, h = trained(unpack(how))
        same(model, serial, h, hs)
      end
    end)
  end)
end

test("accumulated gradients are on the device of their weights, also after set_devices", function()
  local model, x, y = regularized("ref:1"), data()
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = "ref:0", accumulate = 2 }
  x = x:to "float32"
  model:fit(x, y, { batch_size = 8, verbose = 0 })
  model:set_devices "ref:2"
  model:fit(x, y, { batch_size = 8, verbose = 0 })
  for v, sum in pairs(model.compiled.sums) do check.equal(sum:device(), v:device()) end
  check.equal(model:get_layer "b".kernel:device(), "ref:2")
end)

test("a variable can be collected while it waits for a value from another device", function()
  for round = 1, 3 do
    mgpu.variable(core.place(mgpu.ones({ 3 }, { device = "ref:1" }) * round + 1, "ref:0") * 2)
    collectgarbage()
    collectgarbage()
    check.equal(mgpu.jit(function() return mgpu.ones { 2 }:sum() end)():item(), 2)
  end
end)

test("a variable's new value may come from its own device by way of another", function()
  local v = mgpu.variable(mgpu.ones({ 2 }, { device = "ref:0" }))
  v:assign(core.place(core.place(v:value() + 1, "ref:1") * 2, "ref:0"))
  check.equal(v:value(), { 4, 4 })
end)

test("a model on several devices has the same outputs and gradients without jit", function()
  in_float64(function()
    local serial, model, x = network(), network("ref:1", "ref:2"), data()
    check.near(model(x), serial(x), 1e-12)
    local function grads(m)
      return select(2, mgpu.value_and_grad(function() return m(x):square():sum() end,
        m.trainable_variables)())
    end
    local a, b = grads(serial), grads(model)
    for i = 1, #a do check.near(b[i], a[i], 1e-12) end
  end)
end)

test("with_device places the layers made in it, but a layer's own device wins", function()
  local a, b, c
  mgpu.with_device("ref:1", function()
    a, b = L.Dense { 2 }, L.Dense { 2, device = "ref:2" }
  end)
  c = L.Dense { 2 }
  check.equal({ a.device, b.device, c.device or "none" }, { "ref:1", "ref:2", "none" })
  check.equal(mgpu.with_device("ref:1", function() return 7 end), 7)
end)

test("a functional model with branches on two devices merges them", function()
  local x = mgpu.Input { 4 }
  local left = L.Dense { 3, device = "ref:1", name = "left" } (x)
  local right = L.Dense { 3, device = "ref:2", name = "right" } (x)
  local model = mgpu.Model { inputs = x, outputs = L.Dense { 1, name = "out" } (L.Add {} { left, right }) }
  model:compile { loss = "mse", optimizer = "sgd", devices = "ref:0" }
  local t = mgpu.rand { 12, 4 }
  local h = model:fit(t, t:sum { axis = 2, keepdims = true }, { epochs = 30, verbose = 0 }).history
  check.truthy(h.loss[30] < h.loss[1])
end)

test("the summary shows the devices of layers, and a saved model keeps them", function()
  local model = network("ref:1", "ref:2")
  check.matches(require "mgpu.nn.summary".text(model), "c (Dense) @ref:1")
  local path = check.path "placed.safetensors"
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again:get_layer "c".device, "ref:1")
  check.equal(again:get_layer "c".kernel:device(), "ref:1")
end)

-- In one plan two cpu devices share the cores, in the other one device has all of them.
test("a cpu device can have different numbers of threads in two models at the same time", function()
  check.needs "cpu"
  local function losses(another)
    mgpu.seed(1)
    local x, y, found = mgpu.randn { 64, 512 }, mgpu.randn { 64, 512 }, {}
    local function wide(second)
      local model = mgpu.Sequential { L.Input { 512 },
        L.Dense { 1024, name = "a", device = "cpu:0", activation = "selu" },
        L.Dense { 512, name = "b", device = second } }
      model:compile { loss = "mse", optimizer = mgpu.optimizers.Adam { amsgrad = true }, devices = "cpu:0" }
      return model
    end
    local model, other = wide "cpu:1", wide "ref:0"
    for i = 1, 5 do
      found[i] = model:train_on_batch(x, y).loss
      if another and i == 1 then other:predict(x:slice { { 1, 2 } }) end
    end
    return found
  end
  check.equal(losses(true), losses(false))
end)

-- ---- where a model was built --------------------------------------------------------------------

local function template(device)
  mgpu.seed(1)
  return mgpu.with_device(device, function()
    return mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "tanh", name = "a" },
      L.Dropout { 0.3, name = "d" }, L.Dense { 3, activation = "softmax", name = "e" } }
  end)
end

test("a model built in a with_device scope trains on the devices of its replicas (float64)", function()
  check.needs "cpu" -- for cpu_relocation
  in_float64(function()
    local P, two = mgpu.parallel, { "ref:0", "ref:1" }
    local serial = template "ref:2"
    local hs = fit(serial)
    check.equal(serial.variables[1]:device(), "ref:2")
    for _, make in pairs {
      multi_gpu_model = function(m) return P.multi_gpu_model(m, { gpus = two }) end,
      relocated = function(m) return P.multi_gpu_model(m, { gpus = two, cpu_relocation = true }) end,
      make_parallel = function(m) return P.make_parallel(m, two, { ps_device = "ref:2" }) end,
      compile = function(m) return m, two end,
      groups = function(m) return m, { { "ref:0", "ref:1" } } end,
    } do
      local model, devices = make(template "ref:2")
      same(model, serial, fit(model, devices), hs)
    end
  end)
end)

test("such a model can be built by its first use, and explained for absent devices", function()
  local model = mgpu.with_device("ref:2", function() return mgpu.Sequential { L.Dense { 4 }, L.Dense { 1 } } end)
  model:compile { loss = "mse", devices = { "ref:0", "ref:1" } }
  model:fit(mgpu.ones { 8, 4 }, mgpu.ones { 8, 1 }, { verbose = 0 })
  check.equal(model.variables[3]:device(), "ref:0")
  local another = template "ref:2"
  another:compile { loss = "sparse_categorical_crossentropy" }
  check.equal(#mgpu.explain(another, { devices = "cuda:0-1" }).devices, 2)
  check.equal(another.variables[1]:device(), "ref:2")
end)

test("a saved model keeps the devices of layers, but not the with_device scope", function()
  local path = check.path "template.safetensors"
  template "ref:2":save(path)
  check.equal(mgpu.load_model(path):get_layer "a".device, nil)
  check.equal(mgpu.with_device("ref:1", function() return mgpu.load_model(path) end):get_layer "a".device, "ref:1")
end)

test("data parallelism over layers placed on several devices is refused without groups", function()
  local two = { "ref:0", "ref:1" }
  local function scoped(name, device)
    return mgpu.with_device(device, function() return L.Dense { 3, activation = "softmax", name = name } end)
  end
  for _, layers in ipairs { { scoped("s1", "ref:0"), scoped("s2", "ref:1") },
    { scoped("s3", "ref:0"), L.Dense { 3, name = "s4", device = "ref:0" } },
    { scoped("s5", "ref:0"), L.Dropout { 0.5, device = "ref:1" } } } do
    check.raises(function() fit(mgpu.Sequential { L.Input { 6 }, unpack(layers) }, two) end, "give groups", "usage")
  end
end)

test("a placement that is impossible is an error with the reason", function()
  check.raises(function() fit(network(2), "ref:0") end, "needs device groups of at least 2", "usage")
  check.raises(function() fit(network("ref:1"), { "ref:0", "ref:1" }) end, "give groups", "usage")
  check.raises(function() fit(network(2), { { "ref:0", "ref:1" }, { "ref:2" } }) end,
    "group 2 must hold 2 names", "usage")
  check.raises(function() L.Dense { 2, device = "tpu:0" } end, "tpu")
  check.raises(function() L.Dense { 2, device = 0 } end, '"device"', "usage")
  check.raises(function() mgpu.with_device("ref:0", 5) end, "expected a function", "usage")
end)
