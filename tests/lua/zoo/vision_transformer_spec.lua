-- mgpu.models.vit against the vision transformer of Hugging Face (golden/make_vit.py), its options and its training.
local check = require "check"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local vit = mgpu.models.vit

local GOLDEN = (debug.getinfo(1, "S").source:match "^@(.*/)" or "") .. "../../golden/vit/"
local FILE = GOLDEN .. "model.safetensors"
local SMALL = { input_shape = { 32, 40, 3 }, classes = 5, patch = 8, width = 12, layers = 2, heads = 3, ratio = 2 }

local function with(more) return fixtures.with(SMALL, more) end

local function largest_difference(a, b) return (a - b):abs():max() end

-- The same model and images in channels_first.
local function first(options, images)
  mgpu.set_image_data_format "channels_first"
  local ok, y = pcall(function()
    options.input_shape = { 3, 32, 40 }
    return vit(options):predict(images:permute { 1, 4, 2, 3 })
  end)
  mgpu.set_image_data_format "channels_last"
  check.truthy(ok, y)
  return y
end

test("vit has the parameters of Hugging Face's, and those of ViT-B/16 by default", function()
  -- ViTForImageClassification counts 5,237 for make_vit.py's sizes, and 86,567,656 for google/vit-base-patch16-224; the
  -- latter's weights are too large to be made here
  local function params(o)
    local count = o.input_shape[1] * o.input_shape[2] / o.patch ^ 2
    local w, hidden = o.width, o.width * o.ratio
    return (3 * o.patch ^ 2 + 1) * w + (count + 2) * w
      + o.layers * (4 * (w + 1) * w + (w + 1) * hidden + (hidden + 1) * w + 4 * w) + 2 * w + (w + 1) * o.classes
  end
  check.equal((vit(SMALL):count_params()), 5237)
  check.equal(params(SMALL), 5237)
  check.equal(params { input_shape = { 224, 224 }, patch = 16, width = 768, layers = 12, ratio = 4, classes = 1000 },
    86567656)
end)

test("vit takes images of any size that its patches divide", function()
  local model = vit { input_shape = { 28, 28, 1 }, patch = 7, width = 8, layers = 1, heads = 2, classes = 3 }
  check.equal(model:predict(mgpu.zeros { 2, 28, 28, 1 }):shape(), { 2, 3 })
end)

test("the summary of vit names its layers", function()
  local text = require "mgpu.nn.summary".text(vit(SMALL))
  check.matches(text, "patch_embedding %(Conv2D%) +%(None, 4, 5, 12%) +2,316")
  check.matches(text, "class_token %(ClassToken%) +%(None, 21, 12%) +12 ")
  check.matches(text, "predictions %(Dense%) +%(None, 5%) +65 ")
  check.matches(text, "Total params: 5,237")
end)

test("weights of Hugging Face give its logits and its last hidden state, in both data formats", function()
  local expected = mgpu.load(GOLDEN .. "expected.safetensors")
  for _, case in ipairs { { { classifier_activation = "linear", weights = FILE }, expected.logits },
    { { include_top = false, weights = FILE }, expected.tokens } } do
    local options = with(case[1])
    check.near(largest_difference(vit(options):predict(expected.images), case[2]), 0, 2e-5) -- numbers up to 3
    check.near(largest_difference(first(options, expected.images), case[2]), 0, 2e-5)
  end
  local tokens = expected.tokens
  for pooling, wanted in pairs { avg = tokens:mean(2), max = tokens:max(2) } do
    local options = with { include_top = false, pooling = pooling, weights = FILE }
    check.near(largest_difference(vit(options):predict(expected.images), wanted), 0, 2e-5)
    check.near(largest_difference(first(options, expected.images), wanted), 0, 2e-5)
  end
end)

test("a file with the names of ViTModel, and one of save_weights, are loaded too", function()
  local plain = {}
  for name, t in pairs(mgpu.load(FILE)) do plain[name:gsub("^vit%.", "")] = t end
  plain["classifier.weight"], plain["classifier.bias"] = nil, nil
  mgpu.save(check.path "plain.safetensors", plain)
  check.raises(function() vit(with { weights = check.path "plain.safetensors" }) end,
    'plain.safetensors: there is no tensor "classifier.weight"', "data")
  local whole = vit(with { include_top = false, weights = FILE })
  whole:save_weights(check.path "own.safetensors")
  for _, name in ipairs { "plain", "own" } do
    local model = vit(with { include_top = false, weights = check.path(name .. ".safetensors") })
    for i, w in ipairs(whole:get_weights()) do check.equal(w, model:get_weights()[i]) end
  end
end)

test("wrong options of vit are errors that name them", function()
  local function refused(expected, options, kind)
    check.raises(function() vit(with(options)) end, expected, kind or "usage")
  end
  refused("vit: width 10 is no multiple of the 3 heads", { width = 10 })
  refused("vit: images of 32 x 41 cannot be cut into patches of 8 x 8", { input_shape = { 32, 41, 3 } })
  refused("vit: images must have a known size", { include_top = false, input_shape = { -1, -1, 3 } })
  refused("vit: weights: there is no file none.safetensors", { weights = "none.safetensors" }, "io")
  refused("model.safetensors has more than the model's 1 layers", { layers = 1, weights = FILE }, "data")
  refused('model.safetensors: there is no tensor "vit.encoder.layer.2', { layers = 3, weights = FILE }, "data")
  refused("classifier.weight has shape {5, 12}, the model needs {4, 12}", { classes = 4, weights = FILE }, "data")
  mgpu.eval(mgpu.zeros { 1 }) -- runs the assignments of the models that were refused halfway
end)

test("vit learns, with dropout too, and comes back from a file", function()
  mgpu.seed(1)
  local model = vit(with { dropout = 0.1, classes = 2 })
  local y = mgpu.arange(16):to "int32" % 2
  local x = mgpu.randn { 16, 32, 40, 3 } * 0.5 + (y:to "float32" - 0.5):reshape { 16, 1, 1, 1 }
  model:compile { optimizer = mgpu.optimizers.Adam { 5e-3 }, loss = "sparse_categorical_crossentropy" }
  local history = model:fit(x, y, { epochs = 20, batch_size = 8, verbose = 0 })
  check.truthy(history.history.loss[20] < history.history.loss[1] * 0.5, "the loss falls")
  model:save(check.path "vit.keras")
  local again = mgpu.load_model(check.path "vit.keras", { custom = { ClassToken = vit.ClassToken,
    PositionEmbedding = vit.PositionEmbedding } })
  check.near(largest_difference(again:predict(x), model:predict(x)), 0, 1e-6)
end)

test("vit computes the same on one, two and three devices", function()
  check.needs "cpu"
  local x, y, expected = mgpu.rand { 6, 32, 40, 3 }, mgpu.zeros({ 6 }, { dtype = "int32" }), nil
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1" }, { "cpu:0", "cpu:1", "cpu:2" } } do
    local model = vit(with { weights = FILE })
    model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = devices }
    model:fit(x, y, { epochs = 2, batch_size = 6, shuffle = false, verbose = 0 })
    local found = model:predict(x)
    expected = expected or found
    check.near(largest_difference(found, expected), 0, 1e-5) -- sums in another order, in float32
  end
end)
