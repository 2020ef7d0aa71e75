-- Optimizers whose state in files of Keras differs between variables: Muon, Adafactor. The files are written by
-- tests/golden/make_optimizer_files.py. MGPU_KEEP=FOLDER keeps the files written here, for Keras to load.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local FOLDER = "tests/golden/optimizer_files/"
local TRAINS = 1e-5 -- float32, three steps

local can, problem = pcall(core.h5_make, {}, "none.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end
local expected = core.store_load(FOLDER .. "expected.safetensors")

local function check_steps(model, name)
  for _ = 1, 3 do model:train_on_batch(expected.x, expected.y) end
  for i, t in ipairs(model:get_weights()) do
    local wanted = expected[("%s/after/%d"):format(name, i)]
    check.equal(t:shape(), wanted:shape())
    check.near(t:reshape { -1 }, wanted:reshape { -1 }:totable(), TRAINS)
  end
end

for _, name in ipairs { "muon", "muon_decay", "adafactor" } do
  test(name .. ": training goes on as in Keras, also from a file of ours in each format that has the state", function()
    local path = FOLDER .. name .. ".keras"
    check.equal(fixtures.printed(function() check_steps(mgpu.load_model(path), name) end), "")
    for _, ending in ipairs { "keras", "safetensors", name ~= "adafactor" and "h5" or nil } do
      local copy = check.path(name .. "." .. ending)
      mgpu.load_model(path):save(copy)
      check_steps(mgpu.load_model(copy), name)
    end
    local keep = os.getenv "MGPU_KEEP"
    if keep then mgpu.load_model(path):save(("%s/%s.keras"):format(keep, name)) end
  end)
end

for _, class in ipairs(fixtures.optimizer_classes()) do
  test(class .. ": training goes on from a file of each format as without the file", function()
    local function trained(through)
      mgpu.seed(3)
      local model = mgpu.Sequential { mgpu.Input { 5 }, mgpu.layers.Dense { 4 }, mgpu.layers.Dense { 2 } }
      model:compile { optimizer = mgpu.optimizers[class] { use_ema = true, ema_momentum = 0.5 }, loss = "mse" }
      for _ = 1, 3 do model:train_on_batch(expected.x, expected.y) end
      if through then
        model:save(through)
        model = mgpu.load_model(through)
        check.equal(model.optimizer:steps_taken(), 3)
      end
      for _ = 1, 3 do model:train_on_batch(expected.x, expected.y) end
      return model:get_weights()
    end
    local direct = trained()
    for _, ending in ipairs { "keras", "safetensors", class ~= "Adafactor" and "h5" or nil } do
      for i, t in ipairs(trained(check.path("a." .. ending))) do
        check.near(t:reshape { -1 }, direct[i]:reshape { -1 }:totable(), 1e-7) -- learning rates are float32 in files
      end
    end
  end)
end

test("Muon takes the steps of one device on several", function()
  local function trained(devices)
    mgpu.seed(3)
    local model = mgpu.Sequential { mgpu.Input { 5 }, mgpu.layers.Dense { 4 }, mgpu.layers.Dense { 2 } }
    model:compile { optimizer = mgpu.optimizers.Muon { 0.1 }, loss = "mse", devices = devices }
    for _ = 1, 3 do model:train_on_batch(expected.x, expected.y) end
    return model:get_weights()
  end
  local one = trained { "cpu:0" }
  for i, t in ipairs(trained { "cpu:0", "cpu:1", "cpu:2" }) do
    check.near(t:reshape { -1 }, one[i]:reshape { -1 }:totable(), 1e-5) -- sums of float32 in another order
  end
end)

test("options of Muon that no declaration refuses are errors when it is made", function()
  for _, wrong in ipairs { { 3 }, { x = "dense" }, { "a", [3] = "b" } } do
    check.raises(function() mgpu.optimizers.Muon { exclude_layers = wrong } end,
      'Muon: option "exclude_layers" must be an array of parts of names', "usage")
  end
  check.raises(function() mgpu.optimizers.Muon { rms_rate = true } end,
    'Muon: option "rms_rate" must be a number, or false for none', "usage")
end)

test("names that Muon leaves out are patterns in files of Keras, of which plain ones are taken", function()
  local model = mgpu.Sequential { mgpu.Input { 5 }, mgpu.layers.Dense { 4 } }
  model:compile { optimizer = mgpu.optimizers.Muon { exclude_layers = { "dense", "a.b" } }, loss = "mse" }
  local path = check.path "plain.keras"
  model:save(path)
  check.equal(mgpu.load_model(path).optimizer.options.exclude_layers, { "dense", "a.b" })
  local function read(patterns)
    return require "mgpu.nn.keras.training".from_keras(model, { loss = "mse",
      optimizer = { class_name = "Muon", config = { learning_rate = 0.1, exclude_layers = patterns } } }, {}, {},
      { path = "m.keras" }).config.optimizer.config.exclude_layers
  end
  check.equal(read { "first", [[a\.b]] }, { "first", "a.b" })
  check.raises(function() read { [[dense_\d+]] } end,
    [[the pattern "dense_\\d+" in exclude_layers of Muon is not supported]])
end)
