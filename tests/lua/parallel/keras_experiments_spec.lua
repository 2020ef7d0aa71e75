-- The interface of keras_experiments: ModelMGPU, make_parallel's model_class, the *MGPU optimizers,
-- print_mgpu_modelsummary, TensorBoardEmbedding; and GPUs that logical CPU devices stand for.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L, parallel = mgpu.layers, mgpu.parallel
local ModelMGPU = parallel.ModelMGPU

local TWO = { "ref:0", "ref:1" }

local function network()
  return mgpu.Sequential { name = "net", L.Input { 6 }, L.Dense { 4, activation = "relu" },
    L.Dense { 3, activation = "softmax" } }
end

local function data()
  mgpu.seed(7)
  return mgpu.rand { 22, 6 }, mgpu.randint(0, 3, { 22 })
end

-- What mgpu.output gets while fn runs.
local function said(fn)
  local texts, before = {}, mgpu.output
  mgpu.output = function(text) texts[#texts + 1] = text end
  local ok, message = pcall(fn)
  mgpu.output = before
  check.truthy(ok, message)
  return table.concat(texts)
end

test("a ModelMGPU trains the weights of its serial model as one device does", function()
  local x, y = data()
  local serial, alone = network(), network()
  alone:set_weights(serial:get_weights())
  local model = ModelMGPU { serial_model = serial, gdev_list = TWO }
  check.equal({ model.gdev_list, model.serial_model == serial }, { TWO, true })
  for _, m in ipairs { model, alone } do
    m:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", metrics = "accuracy",
      devices = m == alone and "ref:0" or nil }
    m:fit(x, y, { batch_size = 8, epochs = 2, verbose = 0, shuffle = false })
  end
  check.equal(model.compiled.devices, TWO)
  for i, w in ipairs(serial:get_weights()) do
    check.near(w, alone:get_weights()[i], 1e-6) -- the gradients are summed in another order
  end
  check.near(model:evaluate(x, y, { verbose = 0 }).loss, alone:evaluate(x, y, { verbose = 0 }).loss, 1e-6)
end)

test("save, save_weights, load_weights and ModelCheckpoint of a ModelMGPU do as for the serial model", function()
  local x, y = data()
  local serial = network()
  local model = ModelMGPU { serial, TWO }
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  local best = check.path "best.safetensors"
  model:fit(x, y, { verbose = 0, callbacks = mgpu.callbacks.ModelCheckpoint { best, save_weights_only = true } })
  local a, b, whole = check.path "a.h5", check.path "b.h5", check.path "whole.h5"
  model:save_weights(a)
  serial:save_weights(b)
  check.equal(check.read(a), check.read(b))
  model:save(whole)
  local again, other = mgpu.load_model(whole), network()
  check.equal({ again.class_name, again.name, rawget(again, "spread") }, { "Sequential", "net" })
  check.near(again:predict(x), serial:predict(x), 1e-6) -- cpu and ref round differently
  other:load_weights(best)
  check.equal(other:get_weights(), serial:get_weights())
  local before = serial:get_weights()[1]
  other:set_weights(network():get_weights())
  other:save_weights(a)
  model:load_weights(a)
  check.equal(serial:get_weights(), other:get_weights())
  check.truthy((serial:get_weights()[1] - before):abs():max():item() > 0, "other weights")
end)

test("a ModelMGPU needs a model and two devices", function()
  local function refused(expected, given) check.raises(function() ModelMGPU(given) end, expected, "usage") end
  refused("ModelMGPU: Number of gpus < 2: two or more devices are needed, got ref:0; visible: ",
    { serial_model = network(), gdev_list = { "ref:0" } })
  refused("Number of gpus < 2: two or more devices are needed, got none", { network(), {} })
  refused('ModelMGPU: option "gdev_list" is missing', { network() })
  refused('ModelMGPU: option "serial_model" is missing', { gdev_list = TWO })
  refused("ModelMGPU: serial_model must be a model, got a number", { 3, TWO })
  refused("ModelMGPU: gdev_list must be a list of devices, got a number", { network(), 3 })
  refused("ModelMGPU: devices: ref:0 is given twice", { network(), { "ref:0", "ref:0" } })
  refused("ModelMGPU: the model is parallel already, on ref:0, ref:1", { ModelMGPU { network(), TWO }, TWO })
  refused('unknown option "gpus"', { network(), TWO, gpus = 2 })
end)

test("make_parallel makes the model with its model_class", function()
  local got
  local function with_greeting(given)
    got = given
    local model = ModelMGPU(given)
    function model.greet(self) return "I am " .. self.name end
    return model
  end
  local serial = network()
  local model = parallel.make_parallel(serial, TWO, { model_class = with_greeting, ps_device = "ref:2" })
  check.equal({ model:greet(), got.gdev_list, got.ps_device, got.serial_model == serial },
    { "I am net", TWO, "ref:2", true })
  model:compile { loss = "mse" }
  check.equal({ model.compiled.devices, model.compiled.strategy, model.compiled.home }, { TWO, "central", "ref:2" })
  check.truthy(parallel.make_parallel(serial, { "ref:0" }, { model_class = with_greeting }) == serial)
  check.equal(parallel.make_parallel(serial, TWO, { model_class = ModelMGPU }).gdev_list, TWO)
  check.raises(function() parallel.make_parallel(serial, TWO, { model_class = "ModelMGPU" }) end,
    "make_parallel: model_class must be a function or a class, got a string", "usage")
  check.raises(function() parallel.make_parallel(serial) end, "gdev_list must be a list of devices, got nothing",
    "usage")
end)

test("the summary of a parallel model has the summaries of the models in it, indented", function()
  local inner = mgpu.Sequential { name = "inner", L.Input { 4 }, L.Dense { 2 } }
  local input = mgpu.Input { 4 }
  local model = mgpu.Model { inputs = input, outputs = inner(input), name = "outer" }
  local text = said(function() parallel.print_mgpu_modelsummary(parallel.make_parallel(model, TWO)) end)
  check.matches(text, '^\nMULTI%-GPU MODEL: outer\nModel: "outer"\n')
  check.matches(text, '\n\n\tSUBMODEL SUMMARY: inner\n\tModel: "inner"\n\t____')
  check.matches(text, "\n\tTotal params: 10\n")
  check.falsy(said(function() parallel.print_mgpu_modelsummary(inner) end):find "SUBMODEL")
  check.raises(function() parallel.print_mgpu_modelsummary {} end, "expected a model, got a table", "usage")
end)

test("the multi-GPU optimizers are the optimizers, with a list of devices", function()
  local optimizers = parallel.optimizers
  local classes = { AdadeltaMGPU = "Adadelta", AdagradMGPU = "Adagrad", AdamMGPU = "Adam", AdamaxMGPU = "Adamax",
    NadamMGPU = "Nadam", RMSPropMGPU = "RMSprop", SGD_MGPU = "SGD", SGDMGPU = "SGD" }
  for name, class in pairs(classes) do
    local optimizer = optimizers[name] { lr = 0.25, gdev_list = "ref:0-1", usenccl = true, clipnorm = 2 }
    check.equal({ optimizer.class, optimizer.learning_rate, optimizer.options.clipnorm, optimizer.gdev_list },
      { class, 0.25, 2, TWO })
  end
  check.equal(optimizers.SGD_MGPU(0.5).learning_rate, 0.5)
  check.raises(function() return optimizers.AdamMgpu end, "AdamMGPU", "usage")
  check.raises(function() optimizers.AdamMGPU { lr = 1, learning_rate = 1 } end,
    "AdamMGPU: lr and learning_rate are the same option", "usage")
  check.raises(function() optimizers.AdamMGPU { gdev_list = { "cuda:9" } } end, "cuda:9")
  check.raises(function() optimizers.AdamMGPU { gdev_list = 2 } end, '"gdev_list" must be a name or a table', "usage")
  check.raises(function() optimizers.SGD_MGPU { momentun = 1 } end, '"momentum"', "usage")
end)

test("decay lowers the learning rate as in Keras 2", function()
  local w = mgpu.variable(mgpu.tensor { 0 })
  local optimizer = parallel.optimizers.SGD_MGPU { lr = 1, decay = 0.5 }
  for _ = 1, 3 do optimizer:apply({ mgpu.tensor { 1 } }, { w }) end
  check.near(w:value(), { -(1 + 1 / 1.5 + 1 / 2) }, 1e-6)
  check.near(parallel.optimizers.RMSPropMGPU { decay = 1 }.learning_rate, 0.001, 1e-9) -- before the first step
end)

test("a model without devices trains on its optimizer's; devices that differ from the model's are refused", function()
  local x, y = data()
  local optimizer = parallel.optimizers.RMSPropMGPU { gdev_list = TWO }
  local model = network()
  model:compile { optimizer = optimizer, loss = "sparse_categorical_crossentropy" }
  check.equal(model.compiled.devices, TWO)
  model:fit(x, y, { verbose = 0 })
  local same = parallel.make_parallel(network(), TWO)
  same:compile { optimizer = parallel.optimizers.AdamMGPU { gdev_list = TWO }, loss = "mse" }
  local function refused(wrapped, devices)
    check.raises(function() wrapped:compile { loss = "mse", devices = devices,
      optimizer = parallel.optimizers.AdamMGPU { gdev_list = TWO } } end,
      "compile: the optimizer's gdev_list is ref:0, ref:1, but the model is on ref:1, ref:2", "usage")
  end
  refused(parallel.make_parallel(network(), { "ref:1", "ref:2" }))
  refused(network(), { "ref:1", "ref:2" })
end)

test("logical CPU devices that --devices lists stand for GPUs", function()
  local script = check.path "gpus.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    local L, parallel = mgpu.layers, mgpu.parallel
    print(table.concat(parallel.get_available_gpus(), " "), #parallel.get_available_gpus(2))
    print(pcall(parallel.get_available_gpus, 5))
    local function model(gpus)
      local m = parallel.multi_gpu_model(mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }, { gpus = gpus })
      m:compile { loss = "mse" }
      return m
    end
    local m = model(4)
    print(table.concat(m.compiled.devices, " "), table.concat(model { 1, 3 }.compiled.devices, " "),
      #model().compiled.devices)
    m:fit(mgpu.ones { 10, 2 }, mgpu.ones { 10, 1 }, { verbose = 0 })
    print(pcall(model, 5))
  ]])
  local out, status = check.run(check.program .. " --devices cpu:0-3 " .. script)
  check.equal(status, 0)
  check.matches(out, "^cpu:0 cpu:1 cpu:2 cpu:3\t2\nfalse\t.*5 GPUs were asked for, but these are visible: cpu:0, "
    .. "cpu:1, cpu:2, cpu:3\ncpu:0 cpu:1 cpu:2 cpu:3\tcpu:1 cpu:3\t4\nfalse\t.*5 GPUs were asked for")
end)

test("TensorBoardEmbedding writes the tables of the named Embedding layers after each epoch", function()
  local folder = check.path "board"
  local model = mgpu.Sequential { L.Input { 1 }, L.Embedding { 3, 2, name = "words" }, L.Flatten {},
    L.Dense { 1 } }
  model:compile { loss = "mse" }
  local x, y = mgpu.randint(0, 3, { 8, 1 }), mgpu.rand { 8, 1 }
  local function fit(given)
    model:fit(x, y, { verbose = 0, callbacks = mgpu.callbacks.TensorBoardEmbedding(given) })
  end
  fit { log_dir = folder, embeddings_layer_names = { "words" }, embeddings_metadata = "labels.tsv" }
  check.matches(check.read(folder .. "/projector_config.pbtxt"), 'metadata_path: "labels.tsv"')
  check.matches(check.read(folder .. "/words.tsv"), "^" .. ("[^\t\n]+\t[^\t\n]+\n"):rep(3) .. "$")
  check.raises(function() fit { log_dir = folder, embeddings_layer_names = { "wrods" } } end,
    'embeddings_layer_names: there is no Embedding layer "wrods" %(did you mean "words"%?%)', "usage")
end)
