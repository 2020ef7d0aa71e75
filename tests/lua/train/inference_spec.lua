-- mgpu.compile_inference and repeated predictions: the numbers of model(x), also after the weights have changed; plans
-- that keep what depends on the weights alone; errors.

local check = require "check"
local check_close = require "fixtures".check_close
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

-- Statistics and scales that differ from channel to channel, so that folding them changes the numbers.
local function unsettle(model)
  for _, v in ipairs(model.variables) do
    local name = v.name
    if name:find "variance" or name:find "gamma" then
      v:assign(mgpu.rand(v:shape()) + 0.5)
    elseif name:find "mean" or name:find "beta" or name:find "bias" then
      v:assign(mgpu.rand(v:shape()) - 0.5)
    end
  end
end

local function input_of(model, rows)
  local shape = model.built_shape
  if type(shape[1]) == "table" then shape = shape[1] end
  return mgpu.rand { rows, unpack(shape, 2) }
end

local function check_predictions(model, rows, what)
  local x = input_of(model, rows)
  local f = mgpu.compile_inference(model)
  local wanted = model(x)
  core.eval(wanted)
  for round = 1, 2 do
    check_close(f(x), wanted, ("%s, %d rows, f, round %d"):format(what, rows, round))
    check_close(model:predict(x), wanted, ("%s, %d rows, predict, round %d"):format(what, rows, round))
    check_close(model:predict_on_batch(x), wanted, ("%s, %d rows, predict_on_batch"):format(what, rows))
  end
end

-- ---- the same numbers ---------------------------------------------------------------------------

local function small_net()
  return mgpu.Sequential { L.Input { 13, 17, 3 },
    L.Conv2D { 8, 3, padding = "same", use_bias = false }, L.BatchNormalization {}, L.ReLU {},
    L.DepthwiseConv2D { 3, strides = 2, padding = "same" }, L.BatchNormalization {}, L.ReLU {},
    L.Conv2D { 16, 1 }, L.BatchNormalization {}, L.Dropout { 0.5 }, L.Conv2D { 24, 3, activation = "relu" },
    L.BatchNormalization {}, L.MaxPooling2D { 2 }, L.Conv2D { 20, 3, padding = "same" }, L.Flatten {},
    L.Dense { 10, use_bias = false }, L.BatchNormalization {}, L.Dense { 5 } }
end

test("a net with folded normalization predicts the numbers of model(x)", function()
  local model = small_net()
  unsettle(model)
  for _, rows in ipairs { 1, 3, 16 } do check_predictions(model, rows, "net") end
end)

local ZOO = {
  { "lenet5" }, { "mlp" }, { "mnist_cnn" }, { "cifar10_cnn_small" },
  { "mobilenet_v2", { input_shape = { 35, 45, 3 }, classes = 7 } },
  { "resnet18", { input_shape = { 33, 47, 3 }, classes = 7 } },
  { "resnet50", { input_shape = { 33, 33, 3 }, classes = 7 }, slow = true },
  { "vgg16", { input_shape = { 32, 32, 3 }, classes = 7 }, slow = true },
  { "densenet121", { input_shape = { 33, 33, 3 }, classes = 7 }, slow = true },
  { "efficientnet_b0", { input_shape = { 35, 35, 3 }, classes = 7 }, slow = true },
  { "convnext", { input_shape = { 33, 33, 3 }, classes = 7 }, slow = true },
}

for _, case in ipairs(ZOO) do
  local name, options = unpack(case)
  test(name .. " predicts the numbers of model(x)", function()
    if case.slow then check.slow() end
    local model = mgpu.models[name](options)
    unsettle(model)
    for _, rows in ipairs { 1, 3, 16 } do check_predictions(model, rows, name) end
  end)
end

-- Runs in a process with this environment: the instruction set and the number of threads are those of the process.
local ELSEWHERE = [[
  local mgpu = require "mgpu"
  local L = mgpu.layers
  mgpu.seed(3)
  local model = mgpu.Sequential { L.Input { 15, 13, 4 }, L.Conv2D { 16, 3, padding = "same" },
    L.BatchNormalization { gamma_initializer = "he_normal" }, L.ReLU {}, L.DepthwiseConv2D { 3 }, L.Conv2D { 20, 1 },
    L.Conv2D { 8, 5, strides = 2 }, L.Conv2D { 40, 3, padding = "same" }, L.Flatten {}, L.Dense { 30 }, L.Dense { 3 } }
  for _, threads in ipairs { false, 1, 2 } do
    local f = mgpu.compile_inference(model, { threads = threads or nil })
    for _, rows in ipairs { 1, 3, 16 } do
      local x = mgpu.rand { rows, 15, 13, 4 }
      for _ = 1, 2 do
        local y, wanted = f(x), model(x)
        assert((y - wanted):abs():max():item() <= 1e-5 * wanted:abs():max():item())
      end
    end
  end
  print "equal"
]]

for _, isa in ipairs { "avx512", "avx2", "baseline" } do
  test("predictions are those of model(x) with MGPU_ISA=" .. isa .. " and 1, 2 and 3 threads", function()
    check.needs "cpu"
    local path = check.path "elsewhere.lua"
    check.write(path, ELSEWHERE)
    for threads = 1, 3 do
      local said = check.run(("MGPU_ISA=%s MGPU_THREADS=%d %s %s 2>&1"):format(isa, threads, check.program, path))
      if said:find "MGPU_ISA" and not said:find "equal" then check.skip("this processor has no " .. isa) end
      check.matches(said, "equal")
    end
  end)
end

-- Convolutions of every kind that keeps transformed or packed filters: 3x3 of few and many channels on small, odd and
-- large images, 5x5, strides, a 7x7 of RGB, 1x1 with and without stride, groups; dense layers.
local CONVOLUTIONS = [[
  local mgpu = require "mgpu"
  local core = require "mgpu.core"
  local L = mgpu.layers
  mgpu.seed(5)
  local cases = {
    { { 9, 7, 96 }, L.Conv2D { 160, 3, padding = "same", activation = "relu" } },
    { { 7, 7, 300 }, L.Conv2D { 290, 3, padding = "same" } },
    { { 14, 15, 64 }, L.Conv2D { 96, 3, padding = "same", activation = "relu" } },
    { { 23, 22, 40 }, L.Conv2D { 50, 3 } }, { { 37, 41, 17 }, L.Conv2D { 33, 3, padding = "same" } },
    { { 16, 13, 48 }, L.Conv2D { 64, 5, padding = "same" } }, { { 12, 12, 32 }, L.Conv2D { 40, 2 } },
    { { 13, 15, 32 }, L.Conv2D { 64, 4, padding = "same", use_bias = false } },
    { { 29, 31, 32 }, L.Conv2D { 64, 3, strides = 2, padding = "same", activation = "relu" } },
    { { 45, 39, 3 }, L.Conv2D { 32, 7, strides = 2, padding = "same", activation = "relu" } },
    { { 9, 11, 72 }, L.Conv2D { 136, 1 } }, { { 9, 11, 72 }, L.Conv2D { 131, 1, strides = 2, activation = "relu" } },
    { { 9, 11, 72 }, L.Conv2D { 48, 3, groups = 4, padding = "same" } },
    { { 10, 10, 24 }, L.Conv2D { 40, 3, dilation_rate = 2 } }, { { 700 }, L.Dense { 130, activation = "relu" } },
    { { 5, 90 }, L.Dense { 70, use_bias = false } }, { { 3000 }, L.Dense { 3 } },
  }
  for i, case in ipairs(cases) do
    local model = mgpu.Sequential { mgpu.Input(case[1]), case[2] }
    for _, v in ipairs(model.variables) do v:assign(mgpu.rand(v:shape()) - 0.5) end
    for _, rows in ipairs { 1, 3, 16 } do
      local f = mgpu.compile_inference(model, { batch = rows })
      local x = mgpu.rand { rows, unpack(case[1]) } - 0.5
      for _ = 1, 2 do
        local y, wanted = f(x), model(x)
        local off = (y - wanted):abs():max():item() / wanted:abs():max():item()
        assert(off <= 1e-5, ("case %d, %d rows: off by %g"):format(i, rows, off))
        for _, v in ipairs(model.variables) do v:assign(v * 1.5 + 0.1) end
      end
    end
  end
  print "equal"
]]

for _, isa in ipairs { "avx512", "avx2", "baseline" } do
  test("convolutions and products with kept filters are those of model(x), MGPU_ISA=" .. isa, function()
    check.needs "cpu"
    local path = check.path "convolutions.lua"
    check.write(path, CONVOLUTIONS)
    for threads = 1, 3 do
      for _, onednn in ipairs { "yes", "no" } do
        local said = check.run(("MGPU_ONEDNN=%s MGPU_ISA=%s MGPU_THREADS=%d %s %s 2>&1"):format(onednn, isa, threads,
          check.program, path))
        if said:find "MGPU_ISA" and not said:find "equal" then check.skip("this processor has no " .. isa) end
        check.matches(said, "equal")
      end
    end
  end)
end

test("several inputs are given by position, as an array or by name; several outputs come as an array", function()
  local a, b = mgpu.Input { 3, name = "a" }, mgpu.Input { 2, name = "b" }
  local h = L.Concatenate {} { L.Dense { 4, activation = "relu" } (a), b }
  local model = mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 2 } (h), L.Dense { 1 } (h) } }
  local f = mgpu.compile_inference(model)
  local x, z = mgpu.rand { 4, 3 }, mgpu.rand { 4, 2 }
  local wanted = model { x, z }
  for _, got in ipairs { f(x, z), f { x, z }, f { a = x, b = z }, model:predict { x, z }, model:predict { x, z } } do
    for i = 1, 2 do check_close(got[i], wanted[i], "output " .. i) end
  end
end)

test("one net predicts on a device, on several devices and on ref alike", function()
  check.needs "cpu"
  local model = small_net()
  unsettle(model)
  local x = mgpu.rand { 5, 13, 17, 3 }
  local wanted = model(x)
  core.eval(wanted)
  model:compile { loss = "mse", devices = { "cpu:0", "cpu:1" } }
  check_close(mgpu.compile_inference(model)(x):to "cpu:0", wanted, "two devices")
  check_close(model:predict(x):to "cpu:0", wanted, "predict on two devices")
  model:compile { loss = "mse", devices = { "ref" } }
  local f = mgpu.compile_inference(model)
  for _ = 1, 2 do check_close(f(x):to "cpu:0", wanted, "ref") end
end)

test("precision is that of the function, not of the model", function()
  local model = mgpu.Sequential { L.Input { 8 }, L.Dense { 16, activation = "relu" }, L.Dense { 4 } }
  local f = mgpu.compile_inference(model, { precision = "mixed_bfloat16" })
  local x = mgpu.rand { 2, 8 }
  check.equal(f(x):dtype(), "bfloat16")
  check.equal(model(x):dtype(), "float32")
  check.equal(model.dtype_policy.name, "float32")
  check.near(f(x):cast "float32":totable(), model(x):totable(), 0.05)
end)

test("text goes through the part on the host", function()
  local model = mgpu.Sequential { mgpu.Input { 1, dtype = "string" },
    L.Hashing { num_bins = 8 }, L.Embedding { 8, 4 }, L.Flatten {}, L.Dense { 2 } }
  local f = mgpu.compile_inference(model)
  local texts = { "red", "green", "blue" }
  check_close(f(texts), model(texts), "texts")
end)

-- ---- weights that change ------------------------------------------------------------------------

-- Predictions before and after change() differ, and both are those of model(x).
local function check_change(model, change, what)
  local x = input_of(model, 3)
  local f = mgpu.compile_inference(model, { batch = 3 })
  local before = f(x)
  core.eval(before)
  check_close(before, model(x), what .. ", before")
  check_close(model:predict(x), before, what .. ", predict before")
  change()
  local after = f(x)
  check_close(after, model(x), what .. ", after")
  check_close(model:predict(x), after, what .. ", predict after")
  if (after - before):abs():max():item() == 0 then check.fail(what .. " changed no prediction") end
end

test("a weight that is assigned is noticed at the next call", function()
  local model = small_net()
  unsettle(model)
  for i, v in ipairs(model.variables) do
    check_change(model, function() v:assign(v * 1.1 + 0.05) end, "variable " .. i .. " " .. v.name)
  end
end)

test("weights and statistics that a step of training has changed are noticed", function()
  local model = small_net()
  model:compile { optimizer = mgpu.optimizers.SGD { 0.1 }, loss = "mse" }
  local x, y = mgpu.rand { 8, 13, 17, 3 }, mgpu.rand { 8, 5 }
  check_change(model, function() model:fit(x, y, { verbose = 0 }) end, "fit")
  check_change(model, function() model:train_on_batch(x, y) end, "train_on_batch")
  check_change(model, function()
    local optimizer = mgpu.optimizers.SGD { 0.1 }
    local _, grads = mgpu.value_and_grad(function() return model(x, { training = true }):square():mean() end,
      model.trainable_variables)()
    optimizer:apply(grads, model.trainable_variables)
  end, "an optimizer's step")
  check_change(model, function() core.eval(model(mgpu.rand { 8, 13, 17, 3 } + 3, { training = true })) end,
    "statistics of a call")
end)

test("set_weights and load_weights are noticed", function()
  local model, other = small_net(), small_net()
  unsettle(other)
  check_change(model, function() model:set_weights(other:get_weights()) end, "set_weights")
  local path = check.path "other.safetensors"
  unsettle(other)
  other:save_weights(path)
  check_change(model, function() model:load_weights(path) end, "load_weights")
end)

test("a function that was made before follows the weights of a model in training", function()
  local model = small_net()
  model:compile { optimizer = mgpu.optimizers.SGD { 0.1 }, loss = "mse" }
  local f, x, y = mgpu.compile_inference(model), mgpu.rand { 8, 13, 17, 3 }, mgpu.rand { 8, 5 }
  for _ = 1, 4 do
    model:train_on_batch(x, y)
    check_close(f(x), model(x), "after a step")
  end
end)

test("layers that are added, removed or quantized are noticed by compile_inference", function()
  local model = small_net()
  unsettle(model)
  local x = input_of(model, 2)
  local fs = { mgpu.compile_inference(model), mgpu.compile_inference(model, { batch = 2 }) }
  local function check_all(what)
    for _, f in ipairs(fs) do check_close(f(x), model(x), what) end
  end
  check_all "before"
  model:add(L.Dense { 4, activation = "tanh" })
  check_all "add"
  check.equal(fs[1](x):shape(), { 2, 4 })
  model:quantize "int8"
  check_all "quantized"
  model:pop()
  check_all "pop"
  local inner = mgpu.Sequential { L.Input { 5 }, L.Dense { 6 } }
  local input = mgpu.Input { 5 }
  local outer = mgpu.Model { inputs = input, outputs = L.ReLU {}(inner(input)) }
  local f, y = mgpu.compile_inference(outer), mgpu.rand { 3, 5 }
  check_close(f(y), outer(y), "inner")
  outer:quantize "int4"
  check_close(f(y), outer(y), "inner quantized")
end)

test("saved files are the same before and after predictions", function()
  local model = small_net()
  unsettle(model)
  local before, after = check.path "before.safetensors", check.path "after.safetensors"
  model:save(before)
  local f, x = mgpu.compile_inference(model, { batch = 2 }), mgpu.rand { 2, 13, 17, 3 }
  f(x)
  model:predict(x)
  model:predict(x)
  model:save(after)
  check.equal(check.read(after), check.read(before))
end)

test("training goes on as if nothing had been predicted", function()
  local function trained(predicts)
    mgpu.seed(4)
    mgpu.reset_names()
    local model = small_net()
    model:compile { optimizer = "adam", loss = "mse" }
    local x, y = mgpu.rand { 8, 13, 17, 3 }, mgpu.rand { 8, 5 }
    local f = mgpu.compile_inference(model)
    for _ = 1, 3 do
      model:train_on_batch(x, y)
      if predicts then
        f(x)
        model:predict(x)
      end
    end
    return model:get_weights()
  end
  local with, without = trained(true), trained(false)
  for i, w in ipairs(with) do check.equal(w:totable(), without[i]:totable()) end
end)

-- ---- frozen plans -------------------------------------------------------------------------------

test("a frozen plan keeps what depends on variables alone, and computes it once", function()
  check.needs "cpu"
  local v, scale = mgpu.variable(mgpu.rand { 64, 64 }), mgpu.variable(mgpu.rand { 64 })
  local function fn(x) return mgpu.matmul(x, v * scale) end
  local frozen, plain = core.jit(fn, { frozen = true }), core.jit(fn)
  local x = mgpu.rand { 2, 64 }
  check.equal(frozen(x):totable(), plain(x):totable())
  check.equal(plain:report()[1].kept_bytes, 0)
  check.truthy(frozen:report()[1].kept_bytes >= 64 * 64 * 4)
  scale:assign(scale * 2)
  check.equal(frozen(x):totable(), plain(x):totable())
end)

test("a frozen plan that hands on what it keeps gives new memory in each run", function()
  local v = mgpu.variable(mgpu.tensor { 1, 2, 3 })
  local f = core.jit(function(x) return v * 2, x + v * 2, (v * 2):reshape { 3, 1 } end, { frozen = true })
  local a, b, c = f(mgpu.ones { 3 })
  v:assign(mgpu.tensor { 5, 6, 7 })
  local d, e = f(mgpu.ones { 3 })
  check.equal({ a:totable(), b:totable() }, { { 2, 4, 6 }, { 3, 5, 7 } })
  check.equal(c:totable(), { { 2 }, { 4 }, { 6 } })
  check.equal({ d:totable(), e:totable() }, { { 10, 12, 14 }, { 11, 13, 15 } })
end)

test("a kept value is not written over by a step that reads it last", function()
  local v, m = mgpu.variable(mgpu.rand { 4, 40 }), mgpu.rand { 40, 3 }
  local f = core.jit(function(x) return mgpu.matmul((v * 3 + 1) * x, m) end, { frozen = true })
  local x = mgpu.full({ 4, 40 }, 2)
  local first = f(x):totable()
  for _ = 1, 3 do check.equal(f(x):totable(), first) end
end)

test("a frozen step that assigns a variable is an ordinary one", function()
  local v = mgpu.variable(mgpu.tensor(1))
  local f = core.jit(function(x)
    v:assign(v + 1)
    return x * v
  end, { frozen = true })
  check.equal({ f(mgpu.tensor(1)):item(), f(mgpu.tensor(1)):item(), v:item() }, { 2, 3, 3 })
  check.equal(f:report()[1].kept_bytes, 0)
end)

test("random numbers are drawn anew in each run of a frozen plan", function()
  local f = core.jit(function() return mgpu.rand { 8 } end, { frozen = true })
  check.truthy((f() - f()):abs():max():item() > 0)
end)

-- ---- repeated predictions -----------------------------------------------------------------------

test("predict notices another shape, another dtype and another batch size", function()
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
  local x = mgpu.rand { 5, 4 }
  for _, given in ipairs { x, x, mgpu.rand { 7, 4 }, mgpu.rand { 70, 4 }, x, x:cast "float64", x:totable() } do
    local t = type(given) == "table" and mgpu.tensor(given) or given:cast "float32"
    check.near(model:predict(given):totable(), model(t):totable(), 1e-6)
    check.near(model:predict(given, { batch_size = 2 }):totable(), model(t):totable(), 1e-6)
  end
end)

test("predict notices layers that are added, removed or replaced, and other policies", function()
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
  local x = mgpu.rand { 5, 4 }
  local function again()
    local y = model(x)
    for _ = 1, 2 do check.equal(model:predict(x):totable(), y:totable()) end
    check.equal(model:predict(x):dtype(), y:dtype())
  end
  again()
  model:add(L.ReLU {})
  again()
  model:add(L.Dense { 2 })
  again()
  model:pop()
  again()
  mgpu.mixed_precision.apply(model, "mixed_bfloat16")
  again()
end)

test("predict of a layer of the user's own class takes its fields as they are", function()
  local Times = mgpu.Layer:extend("Times", { inner = "any" })
  function Times:call(x) return self.inner(x) end
  local layer = Times { inner = L.Dense { 2, kernel_initializer = "ones" } }
  local model = mgpu.Sequential { L.Input { 2 }, layer }
  local x = mgpu.ones { 1, 2 }
  check.equal({ model:predict(x):totable(), model:predict(x):totable() }, { { { 2, 2 } }, { { 2, 2 } } })
  local other = L.Dense { 2, kernel_initializer = "zeros" }
  other(x)
  layer.inner = other
  check.equal(model:predict(x):totable(), { { 0, 0 } })
end)

test("predict calls the callbacks that it is given, also after a prediction without", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  local x, calls = mgpu.ones { 1, 2 }, 0
  model:predict(x)
  local callback = mgpu.callbacks.LambdaCallback { on_predict_begin = function() calls = calls + 1 end }
  for _ = 1, 2 do model:predict(x, { callbacks = { callback } }) end
  check.equal(calls, 2)
end)

test("NaN in the input comes out, at the first and at later predictions", function()
  local model = small_net()
  local x = mgpu.full({ 1, 13, 17, 3 }, 0 / 0)
  local f = mgpu.compile_inference(model)
  for _ = 1, 2 do
    check.truthy(f(x):isnan():all():item())
    check.truthy(model:predict(x):isnan():all():item())
  end
end)

-- ---- errors -------------------------------------------------------------------------------------

test("compile_inference explains what it cannot take", function()
  local model = mgpu.Sequential { name = "m", L.Input { 4 }, L.Dense { 3 } }
  local f = mgpu.compile_inference(model, { batch = 2 })
  for message, fn in pairs {
    ["compile_inference: expected a model, got a number"] = function() mgpu.compile_inference(3) end,
    ['compile_inference: unknown option "bach" (did you mean "batch"?)'] = function()
      mgpu.compile_inference(model, { bach = 1 })
    end,
    ['option "batch" must be a number of rows or "any", got "all"'] = function()
      mgpu.compile_inference(model, { batch = "all" })
    end,
    ['option "threads" must be at least 1, got 0'] = function() mgpu.compile_inference(model, { threads = 0 }) end,
    ['unknown policy "bfloat"'] = function() mgpu.compile_inference(model, { precision = "bfloat" }) end,
    ['compile_inference: precision = "bfloat16" wants bfloat16 weights'] = function()
      mgpu.compile_inference(model, { precision = "bfloat16" })
    end,
    ["compile_inference: 2 inputs were given, the model takes 1"] = function()
      f(mgpu.rand { 2, 4 }, mgpu.rand { 2, 4 })
    end,
    ["is not built yet: give it an Input, or call it once"] = function()
      mgpu.compile_inference(mgpu.Sequential { L.Dense { 3 } })
    end,
    ["made for batches of 2 rows, got 3"] = function() f(mgpu.rand { 3, 4 }) end,
    ['Sequential "m": a batch of shape {2, 5} was given, the model takes {None, 4}'] = function()
      mgpu.compile_inference(model)(mgpu.rand { 2, 5 })
    end,
    ["without input"] = function() f() end,
  } do
    check.raises(fn, message)
  end
end)

test("a wrong shape is reported at the user's line", function()
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
  local f = mgpu.compile_inference(model)
  local _, message = pcall(function() f(mgpu.rand { 2, 5 }) end)
  check.matches(message, "inference_spec.lua:")
end)
