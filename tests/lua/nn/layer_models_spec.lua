-- Models of attention, normalizations, images, 1-D and 3-D layers and wrappers: files of Keras 2.15 and 3.15 are
-- loaded, predict and train as in Keras, also on several devices, and are written and read again. The files are written
-- by tests/golden/make_layer_models.py. MGPU_KEEP=FOLDER keeps the written files there, for Keras to load.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test
local FOLDER = "tests/golden/layer_models/"
local PREDICTS = 2e-5 -- float32, some ten layers
local TRAINS = 1e-4 -- rounding of PREDICTS in the gradients of three steps

local can, problem = pcall(core.h5_read, FOLDER .. "attention_3.15.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

local function near(t, wanted, tolerance)
  check.equal(t:shape(), wanted:shape())
  check.near(t:reshape { -1 }, wanted:reshape { -1 }:totable(), tolerance)
end

local function listed(expected, path, model)
  local list = {}
  while expected[("%s/%d"):format(path, #list + 1)] do
    list[#list + 1] = expected[("%s/%d"):format(path, #list + 1)]
  end
  for i, input in ipairs(model and model.inputs or {}) do
    if input:dtype() == "bool" then list[i] = list[i]:to "bool" end
  end
  return list
end

local function single(list) return #list > 1 and list or list[1] end

local function as_list(value) return type(value) == "table" and value or { value } end

-- The weights in the order of Keras's: the trainable ones first.
local function weights_of(model)
  local list = {}
  for _, v in ipairs(model.trainable_variables) do list[#list + 1] = v:value() end
  for _, v in ipairs(model.non_trainable_variables) do list[#list + 1] = v:value() end
  return list
end

local function check_predictions(model, x, wanted)
  local y = as_list(model:predict(single(x), { verbose = 0 }))
  check.equal(#y, #wanted)
  for i, t in ipairs(y) do near(t, wanted[i], PREDICTS) end
end

for _, version in ipairs { "3.15", "2.15" } do
  local expected = core.store_load(("%sexpected_%s.safetensors"):format(FOLDER, version))
  local names = {}
  for key in pairs(expected) do
    local name = key:match "^(.-)/x/1$"
    if name then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local wanted = listed(expected, name .. "/y")
    local function load(ending) return mgpu.load_model(("%s%s_%s.%s"):format(FOLDER, name, version, ending)) end

    local endings = { "keras" }
    if core.file_exists(("%s%s_%s.h5"):format(FOLDER, name, version)) then endings[2] = "h5" end
    for _, ending in ipairs(endings) do
      test(("%s_%s.%s predicts as in Keras, and again after saving in each format"):format(name, version, ending),
        function()
          local model = load(ending)
          local x = listed(expected, name .. "/x", model)
          check_predictions(model, x, wanted)
          for _, format in ipairs { "keras", "h5", "safetensors" } do
            local path = check.path(("%s_%s_from_%s.%s"):format(name, version, ending, format))
            model:save(path)
            check_predictions(mgpu.load_model(path), x, wanted)
            local keep = os.getenv "MGPU_KEEP"
            if keep and format ~= "safetensors" then
              model:save(("%s/%s_%s_from_%s.%s"):format(keep, name, version, ending, format))
            end
          end
        end)
    end

    test(("%s_%s trains as in Keras, on one, two and three devices"):format(name, version), function()
      for n = 1, 3 do
        local model = load "keras"
        local x, zeros = listed(expected, name .. "/x", model), {}
        for i, y in ipairs(wanted) do zeros[i] = mgpu.zeros(y:shape()) end
        model:compile { optimizer = mgpu.optimizers.SGD { 0.05 }, loss = "mse",
          devices = { unpack({ "cpu:0", "cpu:1", "cpu:2" }, 1, n) } }
        for _ = 1, 3 do model:train_on_batch(single(x), single(zeros)) end
        local after = listed(expected, name .. "/after")
        local got = weights_of(model)
        check.equal(#got, #after)
        for i, t in ipairs(got) do near(t, after[i], TRAINS) end
      end
    end)
  end
end
