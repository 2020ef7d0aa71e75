-- Saving and loading models and weights.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function network(units, name)
  return mgpu.Sequential { name = name,
    L.Input { 6, 6, 1 },
    L.Conv2D { 2, 3, activation = "relu", name = "conv" }, L.BatchNormalization { name = "norm" },
    L.Flatten {}, L.Dense { units or 3, activation = "softmax", name = "out",
      kernel_initializer = mgpu.initializers.he_normal { seed = 3 } },
  }
end

local x = function() return mgpu.rand { 4, 6, 6, 1 } end

test("a loaded model has the configuration and the predictions of the saved one", function()
  local model, path, batch = network(), check.path "model.safetensors", x()
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again.name, model.name)
  check.equal(again:count_params(), model:count_params())
  check.equal(again(batch), model(batch):totable())
end)

test("a saved model keeps its optimizer's state", function()
  local model, path = network(), check.path "trained.safetensors"
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
  model:train_on_batch(x(), mgpu.tensor({ 0, 1, 2, 0 }, { dtype = "int32" }))
  model:save(path)
  local again = mgpu.load_model(path)
  local saved, loaded = model.compiled.optimizer:variables(), again.optimizer:variables()
  check.equal(#loaded, #saved)
  for i, v in ipairs(saved) do check.equal(loaded[i]:value(), v:totable()) end
end)

test("weights alone are saved and loaded by name", function()
  local model, other, path, batch = network(), network(), check.path "w.safetensors", x()
  model:save_weights(path)
  other:load_weights(path)
  check.equal(other(batch), model(batch):totable())
  check.raises(function() mgpu.load_model(path) end, "weights only", "data")
end)

test("weights that do not fit are errors that name them and change nothing", function()
  local model, path = network(), check.path "other.safetensors"
  network(4):save_weights(path)
  local before = model:get_weights()
  check.raises(function() model:load_weights(path) end, 'the weight "out/kernel" has shape', "data")
  for i, t in ipairs(model:get_weights()) do check.equal(t, before[i]:totable()) end
  local bare = mgpu.Sequential { L.Input { 2 }, L.Dense { 1, name = "lone" } }
  check.raises(function() bare:load_weights(path) end, "lacks the weights lone/bias, lone/kernel",
    "data")
end)

test("user-defined layers are loaded with `custom`, and a missing one is an error with its name", function()
  local Scale = mgpu.Layer:extend("Scale", { factor = 2 })
  function Scale:call(t) return t * self.factor end
  local model = mgpu.Sequential { L.Input { 2 }, Scale { factor = 3 } }
  local path = check.path "scale.safetensors"
  model:save(path)
  check.raises(function() mgpu.load_model(path) end, 'unknown layer class "Scale"', "data")
  local again = mgpu.load_model(path, { custom = { Scale = Scale } })
  check.equal(again(mgpu.tensor { { 1, 2 } }), { { 3, 6 } })
end)

test("a layer of several models is one layer again in a loaded or cloned model, or the file is refused", function()
  local shared, input, outer = L.Dense { 5, name = "shared" }, mgpu.Input { 5 }, mgpu.Input { 5 }
  local inner = mgpu.Model { inputs = input, outputs = L.BatchNormalization {}(shared(input)) }
  local other = mgpu.Sequential { L.Input { 5 }, shared, L.ReLU {} }
  local model = mgpu.Model { inputs = outer, outputs = L.Add {} { shared(outer), inner(other(outer)), inner(outer) } }
  for _, v in ipairs(model.variables) do v:assign(mgpu.rand(v:shape()) + 0.5) end
  local rows, path = mgpu.rand { 3, 5 }, check.path "shared.safetensors"
  model:save(path)
  local clone = mgpu.clone_model(model)
  clone:set_weights(model:get_weights())
  local copy, report = model:quantize { calibration = rows }
  check.equal(#report.layers, 1)
  check.truthy((copy(rows) - model(rows)):abs():max():item() < 0.02 * model(rows):abs():max():item(), "quantized")
  for _, m in ipairs { mgpu.load_model(path), clone } do
    check.equal(#m.variables, #model.variables)
    check.equal(m(rows):totable(), model(rows):totable())
    local layer = m:get_layer "shared"
    layer.kernel:assign(layer.kernel:value() * 0)
    check.truthy((m(rows) - model(rows)):abs():max():item() > 0.1, "all uses have the weight")
    check.equal(m(rows):totable(), m(rows * 2):totable())
  end
  check.raises(function() model:save(check.path "shared.keras") end,
    'Dense "shared" is a layer of several models, which .keras files cannot hold: save the model as .safetensors',
    "unsupported")
end)

test("a model without weights or with a function cannot be saved, and the error says why", function()
  local unbuilt = mgpu.Sequential { L.Dense { 1 } }
  check.raises(function() unbuilt:save(check.path "u.safetensors") end, "no weights yet", "usage")
  local model = mgpu.Sequential { L.Input { 1 }, L.Activation(function(t) return t end) }
  check.raises(function() model:save(check.path "f.safetensors") end, "cannot be saved", "usage")
end)

test("a missing, truncated or garbage file is an error, and the session goes on", function()
  local path = check.path "bad.safetensors"
  check.raises(function() mgpu.load_model(check.path "none.safetensors") end, "none", "io")
  network():save(path)
  check.write(path, check.read(path):sub(1, -20))
  check.raises(function() mgpu.load_model(path) end, "bad.safetensors", "data")
  check.write(path, ("garbage"):rep(50))
  check.raises(function() mgpu.load_model(path) end, "bad.safetensors", "data")
end)

test("an error while saving leaves the model usable", function()
  local model = network()
  check.raises(function() model:save "/nonexistent/folder/m.safetensors" end, "/nonexistent", "io")
  check.equal(model(x()):shape(), { 4, 3 })
end)

-- ---- unnamed layers ---------------------------------------------------------------------------

local Pair = mgpu.Layer:extend("Pair", {})
function Pair:init() self.first, self.second = L.Dense { 4 }, L.Dense { 4, use_bias = false } end
function Pair:call(t) return self.first(t) + self.second(t) end

local function unnamed(units)
  return mgpu.Sequential { L.Input { 4 }, L.Dense { 4 }, Pair {}, L.BatchNormalization {},
    L.Dense { units or 4 } }
end

test("load_weights assigns weights of unnamed layers by order", function()
  local path, batch = check.path "unnamed.safetensors", mgpu.rand { 2, 4 }
  local first, second = unnamed(), unnamed()
  first.layers[1].kernel:assign(mgpu.rand { 4, 4 })
  first:save_weights(path)
  second:load_weights(path)
  check.equal(second(batch), first(batch):totable())
  first:save(path)
  local third = unnamed()
  third:load_weights(path)
  check.equal(third(batch), first(batch):totable())
  mgpu.load_model(path, { custom = { Pair = Pair } }):load_weights(path)
end)

test("weights loaded by order must have the same layer classes, shapes and given names", function()
  local path = check.path "differs.safetensors"
  mgpu.reset_names()
  unnamed():save_weights(path)
  local function refused(model, expected)
    local before = model:get_weights()
    check.raises(function() model:load_weights(path) end, expected, "data")
    for i, t in ipairs(model:get_weights()) do check.equal(t, before[i]:totable()) end
  end
  refused(unnamed(5), 'by order, weight %d+ is "dense_3/kernel" of shape {4, 4} in the file, but '
    .. '"dense_%d+/kernel" of shape {4, 5}')
  refused(mgpu.Sequential { L.Input { 4 }, L.Dense { 4 } }, "by order, the file has 11 weights, the model 2")
  mgpu.Sequential { L.Input { 4 }, L.Dense { 4 } }:save_weights(path)
  refused(mgpu.Sequential { L.Input { 4 }, L.Dense { 4, name = "own" } },
    'weight 1 is "dense_%d+/kernel" of shape {4, 4} in the file, but "own/kernel"')
  refused(mgpu.Sequential { L.Input { 4 }, L.Dense { 4, name = "dense_head" } }, 'but "dense_head/kernel"')
  refused(mgpu.Sequential { L.Input { 4 }, Pair {} }, "by order, the file has 2 weights, the model 3")
end)

test("by_name loads what both have, skip_mismatch leaves weights of other shapes alone", function()
  local path, model = check.path "partly.safetensors", network(4)
  network(3):save_weights(path)
  local shared = mgpu.Sequential { L.Input { 6, 6, 1 }, L.Conv2D { 2, 3, name = "conv" }, L.Flatten {},
    L.Dense { 1, name = "head" } }
  check.raises(function() shared:load_weights(path) end, "the file lacks the weights head/bias", "data")
  local source, noise = network(3), mgpu.rand { 3, 3, 1, 2 }
  mgpu.eval(noise)
  source.layers[1].kernel:assign(noise)
  source:save_weights(path)
  shared:load_weights(path, { by_name = true })
  check.equal(shared.layers[1].kernel:value(), source.layers[1].kernel:totable())
  check.raises(function() model:load_weights(path, { by_name = true }) end, 'the weight "out/kernel" has shape', "data")
  for _, by_name in ipairs { false, true } do
    model = network(4)
    local before = model.layers[4].kernel:totable()
    model:load_weights(path, { by_name = by_name, skip_mismatch = true })
    check.equal(model.layers[1].kernel:value(), source.layers[1].kernel:totable())
    check.equal(model.layers[4].kernel:value(), before)
  end
end)

test("the options of save, save_weights and load_weights are checked", function()
  local model, path = network(), check.path "checked.safetensors"
  local function refused(fn, expected) check.raises(fn, "save_load_spec.lua:%d+: " .. expected, "usage") end
  refused(function() model:save(path, { bogus = 1 }) end, 'save: unknown option "bogus"')
  refused(function() model:save_weights(path, { include_optimizer = true }) end, "save_weights: unknown option")
  refused(function() model:load_weights(path, { byname = true }) end,
    'load_weights: unknown option "byname" %(did you mean "by_name"%?%)')
  refused(function() model:load_weights(path, true) end, "load_weights: options are a table, got a boolean")
  check.falsy(require "mgpu.core".file_exists(path), "a file")
  model:compile { optimizer = "adam", loss = "mse" }
  model:save(path, { include_optimizer = false })
  check.falsy(mgpu.load_model(path).optimizer, "an optimizer")
  refused(function() model:save(path, { overwrite = false }) end, "save: .*checked.safetensors exists already")
  refused(function() model:save_weights(path, { overwrite = false }) end, "save_weights: .* exists already")
end)

test("a path that cannot be saved to is refused before any work", function()
  local saving = require "mgpu.nn.saving"
  local function refused(path, expected, code)
    check.raises(function() saving.check_path(path, "save", "ModelCheckpoint") end, "ModelCheckpoint: .*" .. expected,
      code)
    check.raises(function() network():save(path) end, "model:save: .*" .. expected, code)
  end
  refused(check.path "model.pt", 'unknown ending ".pt": the endings are .safetensors', "usage")
  refused(check.path "model", "the name has no ending", "usage")
  refused(check.path "missing/model.safetensors", "missing: No such file or directory", "io")
  check.write(check.path "plain", "x")
  refused(check.path "plain/model.safetensors", "plain is not a folder", "io")
  check.raises(function() mgpu.load_model "model.pt" end, 'mgpu.load_model: model.pt: unknown ending ".pt"', "usage")
  saving.check_path(check.path "model.safetensors", "save_weights")
end)

test("load_model's options are checked; compile = false leaves the optimizer out", function()
  local model, path = network(), check.path "options.safetensors"
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
  model:save(path)
  check.truthy(mgpu.load_model(path).optimizer, "an optimizer")
  check.falsy(mgpu.load_model(path, { compile = false }).optimizer, "an optimizer")
  local function refused(options, expected)
    check.raises(function() mgpu.load_model(path, options) end, "save_load_spec.lua:%d+: load_model: " .. expected,
      "usage")
  end
  refused({ custom_objects = {} }, 'unknown option "custom_objects"')
  refused({ custm = {} }, 'unknown option "custm" %(did you mean "custom"%?%)')
  refused({ custom = { S = 3 } }, "custom.S must be a class made by mgpu.Layer:extend, got a number")
  refused("x", "options are a table, got a string")
end)

test("a missing path is an error at the user's line", function()
  local model = network()
  for _, fn in ipairs { function() model:save() end, function() model:save_weights() end,
    function() model:load_weights() end, function() mgpu.load_model() end } do
    check.raises(fn, "save_load_spec.lua:%d+: .*: the path must be text, got nothing", "usage")
  end
  check.raises(function() model:save {} end, "got a table", "usage")
end)
