-- Layers: names, weights, input checks, data formats, and user-defined layers. golden_layers_spec compares
-- their numbers with Keras.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

test("outside a model, a layer may return a table of named tensors", function()
  local Named = mgpu.Layer:extend "Named"
  function Named.call(_, x) return { double = x * 2, rank = x:rank() } end
  local y = Named {} (mgpu.ones { 1, 2 })
  check.equal({ y.double:totable(), y.rank }, { { { 2, 2 } }, 2 })
end)

test("layers are named as Keras numbers them", function()
  mgpu.reset_names()
  check.equal(L.Conv2D { 1, 1 }.name, "conv2d")
  check.equal(L.Conv2D { 1, 1 }.name, "conv2d_1")
  check.equal(L.MaxPooling2D {}.name, "max_pooling2d")
  check.equal(L.GlobalAveragePooling2D {}.name, "global_average_pooling2d")
  check.equal(L.BatchNormalization {}.name, "batch_normalization")
  check.equal(L.ReLU {}.name, "re_lu")
  check.equal(L.Dense { 1, name = "own" }.name, "own")
end)

test("a layer creates its weights at the first use", function()
  local layer = L.Dense { 3, name = "d" }
  check.equal(#layer:get_weights(), 0)
  check.equal(layer(mgpu.ones { 2, 5 }):shape(), { 2, 3 })
  check.equal(layer:get_weights()[1]:shape(), { 5, 3 })
  check.equal(layer.kernel.name, "d/kernel")
  check.equal({ layer:count_params() }, { 18, 18 })
end)

test("an input of the wrong rank or size is an error that names it", function()
  check.raises(function() L.Conv2D { 2, 3, name = "c" } (mgpu.ones { 2, 9 }) end,
    'Conv2D "c": the input must have 4 axes (batch, rows, columns, channels), got shape {None, 9}',
    "usage")
  check.raises(function() L.MaxPooling2D {} (mgpu.ones { 2, 9 }) end, "must have 4 axes", "usage")
  check.raises(function() L.Conv2D { 2, 5 } (mgpu.ones { 1, 3, 3, 1 }) end, "does not fit", "usage")
  check.raises(function() L.MaxPooling2D { 5 } (mgpu.ones { 1, 3, 3, 1 }) end, "does not fit",
    "usage")
  check.raises(function() L.Reshape { 4 } (mgpu.ones { 2, 3 }) end, "has 3 elements", "usage")
  check.raises(function() L.Dense { 2 } "text" end, "expected a tensor, got string", "usage")
  local dense = L.Dense { 2, name = "d" }
  dense(mgpu.ones { 1, 3 })
  check.raises(function() dense(mgpu.ones { 1, 4 }) end,
    'Dense "d": the input has 4 features, the layer was built for 3', "usage")
  local conv = L.Conv2D { 2, 3 }
  conv(mgpu.ones { 1, 4, 4, 1 })
  check.raises(function() conv(mgpu.ones { 1, 4, 4, 2 }) end, "built for 1", "usage")
end)

test("Reshape infers one size that is given as -1", function()
  check.equal(L.Reshape { 2, -1 } (mgpu.ones { 3, 8 }):shape(), { 3, 2, 4 })
  check.equal(L.Flatten {} (mgpu.ones { 3, 2, 4 }):shape(), { 3, 8 })
end)

test("channels_first gives the permuted result of channels_last", function()
  local x = mgpu.rand { 2, 5, 6, 3 }
  local first = x:permute { 1, 4, 2, 3 }
  local seeded = mgpu.initializers.he_normal { seed = 1 }
  for _, make in ipairs {
    function(f) return L.Conv2D { 4, 3, kernel_initializer = seeded, data_format = f } end,
    function(f) return L.MaxPooling2D { 2, data_format = f } end,
    function(f) return L.AveragePooling2D { 2, padding = "same", data_format = f } end,
  } do
    local last = make "channels_last" (x)
    check.near(make "channels_first" (first):permute { 1, 3, 4, 2 }, last:totable(), 1e-6)
  end
  local last = L.BatchNormalization {} (x, { training = true })
  local other = L.BatchNormalization { axis = 2 } (first, { training = true })
  check.near(other:permute { 1, 3, 4, 2 }, last:totable(), 1e-6)
end)

test("the image data format can be set for all layers", function()
  mgpu.set_image_data_format "channels_first"
  local shape = L.Conv2D { 4, 3 } (mgpu.ones { 1, 2, 5, 6 }):shape()
  mgpu.set_image_data_format "channels_last"
  check.equal(shape, { 1, 4, 3, 4 })
end)

test("a batch normalization that is not trainable uses its moving statistics", function()
  local layer, x = L.BatchNormalization { trainable = false }, mgpu.rand { 4, 3 }
  check.equal(layer(x, { training = true }), layer(x):totable())
  check.equal(layer.moving_mean, { 0, 0, 0 })
end)

test("set_weights checks every shape before it changes a weight", function()
  local layer = L.Dense { 2, name = "d" }
  layer(mgpu.ones { 1, 2 })
  local before = layer:get_weights()[1]:totable()
  check.raises(function() layer:set_weights { { { 1, 2 }, { 3, 4 } }, { 1, 2, 3 } } end,
    "set_weights: array 2 has shape {3}, d/bias needs {2}", "usage")
  check.equal(layer.kernel, before)
  layer:set_weights { { { 1, 2 }, { 3, 4 } }, { 1, 2 } }
  check.equal(layer(mgpu.tensor { { 1, 1 } }), { { 5, 8 } })
end)

-- ---- what is wrong with an input ----------------------------------------------------------------

local function ones(...) return mgpu.ones { ... } end

-- A layer, a wrong input, and the message.
local WRONG = {
  { L.Permute { 2, 1 }, ones(2, 3), "the input {None, 3} has 1 axes after the batch, dims name 2" },
  { L.SpatialDropout2D { 0.5 }, ones(2, 3, 4), "must have 4 axes" },
  { L.Dropout { 0.5, noise_shape = { -1, 3 } }, ones(2, 4), "noise_shape {None, 3} does not fit the input" },
  { L.Dropout { 0.5, noise_shape = { -1, 1, 4 } }, ones(2, 4), "noise_shape {None, 1, 4} does not fit" },
  { L.LayerNormalization { axis = 3 }, ones(2, 4), "axis 3 is out of range for the input {None, 4}" },
  { L.LayerNormalization { axis = { 1, 2 } }, ones(2, 4), "axis 1 is out of range" },
  { L.LayerNormalization { axis = { 2, -1 } }, ones(2, 4), "axis 2 is given twice" },
  { L.LayerNormalization { axis = {} }, ones(2, 4), "axis is an empty list" },
  { L.BatchNormalization { axis = 1 }, ones(2, 4), "axis 1 is out of range" },
  { L.BatchNormalization { axis = 3 }, ones(2, 4), "axis 3 is out of range" },
  { L.BatchNormalization {}, ones(4), "axis -1 is out of range for the input {None}" },
  { L.Softmax { 3 }, ones(2, 4), "axis 3 is out of range" },
  { L.Softmax { { 2, -1 } }, ones(2, 4), "axis -1 is given twice" },
  { L.PReLU { shared_axes = { 1 } }, ones(2, 4), "shared_axes: axis 1 is out of range" },
  { L.PReLU { shared_axes = { 3 } }, ones(2, 4), "shared_axes: axis 3 is out of range" },
  { L.Reshape { 3, -1 }, ones(2, 4), "a sample of shape {4} has 4 elements, which do not fit {3, None}" },
  { L.Reshape { 0, -1 }, ones(2, 4), "which do not fit {0, None}" },
  { L.Dense { 3 }, ones(4), "must have at least 2 axes" },
  { L.Lambda { function() end }, ones(2, 4), "call returned nil; it must return a tensor" },
}

for i, row in ipairs(WRONG) do
  test(("wrong input %d: the error of %s names the layer and the mistake"):format(i, row[1].class_name), function()
    local message = check.raises(function() row[1](row[2]) end, row[3], "usage")
    check.matches(message, ("%s %q: "):format(row[1].class_name, row[1].name))
  end)
end

test("a layer refuses an input of another shape than it was built for", function()
  for _, case in ipairs {
    { L.LayerNormalization {}, ones(2, 4), ones(2, 5) },
    { L.LayerNormalization {}, ones(2, 4), ones(2, 1) },
    { L.BatchNormalization {}, ones(2, 4), ones(2, 5) },
    { L.BatchNormalization { axis = 2 }, ones(2, 4, 3), ones(2, 4, 3, 3) },
    { L.PReLU {}, ones(2, 1, 4), ones(2, 3, 4) },
    { L.PReLU { shared_axes = { 2 } }, ones(2, 3, 4), ones(2, 3, 5) },
    { L.Dense { 2 }, ones(2, 4), ones(2, 5) },
  } do
    case[1](case[2])
    check.raises(function() case[1](case[3]) end, "built for", "usage")
  end
  local shared = L.PReLU { shared_axes = { 2 } }
  shared(ones(2, 3, 4))
  check.equal(shared(ones(2, 5, 4)):shape(), { 2, 5, 4 })
end)

test("options that cannot be combined are refused when the layer is made", function()
  check.raises(function() L.Permute { 2, 2 } end, "each once", "usage")
  check.raises(function() L.Reshape { -1, -1 } end, "only one size may be -1", "usage")
  check.raises(function() L.Activation "get" end, 'unknown activation "get"', "usage")
  check.raises(function() L.Lambda { function() end, output_shape = "x" } end, "output_shape must be", "usage")
  check.raises(function() L.GaussianNoise { 1 } (mgpu.arange(3):to "int32", { training = true }) end,
    "the input is int32", "usage")
end)

test("ReLU passes only numbers above its threshold, as in Keras", function()
  local x = mgpu.tensor { { 0.25, 0.5, 1, 2 } }
  check.equal(L.ReLU { threshold = 0.5 } (x), { { 0, 0, 1, 2 } })
  check.equal(L.ReLU { threshold = 0.5, negative_slope = 2, max_value = 1.5 } (x), { { -0.5, 0, 1, 1.5 } })
end)

-- ---- shapes -------------------------------------------------------------------------------------

test("output shapes keep unknown sizes unknown", function()
  check.equal(L.Flatten {}:output_shape { -1, -1, 3 }, { -1, -1 })
  check.equal(L.Flatten {}:output_shape { -1 }, { -1, 1 })
  check.equal(L.Reshape { 3, -1 }:output_shape { -1, -1, 3 }, { -1, 3, -1 })
  check.equal(L.Permute { 2, 1 }:output_shape { -1, -1, 3 }, { -1, 3, -1 })
  check.equal(L.Embedding { 4, 2 }:output_shape { -1, -1 }, { -1, -1, 2 })
end)

test("an activation that changes the shape changes the output shape of its layer", function()
  local image = mgpu.Input { 4, 6, 2 }
  for class, options in pairs {
    Conv2D = { 8, 3, padding = "same" }, SeparableConv2D = { 8, 3, padding = "same" },
    Conv2DTranspose = { 8, 3, padding = "same" },
    DepthwiseConv2D = { 3, padding = "same", depth_multiplier = 4 } } do
    options.activation = "glu"
    check.equal(L[class](options)(image):shape(), { -1, 4, 6, 4 }, class)
  end
  local model = mgpu.Sequential { mgpu.Input { -1, 3 }, L.Conv1D { 4, 2, activation = "glu" } }
  check.equal(model:output_shape { -1, -1, 3 }, { -1, -1, 2 })
  check.equal(model(mgpu.ones { 2, 5, 3 }):shape(), { 2, 4, 2 })
  check.raises(function() L.Conv2D { 3, 1, activation = "glu" } (image) end, "cannot be cut into halves", "usage")
  check.equal(L.Conv2D { 3, 1, activation = function(x) return x:sum { axis = 4 } end } (image):shape(), { -1, 4, 6 })
  check.equal(L.Dense { 6, activation = "glu" } (mgpu.Input { 4 }):shape(), { -1, 3 })
  local narrow = L.Dense { 6, activation = function(x) return x:sum { axis = 2, keepdims = true } end }
  check.equal(narrow(mgpu.Input { 4 }):shape(), { -1, 1 })
end)

test("Lambda finds its output shape, or takes it as an option", function()
  local function sums(x) return x:sum(2) end
  check.equal(L.Lambda { sums } (ones(2, 3)), { 3, 3 })
  check.equal(L.Lambda(sums):output_shape { -1, 3 }, { -1 })
  check.equal(L.Lambda { sums, output_shape = {} }:output_shape { -1, 3 }, { -1 })
  check.equal(L.Lambda { sums, output_shape = function(s) return { s[1] } end }:output_shape { -1, 3 }, { -1 })
  local pair = L.Lambda { function(xs) return xs[1] + xs[2] end }
  check.equal(pair { mgpu.Input { 3 }, mgpu.Input { 3 } }:shape(), { -1, 3 })
  local told = L.Lambda { function(x, training) return training and x * 2 or x end }
  check.equal(told(ones(1, 1), { training = true }), { { 2 } })
  check.raises(function() told:get_config() end, "a function, which cannot be saved", "usage")
end)

-- ---- configurations -----------------------------------------------------------------------------

-- Layers with options other than the defaults, each with an input.
local function configured()
  local seeded = mgpu.initializers.he_normal { seed = 3 }
  local plain, image = mgpu.rand { 3, 4 }, mgpu.rand { 2, 3, 4, 2 }
  return {
    { L.Permute { 3, 1, 2 }, image }, { L.SpatialDropout2D { 0.3, data_format = "channels_first", seed = 4 }, image },
    { L.GaussianNoise { 0.2, seed = 1 }, plain }, { L.Dropout { 0.2, noise_shape = { -1, 1 }, seed = 2 }, plain },
    { L.LayerNormalization { axis = { 2, -1 }, epsilon = 1e-5, gamma_initializer = seeded,
      beta_regularizer = "l1" }, image }, { L.LayerNormalization { rms_scaling = true }, plain },
    { L.ReLU { max_value = 0.5, negative_slope = 0.1, threshold = 0.2 }, plain },
    { L.ThresholdedReLU { 0.05 }, plain }, { L.ActivityRegularization { 0.5, l2 = 0.25 }, plain },
    { L.LocallyConnected2D { 3, { 2, 1 }, strides = 2, implementation = 3, padding = "same", use_bias = false,
      kernel_initializer = seeded, activation = "mish", data_format = "channels_first" }, image },
    { L.LeakyReLU { 0.05 }, plain }, { L.ELU { 0.5 }, plain }, { L.Softmax { { 2, 3 } }, image },
    { L.PReLU { alpha_initializer = seeded, alpha_regularizer = "l2", shared_axes = { 2 } }, image },
    { L.Activation "sparsemax", plain }, { L.Flatten { data_format = "channels_first" }, image },
    { L.Reshape { 2, -1 }, image }, { L.Embedding { 5, 2, embeddings_initializer = seeded,
      embeddings_regularizer = mgpu.regularizers.L1L2 { l1 = 0.5, l2 = 0.25 } }, mgpu.tensor { 0, 4 } },
    { L.Dense { 2, activation = "mish", kernel_initializer = seeded, use_bias = false, name = "own",
      kernel_regularizer = "l1", activity_regularizer = mgpu.regularizers.L2 { 0.5 }, trainable = false }, plain },
    { L.BatchNormalization { axis = 2, momentum = 0.5, epsilon = 0.1, center = false,
      gamma_regularizer = "l2", gamma_initializer = "zeros" }, image },
  }
end

for i, row in ipairs(configured()) do
  local class_name = row[1].class_name
  test(("configuration %d: a %s made from its configuration gives the same output"):format(i, class_name), function()
    local layer, x = unpack(configured()[i])
    layer.name = row[1].name
    local config = layer:get_config()
    local again = L[class_name](config)
    check.equal(again:get_config(), config)
    check.equal({ again.name, again.trainable }, { layer.name, layer.trainable })
    mgpu.seed(5)
    local y = layer(x, { training = true }):totable()
    again:ensure_built(layer.built_shape)
    again:set_weights(layer:get_weights())
    mgpu.seed(5)
    if class_name ~= "BatchNormalization" then check.equal(again(x, { training = true }), y) end
    check.equal(again(x), layer(x):totable())
    check.equal(#again:losses(), #layer:losses())
  end)
end

-- ---- own layers ---------------------------------------------------------------------------------

local function affine()
  local Affine = mgpu.Layer:extend("Affine", { units = "integer", activation = "linear" })
  function Affine:build(shape)
    self.w = self:add_weight { name = "w", shape = { shape[#shape], self.units } }
  end
  function Affine:call(x) return mgpu.matmul(x, self.w) end
  return Affine
end

test("the options of a user-defined layer are checked and become fields", function()
  local Affine = affine()
  local layer = Affine { units = 4 }
  check.equal({ layer.units, layer.activation }, { 4, "linear" })
  check.raises(function() Affine { unit = 4 } end,
    'Affine: unknown option "unit" (did you mean "units"?)', "usage")
  check.raises(function() Affine {} end, 'option "units" is missing', "usage")
end)

test("a user-defined layer can change the shape inside a model", function()
  local model = mgpu.Sequential { L.Input { 3 }, affine() { units = 5 }, L.Dense { 2 } }
  check.equal(model(mgpu.ones { 4, 3 }):shape(), { 4, 2 })
  check.equal(model:count_params(), 15 + 12)
end)

test("layers and variables in fields of a user-defined layer are found, also in arrays", function()
  local Pair = mgpu.Layer:extend("Pair", {})
  function Pair:build()
    self.parts = { L.Dense { 2, name = "left" }, L.Dense { 3, name = "right" } }
    self.scale = mgpu.variable(mgpu.ones {}, { name = "scale", trainable = true })
  end
  function Pair:call(x) return self.parts[2](self.parts[1](x)) * self.scale end
  local layer = Pair {}
  check.equal(layer(mgpu.ones { 1, 4 }):shape(), { 1, 3 })
  check.equal({ layer:count_params() }, { 20, 20 })
  layer.parts[1].trainable = false
  check.equal({ layer:count_params() }, { 20, 10 })
end)

-- ---- training ---------------------------------------------------------------------------------

-- A user-defined layer that calls other layers and a nested model without the argument `training`.
local Block = mgpu.Layer:extend("Block", {})
function Block:init()
  self.drop, self.norm = L.Dropout { 0.5 }, L.BatchNormalization { momentum = 0 }
  self.inner = mgpu.Sequential { L.GaussianNoise { 1 } }
end
function Block:call(x) return self.inner(self.norm(self.drop(x))) end

local function zeros_in(t) return t:eq(0):to("float32"):sum():item() end

test("a layer that the user has built is not built again", function()
  local dense = L.Dense { 3 }
  dense:build { -1, 2 }
  dense:set_weights { mgpu.ones { 2, 3 }, mgpu.zeros { 3 } }
  check.equal(dense(mgpu.ones { 1, 2 }):totable(), { { 2, 2, 2 } })
  check.equal({ #dense.weights, dense.built }, { 2, true })
  local Twice = mgpu.Layer:extend("Twice", {}) -- its weights are those of an inner layer
  function Twice:build() self.inner = L.Dense { 1 } end
  function Twice:call(x) return self.inner(self.inner(x)) end
  local twice = Twice { trainable = false }
  twice:build { -1, 1 }
  local inner = twice.inner
  twice(mgpu.ones { 4, 1 })
  check.truthy(rawequal(twice.inner, inner))
  check.equal(#twice.trainable_variables, 0)
end)

test("layers called inside a layer's call inherit its training argument, and only there", function()
  local block, x = Block {}, mgpu.ones { 64, 4 }
  check.equal(zeros_in(block.drop(x)), 0)
  local inference = block(x)
  check.equal(inference, block(x):totable())
  check.equal(block.norm.moving_mean:totable(), { 0, 0, 0, 0 })
  local y = block(x, { training = true })
  check.truthy(block.norm.moving_mean:totable()[1] > 0.5, "the statistics have moved")
  check.falsy(y:totable()[1][1] == block(x, { training = true }):totable()[1][1], "noise in the nested model")
  check.equal(zeros_in(block.drop(x)), 0)
end)

test("fit trains the layers inside a user-defined layer", function()
  local block = Block {}
  local model = mgpu.Sequential { L.Input { 4 }, block, L.Dense { 1 } }
  model:compile { loss = "mse" }
  model:fit(mgpu.ones { 64, 4 }, mgpu.ones { 64, 1 }, { verbose = 0 })
  check.truthy(block.norm.moving_mean:totable()[1] > 0.5, "the statistics have moved")
end)

test("an inner call's own training argument wins, and an error restores the outer one", function()
  local Fixed = mgpu.Layer:extend("Fixed", {})
  function Fixed:init() self.drop = L.Dropout { 0.5 } end
  function Fixed:call(x) return self.drop(x, { training = false }) end
  local x = mgpu.ones { 8, 8 }
  check.equal(zeros_in(Fixed {}(x, { training = true })), 0)
  local Broken = mgpu.Layer:extend("Broken", {})
  function Broken:call() error "own trouble" end -- luacheck: no self
  check.raises(function() Broken {}(x, { training = true }) end, "own trouble")
  check.equal(zeros_in(L.Dropout { 0.5 }(x)), 0)
end)

test("a call takes training as a boolean or in a table, and refuses anything else", function()
  local drop, x = L.Dropout { 0.5, name = "d" }, mgpu.ones { 8, 8 }
  check.truthy(zeros_in(drop(x, true)) > 0, "zeros")
  check.equal(zeros_in(drop(x, false)), 0)
  local model = mgpu.Sequential { L.Input { 8 }, drop, name = "m" }
  check.truthy(zeros_in(model(x, true)) > 0, "zeros")
  for _, callee in ipairs { drop, model } do
    check.raises(function() callee(x, { traning = true }) end, 'layers_spec.lua:%d+: .*unknown option "traning" '
      .. '%(did you mean "training"%?%)', "usage")
    check.raises(function() callee(x, { training = 1 }) end, '"training" must be true or false, got 1', "usage")
    check.raises(function() callee(x, x) end, "options such as {training = true}, got a userdata", "usage")
  end
end)

test("the training argument of a call in a functional model is kept, also when saved and loaded", function()
  local x = mgpu.Input { 8 }
  local model = mgpu.Model { inputs = x, outputs = L.Dropout { 0.5 }(x, { training = true }) }
  local path = check.path "always.safetensors"
  model:save(path)
  for _, m in ipairs { model, mgpu.load_model(path) } do
    check.truthy(zeros_in(m(mgpu.ones { 8, 8 })) > 0, "zeros at inference")
  end
end)

test("a user-defined layer without a call method is an error at the user's line", function()
  local Mute = mgpu.Layer:extend("Mute", {})
  check.raises(function() Mute { name = "q" }(mgpu.ones { 1, 2 }) end,
    'layers_spec.lua:%d+: Mute "q": has no call', "usage")
  check.raises(function() mgpu.Sequential { L.Input { 2 }, Mute {} } end, "has no call", "usage")
end)

test("at 0, elu and celu have slope 1, and selu has the slope of its positive side, as in Keras", function()
  local scale = 1.0507009873554805
  for name, expected in pairs { elu = { 1, 1, 1 }, selu = { scale, scale * 1.6732632423543772, scale },
    celu = { 1, 1, 1 } } do
    local slope = mgpu.grad(function(x) return mgpu.activations[name](x):sum() end)(mgpu.tensor { 0, -1e-30, -0.0 })
    check.near(slope:totable(), expected, 1e-6)
  end
end)

-- Keras 3.15: LayerNormalization(axis=[1, -1]) has weights {4, 3} for x {2, 3, 4}, read row by row as {3, 4}.
test("LayerNormalization over unsorted axes keeps its weights in Keras's order", function()
  local layer, plain = L.LayerNormalization { axis = { 2, -1 } }, L.LayerNormalization { axis = { 2, 3 } }
  local x = mgpu.rand { 2, 3, 4 }
  layer(x)
  plain(x)
  check.equal({ layer.gamma:shape(), plain.gamma:shape() }, { { 4, 3 }, { 3, 4 } })
  layer.gamma:assign(mgpu.arange(12):reshape { 4, 3 })
  plain.gamma:assign(mgpu.arange(12):reshape { 3, 4 })
  check.near(layer(x), plain(x):totable(), 1e-6)
end)

test("Keras's other names of layers mean the same classes", function()
  check.equal(L.Convolution2D == L.Conv2D, true)
  check.equal(L.MaxPool3D == L.MaxPooling3D, true)
  check.equal(tostring(L.GlobalAvgPool1D {}):match "^%w+", "GlobalAveragePooling1D")
  for _, name in ipairs(L()) do check.falsy(name == "MaxPool2D", "an alias is not among the names") end
end)
