-- Error texts of layers, models and what they are given by name.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local A, L = mgpu.activations, mgpu.layers

local function dense(name) return L.Dense { 1, name = name } end
local function model() return mgpu.Sequential { L.Input { 2 }, dense "head" } end
local function image() return mgpu.ones { 1, 4, 4, 3 } end
local function x() return mgpu.ones { 3, 2 } end

local function two_inputs()
  local a, b = L.Input { 2, name = "left" }, L.Input { 2, name = "right" }
  return mgpu.Model { inputs = { a, b }, outputs = L.Add {} { a, b } }
end

-- A layer whose methods are the given functions.
local function layer(methods)
  local class = mgpu.Layer:extend "Own"
  for name, fn in pairs(methods) do class[name] = fn end
  return class {}
end

-- A model of a layer with two weights of one name.
local function twins()
  local class = mgpu.Layer:extend "Own"
  function class:build()
    for _ = 1, 2 do self:add_weight { name = "w", shape = { 2 } } end
  end
  function class:call(t) return t + self.weights[1] end
  return mgpu.Sequential { L.Input { 2 }, class { name = "own" } }
end

cases {
  -- ---- activations, initializers, regularizers, constraints
  { "threshold without its numbers", function() A.threshold(x()) end,
    "threshold(x, threshold, value) needs two numbers: as an activation write function(x)" },
  { "soft_shrink by a text", function() A.soft_shrink(x(), "half") end,
    "soft_shrink: threshold must be a number, got a string" },
  { "an activation along an axis that is not there", function() A.sparsemax(x(), 3) end,
    "sparsemax: axis 3 is out of range: there are 2 axes, counted from 1 (or -1 from the end)" },
  { "glu of an odd number", function() A.glu(mgpu.ones { 2, 3 }) end,
    "glu: axis 2 of size 3 cannot be cut into halves" },
  { "an activation of nothing", function() A.relu() end, "relu: x must be a tensor, got nothing" },
  { "an activation of a text", function() A.relu "x" end, "relu: x must be a tensor, got a string" },
  { "identity for a vector", function() L.Conv2D { 2, 3, kernel_initializer = "identity" } (image()) end,
    "identity: the shape must have 2 axes" },
  { "orthogonal for a vector", function() L.Dense { 2, bias_initializer = "orthogonal" } (x()) end,
    "orthogonal: the shape needs at least 2 axes" },
  { "an unknown initializer", function() L.Dense { 3, kernel_initializer = "glorot_unifrom" } (x()) end,
    'unknown initializer "glorot_unifrom" (did you mean "glorot_uniform"?)' },
  { "a regularizer of another kind", function() L.Dense { 3, kernel_regularizer = {} } end,
    "a regularizer is a name, a function, or made by mgpu.regularizers" },
  { "an unknown regularizer", function() L.Dense { 3, kernel_regularizer = "l3" } end, 'unknown regularizer "l3"' },
  { "orthogonality of filters", function()
    mgpu.regularizers.OrthogonalRegularizer {} (mgpu.ones { 2, 2, 2 })
  end, "OrthogonalRegularizer: the weight must have 2 axes, it has 3" },
  { "a constraint of another kind", function() L.Dense { 3, kernel_constraint = {} } end,
    "a constraint is a name, a function, or made by mgpu.constraints" },
  { "a policy without a name", function() mgpu.mixed_precision.Policy() end, "Policy: the name is missing" },
  { "a scope of half a device", function() mgpu.with_device(1.5, print) end,
    "with_device: expected a device's name or its place in a group, got 1.5" },
  { "a scope around nothing", function() mgpu.with_device "cpu:0" end, "with_device: expected a function, got nil" },

  -- ---- layers
  { "the output of a layer that stands alone", function() return dense "a".output end,
    'Dense "a": has no output: it has not been called with a symbolic tensor' },
  { "the input of a layer that stands alone", function() return dense "a".input end,
    'Dense "a": has no input: it has not been called with a symbolic tensor' },
  { "a layer of one number", function() dense "a" (mgpu.tensor(3)) end,
    'Dense "a": expected a tensor with the batch as its first axis, got a number' },
  { "an array for a layer of one tensor", function()
    local d = dense "a"
    d(x())
    d { x(), x() }
  end, 'Dense "a": takes one tensor, got an array of 2' },
  { "one tensor for a layer of several", function() L.Add { name = "sum" } (x()) end,
    'Add "sum": takes an array of inputs, as in layer {a, b}' },
  { "a call that returns a number", function()
    layer { call = function() return 3 end } (L.Input { 2 })
  end, 'Own ".-": call returned a number; it must return a tensor or an array of tensors' },
  { "a layer that stands alone whose call returns nothing", function()
    layer { call = function() end } (x())
  end, 'Own ".-": call returned nil; it must return a tensor or an array of tensors' },
  { "a layer that stands alone whose call returns a text", function()
    layer { call = function() return "y" end } (x())
  end, 'Own ".-": call returned a string; it must return a tensor or an array of tensors' },
  { "a layer of a model whose call returns no tensors", function()
    layer { call = function() return {} end } (L.Input { 2 })
  end, 'Own ".-": call returned a table without tensors; it must return a tensor or an array of tensors' },
  { "a layer of a model whose call returns a tensor by name", function()
    layer { call = function(_, t) return { y = t } end } (L.Input { 2 })
  end, 'Own ".-": call returned a table without tensors; it must return a tensor or an array of tensors' },
  { "a layer of a model whose call returns numbers", function()
    layer { call = function(_, t) return { t, 3 } end } (L.Input { 2 })
  end, 'Own ".-": call returned an array whose entry 2 is a number; it must return a tensor or an array of tensors' },
  { "a symbolic tensor beside a number", function() L.Add { name = "sum" } { L.Input { 2 }, 3 } end,
    'Add "sum": input 2 is a number, the others are symbolic tensors' },
  { "a weight without a shape", function()
    layer { build = function(self) self:add_weight "kernel" end, call = function(_, t) return t end } (x())
  end, "add_weight needs a table with name and shape" },
  { "a weight of unknown size", function()
    layer { build = function(self, shape) self:add_weight { name = "kernel", shape = shape } end,
      call = function(_, t) return t end } (x())
  end, 'the weight "kernel" would have shape {None, 2}: the input\'s sizes must be known' },
  { "weights that are made in a jitted function", function()
    local d = dense "a"
    mgpu.jit(function(t) return d(t) end)(x())
  end, 'Dense "a": has no weights yet and cannot make them inside mgpu.jit: give the model an Input, or call it once' },
  { "trainable that is not a boolean", function() dense "a".trainable = "no" end,
    'Dense "a": trainable must be true or false, got string' },
  { "Lambda with a fractional size", function() L.Lambda { function(t) return t end, output_shape = { 1.5 } } end,
    "output_shape must hold the sizes of a sample of the output" },
  { "softmax along no axis", function() L.Softmax { axis = {} } (x()) end, "axis is an empty list" },
  { "adapt with data of another shape", function()
    local n = L.Normalization { name = "n" }
    n:adapt(x())
    n:adapt(mgpu.ones { 3, 5 })
  end, 'Normalization "n": adapt: the layer was built for {None, 2}, got data of shape' },
  { "adapt with data of fewer axes", function()
    local n = L.Normalization { name = "n" }
    n:adapt(x())
    n:adapt(mgpu.ones { 3 })
  end, 'Normalization "n": adapt: the layer was built for {None, 2}, got data of shape {3}' },
  { "an unknown order of the axes of images", function() mgpu.set_image_data_format "first" end,
    'set_image_data_format: expected "channels_last" or "channels_first", got first' },
  { "adapt with one number", function() L.Normalization { name = "n" }:adapt(mgpu.tensor(3)) end,
    'Normalization "n": adapt: the data have no axis: use a dataset of batches' },
  { "means for other axes", function()
    L.Normalization { mean = { 1, 2, 3 }, variance = { 1, 2, 3 }, name = "n" } (x())
  end, 'Normalization "n": option "mean" has 3 numbers, but the axes of the input have 2' },

  -- ---- models
  { "a layer that a model does not have", function() model():get_layer "heed" end,
    'there is no layer "heed" (did you mean "head"?)' },
  { "a model's seventh layer", function() model():get_layer(7) end, "there is no layer 7: the model has 1" },
  { "the last layer of an empty model", function() mgpu.Sequential {}:pop() end, "the model has no layer to remove" },
  { "an empty model that is called", function() mgpu.Sequential {} (x()) end, "the model has no layers" },
  { "an input that is left out", function() two_inputs() { left = x() } end, 'the input "right" is missing' },
  { "a text as an input", function() two_inputs() { x(), "two" } end,
    'expected a tensor for input "right", got string' },
  { "a file that lists a weight without its numbers", function()
    local path = check.path "listed.safetensors"
    core.store_save(path, { ["dense_7/bias"] = mgpu.ones { 1 } },
      { format = "mgpulua 1", weights = '["dense_7/kernel","dense_7/bias"]' })
    mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }:load_weights(path)
  end, 'by order, the file lists the weight "dense_7/kernel" but does not hold it', code = "data" },
  { "two weights of one name in a file", function() twins():save_weights(check.path "twins.safetensors") end,
    'two weights are called "own/w": give the layers different names' },
  { "two weights of one name in an archive of NumPy", function() twins():save_weights(check.path "twins.npz") end,
    'two weights are called "own/w": give the layers different names' },
  { "a model without a path", function() mgpu.load_model "" end, "load_model: the path is empty" },
  { "a picture with another ending", function() model():plot(check.path "model.png") end,
    "model.png: the name must end in .svg" },

  { "the curves of no epoch", function()
    local m = model()
    m:compile { loss = "mse" }
    m:fit(x(), mgpu.ones { 3, 1 }, { epochs = 0, verbose = 0 }):plot(check.path "curves.svg")
  end, "history:plot: the history has no epoch" },

  -- ---- optimizers and losses
  { "an empty name without decay", function() mgpu.optimizers.AdamW {}:exclude_from_weight_decay { "" } end,
    "AdamW: exclude_from_weight_decay takes variables and parts of names, got an empty name" },
  { "a schedule without its options", function()
    mgpu.optimizers.SGD { learning_rate = { class_name = "ExponentialDecay" } }
  end, 'the schedule "ExponentialDecay" lacks a table config: give {class_name =, config =}, or one of' },
  { "a loss that returns a number", function()
    local m = model()
    m:compile { loss = function() return 3 end }
    m:fit(x(), mgpu.ones { 3, 1 }, { verbose = 0 })
  end, "loss: the function must return a tensor with one value per sample, got a number" },
  { "a loss that returns one value for all", function()
    local m = model()
    m:compile { loss = function(_, y) return y:sum() end }
    m:fit(x(), mgpu.ones { 3, 1 }, { verbose = 0 })
  end, "loss: the function must return one value per sample, shape {3}, got shape {}" },
  { "a metric of nothing", function() mgpu.metrics.Mean {}:update() end,
    "mean: update needs tensors or numbers, got nothing" },
  { "data without rows", function()
    local m = model()
    m:compile { loss = "mse" }
    m:fit(mgpu.zeros { 0, 2 }, mgpu.zeros { 0, 1 })
  end, "fit: x is empty: its shape is {0, 2}" },
  { "an initializer that is a flag", function() L.Dense { 3, kernel_initializer = true } end,
    'option "kernel_initializer" must be the name of an initializer, or a function, got boolean' },
  { "a regularizer that is a flag", function() L.Dense { 3, kernel_regularizer = true } end,
    'option "kernel_regularizer" must be the name of a regularizer, one of mgpu.regularizers, or a function, got' },
  { "an activation that is a flag", function() L.Dense { 3, activation = true } end,
    'option "activation" must be the name of an activation, or a function, got boolean' },
  { "a shape by position and by name", function() L.Input { 2, shape = { 3 } } end,
    'Input: option "shape" is given twice' },
  { "a sum of one tensor", function() L.Add {} (x()) end, "takes an array of inputs, as in layer {a, b}" },
  { "a sum of one tensor, without the checks of a call", function() L.Add {}:call(x()) end,
    "takes an array of inputs, as in layer {a, b}" },
  { "a normalized mask over channels that are not last", function()
    local m = mgpu.Sequential { L.Input { 3, 2 }, L.Masking {}, L.BatchNormalization { axis = 2 } }
    m:compile { loss = "mse" }
    m:fit(mgpu.ones { 2, 3, 2 }, mgpu.ones { 2, 3, 2 }, { verbose = 0 })
  end, "a masked input must have its channels in the last axis" },
  { "a dot of unknown sizes in a .onnx file", function()
    local a, b = L.Input { -1, 2 }, L.Input { -1, 2 }
    mgpu.Model { inputs = { a, b }, outputs = L.Dot { axes = 2 } { a, b } }:save(check.path "dot.onnx")
  end, "all sizes of its inputs must be known to save it as .onnx" },
  { "a picture of no numbers", function() mgpu.show(mgpu.zeros { 0 }) end, "show: the tensor has no numbers" },
  { "a unet of two sizes", function() mgpu.models.unet { input_shape = { 32, 32 } } end,
    'unet: option "input_shape" must have three sizes, got 2' },
  { "a layer with more weights in the file than in the model", function()
    model():save_weights(check.path "weights.h5")
    mgpu.Sequential { L.Input { 2 }, L.Dense { 1, name = "head", use_bias = false } }:load_weights(
      check.path "weights.h5")
  end, 'weights.h5: layer "head" has 2 weights in the file, 1 in the model', code = "data" },
  { "a weight that is called like one of the optimizer's", function()
    local class = mgpu.Layer:extend "Own"
    function class:build() self:add_weight { name = "iterations", shape = { 2 } } end
    function class:call(t) return t + self.weights[1] end
    local m = mgpu.Sequential { L.Input { 2 }, class { name = "optimizer" } }
    m:compile { loss = "mse" }
    m:fit(x(), x(), { verbose = 0 })
    m:save(check.path "twice.safetensors")
  end, 'a weight is called "optimizer/iterations", like one of the optimizer: rename the layer' },
  { "a layer that a configuration calls with an argument", function()
    local input = mgpu.Input { 2, name = "a" }
    local config = core.json_decode(mgpu.Model { inputs = { input }, outputs = dense "head"(input) }:to_json())
    for _, entry in ipairs(config.config.layers) do
      if entry.config.name == "head" then entry.inbound_nodes[1].kwargs.scale = 2 end
    end
    mgpu.model_from_json(core.json_encode(config))
  end, 'layer "head" is called with the argument scale, which is not supported', code = "unsupported" },
  { "an optimizer that does not say what to subtract", function()
    local Own = require "mgpu.nn.optimizers.optimizer".define { class = "Own",
      declared = { { "learning_rate", "any", default = 0.1 } } }
    Own {}:apply({ x() }, { mgpu.variable(mgpu.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }) })
  end, "the optimizer class Own has no function update" },
}
