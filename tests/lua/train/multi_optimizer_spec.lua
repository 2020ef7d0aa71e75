-- MultiOptimizer and OptimizerMap, compared with Keras: golden/optimizer_files/multi.keras.
local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test, L, O = check.test, mgpu.layers, mgpu.optimizers
local FOLDER = "tests/golden/optimizer_files/"
local TRAINS = 1e-5 -- float32, three steps

local function variable(name) return mgpu.variable(mgpu.tensor { 1, 1 }, { name = name }) end

local function check_steps(model, golden)
  for _ = 1, 3 do model:train_on_batch(golden.x, golden.y) end
  for i, v in ipairs(model.trainable_variables) do check.near(v:value(), golden["after/" .. i], TRAINS) end
end

test("training with a MultiOptimizer of Keras goes on as there, also from files of ours", function()
  local can, problem = pcall(core.h5_make, {}, "none.h5")
  if not can and core.error_code() == "unsupported" then check.skip(problem) end
  local golden = mgpu.load(FOLDER .. "multi.safetensors")
  local function load(path)
    local model
    check.equal(fixtures.printed(function() model = mgpu.load_model(path) end), "")
    return model
  end
  check_steps(load(FOLDER .. "multi.keras"), golden)
  for _, ending in ipairs { "keras", "safetensors" } do
    local path = check.path("multi." .. ending)
    load(FOLDER .. "multi.keras"):save(path)
    local model = load(path)
    check.equal(model.optimizer:steps_taken(), 3)
    check_steps(model, golden)
  end
  local keep = os.getenv "MGPU_KEEP" -- a folder for a file that Keras is to load
  if keep then
    local model, weights = load(FOLDER .. "multi.keras"), {}
    model:save(keep .. "/multi.keras")
    check_steps(model, golden)
    for i, v in ipairs(model.trainable_variables) do weights["w" .. i] = v:value() end
    mgpu.save(keep .. "/multi.keras.npz", weights)
  end
end)

-- A step with a MultiOptimizer, and steps with its optimizers alone.
local function steps(with, options)
  local a, b, c = variable "one/w", variable "two/w", variable "three/w"
  local grads = { mgpu.tensor { 3, 4 }, mgpu.tensor { 1, -2 }, mgpu.tensor { 5, 0.5 } }
  local adam, sgd = O.Adam { 0.1 }, O.SGD { 0.5, momentum = 0.9, global_clipnorm = 1, use_ema = options.use_ema }
  local opt
  if with then
    opt = O.MultiOptimizer { O.OptimizerMap { sgd, { ["two/.*"] = adam } }, loss_scale_factor = options.scale }
  end
  local function step()
    if opt then
      opt:apply({ unpack(grads) }, { a, b, c })
    else
      local unscaled = {}
      for i, g in ipairs(grads) do unscaled[i] = g / (options.scale or 1) end
      sgd:apply({ unscaled[1], unscaled[3] }, { a, c })
      adam:apply({ unscaled[2] }, { b })
    end
  end
  if options.jit then step = mgpu.jit(step) end
  for _ = 1, 3 do step() end
  if options.use_ema then (opt or sgd):finalize_variable_values(opt and { a, b, c } or { a, c }) end
  return { a:value(), b:value(), c:value() }, opt
end

test("each variable is trained by its optimizer, whose bounds of norms are those of its variables", function()
  for _, options in ipairs { {}, { jit = true }, { scale = 8 }, { use_ema = true } } do
    local values, opt = steps(true, options)
    local expected = steps(false, options)
    for i, value in ipairs(values) do check.near(value, expected[i], 1e-6) end -- float32
    check.equal(opt:steps_taken(), 3)
    check.equal(#opt:variables(), 1 + 4 + 4 + (options.use_ema and 2 or 0))
  end
end)

test("a function of a variable chooses optimizers, too", function()
  local fast, slow = O.SGD { 1 }, O.SGD { 0.25 }
  local opt = O.MultiOptimizer { function(v) return v.name:find "^fast" and fast or slow end }
  local a, b = variable "fast/w", variable "slow/w"
  opt:apply({ mgpu.ones { 2 }, mgpu.ones { 2 } }, { a, b })
  check.equal({ a:value():totable()[1], b:value():totable()[1] }, { 0, 0.75 })
  opt:apply({ mgpu.ones { 2 }, false }, { a, b })
  check.equal({ a:value():totable()[1], b:value():totable()[1] }, { -1, 0.75 })
  check.raises(function() opt:get_config() end, "a function chooses the optimizers")
end)

test("an OptimizerMap takes exact paths before expressions, which match whole paths", function()
  local a, b, c = O.SGD { 1 }, O.SGD { 2 }, O.SGD { 3 }
  local map = O.OptimizerMap { c, { ["encoder/layer_0/dense"] = a } }
  map["encoder/.*"] = b
  map["(left|right)/kernel[0-9]+"] = a
  local function chosen(name) return (map(variable(name))) end
  for name, optimizer in pairs { ["encoder/layer_0/dense"] = a, ["encoder/x"] = b, ["my/encoder/x"] = c, encoder = c,
    ["left/kernel12"] = a, ["left/kernel"] = c } do
    check.equal(chosen(name) == optimizer, true)
  end
  map[".*/x"] = a
  check.raises(function() chosen "encoder/x" end, 'variable "encoder/x" is matched by "%.%*/x" and "encoder/%.%*"')
  check.raises(function() map["encoder/.*"] = a end, "there is an optimizer for")
  check.raises(function() map[3] = a end, "a key must be the path of a variable, got a number")
  check.raises(function() map["a("] = a end, "is no regular expression")
  check.raises(function() map["\\d+"] = a end, "has \\d, which POSIX's regular expressions lack")
  check.raises(function() map.x = 3 end, 'the optimizer of "x"')
  check.raises(function() map.x = O.LossScaleOptimizer { a } end, "cannot be a LossScaleOptimizer")
  check.raises(function() map.x = O.MultiOptimizer { map } end, "cannot be a MultiOptimizer")
end)

-- A model of an inner model and a layer, trained for two epochs.
local function train(opt, options)
  mgpu.seed(4)
  local inner = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3, name = "first" }, name = "body" }
  local x = mgpu.Input { 2 }
  local model = mgpu.Model { inputs = x, outputs = L.Dense { 1, name = "head" } (inner(x)) }
  model:compile { optimizer = opt, loss = "mse", devices = options and options.devices,
    accumulate = options and options.accumulate }
  model:fit(mgpu.rand { 12, 2 }, mgpu.rand { 12, 1 }, { batch_size = 4, epochs = 2, verbose = 0 })
  return model
end

local function multi(key)
  return O.MultiOptimizer { O.OptimizerMap { O.SGD { 0.1 }, { [key or "body/first/.*"] = O.Adam { 0.01 } } } }
end

test("keys are paths of the model's layers, with and without outer ones", function()
  local model = train(multi())
  for _, key in ipairs { "first/.*", "body/.*", "body/first/(kernel|bias)" } do
    local other = train(multi(key))
    for i, w in ipairs(model:get_weights()) do check.near(other:get_weights()[i], w, 0) end
  end
  local several = train(multi(), { devices = { "cpu:0", "cpu:1" } })
  for i, w in ipairs(model:get_weights()) do check.near(several:get_weights()[i], w, 1e-6) end -- sums of halves
  check.equal(#train(multi(), { accumulate = 2 }).optimizer.optimizers, 2)
end)

test("a key that matches nothing is told, and what has one rate is refused", function()
  local text = fixtures.stderr_of(function() train(multi "nowhere/.*") end)
  check.matches(text, 'the key "nowhere/%.%*" matches none of the trained variables: .*head/kernel')
  local model = train(multi())
  check.raises(function() return model.optimizer.learning_rate end, "has no learning_rate: its optimizers have one")
  check.raises(function() model.optimizer.learning_rate = 1 end, "has no learning_rate")
  check.raises(function() model:compile { optimizer = multi(), loss = "mse", lr_scale = "linear" } end,
    "lr_scale needs an optimizer with one learning_rate")
  check.raises(function() O.MultiOptimizer { 3 } end, "must be an OptimizerMap or a function")
  check.raises(function() O.MultiOptimizer { function() return 3 end }:build { variable "w" } end,
    'must return an optimizer for the variable "w"')
  check.raises(function() multi():apply({ false }, { variable "w" }) end, "no variable has a gradient")
  check.raises(function() multi():apply({}, { variable "w" }) end, "0 gradients for 1 variables")
end)

test("a MultiOptimizer inside of a LossScaleOptimizer goes on from each format that has its state", function()
  local model = train(O.LossScaleOptimizer { multi() })
  local x, y, saved = mgpu.ones { 4, 2 }, mgpu.ones { 4, 1 }, {}
  for i, ending in ipairs { "keras", "safetensors" } do
    saved[i] = check.path("scaled." .. ending)
    model:save(saved[i])
  end
  model:train_on_batch(x, y)
  for _, path in ipairs(saved) do
    local again = mgpu.load_model(path)
    check.equal(again.optimizer:steps_taken(), 6)
    again:train_on_batch(x, y)
    for i, w in ipairs(model:get_weights()) do check.near(again:get_weights()[i], w, 1e-6) end -- the rate is float32
  end
end)

test("an optimizer that stands in the map twice is one after loading", function()
  local sgd = O.SGD { 0.1, momentum = 0.9 }
  local map = O.OptimizerMap { sgd, { ["head/.*"] = sgd, ["body/.*"] = O.Adam {} } }
  local model, path = train(O.MultiOptimizer { map }), check.path "twice.safetensors"
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(#again.optimizer.optimizers, 2)
  local x, y = mgpu.ones { 4, 2 }, mgpu.ones { 4, 1 }
  for _, each in ipairs { model, again } do each:train_on_batch(x, y) end
  for i, w in ipairs(model:get_weights()) do check.near(again:get_weights()[i], w, 0) end
end)

test("an optimizer that stands in the map twice is two with the same state in a .keras file", function()
  local sgd = O.SGD { 0.1, momentum = 0.9 }
  local map = O.OptimizerMap { sgd, { ["head/kernel"] = O.Adam {}, ["head/bias"] = sgd } }
  local model, path = train(O.MultiOptimizer { map }), check.path "twice.keras"
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again.optimizer:steps_taken(), model.optimizer:steps_taken())
  check.equal(#again.optimizer.optimizers, 3)
  local x, y = mgpu.ones { 4, 2 }, mgpu.ones { 4, 1 }
  for _, each in ipairs { model, again } do each:train_on_batch(x, y) end
  for i, w in ipairs(model:get_weights()) do check.near(again:get_weights()[i], w, 1e-6) end -- the rate is float32
end)
