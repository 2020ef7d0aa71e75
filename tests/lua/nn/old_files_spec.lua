-- Files that old versions of Keras have written (tests/golden/make_old_files.py): the models are rebuilt, predict the
-- same, and train as they did there.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local FOLDER = "tests/golden/keras_old/"

local can, problem = pcall(core.h5_read, "tests/golden/keras/mlp_3.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

-- Folder -> names of files.
local FILES = dofile(FOLDER .. "files.lua")

local function arrays(numbers, what)
  local list = {}
  while numbers[("%s/%d"):format(what, #list + 1)] do list[#list + 1] = numbers[("%s/%d"):format(what, #list + 1)] end
  return list
end

local function one_or_list(list) return #list == 1 and list[1] or list end

local function near(got, expected, tolerance, what)
  check.equal(#got, #expected)
  for i, t in ipairs(expected) do check.near(got[i], t:totable(), tolerance, ("%s %d"):format(what, i)) end
end

-- On TensorFlow 1 weights are read while others are updated: Keras's own steps deviate by some 1e-5.
local TOLERANCE = { ["1.2.2"] = 1e-4 }

-- Which weights are compared. There, it is a matter of chance whether decay counts a step before or after it. Keras
-- 2.3.1 counts as it should after it has loaded the file.
local AFTER = { ["2.3.1"] = "again" }

local function check_file(version, file)
  local name = file:match "^(.*)%.%w+$"
  local numbers = core.store_load(("%s%s/%s.safetensors"):format(FOLDER, version, name))
  local model = mgpu.load_model(("%s%s/%s"):format(FOLDER, version, file))
  local x, y = arrays(numbers, "x"), arrays(numbers, "y")
  local out, tolerance = model:predict(one_or_list(x), { verbose = 0 }), TOLERANCE[version] or 1e-5
  near(core.is_tensor(out) and { out } or out, y, 1e-5, "output")
  local step, target, after = arrays(numbers, "step"), arrays(numbers, "target"),
    arrays(numbers, AFTER[version] or "after")
  if #step > 0 then
    local zeros = {}
    for i, t in ipairs(y) do zeros[i] = t * 0 end
    model:train_on_batch(one_or_list(x), one_or_list(zeros))
    near(model:get_weights(), step, tolerance, "weight")
  elseif #target > 0 then
    for _ = 1, 3 do model:train_on_batch(x[1], target[1]) end
    near(model:get_weights(), after, tolerance, "weight")
  end
end

test("kernels that Theano has turned around are turned back", function()
  local entries, path = {}, check.path "theano.h5"
  for i, entry in ipairs(core.h5_read "tests/golden/keras/lenet5_2.h5") do
    if entry.attribute == "backend" then entry.text = "theano" end
    if entry.tensor and entry.tensor:rank() == 4 then entry.tensor = entry.tensor:flip { 1, 2 } end
    entries[i] = entry
  end
  core.h5_write(path, entries)
  local x = mgpu.rand { 2, 12, 12, 1 }
  local expected = mgpu.load_model("tests/golden/keras/lenet5_2.h5", { compile = false }):predict(x, { verbose = 0 })
  check.near(mgpu.load_model(path, { compile = false }):predict(x, { verbose = 0 }), expected:totable(), 1e-6)
end)

test("a model whose optimizer's state the file has not is loaded without it, with a sentence", function()
  for name, reason in pairs { Adafactor = "the state of the optimizer Adafactor is not read from .h5 files" } do
    local entries, path = {}, check.path(name .. ".h5")
    for _, entry in ipairs(core.h5_read "tests/golden/keras/adam_3.h5") do
      if entry.attribute == "training_config" then entry.text = entry.text:gsub('"Adam"', '"' .. name .. '"') end
      -- Keras's own file of Adafactor ends within the variables of the optimizer
      if not entry.path:find "^optimizer_weights/adam/adam_" then entries[#entries + 1] = entry end
    end
    core.h5_write(path, entries)
    local output, text = mgpu.output, ""
    mgpu.output = function(line) text = text .. line end
    local ok, model = pcall(mgpu.load_model, path)
    mgpu.output = output
    check.truthy(ok, model)
    check.falsy(model.compiled, "compiled")
    check.matches(text, reason .. ": the model is loaded without it, so call compile")
  end
end)

test("a .h5 file of ours with Adafactor is loaded without the optimizer, with a sentence", function()
  local model, path = mgpu.Sequential { mgpu.Input { 2 }, mgpu.layers.Dense { 1 } }, check.path "adafactor.h5"
  model:compile { optimizer = "adafactor", loss = "mse" }
  model:fit(mgpu.ones { 4, 2 }, mgpu.ones { 4, 1 }, { verbose = 0 })
  model:save(path)
  local loaded
  local text = fixtures.printed(function() loaded = mgpu.load_model(path) end)
  check.falsy(loaded.compiled, "compiled")
  check.matches(text, "Adafactor is not read from .h5 files: the model is loaded without it, so call compile")
end)

test("a decay that is none, or beside a schedule, is an error about the file", function()
  local schedule = '{"class_name":"InverseTimeDecay","config":{}}'
  for config, expected in pairs {
    ['{"learning_rate":0.1,"decay":"x"}'] = { "decay of the optimizer is not a number", "data" },
    [('{"learning_rate":%s,"decay":0.5}'):format(schedule)] = { "a schedule and decay is not", "unsupported" },
  } do
    local entries, path = {}, check.path "decay.h5"
    for i, entry in ipairs(core.h5_read(FOLDER .. "2.15.0/sgd.h5")) do
      if entry.attribute == "training_config" then
        entry.text = ('{"optimizer_config":{"class_name":"SGD","config":%s},"loss":"mse"}'):format(config)
      end
      entries[i] = entry
    end
    core.h5_write(path, entries)
    check.raises(function() mgpu.load_model(path) end, expected[1], expected[2])
  end
end)

for version, files in pairs(FILES) do
  for _, file in ipairs(files) do
    test(("%s of Keras %s predicts the same and trains on"):format(file, version), function()
      check_file(version, file)
    end)
  end
end
