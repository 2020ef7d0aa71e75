-- mgpu.models against keras.applications and models built with Keras: names, shapes, parameters, predictions
-- (golden/zoo_cases.py says how); options, preprocessing, files of weights, a step of training.

local check = require "check"
local golden = require "golden.load" "zoo"
local hash = require "golden.hash"
local mgpu = require "mgpu"
local snake_case = require "mgpu.nn.keras.weights".snake_case
local variables_of = require "mgpu.nn.keras.weights".variables_of

local test = check.test
local models = mgpu.models

-- ---- summaries ----------------------------------------------------------------------------------

local function sizes(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- The line of a layer in a golden summary.
local function line_of(layer)
  local name = layer.name
  if layer.is_input or name:find("^" .. snake_case(layer.class_name)) then name = "" end
  local parts = { name, layer.class_name, sizes(layer.output:shape()) }
  for _, v in ipairs(variables_of(layer)) do
    parts[#parts + 1] = v.name:match "[^/]*$"
    parts[#parts + 1] = sizes(v:shape())
  end
  return table.concat(parts, " ") .. "\n"
end

-- The layers that Keras lists: in convnext it adds by an operation, which is no layer there.
local function listed(model, name)
  local list = {}
  for _, layer in ipairs(model.layers) do
    if name ~= "convnext" or layer.class_name ~= "Add" then list[#list + 1] = layer end
  end
  return list
end

local function summary_hash(list)
  local h = 0
  for _, layer in ipairs(list) do
    for byte in line_of(layer):gmatch "." do h = (h * 33 + byte:byte()) % 2 ^ 47 end
  end
  return h
end

for _, case in ipairs(golden.summaries) do
  test(("%s has the layers of %s, %d parameters"):format(case.model, case.name, case.params), function()
    local model = models[case.model](case.options)
    local total, trainable = model:count_params()
    local list = listed(model, case.model)
    check.equal({ model.name, total, trainable, #list }, { case.name, case.params, case.trainable, case.layers })
    check.equal(summary_hash(list), case.hash)
  end)
end

test("models of keras_experiments and of torchvision have the published numbers of parameters", function()
  local published = { cifar10_cnn = 1250858, cifar10_cnn_small = 328586, mnist_tfrecord_cnn = 1199882,
    mnist_cnn = 2354250, lenet5 = 61706, resnet18 = 11689512, resnet34 = 21797672 }
  for name, params in pairs(published) do
    local total, trainable = models[name] {} :count_params()
    check.equal(name:find "resnet" and trainable or total, params)
  end
end)

-- ---- predictions --------------------------------------------------------------------------------

local function array(shape, salt, scale, offset)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return mgpu.tensor(hash.array(n, salt, scale, offset)):reshape(shape)
end

local function scale_of(v, layer, last)
  local name, shape = v.name:match "[^/]*$", v:shape()
  if name == "gamma" then return 0.1, "gamma" end
  if name == "moving_variance" then return 0.2, 1 end
  if name ~= "kernel" then return 0.1, 0 end
  local fan_in = 1
  for i = 1, #shape - (layer.class_name == "DepthwiseConv2D" and 2 or 1) do fan_in = fan_in * shape[i] end
  return math.sqrt(6 / fan_in) * (last and 0.5 or 1), 0
end

-- Gives the model the weights of the golden set.
local function hash_weights(model, gamma)
  local list, last = {}, nil
  for _, layer in ipairs(model.layers) do
    for _, v in ipairs(variables_of(layer)) do
      list[#list + 1] = { v, layer }
      if v.name:find "kernel$" then last = v end
    end
  end
  for i, entry in ipairs(list) do
    local scale, offset = scale_of(entry[1], entry[2], entry[1] == last)
    entry[1]:assign(array(entry[1]:shape(), 99 + i, scale, offset == "gamma" and gamma or offset))
  end
end

for i, case in ipairs(golden.predictions) do
  test(("prediction %d, of %s %s, is as in Keras"):format(i, case.model, case.part or ""), function()
    local model, encoder, decoder = models[case.model](case.options)
    model = ({ encoder = encoder, decoder = decoder })[case.part] or model
    hash_weights(model, case.gamma or 1)
    local shape = model.inputs and model.inputs[1]:shape() or { -1, unpack(case.options.input_shape) }
    shape[1] = 2
    -- computed in float32, the golden numbers in float64: 50 layers of rounding, 6e-8 each
    check.near(model:predict(array(shape, 50, 0.5, 0.5)):reshape { -1 }, case.output, 1e-5)
  end)
end

-- ---- use ----------------------------------------------------------------------------------------

-- Models with small options; the loss and the shape of y, unless it is class ids.
local SMALL = {
  { "cifar10_cnn", { input_shape = { 16, 16, 3 } } }, { "cifar10_cnn_small", { input_shape = { 8, 8, 3 } } },
  { "mnist_tfrecord_cnn", { input_shape = { 12, 12, 1 } } },
  { "resnet18", { input_shape = { 32, 32, 3 }, classes = 10 } },
  { "resnet50", { input_shape = { 32, 32, 3 }, classes = 10 } },
  { "mobilenet_v2", { alpha = 0.35, input_shape = { 32, 32, 3 }, classes = 10 } },
  { "densenet121", { input_shape = { 32, 32, 3 }, classes = 10 } },
  { "efficientnet_b0", { input_shape = { 32, 32, 3 }, classes = 10 } },
  { "convnext", { input_shape = { 32, 32, 3 }, classes = 10, depths = { 1, 2, 1, 1 }, projection_dims = { 4, 8, 8, 12 },
    drop_path_rate = 0.2, layer_scale_init_value = 0.5 } },
  { "unet", { input_shape = { 16, 16, 1 }, filters = 2, dropout = 0.1 }, "binary_crossentropy", { 16, 16, 1 } },
  { "vae_deconv", { input_shape = { 12, 8, 1 }, filters = 4 }, models.vae_deconv.reconstruction, { 12, 8, 1 } },
}

for _, row in ipairs(SMALL) do
  test(("a step of training changes the weights of %s, and leaves them finite"):format(row[1]), function()
    mgpu.seed(1)
    local model = models[row[1]](row[2])
    model:compile { optimizer = mgpu.optimizers.SGD { 1e-3 }, loss = row[3] or "sparse_categorical_crossentropy" }
    local x = mgpu.rand { 4, unpack(row[2].input_shape) }
    local y = row[4] and mgpu.rand { 4, unpack(row[4]) } or mgpu.randint(0, 10, { 4 })
    local kernel = model.trainable_variables[1]
    local before = kernel:value()
    check.truthy(model:train_on_batch(x, y).loss > 0)
    check.truthy((kernel:value() - before):abs():max():item() > 0, "a change")
    check.truthy(model:predict(x):all_finite():item(), "finite predictions")
  end)
end

test("images are preprocessed as in Keras, integers too", function()
  local preprocess_input = require "mgpu.zoo.preprocessing".preprocess_input
  for _, case in ipairs(golden.preprocessing) do
    local shape = case.data_format == "channels_last" and { 2, 2, 3, 3 } or { 2, 3, 2, 3 }
    local x = array(shape, 50, 127.5, 127.5)
    local given = { data_format = case.data_format }
    -- pixels up to 255 in float32, of which a mean of the same size is taken: 255 * 6e-8, twice
    check.near(preprocess_input(x, case.mode, given):reshape { -1 }, case.output, 3e-5)
  end
  local bytes = mgpu.full({ 2, 2, 3 }, 255, { dtype = "uint8" })
  check.near(models.mobilenet_v2.preprocess_input(bytes), mgpu.ones { 2, 2, 3 }, 0)
  check.near(models.vgg16.preprocess_input(bytes):slice { 1, 1, {} }, { 255 - 103.939, 255 - 116.779, 255 - 123.68 },
    1e-6)
  check.raises(function() models.resnet18.preprocess_input(mgpu.zeros { 4, 4, 1 }) end,
    "preprocess_input: images need three channels on axis 3, got shape {4, 4, 1}", "usage")
  check.raises(function() models.resnet18.preprocess_input(3) end, "expected a tensor of images, got a number", "usage")
end)

test("weights of ImageNet give efficientnet_b0 the variances that Keras reaches by one more layer", function()
  check.equal(models.efficientnet_b0.preprocess_input(mgpu.ones { 2, 2, 3 } * 128):totable(),
    (mgpu.ones { 2, 2, 3 } * 128):totable())
  local small, path = { include_top = false, input_shape = { 32, 32, 3 } }, check.path "b0.weights.h5"
  local function variances_behind(mean, variance)
    local model = models.efficientnet_b0(small)
    local norm = model.layers[3] -- behind the input and Rescaling
    norm.adapt_mean:assign(mgpu.tensor(mean))
    norm.adapt_variance:assign(mgpu.tensor(variance))
    model:save_weights(path)
    local again = models.efficientnet_b0 { include_top = false, input_shape = { 32, 32, 3 }, weights = path }
    return again.layers[3].adapt_variance:value():totable()
  end
  local d, mean = { 0.229, 0.224, 0.225 }, { 0.485, 0.456, 0.406 }
  check.near(variances_behind(mean, { d[1] ^ 2, d[2] ^ 2, d[3] ^ 2 }), { d[1] ^ 3, d[2] ^ 3, d[3] ^ 3 }, 1e-8)
  check.near(variances_behind(mean, { 0.05, 0.06, 0.07 }), { 0.05, 0.06, 0.07 }, 1e-8)
end)

test("weights are loaded from a file, with and without the top", function()
  local options = { alpha = 0.35, input_shape = { 32, 32, 3 }, classes = 3 }
  local path, x = check.path "mobilenet.h5", mgpu.rand { 2, 32, 32, 3 }
  local model = models.mobilenet_v2(options)
  model:save_weights(path)
  options.weights = path
  check.equal(models.mobilenet_v2(options):predict(x), model:predict(x))
  options.classes = 4
  check.raises(function() models.mobilenet_v2(options) end, "predictions")
  check.raises(function() models.vgg16 { weights = check.path "none.h5" } end,
    "vgg16: weights: there is no file .*none.h5", "io")
  check.raises(function() models.vgg16 { weights = "imagenet" } end,
    'vgg16: no weights are downloaded: give the path of a file in place of "imagenet"', "usage")
end)

test("models without the top take images of any size, in both data formats", function()
  local options = { alpha = 0.35, include_top = false, pooling = "avg" }
  local model = models.mobilenet_v2(options)
  local small, large = mgpu.rand { 1, 32, 40, 3 }, mgpu.rand { 1, 64, 33, 3 }
  check.equal(model:predict(small):shape(), { 1, 1280 })
  check.equal(model:predict(large):shape(), { 1, 1280 })
  local expected = model:predict(small)
  mgpu.set_image_data_format "channels_first"
  local ok, y = pcall(function()
    local first = models.mobilenet_v2(options)
    first:set_weights(model:get_weights())
    return first:predict(small:permute { 1, 4, 2, 3 })
  end)
  mgpu.set_image_data_format "channels_last"
  check.truthy(ok, y)
  check.near(y, expected, 1e-5) -- other kernels, in float32
end)

test("options that a model cannot have are errors that name it", function()
  local function refused(expected, name, options)
    check.raises(function() models[name](options) end, expected, "usage")
  end
  refused('resnet50: unknown option "clases" %(did you mean "classes"%?%)', "resnet50", { clases = 3 })
  refused("vgg16: images must be at least 32 x 32, got input_shape {31, 32, 3}", "vgg16",
    { input_shape = { 31, 32, 3 } })
  refused("vgg16: images of unknown size need include_top = false", "vgg16", { input_shape = { -1, 32, 3 } })
  refused('mobilenet_v2: option "input_shape" must have three sizes, got 2', "mobilenet_v2",
    { input_shape = { 32, 32 } })
  refused('resnet18: option "pooling": unknown value "mean"', "resnet18", { pooling = "mean" })
  refused("unet: with depth 4 the size of the images must be a multiple of 16, got 40", "unet",
    { input_shape = { 32, 40, 1 } })
  refused("vae_deconv: input_shape must be .* even rows and columns of at least 4, got {7, 8, 1}", "vae_deconv",
    { input_shape = { 7, 8, 1 } })
  refused('convnext: option "depths" must be four whole numbers', "convnext", { depths = { 1, 2, 3 } })
  refused('convnext: option "projection_dims" must be four', "convnext", { projection_dims = { 1, 2, 3, 0 } })
  mgpu.set_image_data_format "channels_first"
  local ok, message = pcall(models.convnext, {})
  mgpu.set_image_data_format "channels_last"
  check.equal(ok, false)
  check.matches(message, 'convnext: its images are channels_last: call mgpu.set_image_data_format "channels_last"')
  refused('convnext: option "variant": unknown value "huge"', "convnext", { variant = "huge" })
  refused('cifar10_cnn: option "dropout" must be three rates, got 1', "cifar10_cnn", { dropout = { 0.1 } })
  refused('mnist_tfrecord_cnn: option "dropout" must be two rates, got 3', "mnist_tfrecord_cnn",
    { dropout = { 0.1, 0.1, 0.1 } })
end)

test("the loss of vae_deconv is as in Keras's example", function()
  local vae, encoder, decoder = models.vae_deconv { input_shape = { 4, 6, 1 }, filters = 2, units = 3 }
  for _, v in ipairs(vae.variables) do v:assign(mgpu.zeros(v:shape())) end
  vae:get_layer "z_mean".bias:assign(mgpu.tensor { 1, -2 })
  vae:get_layer "z_log_var".bias:assign(mgpu.tensor { 0.5, 0 })
  vae:compile { loss = models.vae_deconv.reconstruction }
  local x = mgpu.rand { 3, 4, 6, 1 }
  -- all weights but these are 0, so that each pixel is predicted as 0.5 and costs log 2
  local divergence = -0.5 * ((1 + 0.5 - 1 - math.exp(0.5)) + (1 + 0 - 4 - 1)) / 2
  check.near(vae:evaluate(x, x, { verbose = 0 }).loss, 24 * math.log(2) + divergence, 1e-5)
  check.equal(encoder:predict(x), { { 1, -2 }, { 1, -2 }, { 1, -2 } })
  check.near(decoder:predict(mgpu.zeros { 1, 2 }), mgpu.full({ 1, 4, 6, 1 }, 0.5), 1e-6)
end)

test("a saved vae_deconv is loaded with its layer", function()
  local vae = models.vae_deconv { input_shape = { 4, 4, 1 }, filters = 2, units = 3 }
  local path = check.path "vae.safetensors"
  vae:save(path)
  local again = mgpu.load_model(path, { custom = { Sampling = models.vae_deconv.Sampling } })
  for i, w in ipairs(again:get_weights()) do check.equal(w, vae:get_weights()[i]) end
  mgpu.seed(2)
  local first, x = vae:predict(mgpu.ones { 1, 4, 4, 1 }), mgpu.ones { 1, 4, 4, 1 }
  check.truthy((vae:predict(x) - first):abs():max():item() > 0, "new noise at each call")
end)
