-- Wrong calls that were once ignored, or raised inside our own code: each is an error at the user's line.

local check = require "check"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local HERE = "wrong_calls_spec.lua:%d+: "

-- fn(...) must raise `expected` at a line of this file.
local function refused(expected, fn, ...)
  local arguments = { n = select("#", ...), ... }
  check.raises(function() local _ = fn(unpack(arguments, 1, arguments.n)) end, HERE .. expected, "usage")
end

local X, Y = fixtures.line(6)

test("data of a wrong shape are named with their own shape, in fit, evaluate, predict and on one batch", function()
  local model, wrong = fixtures.linear(), mgpu.ones { 6, 5 }
  for _, name in ipairs { "fit", "evaluate", "train_on_batch", "test_on_batch" } do
    refused(name .. ": x has shape {6, 5}, the model takes {None, 2}", model[name], model, wrong, Y)
  end
  for _, name in ipairs { "predict", "predict_on_batch" } do
    refused(name .. ": x has shape {6, 5}, the model takes {None, 2}", model[name], model, wrong)
  end
  refused("fit: x has shape {6, 2, 3}, the model takes {None, 2}", model.fit, model, mgpu.ones { 6, 2, 3 }, Y)
  refused("fit: validation_data: x has shape {6, 5}, the model takes", model.fit, model, X, Y,
    { validation_data = { wrong, Y } })
  refused("fit: x has shape {2, 5}, the model takes", model.fit, model,
    mgpu.data.from_tensors({ wrong, Y }):batch(2), { verbose = 0 })
end)

test("with several inputs the one of a wrong shape is named", function()
  local a, b = mgpu.Input { 3, name = "a" }, mgpu.Input { 4, name = "b" }
  local model = mgpu.Model { inputs = { a, b }, outputs = L.Dense { 1 } (L.Concatenate {} { a, b }) }
  model:compile { loss = "mse" }
  refused("fit: x %(b%) has shape {6, 5}, the model takes {None, 4}", model.fit, model,
    { mgpu.ones { 6, 3 }, mgpu.ones { 6, 5 } }, Y)
end)

test("a last axis of size 1 may still be missing or given too much", function()
  local model = mgpu.Sequential { L.Input { 4, 1 }, L.Flatten {}, L.Dense { 1 } }
  model:compile { loss = "mse" }
  for _, shape in ipairs { { 6, 4 }, { 6, 4, 1 }, { 6, 4, 1, 1 } } do
    check.equal(model:predict(mgpu.ones(shape)):shape(), { 6, 1 })
  end
  refused("predict: x has shape {6, 3}", model.predict, model, mgpu.ones { 6, 3 })
end)

test("methods that Keras lets users replace are refused, since they would not be called", function()
  for _, name in ipairs { "train_step", "test_step", "predict_step", "make_train_function", "compute_loss" } do
    local model = fixtures.linear()
    rawset(model, name, function() end)
    local expected = ": the model has a " .. name .. ", which is not called: write a loop of your own"
    refused("fit" .. expected, model.fit, model, X, Y)
    refused("evaluate" .. expected, model.evaluate, model, X, Y)
    refused("predict" .. expected, model.predict, model, X)
    refused("train_on_batch" .. expected, model.train_on_batch, model, X, Y)
  end
end)

test("unknown options of save, save_weights, load_weights, summary, jit and the zoo are errors", function()
  local model = fixtures.linear()
  for _, name in ipairs { "save", "save_weights", "load_weights" } do
    refused(name .. ': unknown option "bogus"', model[name], model, check.path "m.safetensors", { bogus = 1 })
  end
  refused('summary: unknown option "bogus"', model.summary, model, { bogus = 1 })
  refused("mgpu.jit: options are a table, as in {devices = \"all\"}; got a string", mgpu.jit, print, "cpu:0")
  refused("mgpu.jit: devices is a name, a list of names, a count, \"all\" or weights by name: groups", mgpu.jit, print,
    { devices = { { "cpu:0", "cpu:1" } } })
  for _, name in ipairs { "lenet5", "mlp", "mnist_cnn" } do
    local make = mgpu.models[name]
    refused(name .. ': unknown option "clases" %(did you mean "classes"%?%)', make, { clases = 3 })
    refused(name .. ": 3 has no name, but options are given by name, as in {[%w_]+ = ...}", make, 3)
    refused(name .. ': option "classes" must be a whole number, got "x"', make, { classes = "x" })
    local small = make { input_shape = { 28, 28, 1 }, classes = 3 }
    check.equal(small:predict(mgpu.ones { 1, 28, 28, 1 }):shape(), { 1, 3 })
  end
  refused('mlp: option "dropout" must be below 1', mgpu.models.mlp, { dropout = 1 })
  refused('mnist_cnn: option "dropout" must be two rates, got 1', mgpu.models.mnist_cnn, { dropout = { 0.5 } })
end)

test("metrics name themselves when an update gets anything but tensors and numbers", function()
  local mean, accuracy = mgpu.metrics.Mean {}, mgpu.metrics.Accuracy {}
  for _, row in ipairs { { "x", "a string" }, { nil, "nothing" }, { print, "a function" }, { true, "a boolean" } } do
    refused("mean: update needs tensors or numbers, got " .. row[2], mean.update, mean, row[1])
    refused("accuracy: update needs tensors or numbers, got " .. row[2], accuracy.update, accuracy, row[1], row[1])
  end
  refused("mean: update needs tensors or numbers, got a string", mean.update, mean, 1, "w")
  refused("accuracy: update needs tensors or numbers, got a string", accuracy.update, accuracy, Y, Y, "w")
  mean:update(4, 0.5)
  mean:update({ 1, 1 }, mgpu.tensor { 0.5, 0 })
  check.equal(mean:result(), 2.5)
end)

test("activations raise at the user's line, whatever they are given", function()
  local t = mgpu.ones { 2, 4 }
  local given = { { n = 1, "x" }, { n = 1 }, { n = 1, {} }, { n = 1, print }, { n = 1, true }, { n = 2, t, "y" },
    { n = 2, t, {} }, { n = 2, t, true }, { n = 2, t, print }, { n = 4, t, 0.1, 1, "z" } }
  for _, name in ipairs { "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "threshold", "sigmoid", "tanh",
    "softplus", "exponential", "softsign", "silu", "gelu", "mish", "squareplus", "tanh_shrink", "log_sigmoid",
    "hard_sigmoid", "hard_sigmoid_keras2", "hard_swish", "hard_tanh", "hard_shrink", "soft_shrink", "sparse_plus",
    "sparse_sigmoid",
    "softmax", "log_softmax", "glu", "sparsemax" } do
    for i, arguments in ipairs(given) do
      local ok, message = pcall(function()
        local y = mgpu.activations[name](unpack(arguments, 1, arguments.n))
        return y
      end)
      check.truthy(ok or message:find(HERE), ("%s, call %d: %s"):format(name, i, tostring(message)))
    end
  end
  refused("gelu: x must be a tensor, got a string", mgpu.activations.gelu, "x")
  refused("sparsemax: x must be a tensor, got nothing", mgpu.activations.sparsemax)
end)

test("parallel.resolve checks its arguments", function()
  refused("resolve: the first argument must be a model, got nothing", mgpu.parallel.resolve)
  refused("resolve: the first argument must be a model, got a table", mgpu.parallel.resolve, {}, {})
  refused("resolve: the second argument must be a table of compile's options, got a number", mgpu.parallel.resolve,
    fixtures.linear(), 3)
end)

test("a random state that mgpu.rng_state cannot have returned is refused", function()
  local before = mgpu.rng_state()
  refused("rng_state: argument 1 must be a table, got number", mgpu.rng_state, 5)
  for _, state in ipairs { {}, { seed = "x", base = 0 }, { seed = -1, base = 0 }, { seed = 2 ^ 32, base = 0 } } do
    refused("rng_state: the state's seed must be a whole number from 0 to 4294967295", mgpu.rng_state, state)
  end
  for _, base in ipairs { -1, 1.5, 0 / 0, 1e300 } do
    refused("rng_state: the state's base must be a whole number", mgpu.rng_state, { seed = 1, base = base })
  end
  check.equal(mgpu.rng_state(), before)
end)

test("methods of layers and models called with a dot are refused", function()
  local model, dense = fixtures.linear(), L.Dense { 1 }
  for _, name in ipairs { "add", "pop", "to_json", "losses", "get_weights" } do
    refused("a method is called with a colon: write model:" .. name, model[name])
    refused("a method is called with a colon: write model:" .. name, model[name], dense)
  end
  for _, name in ipairs { "add_weight", "add_loss", "get_weights", "set_weights", "count_params", "losses" } do
    refused("a method is called with a colon: write layer:" .. name, dense[name], {})
  end
end)

test("a model is not extended: only a layer is", function()
  refused('Model:extend: write mgpu.Layer:extend%("Net", {...}%), and put the layer into a model',
    mgpu.Model.extend, mgpu.Model, "Net", {})
  refused("Sequential:extend: write mgpu.Layer:extend", mgpu.Sequential.extend, mgpu.Sequential, "Net")
end)

test("a tensor's method called with a dot is refused, and not applied to its first argument", function()
  local t = mgpu.ones { 2, 3 }
  for _, name in ipairs { "sum", "mean", "reshape", "slice", "to", "argmax" } do
    refused("a method is called with a colon: write t:" .. name, t[name])
    refused("a method is called with a colon: write t:" .. name, t[name], name == "reshape" and { 3, 2 } or 2)
  end
  check.equal(mgpu.sum(2), 2) -- a function takes numbers
end)

test("sizes without braces, a colon after mgpu, and a tensor in a concatenation are explained", function()
  for _, name in ipairs { "zeros", "ones", "rand", "randn" } do
    refused(("%s: the sizes are one list: write %s {2, 3}"):format(name, name), mgpu[name], 2, 3)
    local dot = ("%s is a function of mgpu: write mgpu.%s%%(...%%), with a dot"):format(name, name)
    refused(dot, mgpu[name], mgpu, { 2 })
  end
  local expected = "a tensor cannot be concatenated with ..: write t:item%(%)"
  refused(expected, function() return "loss: " .. mgpu.ones {} end)
  refused(expected, function() return mgpu.ones {} .. "%" end)
end)

test("what was given is shown as it was written", function()
  refused('Adam: option "learning_rate" must be a number of at least 0 or one of mgpu.schedules, got "0.1"',
    mgpu.optimizers.Adam, { learning_rate = "0.1" })
  refused('glorot_uniform: option "seed" must be at most 2147483647, got 8589934592',
    mgpu.initializers.glorot_uniform, { seed = 2 ^ 33 })
  refused("randint: the limit must be a number, got a table", mgpu.randint, 5, { 2 })
end)

test("an error of a device names it once", function()
  local message = check.raises(function() mgpu.eval(mgpu.zeros { 1e6, 1e6 }) end, "out of memory", "oom")
  check.equal(select(2, message:gsub("cpu:0: ", "")), 1)
end)
