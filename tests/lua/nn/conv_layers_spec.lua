-- The convolution and pooling layers in models: training, saving, loading, shapes and errors.
-- golden_layers_spec compares their numbers with Keras (set conv_layers); the cases in which several
-- cells are equal are here.

local check = require "check"
local mgpu = require "mgpu"
local load_golden = require "golden.load"
local hash = require "golden.hash"

local test = check.test
local with = require "fixtures".with
local L = mgpu.layers

local FIRST = "channels_first"
local IMAGE, SEQUENCE = { 6, 7, 2 }, { 8, 2 } -- inputs

-- Every layer with most of its options: {class, options, shape of the input, channels_last by default}.
local MODELS = {
  { "Conv1D", { 4, 3, padding = "causal", dilation_rate = 2, groups = 2, activation = "tanh" }, SEQUENCE },
  { "Conv1D", { filters = 3, kernel_size = { 2 }, strides = { 2 }, padding = "same", use_bias = false,
    data_format = FIRST }, SEQUENCE },
  { "Conv2D", { 4, { 3, 2 }, strides = { 2, 1 }, groups = 2, padding = "same",
    kernel_regularizer = "l2" }, IMAGE },
  { "Conv2D", { 3, 2, dilation_rate = { 1, 2 }, data_format = FIRST, activation = "relu",
    bias_initializer = "ones" }, { 2, 6, 7 } },
  { "Conv2DTranspose", { 3, 3, strides = 2, padding = "same", output_padding = 1, activation = "relu",
    bias_initializer = "ones" }, { 3, 4, 2 } },
  { "Conv2DTranspose", { 3, { 2, 3 }, dilation_rate = 2, data_format = FIRST,
    activity_regularizer = "l1" }, { 2, 3, 4 } },
  { "DepthwiseConv2D", { 3, strides = { 1, 2 }, padding = "same", depth_multiplier = 2,
    depthwise_regularizer = "l1", depthwise_initializer = "he_normal" }, IMAGE },
  { "DepthwiseConv2D", { { 2, 3 }, strides = 2, dilation_rate = 2, data_format = FIRST,
    use_bias = false }, { 2, 6, 7 } },
  { "SeparableConv2D", { 3, 3, depth_multiplier = 2, activation = "tanh", padding = "same",
    pointwise_initializer = "he_uniform", pointwise_regularizer = "l2" }, IMAGE },
  { "SeparableConv2D", { 2, { 3, 2 }, strides = 2, dilation_rate = { 1, 2 }, data_format = FIRST,
    bias_regularizer = "l2" }, { 2, 6, 7 } },
  { "MaxPooling1D", { 3, strides = 2, padding = "same" }, SEQUENCE },
  { "AveragePooling1D", { 2, data_format = FIRST }, SEQUENCE },
  { "MaxPooling2D", { { 2, 3 }, strides = { 1, 2 }, padding = "same" }, IMAGE },
  { "AveragePooling2D", { 3, strides = 2, data_format = FIRST }, { 2, 6, 7 } },
  { "GlobalMaxPooling1D", { keepdims = true }, SEQUENCE },
  { "GlobalAveragePooling1D", { data_format = FIRST }, SEQUENCE },
  { "GlobalMaxPooling2D", { data_format = FIRST }, { 2, 6, 7 } },
  { "GlobalAveragePooling2D", { keepdims = true }, IMAGE },
  { "ZeroPadding2D", { { { 1, 0 }, { 2, 3 } } }, IMAGE },
  { "ZeroPadding2D", { { 1, 2 }, data_format = FIRST }, { 2, 6, 7 } },
  { "Cropping2D", { { { 1, 0 }, { 2, 3 } } }, IMAGE },
  { "Cropping2D", { 1, data_format = FIRST }, { 2, 6, 7 } },
  { "UpSampling2D", { { 2, 3 } }, { 3, 2, 2 } },
  { "UpSampling2D", { 2, interpolation = "bilinear", data_format = FIRST }, { 2, 3, 4 } },
}

local function rows(shape, salt)
  local n = 8
  for _, size in ipairs(shape) do n = n * size end
  return mgpu.tensor(hash.array(n, salt, 1, 0)):reshape { 8, unpack(shape) }
end

-- A model with a layer that has weights before and after the tested one, so that gradients must flow
-- through it.
local function model_with(case)
  local class, options, shape = unpack(case)
  local layer = L[class](with(options))
  local model = mgpu.Sequential { L.Input(shape), L.Dense { shape[#shape], name = "before" }, layer,
    L.Flatten {}, L.Dense { 2, name = "after" } }
  model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = 0.1 }, loss = "mse" }
  return model, layer
end

for i, case in ipairs(MODELS) do
  local what = ("%s %d"):format(case[1], i)

  test(what .. " trains one step, as do the layers before it", function()
    mgpu.seed(3)
    local model = model_with(case)
    local before = {}
    for k, v in ipairs(model.trainable_variables) do before[k] = v:value():totable() end
    model:fit(rows(case[3], 40), rows({ 2 }, 41), { batch_size = 8, epochs = 1, verbose = 0 })
    for k, v in ipairs(model.trainable_variables) do
      local change = mgpu.abs(v:value() - mgpu.tensor(before[k])):max():item()
      check.truthy(change > 1e-6 and change < 10, v.name .. " changed by " .. change)
    end
  end)

  test(what .. " is saved and loaded with all its options", function()
    local model, layer = model_with(case)
    local path, x = check.path "model.safetensors", rows(case[3], 42)
    model:save(path)
    local again = mgpu.load_model(path)
    local loaded = again:get_layer(2)
    check.equal(loaded.class_name, case[1])
    check.equal(loaded:get_config(), layer:get_config())
    check.equal(again(x), model(x):totable())
    check.equal(model(x):shape(), { 8, 2 })
  end)
end

-- With unknown input sizes output_shape must give the same sizes wherever it can know them.
for i, case in ipairs(MODELS) do
  test(("%s %d has the output shape that it announces, for known and unknown sizes"):format(case[1], i), function()
    local layer, shape = L[case[1]](with(case[2])), case[3]
    local x = rows(shape, 43)
    local y = layer(x):shape()
    check.equal(layer:output_shape { 8, unpack(shape) }, y)
    local unknown = { -1 }
    local channels = case[2].data_format == FIRST and 1 or #shape
    for axis, size in ipairs(shape) do unknown[axis + 1] = axis == channels and size or -1 end
    local said = layer:output_shape(unknown)
    check.equal(#said, #y)
    for axis, size in ipairs(said) do
      check.truthy(size == -1 or size == y[axis], ("axis %d: %d, is %d"):format(axis, size, y[axis]))
      if axis == 1 then check.equal(size, -1) end
    end
  end)
end

test("layers of unknown image sizes take images of any size", function()
  local model = mgpu.Sequential { L.Input { -1, -1, 3 }, L.ZeroPadding2D { 1 }, L.Conv2D { 2, 3 },
    L.MaxPooling2D { 2 }, L.UpSampling2D { 2 }, L.Conv2DTranspose { 2, 3, strides = 2 },
    L.Cropping2D { 1 }, L.DepthwiseConv2D { 3 }, L.SeparableConv2D { 4, 3 } }
  check.equal(model(mgpu.ones { 1, 8, 6, 3 }):shape(), { 1, 11, 7, 4 })
  check.equal(model(mgpu.ones { 2, 9, 13, 3 }):shape(), { 2, 11, 19, 4 })
  check.equal(model:output_shape { -1, -1, 6, 3 }, { -1, -1, 7, 4 })
end)

-- ---- weights ------------------------------------------------------------------------------------

local function weights_of(layer, x)
  layer(x)
  local list = {}
  for i, v in ipairs(layer.weights) do list[i] = { v.name:match "[^/]+$", unpack(v:shape()) } end
  return list
end

test("weights have Keras's names and shapes", function()
  local x = mgpu.ones { 1, 6, 7, 4 }
  check.equal(weights_of(L.Conv1D { 6, 3, groups = 2 }, mgpu.ones { 1, 5, 4 }),
    { { "kernel", 3, 2, 6 }, { "bias", 6 } })
  check.equal(weights_of(L.Conv2DTranspose { 6, { 2, 3 } }, x), { { "kernel", 2, 3, 6, 4 }, { "bias", 6 } })
  check.equal(weights_of(L.DepthwiseConv2D { { 2, 3 }, depth_multiplier = 3 }, x),
    { { "kernel", 2, 3, 4, 3 }, { "bias", 12 } })
  check.equal(weights_of(L.SeparableConv2D { 6, { 2, 3 }, depth_multiplier = 3 }, x),
    { { "depthwise_kernel", 2, 3, 4, 3 }, { "pointwise_kernel", 1, 1, 12, 6 }, { "bias", 6 } })
end)

test("each regularizer counts once, for the weight that it names", function()
  for name, options in pairs { -- the weights are ones, so the l2 loss is 0.01 * the number of cells
    Conv1D = { kernel_regularizer = 3 * 2 * 4, bias_regularizer = 4 },
    Conv2D = { kernel_regularizer = 9 * 2 * 4, bias_regularizer = 4 },
    Conv2DTranspose = { kernel_regularizer = 9 * 2 * 4, bias_regularizer = 4 },
    DepthwiseConv2D = { depthwise_regularizer = 9 * 2, bias_regularizer = 2 },
    SeparableConv2D = { depthwise_regularizer = 9 * 2, pointwise_regularizer = 2 * 4, bias_regularizer = 4 },
  } do
    for option, cells in pairs(options) do
      local given = { kernel_size = 3, [option] = "l2" }
      if name ~= "DepthwiseConv2D" then given.filters = 4 end
      local layer = L[name](given)
      layer:ensure_built(name == "Conv1D" and { -1, 8, 2 } or { -1, 6, 6, 2 })
      for _, v in ipairs(layer.weights) do v:assign(mgpu.ones(v:shape())) end
      local losses = layer:losses()
      check.equal(#losses, 1)
      check.near(losses[1]:item(), 0.01 * cells)
    end
  end
end)

-- ---- numbers ------------------------------------------------------------------------------------

for i, case in ipairs(load_golden("conv_layers").ties) do
  test(("%s %d sends the gradient to the same one of equal cells as Keras"):format(case.layer, i), function()
    local args = with(case.args)
    args.dtype = "float64"
    local layer = L[case.layer](args)
    local x = mgpu.variable(mgpu.tensor(case.input, { dtype = "float64" }):reshape(case.input_shape))
    local y
    local _, grads = mgpu.value_and_grad(function()
      y = layer(x:value())
      local n = #case.output
      local upstream = mgpu.tensor(hash.array(n, case.upstream.salt, 1, 0), { dtype = "float64" })
      return (y:reshape { -1 } * upstream):sum()
    end, { x })()
    check.equal(y:reshape { -1 }, case.output)
    check.near(grads[1]:reshape { -1 }, case.input_gradient, 1e-14) -- sums of few terms
  end)
end

test("the mean of a large float16 image does not overflow", function()
  local x = (mgpu.ones { 1, 200, 200, 1 } * 3):to "float16" -- the sum is 120000, float16 ends at 65504
  check.equal(L.GlobalAveragePooling2D { dtype = "float16" } (x), { { 3 } })
end)

test("bilinear interpolation of whole numbers gives floats", function()
  local x = mgpu.tensor({ { { { 1 }, { 2 } } } }, { dtype = "int32" })
  check.equal(L.UpSampling2D { { 1, 2 }, interpolation = "bilinear" }(x):reshape { -1 }, { 1, 1.25, 1.75, 2 })
end)

-- ---- errors -------------------------------------------------------------------------------------

local function refuses(expected, fn) check.raises(fn, expected, "usage") end

test("options that Keras refuses are refused", function()
  for _, name in ipairs { "Conv1D", "Conv2D", "Conv2DTranspose" } do
    refuses("strides above 1 cannot be combined with a dilation_rate above 1",
      function() L[name] { 2, 3, strides = 2, dilation_rate = 2 } end)
  end
  refuses("3 filters cannot be divided into 2 groups", function() L.Conv1D { 3, 3, groups = 2 } end)
  refuses("3 channels cannot be divided into 2 groups",
    function() L.Conv1D { 4, 3, groups = 2 } (mgpu.ones { 1, 4, 3 }) end)
  refuses("output_padding {1, 2} must be below the strides {2, 2}",
    function() L.Conv2DTranspose { 2, 3, strides = 2, output_padding = { 1, 2 } } end)
  refuses('"causal"', function() L.Conv2D { 2, 3, padding = "causal" } end)
  refuses('"area"', function() L.UpSampling2D { interpolation = "area" } end)
  refuses('unknown option "groups"', function() L.Conv2DTranspose { 2, 3, groups = 2 } end)
end)

test("paddings, crops and windows of a wrong form are errors that name them", function()
  for _, wrong in ipairs { -1, 1.5, { { 1, 2, 3 } }, { { { 1, -1 }, 2 } }, { { 1 } } } do
    local padding = type(wrong) == "table" and wrong[1] or wrong
    refuses('option "padding" must be', function() L.ZeroPadding2D { padding = padding } end)
    refuses('option "cropping" must be', function() L.Cropping2D { cropping = padding } end)
  end
  refuses('option "kernel_size" must be a whole number', function() L.Conv1D { 3, { 3, 3 } } end)
  refuses('option "pool_size" must be at least 1', function() L.MaxPooling1D { 0 } end)
end)

test("an input smaller than the window or than the crop is refused", function()
  local sequence, image = mgpu.ones { 1, 4, 2 }, mgpu.ones { 1, 4, 9, 2 }
  refuses("kernel of 5 steps does not fit into the input",
    function() L.Conv1D { 1, 3, dilation_rate = 2 } (sequence) end)
  refuses("window of 5 steps does not fit", function() L.AveragePooling1D { 5 } (sequence) end)
  for _, name in ipairs { "Conv2D", "SeparableConv2D" } do
    refuses("kernel {5, 5} does not fit", function() L[name] { 1, 5 } (image) end)
  end
  refuses("kernel {5, 5} does not fit", function() L.DepthwiseConv2D { 5 } (image) end)
  refuses("cropping {{2, 2}, {0, 0}} leaves nothing", function() L.Cropping2D { { 2, 0 } } (image) end)
  refuses("the output for the input", function()
    L.Conv2DTranspose { 1, 2, padding = "same", strides = 2, output_padding = 0 } (mgpu.ones { 1, 1, 3, 2 })
  end)
end)

test("a built layer refuses a smaller input or another number of channels, and says so", function()
  local layer, pool = L.Conv1D { 2, 3, name = "taps" }, L.MaxPooling1D { 3, name = "pool" }
  layer(mgpu.ones { 1, 5, 2 })
  pool(mgpu.ones { 1, 5, 2 })
  refuses('Conv1D "taps": the kernel of 3 steps does not fit', function() layer(mgpu.ones { 1, 2, 2 }) end)
  refuses('MaxPooling1D "pool": the window of 3 steps', function() pool(mgpu.ones { 1, 2, 2 }) end)
  refuses('Conv1D "taps": the input has 3 channels, the layer was built for 2',
    function() layer(mgpu.ones { 1, 5, 3 }) end)
end)

test("a layer refuses an unknown number of channels and an input of another rank", function()
  for name, given in pairs { Conv2D = { 2, 3 }, Conv2DTranspose = { 2, 3 }, DepthwiseConv2D = { 3 },
    SeparableConv2D = { 2, 3 } } do
    refuses("the number of channels must be known",
      function() mgpu.Sequential { L.Input { 8, 8, -1 }, L[name](with(given)) } end)
    refuses("must have 4 axes", function() L[name](with(given))(mgpu.ones { 2, 8, 3 }) end)
  end
  refuses("must have 3 axes", function() L.Conv1D { 2, 3 } (mgpu.ones { 2, 8, 8, 3 }) end)
end)

test("UpSampling2D computes on the device of its input", function()
  check.needs "cpu"
  local x, layer = mgpu.rand { 1, 2, 3, 2 }, L.UpSampling2D { 2, interpolation = "bilinear" }
  check.equal(layer(x:to "cpu:1"), layer(x):totable())
  check.equal(layer(x:to "cpu:1"):device(), "cpu:1")
end)
