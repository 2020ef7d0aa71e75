-- The different ways to ask for data parallelism: multi_gpu_model, make_parallel, strategy scopes, and lists
-- of devices.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function network()
  return mgpu.Sequential { L.Input { 6 }, L.Dense { 4, activation = "relu" }, L.Dense { 10, activation = "softmax" } }
end

local parallel = mgpu.parallel

test("make_parallel returns a model with the serial model's weights, names and summary", function()
  local serial = network()
  local model = parallel.make_parallel(serial, { "ref:0", "ref:1" })
  local x, y = mgpu.rand { 20, 6 }, mgpu.randint(0, 10, { 20 })
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  model:fit(x, y, { verbose = 0 })
  check.equal(model.compiled.spread.devices, { "ref:0", "ref:1" })
  check.equal(model.variables[1].name, serial.variables[1].name)
  check.equal(serial:get_weights()[1], model:get_weights()[1])
  check.equal(serial.compiled, nil)
  local a, b = check.path "a.safetensors", check.path "b.safetensors"
  serial:save_weights(a)
  model:save_weights(b)
  check.equal(check.read(a), check.read(b))
  check.equal(#model.layers, #serial.layers)
end)

test("a list of devices can be a string in the form of --devices", function()
  local function compiled(list, model)
    model = model or network()
    model:compile { loss = "mse", devices = list }
    return table.concat(model.compiled.devices, " ")
  end
  check.equal(compiled "ref:0-3", "ref:0 ref:1 ref:2 ref:3")
  check.equal(compiled "ref:0,2", "ref:0 ref:2")
  check.equal(compiled { "ref:0-1", "ref:4" }, "ref:0 ref:1 ref:4")
  check.equal(compiled { { "ref:0-1" }, { "ref:2-3" } }, "ref:0 ref:2 ref:1 ref:3")
  check.equal(compiled "ref", "ref:0")
  check.equal(compiled(nil, parallel.multi_gpu_model(network(), { gpus = "ref:0-1" })), "ref:0 ref:1")
  check.equal(compiled(nil, parallel.make_parallel(network(), "ref:0-1")), "ref:0 ref:1")
  check.equal(parallel.strategy("mirrored", { devices = "ref:0-2" }).num_replicas_in_sync, 3)
  for _, text in ipairs { "ref:3-1", "ref:x", "ref:0/x", "ref 0" } do
    check.raises(function() compiled(text) end, ('cannot read "%s"'):format(text), "usage")
  end
  check.raises(function() compiled "ref:0-99999999" end, "device numbers go up to 63", "usage")
  check.raises(function() compiled "ref:0,0" end, "given twice", "usage")
  check.raises(function() compiled "," end, "a name is empty", "usage")
end)

test("make_parallel with fewer than two devices returns the model itself", function()
  local model = network()
  check.truthy(parallel.make_parallel(model, { "ref:0" }) == model)
  check.truthy(parallel.make_parallel(model, {}) == model)
end)

test("multi_gpu_model takes a list and refuses one device", function()
  local model = parallel.multi_gpu_model(network(), { gpus = { "ref:0", "ref:1" } })
  model:compile { loss = "mse" }
  check.equal(model.compiled.devices, { "ref:0", "ref:1" })
  check.raises(function() parallel.multi_gpu_model(network(), { gpus = 1 }) end, "at least 2", "usage")
  check.raises(function() parallel.multi_gpu_model(network(), { gpus = 99 }) end, "these are visible", "usage")
  check.raises(function() parallel.multi_gpu_model(network(), { gpu = 2 }) end, '"gpus"', "usage")
end)

test("make_parallel's options of the original without a meaning here are reported once", function()
  local said, before = {}, mgpu.output
  mgpu.output = function(text) said[#said + 1] = text end
  parallel.make_parallel(network(), { "ref:0", "ref:1" },
    { initsync = true, syncopt = false, enqueue = false, usenccl = false }) -- the defaults of the original
  check.equal(said, {})
  for _ = 1, 2 do
    parallel.make_parallel(network(), { "ref:0", "ref:1" }, { enqueue = true, initsync = false })
  end
  mgpu.output = before
  check.equal(#said, 2)
  check.matches(table.concat(said), "enqueue has no effect")
end)

test("a strategy's scope makes the models compiled in it parallel", function()
  local s = parallel.strategy("mirrored", { devices = { "ref:0", "ref:1", "ref:2" } })
  check.equal(s.num_replicas_in_sync, 3)
  local model = s:scope(function()
    local m = network()
    m:compile { loss = "mse" }
    return m
  end)
  check.equal(#model.compiled.devices, 3)
  local outside = network()
  outside:compile { loss = "mse" }
  check.equal(outside.compiled.devices, nil)
  local later = s:scope(network)
  later:compile { loss = "mse" }
  check.equal(#later.compiled.devices, 3)
end)

test("an error in a scope closes it", function()
  local s = parallel.strategy("mirrored", { devices = { "ref:0", "ref:1" } })
  check.raises(function() s:scope(function() error("mine", 0) end) end, "mine")
  check.equal(parallel.current(), nil)
end)
