-- Compiled models in files: everything that compile was given comes back, and fit continues as if nothing had happened.

local check = require "check"
local mgpu = require "mgpu"
local fixtures = require "fixtures"

local test = check.test
local L = mgpu.layers

local function output_of(fn)
  local before, parts = mgpu.output, {}
  mgpu.output = function(text) parts[#parts + 1] = text end
  local ok, message = pcall(fn)
  mgpu.output = before
  if not ok then error(message, 0) end
  return table.concat(parts)
end

-- A classifier of points with everything that draws random numbers or keeps state.
local function classifier()
  mgpu.seed(3)
  return mgpu.Sequential { L.Input { 2 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.3 }, L.Dense { 3, activation = "softmax" } }
end

local function fit(model, options)
  local x, y = fixtures.points(50)
  options.batch_size, options.verbose = 8, 0
  return model:fit(x, y, options)
end

local function weights(model)
  local list = {}
  for i, w in ipairs(model:get_weights()) do list[i] = w:totable() end
  return list
end

local function state(model)
  local list = {}
  for i, v in ipairs(model.optimizer:variables()) do list[i] = v:value():totable() end
  return list
end

-- ---- what comes back ----------------------------------------------------------------------------

test("a loaded model has the options of compile, its losses and metrics with their options", function()
  local model, path = classifier(), check.path "options.safetensors"
  model:compile { optimizer = mgpu.optimizers.SGD { 0.1, momentum = 0.9 }, accumulate = 2, bn = "local",
    loss = mgpu.losses.CategoricalCrossentropy { label_smoothing = 0.1 }, run_eagerly = false,
    metrics = { "acc", "mse", mgpu.metrics.TopK { k = 2, name = "two" } }, weighted_metrics = { "accuracy" } }
  model:save(path)
  local again = mgpu.load_model(path)
  local compiled = again.compiled
  check.equal({ compiled.accumulate, compiled.bn, compiled.eager }, { 2, "local", false })
  check.equal(compiled.outputs[1].loss.options.label_smoothing, 0.1)
  check.equal(again.optimizer.options.momentum, 0.9)
  check.equal(compiled.metrics:names(), model.compiled.metrics:names())
  check.equal(compiled.outputs[1].metrics[3].options.k, 2)
  local x, y = fixtures.points(30)
  y = mgpu.to_categorical(y, 3)
  local quiet = { verbose = 0 }
  check.equal({ unpack(again:evaluate(x, y, quiet)) }, { unpack(model:evaluate(x, y, quiet)) })
end)

test("a model with several outputs keeps each one's loss, weight and metrics", function()
  mgpu.seed(1)
  local x = mgpu.Input { 2 }
  local model = mgpu.Model { inputs = x, outputs = { L.Dense { 1, name = "a" }(x), L.Dense { 1, name = "b" }(x),
    L.Dense { 1, name = "c" }(x) } }
  model:compile { optimizer = "adam", loss = { a = "mse", b = mgpu.losses.Huber { delta = 2 } },
    loss_weights = { b = 0.25 }, metrics = { a = { "mae", "huber" } } }
  local data = { mgpu.rand { 6, 2 }, { mgpu.rand { 6, 1 }, mgpu.rand { 6, 1 } } }
  local path = check.path "several.safetensors"
  model:train_on_batch(unpack(data))
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again.compiled.outputs[2].loss.options.delta, 2)
  check.equal(again.compiled.outputs[2].weight, 0.25)
  check.falsy(again.compiled.outputs[3].loss, "a loss of c")
  for _ = 1, 3 do
    check.equal({ unpack(again:train_on_batch(unpack(data))) }, { unpack(model:train_on_batch(unpack(data))) })
  end
  check.equal(weights(again), weights(model))
end)

test("own classes of losses and metrics are given when the model is loaded", function()
  local Loss, Metric = require "mgpu.nn.losses.loss", require "mgpu.nn.metrics.metric"
  local Cubic = Loss.define { name = "cubic", class = "Cubic", declared = { { "power", "number", default = 3 } },
    values = function(t, p, options) return Loss.last_mean(mgpu.abs(t - p) ^ options.power) end }
  local Off = Metric.define { name = "off", class = "Off", values = function(_, t, p) return mgpu.abs(t - p) end }
  local model, path = fixtures.linear { loss = Cubic.new { power = 4 }, metrics = Off {} }, check.path "own.safetensors"
  model:save(path)
  check.raises(function() mgpu.load_model(path) end, 'unknown class "Cubic" among the losses', "data")
  local again = mgpu.load_model(path, { custom = { Cubic = Cubic, Off = Off } })
  check.equal(again.compiled.outputs[1].loss.options.power, 4)
  check.equal(again.compiled.metrics:names(), { "loss", "off" })
  check.falsy(mgpu.load_model(path, { compile = false }).compiled, "compiled")
end)

test("fit on a loaded model continues exactly", function()
  local path = check.path "continued.safetensors"
  local optimizers = {
    function()
      return mgpu.optimizers.Adam { mgpu.schedules.ExponentialDecay { 0.02, decay_steps = 5, decay_rate = 0.9 } }
    end,
    function() return mgpu.optimizers.Nadam { 0.01, use_ema = true, ema_overwrite_frequency = 5 } end,
    function() return mgpu.optimizers.LossScaleOptimizer { "adadelta", dynamic_growth_steps = 3 } end,
  }
  for _, optimizer in ipairs(optimizers) do
    local straight = classifier()
    local options = { loss = "sparse_categorical_crossentropy", metrics = "accuracy" }
    options.optimizer = optimizer()
    straight:compile(options)
    fit(straight, { epochs = 2 })
    local h = fit(straight, { epochs = 4, initial_epoch = 2 })
    local first = classifier()
    options.optimizer = optimizer()
    first:compile(options)
    fit(first, { epochs = 2 })
    first:save(path)
    mgpu.rand { 10 } -- the random state now differs from the file's
    local again = mgpu.load_model(path)
    check.equal(fit(again, { epochs = 4, initial_epoch = 2 }).history, h.history)
    check.equal(weights(again), weights(straight))
    check.equal(state(again), state(straight))
  end
end)

test("in another process, too, with a dataset", function()
  local path, script = check.path "elsewhere.safetensors", check.path "train.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    local L, path, load, epochs = mgpu.layers, ...
    mgpu.seed(5)
    local x, y = mgpu.rand { 30, 4 }, mgpu.rand { 30, 1 }
    local model = load == "yes" and mgpu.load_model(path) or mgpu.Sequential { L.Input { 4 }, L.Dense { 6 },
      L.Dropout { 0.5 }, L.Dense { 1 } }
    if load == "no" then model:compile { optimizer = "adam", loss = "mse" } end
    local data = mgpu.data.from_tensors { x, y }:shuffle(30, 3):batch(7)
    for epoch = load == "yes" and 3 or 1, tonumber(epochs) do
      model:fit(data, { epochs = epoch, initial_epoch = epoch - 1, verbose = 0 })
    end
    model:save(path)
    for _, w in ipairs(model:get_weights()) do
      for _, v in ipairs(w:flatten():totable()) do print(("%.17g"):format(v)) end
    end]])
  local function run(load, epochs)
    local text, status = check.run(("%s %s %s %s %d"):format(check.program, script, path, load, epochs))
    check.equal(status, 0)
    return text
  end
  local straight = run("no", 4)
  run("no", 2)
  check.equal(run("yes", 4), straight)
end)

test("mgpu.seed after loading decides the random numbers", function()
  local model, path = classifier(), check.path "seeded.safetensors"
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
  model:save(path)
  local function trained(seed)
    local again = mgpu.load_model(path)
    if seed then mgpu.seed(seed) end
    fit(again, { epochs = 1 })
    return weights(again)
  end
  check.equal(trained(8), trained(8))
  local encode = require "mgpu.core".json_encode
  check.falsy(encode(trained(8)) == encode(trained(9)), "two seeds give the same weights")
  check.equal(trained(nil), trained(nil))
end)

-- ---- what does not ------------------------------------------------------------------------------

test("what cannot be stored is named when the model is saved", function()
  local path = check.path "functions.safetensors"
  local function refused(options, expected)
    local model = fixtures.linear(options)
    check.raises(function() model:save(path) end, expected .. ".*include_optimizer = false", "usage")
    check.falsy(require "mgpu.core".file_exists(path), "a file")
    model:save(path, { include_optimizer = false })
    check.falsy(mgpu.load_model(path).compiled, "compiled")
    os.remove(path)
  end
  refused({ loss = function(t, p) return mgpu.sum(mgpu.square(t - p), { axis = -1 }) end },
    'save: the loss of output "output" is a function')
  refused({ metrics = { "mae", function(t, p) return mgpu.abs(t - p) end } },
    'save: the metric "metric_2" is a function')
  local model = mgpu.Sequential { L.Input { 2 }, L.Lambda { function(x) return x * 2 end, name = "twice" } }
  check.raises(function() model:save(path) end, 'Lambda "twice": .*function', "usage")
end)

test("compiling a loaded model again says what it drops", function()
  local model, path = fixtures.linear { optimizer = "adam" }, check.path "again.safetensors"
  local x, y = fixtures.line(8)
  model:train_on_batch(x, y)
  model:save(path)
  local again = mgpu.load_model(path)
  local function compile(optimizer)
    return output_of(function() again:compile { optimizer = optimizer, loss = "mae" } end)
  end
  check.equal(compile(again.optimizer), "")
  check.matches(compile "sgd", "compile: drops the training state of .*again.safetensors: Adam after 1 steps")
  check.equal(compile "sgd", "")
end)

test("a damaged training state is an error that names the file", function()
  local core = require "mgpu.core"
  local model, path = fixtures.linear { optimizer = "adam" }, check.path "damaged.safetensors"
  model:train_on_batch(fixtures.line(8))
  model:save(path)
  local tensors, notes = core.store_load(path)
  local function refused(expected, change)
    local config, changed = core.json_decode(notes.config), {}
    for name, t in pairs(tensors) do changed[name] = t end
    change(config.compiled, changed)
    core.store_save(path, changed, { format = notes.format, weights = notes.weights,
      config = core.json_encode(config) })
    check.raises(function() mgpu.load_model(path) end, "damaged.safetensors: .*" .. expected, "data")
  end
  refused('lacks "optimizer/iterations"', function(_, t) t["optimizer/iterations"] = nil end)
  refused('no place for "optimizer/9/momentum"', function(_, t) t["optimizer/9/momentum"] = core.tensor(1) end)
  refused('"optimizer/1/momentum" is float32 of', function(_, t) t["optimizer/1/momentum"] = core.tensor { 1 } end)
  refused("1 outputs", function(c) c.outputs = {} end)
  refused("no class_name", function(c) c.optimizer = 3 end)
  refused("no class_name", function(c) c.outputs[1].loss = { class_name = 1 } end)
  refused('unknown class "Bogus" among the optimizers', function(c) c.optimizer.class_name = "Bogus" end)
end)
