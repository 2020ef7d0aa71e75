-- Loss scaling: the steps of LossScaleOptimizer compared with Keras (golden set loss_scale), and its use in
-- compile, fit, custom loops and on several devices.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"
local load_golden = require "golden.load"
local comparing = require "golden.comparing"
local golden = load_golden "loss_scale"

local test = check.test
local L, optimizers = mgpu.layers, mgpu.optimizers
local INFINITE, NAN = math.huge, 0 / 0

local function with_policy(policy, fn)
  return mgpu.mixed_precision.with_policy(mgpu.mixed_precision.get(policy), fn)
end

local function state(opt)
  return { opt.dynamic_scale:item(), tonumber(opt.step_counter:item()), tonumber(opt.iterations:item()),
    tonumber(opt.skipped:item()) }
end

-- ---- Keras's steps ------------------------------------------------------------------------------

-- The gradients of step s, counted from 1, multiplied by the scale.
local function gradients(s, scale)
  local list = {}
  for k, shape in ipairs(golden.shapes) do
    local recipe = { salt = golden.gradient_salt + 10 * (s - 1) + k - 1, scale = scale, offset = 0 }
    list[k] = comparing.tensor(recipe, shape):to "float32"
  end
  local bad = ({ inf = INFINITE, nan = NAN })[golden.bad[s]]
  if bad then
    local numbers = list[#list]:totable()
    numbers[1] = bad
    list[#list] = mgpu.tensor(numbers)
  end
  return list
end

local function keras_steps(case, jitted)
  local variables = {}
  for k, shape in ipairs(golden.shapes) do
    variables[k] = mgpu.variable(comparing.tensor({ salt = golden.value_salt + k - 1, scale = 1, offset = 0 },
      shape):to "float32")
  end
  local opt = optimizers.LossScaleOptimizer { optimizers[case.optimizer](case.args),
    initial_scale = case.initial_scale, dynamic_growth_steps = case.dynamic_growth_steps }
  local traces = {}
  local step = function(a, b)
    traces[#traces + 1] = true
    opt:apply({ a, b }, variables)
  end
  if jitted then step = mgpu.jit(step) end
  for s, wanted in ipairs(case.steps) do
    step(unpack(gradients(s, opt.dynamic_scale:item())))
    check.equal({ s, unpack(state(opt), 1, 3) },
      { s, wanted.dynamic_scale, wanted.step_counter, wanted.iterations })
    local values = {}
    for _, v in ipairs(variables) do
      for _, x in ipairs(v:reshape { -1 }:totable()) do values[#values + 1] = x end
    end
    check.near(values, wanted.values, 1e-6) -- at most twelve updates, each rounded to float32
  end
  if jitted then check.equal(#traces, 1) end
end

for i, case in ipairs(golden.cases) do
  for _, jitted in ipairs { false, true } do
    test(("case %d, %s, takes Keras's steps, %s"):format(i, case.optimizer, jitted and "jitted" or "eager"),
      function() keras_steps(case, jitted) end)
  end
end

-- ---- the rule -----------------------------------------------------------------------------------

local function variable(values) return mgpu.variable(mgpu.tensor(values), { name = "v" }) end

test("a skipped step changes no state of the inner optimizer", function()
  local inners = { optimizers.MultiOptimizer { optimizers.OptimizerMap { optimizers.Adam {} } } }
  for _, name in ipairs(fixtures.optimizer_classes()) do
    inners[#inners + 1] = optimizers[name] { use_ema = true, weight_decay = 0.1 }
  end
  for _, inner in ipairs(inners) do
    local opt, v = optimizers.LossScaleOptimizer { inner }, variable { 1, 2 }
    local step = mgpu.jit(function(g) opt:apply({ g }, { v }) end)
    opt:build { v }
    step(mgpu.tensor { 3, 4 })
    local before = { v:value():totable() }
    for _, s in ipairs(inner:variables()) do before[#before + 1] = s:value():totable() end
    step(mgpu.tensor { INFINITE, 4 })
    step(mgpu.tensor { 3, NAN })
    local after = { v:value():totable() }
    for _, s in ipairs(inner:variables()) do after[#after + 1] = s:value():totable() end
    check.equal({ inner.class, after }, { inner.class, before })
    check.equal(state(opt), { 2 ^ 13, 0, 1, 2 })
  end
end)

test("scale_loss and apply cancel out", function()
  local v, w = variable { 1, 2 }, variable { 1, 2 }
  local function step(opt, x)
    local _, grads = mgpu.value_and_grad(function() return opt:scale_loss((x * x * x):sum()) end, { x })()
    opt:apply(grads, { x })
  end
  step(optimizers.LossScaleOptimizer { optimizers.SGD { 0.01 } }, v)
  step(optimizers.SGD { 0.01 }, w)
  check.equal(v:value(), w:value():totable()) -- exact, because the scale is a power of two
end)

test("small gradients survive in float16 only with a scale", function()
  local function moved(opt)
    local v = variable { 0 }
    local _, grads = mgpu.value_and_grad(function()
      return opt:scale_loss((v:value():to "float16" * 1e-4):to "float32":sum() * 1e-4)
    end, { v })()
    opt:apply(grads, { v })
    mgpu.eval(unpack(opt:variables()))
    return v:value():totable()[1]
  end
  check.equal(moved(optimizers.SGD { 1 }), 0) -- 1e-8 is below the smallest float16, 6e-8
  check.near(moved(optimizers.LossScaleOptimizer { optimizers.SGD { 1 } }) / -1e-8, 1, 1e-3) -- two roundings of 2^-11
end)

test("clipping sees unscaled gradients, and the wrapper has the inner learning rate", function()
  local opt, v = optimizers.LossScaleOptimizer { optimizers.SGD { 0.5, clipvalue = 1 } }, variable { 0 }
  opt:apply({ mgpu.tensor { 3 * 2 ^ 15 } }, { v })
  check.equal(v:value(), { -0.5 })
  opt.learning_rate = 0.25
  check.equal({ opt.learning_rate, opt.inner_optimizer.learning_rate }, { 0.25, 0.25 })
  opt:apply({ mgpu.tensor { -3 * 2 ^ 15 } }, { v })
  check.equal(v:value(), { -0.25 })
  check.equal(opt:steps_taken(), 2)
end)

test("the gradient of a float16 variable is unscaled in float32", function()
  local v = mgpu.variable(mgpu.tensor({ 0 }, { dtype = "float16" }))
  local opt = optimizers.LossScaleOptimizer { optimizers.SGD { 2 ^ 10 } }
  opt:apply({ mgpu.tensor({ 2 ^ -14 }, { dtype = "float16" }) }, { v }) -- unscaled 2^-29: too small for float16
  check.equal(v:value(), { -2 ^ -19 })
  check.equal(state(opt), { 2 ^ 15, 1, 1, 0 })
end)

test("gradients that overflow at every scale are an error that changes nothing", function()
  local opt, v = optimizers.LossScaleOptimizer { optimizers.SGD {}, initial_scale = 2 ^ -23 }, variable { 1 }
  local step = mgpu.jit(function(g) opt:apply({ g }, { v }) end)
  local bad = mgpu.tensor { NAN }
  step(bad)
  step(bad)
  check.raises(function()
    step(bad)
    opt.dynamic_scale:item() -- a GPU reports failed guards when a value is read
  end, "the gradients are not finite (NaN or infinite), whatever the loss scale", "nonfinite")
  check.equal(state(opt), { 2 ^ -25, 0, 0, 2 })
  check.raises(function() opt:apply({ bad }, { v }) end, "whatever the loss scale", "nonfinite")
  check.equal(v:value(), { 1 })
end)

test("the scale does not grow beyond the range of float32", function()
  local opt, v = optimizers.LossScaleOptimizer { optimizers.SGD {}, initial_scale = 2 ^ 125,
    dynamic_growth_steps = 1 }, variable { 1 }
  for _ = 1, 4 do opt:apply({ mgpu.tensor { 0 } }, { v }) end
  check.equal(opt.dynamic_scale:item(), 2 ^ 126)
end)

test("LossScaleOptimizer refuses a value that is not an optimizer, and a scale of 0", function()
  check.raises(function() optimizers.LossScaleOptimizer {} end, 'option "inner_optimizer" is missing', "usage")
  check.raises(function() optimizers.LossScaleOptimizer { 3 } end,
    "LossScaleOptimizer: inner_optimizer must be a name or made by mgpu.optimizers, got 3", "usage")
  check.raises(function() optimizers.LossScaleOptimizer { "adm" } end, 'did you mean "adam"', "usage")
  check.raises(function() optimizers.LossScaleOptimizer { "sgd", initial_scale = 0 } end, '"initial_scale" must be',
    "usage")
  check.raises(function() optimizers.LossScaleOptimizer { optimizers.LossScaleOptimizer "sgd" } end,
    "the inner optimizer is one itself", "usage")
  check.equal(optimizers.LossScaleOptimizer(optimizers.Adam {}).inner_optimizer.class, "Adam")
  check.equal(mgpu.mixed_precision.LossScaleOptimizer, optimizers.LossScaleOptimizer)
end)

-- ---- in compile and fit -------------------------------------------------------------------------

local function model_of(policy)
  mgpu.reset_names()
  mgpu.seed(11)
  return with_policy(policy or "mixed_float16", function()
    return mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu" }, L.Dense { 3, activation = "softmax" } }
  end)
end

local function batch(rows)
  mgpu.seed(12)
  return mgpu.eval(mgpu.rand { rows, 6 }, mgpu.randint(0, 3, { rows }))
end

local function compiled(options, policy)
  local model = model_of(policy)
  options.loss = "sparse_categorical_crossentropy"
  options.optimizer = options.optimizer or optimizers.Adam { 0.01 }
  model:compile(options)
  return model
end

test("compile wraps the optimizer of a model with float16 layers, once", function()
  local opt = compiled {}.optimizer
  check.equal({ opt.class, opt.inner_optimizer.class }, { "LossScaleOptimizer", "Adam" })
  check.equal(state(opt), { 2 ^ 15, 0, 0, 0 })
  check.equal(opt.options.dynamic_growth_steps, 2000)
  local own = optimizers.LossScaleOptimizer { "sgd", initial_scale = 4 }
  check.equal(compiled { optimizer = own }.optimizer, own)
  check.equal(compiled({}, "mixed_bfloat16").optimizer.class, "Adam")
  check.equal(compiled({}, "float32").optimizer.class, "Adam")
  check.equal(compiled({ precision = "mixed_float16" }, "float32").optimizer.class, "LossScaleOptimizer")
  check.equal(compiled({}, "float16").optimizer.class, "LossScaleOptimizer")
  check.equal(compiled { auto_scale_loss = false }.optimizer.class, "Adam")
end)

-- Data with three rows of a wrong class, whose gradients overflow float16 at the initial scale.
local function with_large_rows(rows)
  local x, y = batch(rows - 3)
  return mgpu.concat { x, mgpu.ones { 3, 6 } * 200 }, mgpu.concat { y, mgpu.tensor({ 0, 1, 2 }, { dtype = "int32" }) }
end

test("fit skips steps until the scale is small enough", function()
  local model = compiled { optimizer = optimizers.SGD { 1e-9 } }
  local x, y = with_large_rows(8)
  local h = model:fit(x, y, { batch_size = 8, epochs = 30, verbose = 0 }).history
  local opt = model.optimizer
  local scale, _, iterations, skipped = unpack(state(opt))
  check.equal(iterations + skipped, 30)
  check.truthy(skipped > 0 and iterations > 0, ("%d steps, %d skipped"):format(iterations, skipped))
  check.equal(scale, 2 ^ (15 - skipped))
  check.truthy(h.loss[30] == h.loss[30] and h.loss[30] < INFINITE, "the loss is a number")
  check.equal(opt:steps_taken(), 30)
end)

test("a loss of NaN ends fit with an error that names epoch and step", function()
  local model = compiled { optimizer = optimizers.LossScaleOptimizer { "sgd", initial_scale = 2 ^ -20 } }
  local x, y = batch(4)
  check.raises(function() model:fit(x / 0, y, { batch_size = 4, epochs = 9, verbose = 0 }) end,
    "fit: epoch 6, step 1: the gradients are not finite (NaN or infinite), whatever the loss scale", "nonfinite")
end)

local function trained(options, epochs, batch_size)
  local model = compiled(options)
  local x, y = batch(24)
  model:fit(x, y, { batch_size = batch_size or 24, epochs = epochs, verbose = 0, shuffle = false })
  return model
end

local function same_training(a, b, tolerance)
  check.equal(state(a.optimizer), state(b.optimizer))
  for i, w in ipairs(a:get_weights()) do check.near(w, b:get_weights()[i]:totable(), tolerance) end
end

local function growing(inner)
  return optimizers.LossScaleOptimizer { inner or optimizers.Adam { 0.01 }, initial_scale = 64,
    dynamic_growth_steps = 2 }
end

test("steps_per_execution, train_on_batch and a custom loop take the steps of fit", function()
  local one = trained({ optimizer = growing() }, 2, 6)
  check.equal(state(one.optimizer), { 1024, 0, 8, 0 })
  same_training(trained({ optimizer = growing(), steps_per_execution = 4 }, 2, 6), one, 1e-6)
  local x, y = batch(24)
  local model = compiled { optimizer = growing() }
  local opt, loss_of = growing(), mgpu.losses.sparse_categorical_crossentropy
  local loop = model_of()
  local step = mgpu.jit(function(a, b)
    local _, grads = mgpu.value_and_grad(function()
      return opt:scale_loss(loss_of(b, loop(a, { training = true })))
    end, loop.trainable_variables)()
    opt:apply(grads, loop.trainable_variables)
  end)
  for _ = 1, 2 do
    for first = 1, 24, 6 do
      local a, b = x:slice { { first, first + 5 }, {} }, y:slice { { first, first + 5 } }
      model:train_on_batch(a, b)
      step(a, b)
    end
  end
  same_training(model, one, 1e-6) -- the same operations, but fused differently on the cpu device
  check.equal(state(opt), state(one.optimizer))
  for i, w in ipairs(loop:get_weights()) do check.near(w, one:get_weights()[i]:totable(), 1e-6) end
end)

test("accumulated gradients are unscaled by the scale with which they were computed", function()
  local whole = trained({ optimizer = growing(optimizers.SGD { 0.1 }) }, 4, 24)
  local parts = trained({ optimizer = growing(optimizers.SGD { 0.1 }), accumulate = 4 }, 4, 6)
  -- the gradient of each of four parts, about 1, is rounded to float16 (2^-11); the rate is 0.1
  same_training(parts, whole, 2e-4)
end)

test("all devices skip the same steps and keep the same weights", function()
  local x, y = with_large_rows(12)
  local function run(devices, home)
    local model, parallel = model_of(), type(devices) == "table"
    if parallel then model = mgpu.parallel.make_parallel(model, devices, { ps_device = home }) end
    model:compile { optimizer = optimizers.SGD { 1e-9 }, loss = "sparse_categorical_crossentropy",
      devices = not parallel and devices or nil }
    for _ = 1, 12 do model:train_on_batch(x, y) end
    return model
  end
  local one = run "ref:0"
  check.truthy(state(one.optimizer)[4] > 0, "steps are skipped")
  for strategy, home in pairs { mirrored = false, central = "ref:4" } do
    for _, devices in ipairs { { "ref:0", "ref:1" }, { "ref:0", "ref:1", "ref:2", "ref:3" } } do
      local model = run(devices, home or nil)
      check.equal({ strategy, #devices, state(model.optimizer) }, { strategy, #devices, state(one.optimizer) })
      -- each device's gradient is rounded to float16, but the learning rate of 1e-9 keeps the steps small
      for i, w in ipairs(model:get_weights()) do check.near(w, one:get_weights()[i]:totable(), 1e-6) end
      for _, v in ipairs(model.variables) do
        check.truthy(v:value():isfinite():all():item(), v.name .. " is finite")
      end
    end
  end
end)

test("asynchronous training unscales by the scale that the device has used", function()
  local model = compiled { optimizer = growing(optimizers.SGD { 0.1 }), devices = { "ref:0", "ref:1" },
    strategy = "async" }
  local x, y = batch(48)
  local h = model:fit(x, y, { batch_size = 8, epochs = 12, verbose = 0 }).history
  check.truthy(h.loss[12] < h.loss[1], ("the loss falls from %g to %g"):format(h.loss[1], h.loss[12]))
  local scale, _, iterations, skipped = unpack(state(model.optimizer))
  check.equal(iterations + skipped, 72)
  check.truthy(scale > 64, "the scale grows")
end)

test("loss_scale_factor works in asynchronous training, too", function()
  local function weights(factor)
    local model = compiled({ optimizer = optimizers.SGD { 0.1, loss_scale_factor = factor },
      devices = { "ref:0", "ref:1" }, strategy = "async" }, "float32")
    local x, y = batch(8)
    model:fit(x, y, { batch_size = 8, epochs = 1, verbose = 0 })
    return model:get_weights()
  end
  local plain = weights(nil)
  for i, w in ipairs(weights(64)) do check.near(w, plain[i]:totable(), 1e-6) end
end)

-- ---- saved and restored -------------------------------------------------------------------------

test("a saved model keeps the scale, the counters and the inner state", function()
  local path = check.path "scaled.safetensors"
  local model = trained({ optimizer = growing() }, 1, 8)
  check.equal(state(model.optimizer), { 128, 1, 3, 0 })
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again.optimizer.class, "LossScaleOptimizer")
  check.equal(again.optimizer.inner_optimizer.learning_rate, 0.01)
  check.equal(state(again.optimizer), state(model.optimizer))
  local x, y = batch(24)
  for _, m in ipairs { model, again } do m:fit(x, y, { batch_size = 8, epochs = 1, verbose = 0, shuffle = false }) end
  same_training(again, model, 0)
  check.equal(state(again.optimizer), { 512, 0, 6, 0 })
end)

test("a LossScaleOptimizer made from its configuration, through JSON, is equal", function()
  local opt = optimizers.LossScaleOptimizer { optimizers.SGD { 0.3, momentum = 0.5 }, initial_scale = 16,
    dynamic_growth_steps = 7, name = "scaled" }
  local copy = optimizers.LossScaleOptimizer(core.json_decode(core.json_encode(opt:get_config())))
  check.equal(copy:get_config(), opt:get_config())
  check.equal({ copy.name, copy.dynamic_scale:item(), copy.learning_rate }, { "scaled", 16, 0.3 })
end)
