-- Which mode, training or inference, the layers of a loaded functional model run in: files of Keras 2 record where the
-- user has fixed it, files of Keras 3 record it for every call without a meaning, ours mark where it is fixed.
-- The files are written by tests/golden/make_training_mode.py.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local stderr_of = require "fixtures".stderr_of

local test = check.test
local L = mgpu.layers
local FOLDER = "tests/golden/training_mode/"
local VERSIONS = { "2.15", "3.4", "3.15" }
local TOLERANCE = 1e-5 -- float32, a few layers

local can, problem = pcall(core.h5_read, FOLDER .. "frozen_3.15.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

-- The model NAME of that version from a file with that ending, and what loading it wrote to stderr.
local function load(name, version, ending)
  local path = ("%s%s_%s%s"):format(FOLDER, name, version, ending)
  if ending ~= ".json" then
    local text, model = stderr_of(mgpu.load_model, path)
    return model, text
  end
  local text, model = stderr_of(mgpu.model_from_json, check.read(path))
  model:set_weights(load(name, version, ".keras"):get_weights())
  return model, text
end

local function as_list(value) return type(value) == "table" and value or { value } end

-- For each output whether results of fn differ.
local function differs(fn)
  local first, different = as_list(fn()), {}
  for _ = 1, 3 do
    for i, y in ipairs(as_list(fn())) do different[i] = different[i] or not y:eq(first[i]):all():item() end
  end
  for i = 1, #first do different[i] = different[i] and 1 or 0 end
  return different
end

for _, version in ipairs(VERSIONS) do
  local expected = core.store_load(("%sexpected_%s.safetensors"):format(FOLDER, version))
  for _, name in ipairs { "images", "frozen" } do
    for _, ending in ipairs { ".keras", ".h5", ".json" } do
      local function flags(which)
        local list = {}
        while expected[("%s/random/%d"):format(name, #list + 1)] do
          list[#list + 1] = expected[("%s/random/%d"):format(name, #list + 1)]:totable()[which]
        end
        return list
      end
      local file = ("%s_%s%s"):format(name, version, ending)
      test(file .. " predicts and trains in the modes of Keras", function()
        local model, x = load(name, version, ending), expected[name .. "/x"]
        check.equal(differs(function() return model:predict(x) end), flags(1))
        check.equal(differs(function() return model(x, { training = true }) end), flags(2))
      end)

      test(file .. " predicts what Keras does, and a step moves the statistics that Keras moves", function()
        local model, x = load(name, version, ending), expected[name .. "/x"]
        local outputs, zeros = as_list(model:predict(x)), {}
        for i, y in ipairs(outputs) do
          local wanted = expected[("%s/y/%d"):format(name, i)]
          zeros[i] = mgpu.zeros(y:shape())
          if wanted then check.near(y, wanted:totable(), TOLERANCE) end
        end
        model:compile { optimizer = mgpu.optimizers.SGD { 0 }, loss = "mse" }
        model:train_on_batch(x, #zeros > 1 and zeros or zeros[1])
        local weights = model:get_weights()
        check.falsy(expected[("%s/after/%d"):format(name, #weights + 1)], "more weights")
        for i, w in ipairs(weights) do
          check.near(w, expected[("%s/after/%d"):format(name, i)]:totable(), TOLERANCE)
        end
      end)
    end
  end
end

-- ---- the warning --------------------------------------------------------------------------------

test("loading says which statistics fit will move though training=False seemed to freeze them", function()
  for _, ending in ipairs { ".keras", ".h5", ".json" } do
    for _, version in ipairs(VERSIONS) do
      local _, text = load("frozen", version, ending)
      if version == "2.15" then
        check.equal(text, "") -- Keras 2 does freeze them
      else
        check.equal(text:match "^mgpulua: warning: .-: (fit .*) To freeze [^\n]*\n$",
          'fit will move the statistics of BatchNormalization "norm", "deep_norm", "shared", though the model calls '
          .. "them with training=False: Keras 3 ignores that.")
      end
      _, text = load("images", version, ending)
      check.equal(text, "")
    end
  end
end)

test("frozen layers are no reason for the warning, and it can be silenced", function()
  local json = check.read(FOLDER .. "frozen_3.15.json"):gsub('"trainable": true', '"trainable": false')
  check.equal((stderr_of(mgpu.model_from_json, json)), "")
  check.equal(mgpu.warnings(false), true)
  local _, text = load("frozen", "3.15", ".keras")
  check.equal(mgpu.warnings(true), false)
  check.equal(text, "")
end)

test("the warning counts further layers, and shows control characters as numbers", function()
  local function batch_norm(name)
    return { class_name = "BatchNormalization", config = { name = name } }
  end
  local base = { class_name = "Sequential", name = "base", config = { name = "base", layers = {
    { class_name = "InputLayer", config = { batch_shape = { core.null, 2 } } },
    batch_norm "a\27[2J", batch_norm "b", batch_norm "c", batch_norm "d", batch_norm "e" } } }
  base.inbound_nodes = { { kwargs = { training = false }, args = { { class_name = "__keras_tensor__",
    config = { keras_history = { "x", 0, 0 } } } } } }
  local text = stderr_of(mgpu.model_from_json, core.json_encode { class_name = "Functional", config = {
    input_layers = { { "x", 0, 0 } }, output_layers = { { "base", 0, 0 } }, layers = { { class_name = "InputLayer",
      name = "x", config = { name = "x", batch_shape = { core.null, 2 } }, inbound_nodes = core.empty_array },
      base } } })
  check.falsy(text:find "\27", "an escape character")
  check.matches(text, '"c" and 2 more, though')
end)

-- ---- files of ours ------------------------------------------------------------------------------

-- Dropout whose mode is fixed to training, to inference, and not at all; a layer inside a model as well.
local function fixed_modes()
  local x, i = mgpu.Input { 4 }, mgpu.Input { 4 }
  local inner = mgpu.Model { inputs = i, outputs = L.Dropout { 0.5 } (i, { training = true }), name = "inner" }
  return mgpu.Model { inputs = x, outputs = { L.Dropout { 0.5 } (x, { training = true }),
    L.Dropout { 0.5 } (x, { training = false }), L.Dropout { 0.5 } (x), inner(x),
    L.BatchNormalization { name = "bn" } (x, { training = false }) } }
end

local PATHS = { ".keras", ".h5", ".safetensors" }

test("a mode that the user fixed survives in our own files", function()
  local model, x = fixed_modes(), mgpu.ones { 8, 4 }
  local function check_modes(loaded, what)
    check.equal({ what, differs(function() return loaded:predict(x) end) }, { what, { 1, 0, 0, 1, 0 } })
    check.equal({ what, differs(function() return loaded(x, { training = true }) end) }, { what, { 1, 0, 1, 1, 0 } })
  end
  check_modes(model, "the model")
  for _, ending in ipairs(PATHS) do
    local path = check.path("modes" .. ending)
    model:save(path)
    local text, again = stderr_of(mgpu.load_model, path)
    check_modes(again, ending)
    check.equal(text, "") -- the statistics are frozen
  end
  check_modes(mgpu.model_from_json(model:to_json()), "json")
end)

test("a mode in our files that is no boolean is damage", function()
  local text = fixed_modes():to_json():gsub('"mgpu_training":true', '"mgpu_training":"yes"')
  check.raises(function() mgpu.model_from_json(text) end,
    "the configuration is damaged: mgpu_training is yes, not true or false", "data")
end)

test("a model of Keras 3 records no mode when we save it again", function()
  local path = check.path "again.keras"
  load("frozen", "3.15", ".keras"):save(path)
  check.falsy(core.zip_read(path):read "config.json":find '"training"', "a recorded mode")
end)

test("a model of Keras 2 keeps the modes of its file when we save it again", function()
  local x = mgpu.rand { 8, 4 }
  for _, ending in ipairs(PATHS) do
    local path = check.path("again" .. ending)
    load("frozen", "2.15", ".h5"):save(path)
    check.equal(differs(function() return mgpu.load_model(path):predict(x) end), { 0, 0, 1, 0, 0 })
  end
end)

-- ---- which Keras wrote it -------------------------------------------------------------------------

test("the form of a model tells which Keras wrote it where no version is stated", function()
  local is_keras2 = require "mgpu.nn.keras.origin".is_keras2
  check.truthy(is_keras2("1.2.2", {}), "1.2.2")
  check.truthy(is_keras2("2.2.4-tf", {}), "2.2.4-tf")
  check.falsy(is_keras2("3.0.0", { config = { batch_input_shape = { 1 } } }), "3.0.0")
  for _, name in ipairs { "images", "frozen" } do
    for _, version in ipairs(VERSIONS) do
      local entry = core.json_decode(check.read(("%s%s_%s.json"):format(FOLDER, name, version)))
      check.equal(is_keras2(nil, entry), version == "2.15")
    end
  end
  local dense = { class_name = "Dense", config = { batch_input_shape = { core.null, 3 } } }
  check.truthy(is_keras2(nil, { class_name = "Sequential", config = { dense } }), "Sequential of Keras 1")
  check.truthy(is_keras2(nil, { class_name = "Sequential", config = { layers = { dense } } }), "Sequential of Keras 2")
  for _, empty in ipairs { {}, { config = { layers = 3 } }, { config = "text" } } do
    check.falsy(is_keras2(nil, empty), "nothing tells")
  end
end)

-- ---- every layer --------------------------------------------------------------------------------

-- The options of the layers whose call depends on the mode, and the shape of a sample.
local IMAGE = { 6, 6, 2 }
local RANDOM = {
  BatchNormalization = { {}, { 3 } }, Dropout = { { rate = 0.5 }, { 30 } },
  AlphaDropout = { { rate = 0.5 }, { 30 } }, GaussianDropout = { { rate = 0.5 }, { 3 } },
  GaussianNoise = { { stddev = 1 }, { 3 } },
  SpatialDropout1D = { { rate = 0.5 }, { 4, 20 } }, SpatialDropout2D = { { rate = 0.5 }, { 4, 4, 20 } },
  SpatialDropout3D = { { rate = 0.5 }, { 2, 2, 2, 20 } },
  RandomBrightness = { { factor = 0.5 }, IMAGE }, RandomContrast = { { factor = 0.5 }, IMAGE },
  RandomCrop = { { height = 3, width = 3 }, IMAGE }, RandomFlip = { {}, IMAGE },
  RandomRotation = { { factor = 0.4 }, IMAGE },
  RandomTranslation = { { height_factor = 0.4, width_factor = 0.4 }, IMAGE },
  RandomZoom = { { height_factor = 0.4 }, IMAGE }, RandomGrayscale = { { factor = 0.5 }, { 4, 4, 3 } },
  RandomColorDegeneration = { { factor = 0.5 }, { 4, 4, 3 } }, RandomSaturation = { { factor = 0.4 }, { 4, 4, 3 } },
  RandomHue = { { factor = 0.5, value_range = { 0, 1 } }, { 4, 4, 3 } }, RandomSharpness = { { factor = 0.4 }, IMAGE },
  RandomColorJitter = { { brightness_factor = 0.5 }, IMAGE }, RandomErasing = { {}, IMAGE },
  RandomShear = { { x_factor = 0.5 }, IMAGE },
  MixUp = { {}, IMAGE }, CutMix = { {}, IMAGE }, RandomPerspective = { {}, IMAGE },
  RandomElasticTransform = { { value_range = { 0, 1 } }, IMAGE },
  RandomGaussianBlur = { { value_range = { 0, 1 } }, IMAGE },
  RandAugment = { { value_range = { 0, 1 }, num_ops = 3 }, { 4, 4, 3 } },
  AugMix = { { value_range = { 0, 1 } }, { 4, 4, 3 } },
  Pipeline = { { layers = { { class_name = "Dropout", config = { rate = 0.5 } } } }, { 30 } },
  Solarization = { { addition_factor = { 0, 0.5 }, value_range = { 0, 1 } }, IMAGE },
  Equalization = { { value_range = { 0, 1 } }, IMAGE }, RandomInvert = { { value_range = { 0, 1 } }, IMAGE },
  RandomPosterization = { { factor = 4, value_range = { 0, 1 } }, IMAGE },
}
for _, name in ipairs { "SimpleRNN", "LSTM", "GRU" } do RANDOM[name] = { { units = 4, dropout = 0.5 }, { 4, 5 } } end
RANDOM.Bidirectional = { { layer = { class_name = "LSTM", config = { units = 4, dropout = 0.5 } } }, { 4, 5 } }
RANDOM.ConvLSTM1D = { { filters = 4, kernel_size = 2, dropout = 0.5 }, { 2, 6, 2 } }
RANDOM.ConvLSTM2D = { { filters = 4, kernel_size = 2, dropout = 0.5 }, { 2, 6, 6, 2 } }
RANDOM.ConvLSTM3D = { { filters = 4, kernel_size = 2, dropout = 0.5 }, { 2, 4, 4, 4, 2 } }
RANDOM.RNN = { { cell = { class_name = "GRUCell", config = { units = 4, dropout = 0.5 } } }, { 4, 5 } }
RANDOM.TimeDistributed = { { layer = { class_name = "Dropout", config = { rate = 0.5 } } }, { 4, 20 } }
-- Layers whose call takes the mode and does the same in both; of SpectralNormalization, the inner layer's output.
local SAME_IN_BOTH = { ReversibleEmbedding = true, SpectralNormalization = true, Lambda = true, CenterCrop = true,
  Rescaling = true, Resizing = true, AutoContrast = true,
  ContrastLimitedAdaptiveHistogramEqualization = true }
-- Layers that can be quantized look at the mode only then: their call in training is an error.
for _, name in ipairs { "Conv2D", "Dense", "EinsumDense", "Embedding" } do SAME_IN_BOTH[name] = true end
-- Layers with several inputs, whose dropout in both modes attention_spec.lua tests.
for _, name in ipairs { "AdditiveAttention", "Attention", "MultiHeadAttention", "GroupQueryAttention" } do
  SAME_IN_BOTH[name] = true
end

-- A model of the layer alone in the form of Keras 3, with this recorded mode.
local function recorded(name, options, shape, training)
  local size = { core.null, unpack(shape) }
  local config = { name = "layer" }
  for key, value in pairs(options) do config[key] = value end
  return core.json_encode { class_name = "Functional", config = { input_layers = { { "x", 0, 0 } },
    output_layers = { { "layer", 0, 0 } }, layers = {
      { class_name = "InputLayer", name = "x", config = { name = "x", batch_shape = size },
        inbound_nodes = core.empty_array },
      { class_name = name, name = "layer", config = config, inbound_nodes = { { kwargs = { training = training },
        args = { { class_name = "__keras_tensor__", config = { keras_history = { "x", 0, 0 } } } } } } } } } }
end

test("no layer that differs in training obeys the mode recorded by Keras 3", function()
  for _, name in ipairs(L()) do
    local by_mode = debug.getinfo(L[name].call, "u").nparams > 2
    if by_mode and not SAME_IN_BOTH[name] and not L[name].in_loop then -- cells are in RNN
      local case = assert(RANDOM[name], name .. " has no row in RANDOM")
      local x = mgpu.rand { 12, unpack(case[2]) }
      for _, training in ipairs { true, false } do
        local _, model = stderr_of(mgpu.model_from_json, recorded(name, case[1], case[2], training))
        check.equal({ name, differs(function() return model:predict(x) end) }, { name, { 0 } })
        check.falsy(model(x, { training = true }):eq(model(x)):all():item(), name .. " does nothing in training")
      end
    end
  end
end)
