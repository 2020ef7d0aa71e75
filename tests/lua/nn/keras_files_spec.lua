-- Files that Keras 3 and Keras 2 have written (tests/golden/keras_files.py): models rebuilt from them predict the same,
-- and train on as Keras does.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test
local FOLDER = "tests/golden/keras/"

local can, problem = pcall(core.h5_read, FOLDER .. "mlp_3.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

local expected = {}
for _, version in ipairs { "3", "2" } do
  expected[version] = core.store_load(("%sexpected_%s.safetensors"):format(FOLDER, version))
end

-- The arrays BASE/what/1, BASE/what/2, ...
local function arrays(base, version, what)
  local list = {}
  while expected[version][("%s_%s/%s/%d"):format(base, version, what, #list + 1)] do
    list[#list + 1] = expected[version][("%s_%s/%s/%d"):format(base, version, what, #list + 1)]
  end
  return list
end

local function one_or_list(list) return #list == 1 and list[1] or list end

local function check_predictions(model, base, version)
  local x, y = arrays(base, version, "x"), arrays(base, version, "y")
  local out = model:predict(one_or_list(x), { verbose = 0 })
  if #y == 1 then out = { out } end
  check.equal(#out, #y)
  for i, t in ipairs(y) do check.near(out[i], t:totable(), 1e-5, ("output %d"):format(i)) end
end

for _, version in ipairs { "3", "2" } do
  for _, base in ipairs { "lenet5", "mlp", "mnist_cnn", "two_inputs", "every_layer" } do
    for _, ending in ipairs { ".keras", ".h5" } do
      test(("%s%s of Keras %s predicts the same"):format(base, ending, version), function()
        check_predictions(mgpu.load_model(("%s%s_%s%s"):format(FOLDER, base, version, ending)), base, version)
      end)
    end
  end
end

-- ---- files of ours ------------------------------------------------------------------------------

-- The entries of an HDF5 file with the values of the tensors.
local function contents(...)
  local list = core.h5_read(...)
  for _, entry in ipairs(list) do
    local t = entry.tensor
    if t then entry.dtype, entry.shape, entry.tensor = t:dtype(), t:shape(), t:count() > 0 and t:totable() or nil end
  end
  return list
end

test("our files equal those that Keras has loaded", function()
  local reference, committed, path = dofile "tests/golden/keras_reference.lua" (), FOLDER .. "reference",
    check.path "reference"
  reference:save(path .. ".h5")
  check.equal(contents(path .. ".h5"), contents(committed .. ".h5"))
  reference:save_weights(path .. ".weights.h5")
  check.equal(contents(path .. ".weights.h5"), contents(committed .. ".weights.h5"))
  reference:save(path .. ".keras")
  local ours, theirs = core.zip_read(path .. ".keras"), core.zip_read(committed .. ".keras")
  check.equal(ours:names(), theirs:names())
  for _, name in ipairs { "config.json", "metadata.json" } do
    check.equal(ours:read(name), theirs:read(name))
  end
  check.equal(contents(ours, "model.weights.h5"), contents(theirs, "model.weights.h5"))
end)

test("our files give back the model, compiled", function()
  local reference = dofile "tests/golden/keras_reference.lua" ()
  local x = { mgpu.rand { 2, 4, 4, 2 }, mgpu.rand { 2, 3 } }
  core.eval(unpack(x))
  for _, ending in ipairs { ".h5", ".keras" } do
    local path = check.path("again" .. ending)
    reference:save(path)
    local again = mgpu.load_model(path)
    for i, t in ipairs(reference:predict(x, { verbose = 0 })) do
      check.near(again:predict(x, { verbose = 0 })[i], t:totable(), 1e-6)
    end
    check.equal(again.optimizer.learning_rate, 0.25)
    check.equal(again.compiled.outputs[2].loss.options.delta, 2)
    check.equal(again.compiled.outputs[2].weight, 0.5)
    check.equal(again.compiled.outputs[1].metrics[1].name, "accuracy")
    check.falsy(mgpu.load_model(path, { compile = false }).compiled, "compiled")
  end
end)

-- ---- weights ------------------------------------------------------------------------------------

test("files of weights are loaded into models that have the layers", function()
  for _, base in ipairs { "lenet5", "mlp", "mnist_cnn", "two_inputs", "every_layer" } do
    local path = ("%s%s_3"):format(FOLDER, base)
    local model = mgpu.clone_model(mgpu.load_model(path .. ".h5"))
    model:load_weights(path .. ".weights.h5")
    check_predictions(model, base, "3")
  end
  local model = mgpu.clone_model(mgpu.load_model(FOLDER .. "mlp_2.h5"))
  model:load_weights(FOLDER .. "mlp_2_weights.h5")
  check_predictions(model, "mlp", "2")
end)

-- Loads adam_3.h5 without the slots of Adam, and with this count of steps. Returns the model and what was printed.
local function without_slots(steps)
  local entries, path = {}, check.path "adam.h5"
  for _, entry in ipairs(core.h5_read(FOLDER .. "adam_3.h5")) do
    if entry.path == "optimizer_weights" and entry.attribute then
      entry.text = { "adam/iteration", "adam/learning_rate" }
    elseif entry.path == "optimizer_weights/adam/iteration" then
      entry.tensor = mgpu.tensor(steps, { dtype = "int64" })
    end
    if not entry.path:find "^optimizer_weights/adam/adam_" then entries[#entries + 1] = entry end
  end
  core.h5_write(path, entries)
  local output, text = mgpu.output, ""
  mgpu.output = function(line) text = text .. line end
  local model = mgpu.load_model(path)
  mgpu.output = output
  return model, text
end

test("an optimizer that Keras saved before its first step starts without a warning, another with one", function()
  local model, text = without_slots(0)
  check.equal({ model.optimizer:steps_taken(), text }, { 0, "" })
  model, text = without_slots(3)
  check.equal(model.optimizer:steps_taken(), 0)
  check.matches(text, "adam.h5: the state of the optimizer Adam has another form and is ignored: it starts anew")
end)

for _, version in ipairs { "3", "2" } do
  for _, base in ipairs { "sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam" } do
    for _, ending in ipairs { ".keras", ".h5" } do
      test(("training goes on from %s%s of Keras %s"):format(base, ending, version), function()
        local model = mgpu.load_model(("%s%s_%s%s"):format(FOLDER, base, version, ending))
        check.equal(model.optimizer:steps_taken(), 3)
        model:train_on_batch(arrays(base, version, "x")[1], arrays(base, version, "target")[1])
        for i, t in ipairs(arrays(base, version, "after")) do
          check.near(model:get_weights()[i], t:totable(), 1e-5, ("weight %d"):format(i))
        end
      end)
    end
  end
end
