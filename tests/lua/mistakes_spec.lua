-- Mistakes that newcomers make, each answered by one sentence at the user's line.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local L = mgpu.layers
local test = check.test

local function dense(options)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  model:compile { loss = "mse", devices = options and options.devices }
  return model
end

-- ---- classes ------------------------------------------------------------------------------------

test("a class called with several arguments says that it wants one table", function()
  check.raises(function() L.Conv2D(16, 3) end, "mistakes_spec.lua:%d+: Conv2D takes one table of options: "
    .. "write Conv2D {16, 3}", "usage")
  check.raises(function() L.Dense({ 3 }, "relu") end, "write Dense {...}", "usage")
  check.raises(function() mgpu.optimizers.SGD(0.1, 0.9) end, "write SGD {0.1, momentum = 0.9}", "usage")
  check.raises(function() mgpu.metrics.Mean("a", "b") end, 'write Mean {"a", "b"}', "usage")
  check.raises(function() mgpu.callbacks.EarlyStopping("loss", 2) end, 'write EarlyStopping {"loss", min_delta = 2}',
    "usage")
  check.raises(function() mgpu.schedules.ExponentialDecay(0.1, 2) end, "write ExponentialDecay {0.1, 2}", "usage")
end)

-- ---- methods ------------------------------------------------------------------------------------

test("a method called with a dot says that it wants a colon", function()
  local model, x, y = dense(), mgpu.ones { 3, 2 }, mgpu.ones { 3, 1 }
  check.raises(function() model.fit(x, y) end, "mistakes_spec.lua:%d+: .*colon: write model:fit%(%.%.%.%)", "usage")
  check.raises(function() model.predict(x) end, "model:predict%(", "usage")
  check.raises(function() model.summary() end, "model:summary%(", "usage")
  check.raises(function() model.compile { loss = "mse" } end, "model:compile%(", "usage")
  check.raises(function() mgpu.optimizers.SGD {}.apply({}, {}) end, "write opt:apply%(grads, variables%)", "usage")
  check.raises(function() mgpu.metrics.Mean {}.update(3) end, "write metric:update%(%.%.%.%)", "usage")
  check.raises(function() mgpu.metrics.AUC {}.result() end, "write metric:result%(%.%.%.%)", "usage")
end)

test("a misspelt method of a model names the nearest one, other missing fields are nil", function()
  local model = dense()
  check.raises(function() model:evalute() end, 'Sequential "sequential.*": there is no "evalute" %(did you mean '
    .. '"evaluate"%?%)', "usage")
  check.raises(function() model:fitt() end, '"fit"', "usage")
  check.raises(function() model:save_weigths "x" end, '"save_weights"', "usage")
  for _, key in ipairs { "history", "best", "input_names", "fitting" } do check.equal(model[key], nil) end
end)

test("x.shape[1] says that shape is a method", function()
  for _, x in ipairs { mgpu.ones { 2 }, mgpu.variable(mgpu.tensor { 2 }), mgpu.Input { 3 } } do
    check.raises(function() return x.shape[1] end, "mistakes_spec.lua:%d+: .*write t:shape%(%)%[1%]", "usage")
    check.raises(function() return #x.shape end, "write t:shape", "usage")
  end
  check.equal(mgpu.ones { 2, 3 }:shape(), { 2, 3 })
end)

test("names of other frameworks lead to ours", function()
  local x, model, opt = mgpu.ones { 2, 2 }, dense(), mgpu.optimizers.Adam {}
  check.raises(function() return x:view(4) end, 'mistakes_spec.lua:%d+: a tensor has no method "view": write '
    .. 't:reshape', "usage")
  check.raises(function() return x:mm(x) end, "t:matmul%(u%)", "usage")
  check.raises(function() return x:backward() end, "mgpu.value_and_grad", "usage")
  check.raises(function() return mgpu.nn.Linear(3) end, 'mgpu has no "nn": write mgpu.layers', "usage")
  check.raises(function() return L.Linear { 3 } end, 'unknown layer "Linear": write Dense', "usage")
  check.raises(function() return L.Conv2d { 3, 3 } end, "Conv2D", "usage")
  check.raises(function() return model:parameters() end, "model.trainable_variables", "usage")
  check.raises(function() return opt:step() end, "write opt:apply%(grads, variables%)", "usage")
  check.raises(function() return opt.lr end, "opt.learning_rate", "usage")
  check.raises(function() model:compile { loss = "crossentropy" } end, "sparse_categorical_crossentropy", "usage")
  check.raises(function() return x:softmax { dim = 1 } end, 'did you mean "axis"', "usage")
end)

test("a field of an optimizer that would have no effect cannot be set", function()
  for _, opt in ipairs { mgpu.optimizers.Adam {}, mgpu.optimizers.LossScaleOptimizer { "adam" } } do
    check.raises(function() opt.lr = 0.1 end, 'there is no "lr": write opt.learning_rate', "usage")
    check.raises(function() opt.learnin_rate = 0.1 end, 'did you mean "learning_rate"', "usage")
    opt.learning_rate, opt.mine = 0.25, "kept"
    check.equal({ opt.learning_rate, opt.mine }, { 0.25, "kept" })
  end
  local opt = mgpu.optimizers.Adam {}
  check.raises(function() opt.beta_1 = 0.5 end, '"beta_1" is fixed when the optimizer is made', "usage")
end)

test("only similar names are suggested, those with the same beginning first", function()
  local x, v = mgpu.ones { 2 }, mgpu.variable(mgpu.tensor { 2, 3 })
  check.raises(function() return x:wibble() end, 'a tensor has no method "wibble"$')
  check.raises(function() return mgpu.nm end, 'mgpu has no "nm"$')
  check.raises(function() return v:asign(x) end, 'a variable has no method "asign" %(did you mean "assign"%?%)$')
  check.raises(function() return x:matmull(x) end, 'a tensor has no method "matmull" %(did you mean "matmul"%?%)$')
end)

test("what is advised for a foreign name exists", function()
  local n, dataset = 0, require "mgpu.data.dataset"
  require "mgpu.foreign_names".each(function(kind, name, ours)
    n = n + 1
    for method in ours:gmatch "%f[%a]t:([%a_]+)" do
      check.truthy(core.methods[method], ("%s %s: t:%s"):format(kind, name, method))
    end
    for field in ours:gmatch "mgpu%.([%a_]+)" do
      check.truthy(mgpu[field], ("%s %s: mgpu.%s"):format(kind, name, field))
    end
    for method in ours:gmatch "model:([%a_]+)" do
      check.truthy(dense()[method], ("%s %s: model:%s"):format(kind, name, method))
    end
    for method in ours:gmatch "%f[%a]ds:([%a_]+)" do check.truthy(dataset.methods[method], name) end
    for source in ours:gmatch "mgpu%.data%.([%a_]+)" do check.truthy(mgpu.data[source], name) end
    if kind == "dataset" then check.falsy(dataset.methods[name], name .. " is a method") end
    if kind == "data source" then check.falsy(pcall(function() return mgpu.data[name] end), name .. " is a source") end
    if kind == "layer" and ours:match "^%u" then check.truthy(L[ours:match "^%w+"], name) end
    if kind == "tensor" then check.truthy(not core.methods[name], name .. " is a method") end
    if kind == "layer" then check.truthy(not pcall(function() return L[name] end), name .. " is a layer") end
  end)
  check.truthy(n > 150)
end)

-- ---- options and names --------------------------------------------------------------------------

test("options by the names of other frameworks are answered with ours", function()
  check.raises(function() mgpu.optimizers.Adam { lr = 1e-3 } end, '"lr" %(did you mean "learning_rate"%?%)', "usage")
  check.raises(function() L.Dense { 3, bias = false } end, '"use_bias"', "usage")
  check.raises(function() dense():fit(mgpu.ones { 3, 2 }, mgpu.ones { 3, 1 }, { nb_epoch = 2 }) end, '"epochs"',
    "usage")
end)

test("layers that do not exist and options that do not exist yet say so", function()
  check.raises(function() return L.Lstmm end, "unknown layer", "usage")
end)

-- ---- devices ------------------------------------------------------------------------------------

test("a GPU that is not there is named, with what is visible", function()
  if #core.devices "gpu" > 0 then check.skip "this machine has a GPU" end
  for _, use in ipairs { function() print(mgpu.ones({ 2 }, { device = "gpu:3" })) end,
    function() print(mgpu.tensor({ 2 }, { device = "gpu:3" })) end,
    function() print(mgpu.ones { 2 }:to "gpu:3") end,
    function() print(L.Dense { 1, device = "gpu:3" }) end,
    function() mgpu.with_device("gpu:3", print) end,
    function() dense { devices = "gpu:3" } end } do
    check.raises(use, 'mistakes_spec.lua:%d+: device "gpu:3" is not there; visible: cpu:0')
  end
  check.raises(function() mgpu.parallel.get_available_gpus(5) end,
    "get_available_gpus: 5 GPUs were asked for, but none is visible", "usage")
end)

test("devices that --devices leaves out are refused", function()
  local script = check.path "outside.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local L = mgpu.layers
local function model(devices)
  local m = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  m:compile { loss = "mse", devices = devices }
  return m
end
local function try(fn) print(pcall(fn)) end
try(function() model { "cpu:1", "cpu:5" } end)
try(function() model { ["cpu:1"] = 1, ["cpu:5"] = 2 } end)
try(function() model "cpu:1":set_devices "cpu:0" end)
try(function() L.Dense { 1, device = "cpu:5" } end)
try(function() mgpu.with_device("cpu:5", print) end)
try(function() mgpu.ones { 2 }:to "cpu:5" end)
try(function() mgpu.tensor({ 2 }, { device = "cpu:5" }) end)
try(function() mgpu.parallel.make_parallel(model(), { "cpu:1", "cpu:5" }) end)
model { "cpu:1", "cpu:2" }
print(mgpu.ones { 2 }:to "cpu:0":device(), "the host stays")
]])
  local output = check.run(("%s --devices cpu:1-2 %s 2>&1"):format(check.program, script))
  local _, n = output:gsub('false\t[^\n]*outside.lua:%d+: device "cpu:[05]" is not visible: %-%-devices names cpu:1, '
    .. "cpu:2\n", "")
  check.equal(n, 8)
  check.matches(output, "cpu:0\tthe host stays")
end)

test("with_device places the tensors made inside, too", function()
  local made = mgpu.with_device("ref:1", function()
    return { mgpu.ones { 2 }, mgpu.tensor { 1, 2 }, mgpu.rand { 3 }, mgpu.tensor(3), mgpu.arange(4) }
  end)
  for _, t in ipairs(made) do check.equal(t:device(), "ref:1") end
  check.raises(function() mgpu.with_device("ref:1", function() error "mine" end) end, "mine")
  check.equal(mgpu.ones { 2 }:device(), core.default_device())
  check.equal(core.default_device() ~= "ref:1", true)
end)

-- ---- sizes and ids ------------------------------------------------------------------------------

test("memory is told in units, and large counts are whole", function()
  local script = check.path "large.lua"
  check.write(script, "print(pcall(function() require 'mgpu'.ones { 1e5, 1e5 }:sum(1):totable() end))\n"
    .. "print(pcall(function() require 'mgpu'.randn { 1e5, 1e4 }:totable() end))")
  local output = check.run(("MGPU_MEMORY=cpu:0=1500M %s %s 2>&1"):format(check.program, script))
  check.matches(output, "asked 3%.7 GiB, used")
  check.matches(output, "limit 1%.5 GiB")
  check.raises(function() mgpu.ones { 1e6, 1e6 }:item() end, "has 1000000000000 elements", "usage")
end)

test("gather refuses ids outside, eagerly and in a jitted step", function()
  local x, int = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = "int32" }
  check.equal(x:gather(mgpu.tensor({ 2, 0 }, int), 2), { { 3, 1 }, { 6, 4 } })
  check.equal(mgpu.gather(x, mgpu.tensor(1, int)), { 4, 5, 6 })
  check.equal(x:gather(mgpu.tensor({}, int)):shape(), { 0, 3 })
  for _, id in ipairs { 2, -1 } do
    check.raises(function() x:gather(mgpu.tensor({ 0, id }, int)) end, "gather: an id is not among 0 to 1, the places "
      .. "of axis 1 from 0", "data")
  end
  local step = mgpu.jit(function(t, ids) return t:gather(ids, { axis = -1 }) end)
  check.equal(step(x, mgpu.tensor({ 0 }, int)), { { 1 }, { 4 } })
  check.raises(function() step(x, mgpu.tensor({ 3 }, int)) end, "not among 0 to 2, the places of axis 2", "data")
  check.raises(function() x:gather(mgpu.tensor { 0.5 }) end, "must hold integers", "usage")
  check.raises(function() x:gather(mgpu.tensor({ 0 }, int), 3) end, "axis 3", "usage")
end)

test("concat and stack take any number of tensors", function()
  local list, sum = {}, 0
  for i = 1, 600 do list[i], sum = mgpu.full({ 1, 2 }, i), sum + i end
  check.equal(mgpu.concat(list):shape(), { 600, 2 })
  check.equal(mgpu.concat(list, { axis = 2 }):sum():item(), 2 * sum)
  check.equal(mgpu.concat(unpack(list, 1, 300)):shape(), { 300, 2 })
  check.equal(mgpu.stack(list):shape(), { 600, 1, 2 })
  check.equal(list[1]:concat(list[2], 2), { { 1, 1, 2, 2 } })
  list[400] = nil
  check.raises(function() mgpu.concat(list) end, "concat: .*entry 400 is missing", "usage")
end)

test("more than 255 gradients are guarded", function()
  local list = {}
  for i = 1, 600 do list[i] = mgpu.ones { 1 } end
  core.guard_finite(list, "bad")
  list[599] = mgpu.full({ 1 }, 0 / 0)
  check.raises(function() core.guard_finite(list, "bad") end, "bad", "nonfinite")
end)
