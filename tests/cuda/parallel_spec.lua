-- Parallel training gives the weights of serial training: on several cuda devices of one GPU, on two GPUs,
-- and together with devices of other kinds.
require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local in_float64 = require "fixtures".in_float64

local test = check.test
local L = mgpu.layers
local GPUS = #core.devices "cuda"

local function logical(n)
  local list = {}
  for i = 1, n do list[i] = "cuda:0/" .. i - 1 end
  return list
end

local function network()
  mgpu.seed(1)
  return mgpu.Sequential { L.Input { 12, 12, 1 },
    L.Conv2D { 4, 3, activation = "relu", name = "c1" },
    L.Conv2D { 8, 3, activation = "relu", name = "c2" }, L.BatchNormalization { name = "bn" },
    L.MaxPooling2D { 2 }, L.Dropout { 0.25, name = "d" }, L.Flatten {},
    L.Dense { 16, activation = "relu", name = "f1" }, L.Dense { 10, activation = "softmax", name = "f2" } }
end

local function fit(model, devices, options)
  options = options or {}
  mgpu.seed(7)
  local x = mgpu.rand({ 26, 12, 12, 1 }, { dtype = mgpu.ones { 1 }:dtype() })
  local y = mgpu.randint(0, 10, { 26 })
  mgpu.eval(x, y)
  mgpu.seed(5) -- for shuffling and dropout masks
  if options.home then
    model = mgpu.parallel.make_parallel(model, devices, { ps_device = options.home })
    devices = nil
  end
  model:compile { optimizer = mgpu.optimizers[options.optimizer or "RMSprop"] { 1e-3 },
    loss = "sparse_categorical_crossentropy", metrics = { "accuracy" }, devices = devices,
    accumulate = options.accumulate }
  return model:fit(x, y, { epochs = 4, batch_size = 10, verbose = 0 }).history
end

local function same_weights(serial, parallel, tolerance)
  local a, b = serial:get_weights(), parallel:get_weights()
  for i = 1, #a do check.near_norm(b[i]:reshape { -1 }, a[i]:reshape { -1 }, tolerance) end
end

-- The tolerance: twelve steps with sums in another order. The batches of 10 and 6 rows leave some of four
-- devices with a single row.
local function trains_alike(devices, options)
  in_float64(function()
    local serial, parallel = network(), network()
    local h = fit(serial, "ref:0", { accumulate = options and options.accumulate })
    local hp = fit(parallel, devices, options)
    same_weights(serial, parallel, 1e-11)
    check.near(hp.loss, h.loss, 1e-11)
    check.equal(hp.accuracy, h.accuracy)
  end)
end

for _, n in ipairs { 1, 2, 4 } do
  test(("%d devices on one GPU train as ref does (float64)"):format(n), function()
    trains_alike(logical(n))
  end)
end

for where, home in pairs { ["the host"] = "ref:0", ["one of the devices of a GPU"] = "cuda:0/1" } do
  test("central: the weights on " .. where, function()
    trains_alike(logical(2), { home = home })
  end)
end

test("accumulated gradients on devices of one GPU", function()
  trains_alike(logical(2), { accumulate = 2 })
end)

test("a GPU together with a device of another kind, through the host", function()
  trains_alike { "cuda:0", "ref:0", "cuda:0/1" }
end)

test("two GPUs", function()
  if GPUS < 2 then check.skip "one GPU" end
  trains_alike { "cuda:0", "cuda:1" }
end)

for what, groups in pairs {
  ["pipeline: layers on different devices of one GPU"] = { { "cuda:0", "cuda:0/1" }, { "cuda:0/2", "cuda:0/3" } },
  -- rows are exchanged by the GPUs' streams, layers through the host
  ["pipeline: layers on different GPUs, each with two devices"] =
    { { "cuda:0", "cuda:0/1" }, { "cuda:1", "cuda:1/1" } },
} do
  test(what, function()
    if GPUS < 2 and groups[2][1] == "cuda:1" then check.skip "one GPU" end
    local function stack(device)
      mgpu.seed(1)
      return mgpu.Sequential { L.Input { 12, 12, 1 },
        L.Conv2D { 4, 3, activation = "relu", name = "c1" },
        L.Flatten {}, L.Dense { 10, activation = "softmax", name = "f", device = device } }
    end
    in_float64(function()
      local serial, parallel = stack(nil), stack(2)
      local h = fit(serial, "ref:0")
      local hp = fit(parallel, groups)
      same_weights(serial, parallel, 1e-11)
      check.near(hp.loss, h.loss, 1e-11)
    end)
  end)
end

test("asynchronous training on three devices of one GPU converges", function()
  local x, y = {}, {}
  for i = 1, 90 do
    local class = i % 3
    x[i], y[i] = { class + i % 4 / 10, (class == 1 and 1 or 0) + i % 5 / 10 }, class
  end
  x, y = mgpu.tensor(x), mgpu.tensor(y, { dtype = "int32" })
  for seed = 1, 3 do
    mgpu.seed(seed)
    local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 16, activation = "tanh" }, L.Dropout { 0.1 },
      L.Dense { 3, activation = "softmax" } }
    model:compile { loss = "sparse_categorical_crossentropy", optimizer = mgpu.optimizers.SGD { 0.2 },
      devices = logical(3), strategy = "async" }
    local h = model:fit(x, y, { epochs = 20, batch_size = 10, verbose = 0 }).history
    check.truthy(h.loss[20] < h.loss[1] / 4, "the loss falls")
  end
end)

-- Without deterministic mode the fastest kernel may add in any order.
test("in deterministic mode two runs give the same bits", function()
  core.deterministic(true)
  local a, b = network(), network()
  local ok, problem = pcall(function()
    fit(a, logical(2))
    fit(b, logical(2))
  end)
  core.deterministic(false)
  if not ok then error(problem, 0) end
  same_weights(a, b, 0)
end)

test("training continues on one device, then on ref, after two devices of a GPU", function()
  in_float64(function()
    local serial, moved = network(), network()
    fit(serial, "ref:0")
    fit(moved, logical(2))
    moved:set_devices "cuda:0"
    serial:set_devices "ref:0"
    local x, y = mgpu.ones { 10, 12, 12, 1 }, mgpu.zeros({ 10 }, { dtype = "int32" })
    local function step(model)
      mgpu.seed(3) -- for the dropout mask
      model:train_on_batch(x, y)
    end
    step(serial)
    step(moved)
    moved:set_devices "ref:0"
    step(serial)
    step(moved)
    same_weights(serial, moved, 1e-10)
  end)
end)
