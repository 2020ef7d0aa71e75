-- AugMix, Pipeline and MaxNumBoundingBoxes: against Keras, and what they draw, refuse and save.
local check = require "check"
local comparing = require "golden.comparing"
local golden = require "golden.load" "image_layers"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test
local fixtures = require "fixtures"
local with = fixtures.with
local largest_difference = comparing.largest_difference
local TRAINING = { training = true }

local function pixels(shape, unit)
  return comparing.pixels(shape, golden.salt) / (unit and 255 or 1)
end

-- ---- AugMix -------------------------------------------------------------------------------------

test("AugMix gives Keras's values with the same layers and weights", function()
  local choices = {}
  for _, chain in ipairs(golden.chains) do
    for _, choice in ipairs(chain) do choices[#choices + 1] = choice end
  end
  for i, case in ipairs(golden.mixed_chains) do
    local layer = L.AugMix(with(case.options, { factor = { 0.3, 0.3 } }))
    layer:ensure_built(case.size)
    local _, draws = layer:draw(case.size[1], case.size)
    local y = layer:transform(pixels(case.size, case.unit), mgpu.tensor(choices), draws,
      mgpu.tensor(golden.chain_weights), mgpu.tensor { golden.own_weight })
    -- places of a rotation are rounded in float32 before they are weights, see RandomShear; equalization rounds bytes
    check.near(largest_difference(y, mgpu.tensor(case.output):reshape(case.size)), 0, case.unit and 4e-6 or 1e-3,
      "case " .. i)
  end
end)

test("AugMix draws each layer or none for each step, weights that sum to 1, and other numbers for each step", function()
  mgpu.seed(1)
  for all_ops, count in pairs { [true] = 11, [false] = 7 } do
    local layer, seen = L.AugMix { num_chains = 4, chain_depth = 75, all_ops = all_ops, factor = 0.5 }, {}
    layer:ensure_built { 2, 1, 1, 3 }
    check.equal(#layer.parts, count)
    local choices, draws, weights, own = layer:draw(2, { 2, 1, 1, 3 })
    for _, k in ipairs(choices:totable()) do seen[k] = (seen[k] or 0) + 1 end
    for k = 0, count do
      local share = 300 / (count + 1)
      check.near(seen[k] or 0, share, 5 * math.sqrt(share), "layer " .. k) -- 5 standard deviations
      seen[k] = nil
    end
    check.equal(next(seen), nil)
    check.equal({ weights:shape(), own:shape() }, { { 4 }, { 1 } })
    check.near(weights:sum():item(), 1, 1e-6)
    check.truthy(weights:min():item() > 0 and own:item() > 0 and own:item() < 1, "weights")
    check.truthy(draws[1][3][1]:ne(draws[2][3][1]):any():item(), "the same rotation in each step")
  end
end)

test("AugMix draws weights of the beta and the Dirichlet distribution", function()
  mgpu.seed(1)
  local n = 500
  for _, alpha in ipairs { 0.5, 2 } do
    local layer, first, own = L.AugMix { alpha = alpha, chain_depth = 1 }, {}, {}
    layer:ensure_built { 1, 1, 1, 3 }
    layer.parts = {} -- whose draws take long
    for i = 1, n do
      local _, _, weights, w = layer:draw(1, { 1, 1, 1, 3 })
      first[i], own[i] = weights:slice { { 1, 1 } }:item(), w:item()
    end
    for list, mean in pairs { [first] = 1 / 3, [own] = 1 / 2 } do
      local t = mgpu.tensor(list)
      local variance = mean * (1 - mean) / ((list == first and 3 or 2) * alpha + 1)
      check.near(t:mean():item(), mean, 5 * math.sqrt(variance / n)) -- 5 standard deviations
      -- numbers from 0 to 1 whose fourth moment is at most their variance
      check.near((t - mean):square():mean():item(), variance, 5 * math.sqrt(variance / n))
    end
  end
end)

test("AugMix changes images in training only, in the range of values, and its seed repeats it", function()
  local x = pixels { 3, 6, 5, 3 }
  local function run()
    mgpu.seed(3)
    local layer = L.AugMix { factor = 1, seed = 5, name = "augment" }
    check.equal(layer(x):totable(), x:totable())
    return layer(x, TRAINING), layer(x, TRAINING)
  end
  local first, second = run()
  check.truthy(largest_difference(first, second) > 0.1, "drawn twice the same")
  check.equal((run()), first:totable())
  check.truthy(first:min():item() >= 0 and first:max():item() <= 255, "the range")
  check.raises(function() L.AugMix { alpha = 0 } end, 'option "alpha"', "usage")
  check.raises(function() L.AugMix { factor = 2 } end, 'option "factor" must be from 0 to 1, got 2', "usage")
end)

test("AugMix and adaptive equalization work in fit on several devices and learn alike", function()
  local function layers()
    return { L.Input { 6, 5, 3 }, L.AugMix { num_chains = 2, chain_depth = 2 },
      L.ContrastLimitedAdaptiveHistogramEqualization { tile_grid_size = { 2, 2 } }, L.Rescaling { 1 / 255 } }
  end
  -- two steps of float32 sums over 90 weights, in which a value next to a whole number may fall into either bin
  fixtures.learns_alike(layers, pixels { 6, 6, 5, 3 }, 0.01, 2, 1e-3)
end)

-- ---- Pipeline -----------------------------------------------------------------------------------

test("Pipeline applies its layers in order, to batches and to one image, in the mode of its call", function()
  local x = pixels { 2, 10, 12, 3 }
  local pipeline = L.Pipeline { { L.AutoContrast {}, L.CenterCrop { 8, 9 }, L.RandomInvert { { 1, 1 } } } }
  local wanted = L.CenterCrop { 8, 9 } (L.AutoContrast {} (x))
  check.equal(pipeline(x):totable(), wanted:totable())
  check.equal(pipeline(x, TRAINING):totable(), (255 - wanted):totable())
  check.equal(pipeline(x[1]):shape(), { 8, 9, 3 })
  check.equal(pipeline:output_shape { -1, 10, 12, 3 }, { -1, 8, 9, 3 })
  check.raises(function() L.Pipeline { {} } end, "needs at least one layer", "usage")
  check.raises(function() L.Pipeline { { 3 } } end, 'option "layers" must be an array of layers', "usage")
  check.raises(function() L.Pipeline { { L.CenterCrop { 8, 9 } } } (mgpu.ones { 2, 3 }) end, "must have 4 axes",
    "usage")
end)

test("Pipeline is a layer of a model: its layers' weights train, are counted and are saved", function()
  local function model()
    mgpu.seed(1)
    local norm = L.Normalization { name = "norm" }
    norm:adapt(pixels { 6, 4, 5, 3 })
    return mgpu.Sequential { L.Input { 4, 5, 3 }, L.Pipeline { { norm, L.Dense { 2 }, L.Dense { 3 } } },
      L.Flatten {}, L.Dense { 1 } }
  end
  local m, x = model(), pixels { 6, 4, 5, 3 }
  check.equal(#m.trainable_variables, 6)
  check.equal(m.layers[1]:output_shape { -1, 4, 5, 3 }, { -1, 4, 5, 3 })
  local before = m.trainable_variables[1]:value():totable()
  m:compile { optimizer = mgpu.optimizers.SGD { 0.01 }, loss = "mse" }
  m:fit(x, mgpu.zeros { 6, 1 }, { epochs = 1, verbose = 0 })
  check.truthy(largest_difference(m.trainable_variables[1]:value(), mgpu.tensor(before)) > 0, "trained")
  for _, ending in ipairs { "keras", "safetensors" } do
    local path = check.path("pipeline." .. ending)
    m:save(path)
    check.near(mgpu.load_model(path):predict(x), m:predict(x):totable(), 1e-6)
  end
end)

test("Pipeline passes masks from layer to layer and on", function()
  local x = mgpu.tensor { { { 1, 2 }, { 0, 0 } }, { { 3, 4 }, { 5, 6 } } }
  local inner = L.LSTM { 3, return_sequences = true, name = "inner" }
  local y = L.Pipeline { { L.Masking {}, L.Rescaling { 1 } } } (x)
  local apart = inner(L.Masking {} (x))
  check.equal(L.Pipeline { { L.Masking {}, inner } } (x):totable(), apart:totable())
  check.equal(L.Masking {} (x):shape(), y:shape())
  check.equal(L.Pipeline { { inner } } (L.Masking {} (x)):totable(), apart:totable())
end)

test("a dataset maps images through a Pipeline", function()
  local pipeline = L.Pipeline { { L.Resizing { 4, 4, interpolation = "lanczos3" }, L.Rescaling { 1 / 255 } } }
  local ds = mgpu.data.from_tensors { pixels { 3, 6, 5, 3 } }:map(function(x) return pipeline(x) end):batch(2)
  local sizes = {}
  for x in ds:iter() do sizes[#sizes + 1] = x:shape() end
  check.equal(sizes, { { 2, 4, 4, 3 }, { 1, 4, 4, 3 } })
end)

-- ---- MaxNumBoundingBoxes ------------------------------------------------------------------------

test("MaxNumBoundingBoxes cuts boxes off or adds them, also of one image, and leaves the images alone", function()
  local x = pixels { 2, 4, 4, 3 }
  local boxes = mgpu.arange(16):reshape { 2, 2, 4 }
  local labels = mgpu.tensor({ { 3, 4 }, { 5, 6 } }, { dtype = "int32" })
  local y = L.MaxNumBoundingBoxes { 3, fill_value = -2 } { x, boxes, labels }
  check.equal(y[1]:totable(), x:totable())
  check.equal(y[2]:slice { {}, { 1, 2 } }:totable(), boxes:totable())
  check.equal(y[2]:slice { {}, { 3, 3 } }:totable(), mgpu.full({ 2, 1, 4 }, -2):totable())
  check.equal({ y[3]:dtype(), y[3]:totable() }, { "int32", { { 3, 4, -2 }, { 5, 6, -2 } } })
  y = L.MaxNumBoundingBoxes { 1 } { x, boxes, labels }
  check.equal({ y[2]:totable(), y[3]:totable() }, { boxes:slice { {}, { 1, 1 } }:totable(), { { 3 }, { 5 } } })
  y = L.MaxNumBoundingBoxes { 3 } { x[1], boxes[1], labels[1] }
  check.equal({ y[1]:shape(), y[2]:shape(), y[3]:totable() }, { { 4, 4, 3 }, { 3, 4 }, { 3, 4, -1 } })
  check.equal(L.MaxNumBoundingBoxes { 0 } { x, boxes, labels }[3]:shape(), { 2, 0 })
  check.equal(L.MaxNumBoundingBoxes { 3 } (x:to "uint8"):totable(), x:totable())
  local inputs = { mgpu.Input { 4, 4, 3 }, mgpu.Input { 2, 4 }, mgpu.Input { 2, dtype = "int32" } }
  local outputs = L.MaxNumBoundingBoxes { 3 } (inputs)
  check.equal({ outputs[2]:shape(), outputs[3]:shape() }, { { -1, 3, 4 }, { -1, 3 } })
  local model = mgpu.Model { inputs = inputs, outputs = outputs }
  check.equal(mgpu.model_from_json(model:to_json()) { x, boxes, labels }[3]:totable(), { { 3, 4, -1 }, { 5, 6, -1 } })
end)

test("boxes of other shapes are refused", function()
  local x, layer = mgpu.zeros { 2, 4, 4, 3 }, L.MaxNumBoundingBoxes { 3 }
  local function refused(given, message) check.raises(function() layer(given) end, message, "usage") end
  refused({ x, mgpu.zeros { 2, 5, 4 } }, "an array {images, boxes, labels}, got an array of 2")
  refused({ x, mgpu.zeros { 2, 5, 3 }, mgpu.zeros { 2, 5 } }, "got {2, 5, 3} and {2, 5} for images {2, 4, 4, 3}")
  refused({ x, mgpu.zeros { 2, 5, 4 }, mgpu.zeros { 2, 4 } }, "boxes must be {batch, n, 4}")
  refused({ x, mgpu.zeros { 3, 5, 4 }, mgpu.zeros { 3, 5 } }, "with a row for each image")
  refused({ mgpu.zeros { 2, 2 }, mgpu.zeros { 2, 5, 4 }, mgpu.zeros { 2, 5 } }, "must have 4 axes")
  refused(mgpu.zeros { 2, 2 }, "must have 4 axes")
end)
