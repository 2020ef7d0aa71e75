-- Models that tests save as .onnx: every layer that has ops in ONNX with its options, graphs of layers, the models of
-- models/. Weights and inputs come from hash.lua, so the files are the same everywhere.
--
--     for i, case in ipairs(require "golden.onnx_cases") do
--       local model, inputs = case.make()          -- inputs: an array of tensors
-- tests/golden/make_onnx.py has onnxruntime run the files and notes what it computed.

local hash = require "golden.hash"
local layer_names = require "mgpu.nn.layer_names"
local mgpu = require "mgpu"

local L = mgpu.layers
local BATCH = 2

local cases = {}

-- ---- weights and inputs -------------------------------------------------------------------------

-- A tensor of hashed numbers in [-scale, scale) around offset.
local function numbers(shape, salt, scale, offset)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return mgpu.tensor(hash.array(n, salt, scale, offset)):reshape(shape)
end

-- Gives the weights hashed numbers; variances are positive.
local function fill(model)
  for i, v in ipairs(model.variables) do
    local positive = v.name:find "variance" and 1 or 0
    local fans = math.max(1, v:value():count() / (v:shape()[#v:shape()] or 1))
    v:assign(numbers(v:shape(), i, positive == 1 and 0.5 or 1 / math.sqrt(fans), positive))
  end
  return model
end

local ANY = 4 -- for a size that an input leaves open

local function inputs_for(shapes)
  local list = {}
  for i, shape in ipairs(shapes) do
    local sizes = { BATCH }
    for k, size in ipairs(shape) do sizes[k + 1] = size < 0 and ANY or size end
    list[i] = numbers(sizes, 100 + i, 2)
  end
  return list
end

-- Names of layers begin anew, so that a file does not depend on the cases before it.
-- rounds: the file holds a sum that kernels may round in several ways, so its bytes are not compared.
local function add(name, make, rounds)
  cases[#cases + 1] = { name = name, rounds = rounds, make = function()
    layer_names.reset()
    return make()
  end }
end

-- A layer of a class with options, alone in a Sequential.
local function layer(class, options, shape)
  local parts = {}
  for key, value in pairs(options) do
    if type(value) == "table" then value = "{" .. table.concat(value, ", ") .. "}" end
    parts[#parts + 1] = type(key) == "number" and tostring(value) or ("%s = %s"):format(key, tostring(value))
  end
  table.sort(parts)
  add(("%s {%s} of {%s}"):format(class, table.concat(parts, ", "), table.concat(shape, ", ")), function()
    local given = { name = "layer" }
    for key, value in pairs(options) do given[key] = value end
    return fill(mgpu.Sequential { L.Input(shape), L[class](given) }), inputs_for { shape }
  end)
end

-- A functional model: make(inputs) -> the outputs.
local function graph(name, shapes, make)
  add(name, function()
    local inputs = {}
    for i, shape in ipairs(shapes) do inputs[i] = mgpu.Input { shape = shape, name = "x" .. i } end
    return fill(mgpu.Model { inputs = inputs, outputs = make(unpack(inputs)), name = "model" }), inputs_for(shapes)
  end)
end

-- ---- layers -------------------------------------------------------------------------------------

for _, name in ipairs { "linear", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "sigmoid", "tanh", "softplus",
  "exponential", "softsign", "silu", "swish", "gelu", "mish", "squareplus", "tanh_shrink", "log_sigmoid",
  "hard_sigmoid", "hard_sigmoid_keras2", "hard_swish",
  "hard_silu", "hard_tanh", "hard_shrink", "soft_shrink", "sparse_plus",
  "sparse_sigmoid", "softmax", "log_softmax", "glu", "sparsemax" } do
  layer("Activation", { name }, { 2, 6 })
end

layer("Dense", { 3, activation = "gelu" }, { 5 })
layer("Dense", { 4, activation = "glu", use_bias = false }, { 2, 5 })
for _, axis in ipairs { 2, 3, -1 } do
  layer("BatchNormalization", { axis = axis }, { 4, 3, 2 })
  layer("LayerNormalization", { axis = axis }, { 4, 3, 2 })
  layer("Softmax", { axis }, { 4, 3, 2 })
end
layer("BatchNormalization", { scale = false, epsilon = 0.1 }, { 4 })
layer("BatchNormalization", { center = false }, { 3, 4 })
layer("LayerNormalization", { axis = { 2, 4 }, center = false }, { 4, 3, 2 })
layer("LayerNormalization", { axis = { 3, 4 }, rms_scaling = true }, { 4, 3, 2 })
layer("LayerNormalization", { scale = false }, { 4 })
layer("Softmax", { axis = { 2, 3 } }, { 4, 3 })
layer("ELU", { 0.5 }, { 4 })
layer("LeakyReLU", { 0.1 }, { 4 })
layer("ReLU", {}, { 4 })
layer("ReLU", { max_value = 0.5, negative_slope = 0.25, threshold = 0.25 }, { 8 })
layer("ThresholdedReLU", { 0.5 }, { 4 })
layer("ActivityRegularization", { l1 = 0.1 }, { 4 })
layer("PReLU", { shared_axes = { 2 } }, { 3, 4 })
layer("PReLU", {}, { 3, 4 })
layer("Permute", { 3, 1, 2 }, { 2, 3, 4 })
layer("Reshape", { 4, -1 }, { 2, 6 })
layer("Dropout", { 0.5 }, { 4 })
layer("GaussianNoise", { 0.5 }, { 4 })

for _, data_format in ipairs { "channels_last", "channels_first" } do
  local function image(class, options, shape)
    options.data_format = data_format
    shape = shape or { 5, 6, 4 }
    if data_format == "channels_first" then table.insert(shape, 1, table.remove(shape)) end
    layer(class, options, shape)
  end
  for _, padding in ipairs { "valid", "same" } do
    image("Conv2D", { 2, { 3, 2 }, strides = { 2, 3 }, padding = padding, activation = "softmax" })
    image("Conv2D", { 2, 2, dilation_rate = 2, padding = padding, use_bias = false })
    image("Conv2D", { 4, 3, groups = 2, padding = padding })
    image("DepthwiseConv2D", { 3, depth_multiplier = 2, padding = padding })
    image("SeparableConv2D", { 3, 2, strides = 2, depth_multiplier = 2, padding = padding, activation = "relu" })
    for stride = 1, 3 do
      image("Conv2DTranspose", { 2, { 2, 3 }, strides = stride, padding = padding }, { 3, 2, 4 })
      image("Conv2DTranspose", { 2, 3, strides = stride, padding = padding, output_padding = stride - 1 }, { 3, 2, 4 })
    end
    image("MaxPooling2D", { 3, strides = { 2, 3 }, padding = padding })
    image("AveragePooling2D", { 2, padding = padding })
    image("MaxPooling1D", { 2, padding = padding }, { 5, 4 })
    image("AveragePooling1D", { 3, strides = 2, padding = padding }, { 6, 4 })
  end
  for _, padding in ipairs { "valid", "same", "causal" } do
    image("Conv1D", { 2, 3, strides = 2, groups = 2, padding = padding }, { 6, 4 })
    image("Conv1D", { 2, 2, dilation_rate = 2, padding = padding }, { 6, 4 })
  end
  for _, keepdims in ipairs { false, true } do
    for _, class in ipairs { "GlobalMaxPooling", "GlobalAveragePooling" } do
      image(class .. "2D", { keepdims = keepdims }, { 3, 2, 4 })
      image(class .. "1D", { keepdims = keepdims }, { 3, 4 })
    end
  end
  image("ZeroPadding2D", { padding = { 1, 2 } }, { 2, 3, 4 })
  image("Cropping2D", { cropping = { 1, 0 } }, { 4, 3, 4 })
  image("UpSampling2D", { { 2, 3 } }, { 2, 3, 4 })
  image("UpSampling2D", { { 2, 3 }, interpolation = "bilinear" }, { 2, 3, 4 })
  image("UpSampling2D", { { 2, 3 }, interpolation = "bicubic" }, { 2, 3, 4 })
  image("Flatten", {}, { 2, 3, 4 })
  image("SpatialDropout2D", { 0.5 }, { 2, 3, 4 })
end

add("Embedding of integers", function()
  local model = mgpu.Sequential { L.Input { 3 }, L.Embedding { 7, 2, name = "layer" } }
  return fill(model), { mgpu.tensor({ { 0, 3, 6 }, { 1, 1, 5 } }, { dtype = "int32" }) }
end)

-- ---- graphs -------------------------------------------------------------------------------------

for _, class in ipairs { "Add", "Subtract", "Multiply", "Average", "Maximum" } do
  graph(class .. " of tensors with two and three axes", { { 3, 4 }, { 4 } }, function(a, b)
    return L[class] { name = "merged" } { a, b }
  end)
  graph(class .. " of convolutions", { { 4, 4, 2 } }, function(x)
    return L[class] { name = "merged" } { L.Conv2D { 2, 3, padding = "same" } (x), L.Conv2D { 2, 1 } (x) }
  end)
end

for axis = 2, 4 do
  graph("Concatenate of convolutions along axis " .. axis, { { 4, 4, 2 } }, function(x)
    return L.Concatenate { axis, name = "merged" } { L.Conv2D { 2, 3, padding = "same" } (x), L.Conv2D { 2, 1 } (x) }
  end)
  graph("Concatenate of an image and a convolution along axis " .. axis, { { 4, 4, 2 } }, function(x)
    return L.Concatenate { axis, name = "merged" } { x, L.Conv2D { 2, 1 } (x) }
  end)
end

graph("arithmetic of symbolic tensors", { { 4 }, { 4 } }, function(a, b)
  return { (a + b) * 2 - 1 / (b * b + 1), -a, a / (b * b + 1), a % 3, a % (b * b + 1), 5 % (a * a + 1), (a * a) ^ 1.5,
    2 ^ a, 3 - a }
end)

graph("operations on symbolic tensors", { { 3, 4 }, { 4 } }, function(a, b)
  return { a:exp(), (a * a):sqrt(), a:maximum(b:expand_dims(2)), a:sigmoid() - a:square(), a:mean(3), a:sum(2, true),
    a:max(-1), a:sum { axis = { 2, 3 } }, a:minimum(0.5), L.Conv1D { 2, 2 } (a):tanh() }
end)

for _, normalize in ipairs { false, true } do
  graph("Dot along the last axis, normalize = " .. tostring(normalize), { { 3, 4 }, { 2, 4 } }, function(a, b)
    return L.Dot { -1, normalize = normalize, name = "product" } { a, b }
  end)
  graph("Dot of vectors, normalize = " .. tostring(normalize), { { 4 }, { 4 } }, function(a, b)
    return L.Dot { 2, normalize = normalize, name = "product" } { a, b }
  end)
  graph("Dot along inner axes, normalize = " .. tostring(normalize), { { 4, 3 }, { 2, 4, 3 } }, function(a, b)
    return L.Dot { { 2, 3 }, normalize = normalize, name = "product" } { a, b }
  end)
end

graph("nested models, shared layers, several outputs", { { 6, 6, 2 }, { 6, 6, 2 } }, function(a, b)
  local part = mgpu.Sequential { L.Input { 6, 6, 2 }, L.Conv2D { 3, 3, name = "inner" }, L.BatchNormalization {},
    L.Activation { "relu" }, L.MaxPooling2D { 2 }, name = "part" }
  local x = mgpu.Input { 3 }
  local outputs = { L.Dense { 2, name = "inner" } (x), L.Dense { 4 } (x) }
  local two = mgpu.Model { inputs = x, outputs = outputs, name = "two" }
  local pool, dense = L.GlobalAveragePooling2D {}, L.Dense { 3, name = "inner" }
  local y, z = dense(pool(part(a))), dense(pool(part(b)))
  local u, v = unpack(two(L.Add {} { y, z }))
  return { y, z, u, v }
end)

graph("an input that is an output too", { { 3 } }, function(x) return { x, L.Dense { 2, name = "dense" } (x) } end)

layer("SimpleRNN", { 3, activation = "relu" }, { 4, 2 })
layer("LSTM", { 3 }, { 4, 2 })
layer("LSTM", { 3, go_backwards = true, return_sequences = true, use_bias = false }, { 4, 2 })
layer("GRU", { 3, return_sequences = true }, { 4, 2 })
layer("GRU", { 3, reset_after = false }, { 4, 2 })
for _, merge_mode in ipairs { "concat", "sum", "mul", "ave" } do
  graph("Bidirectional, " .. merge_mode, { { 4, 2 } }, function(x)
    local y = L.Bidirectional { L.LSTM { 3, return_sequences = true }, merge_mode = merge_mode, name = "both" } (x)
    return L.Bidirectional { L.GRU { 2 }, merge_mode = merge_mode, name = "again" } (y)
  end)
end
graph("states from one recurrent layer to another", { { 4, 2 }, { 3, 2 } }, function(a, b)
  local y, h, c = unpack(L.LSTM { 3, return_state = true, name = "first" } (a))
  local z = L.LSTM { 3, return_sequences = true, name = "second" } { b, h, c }
  local u, v = unpack(L.Bidirectional { L.SimpleRNN { 2 }, merge_mode = "none", name = "both" } (z))
  return { y, z, u, v }
end)

-- ---- attention, scaling, low-rank adaptation ------------------------------------------------------

layer("EinsumDense", { "abc,cd->abd", { -1, 4 }, bias_axes = "d", activation = "relu" }, { 3, 2 })
layer("EinsumDense", { "...ab,bc->...ac", { -1, 3 }, bias_axes = "c" }, { 2, 3, 4 })
layer("EinsumDense", { "ab...,bc->ac...", 4, bias_axes = "c", activation = "glu" }, { 3, 4 })
layer("RMSNormalization", {}, { 3, 4 })
layer("RMSNormalization", { axis = { 2, 3 }, epsilon = 0.1 }, { 3, 4 })
layer("LayerScale", { 0.5, 4 }, { 3, 4 })
layer("Rescaling", { 0.5, offset = -1 }, { 3, 4 })
layer("Rescaling", { { 1, 2, 3 }, offset = { 0, 1, 0.5 } }, { 2, 2, 3 })
layer("Normalization", {}, { 3, 4 })
layer("Normalization", { mean = { 1, 2, 3, 4 }, variance = 4, invert = true }, { 4 })
layer("AlphaDropout", { 0.5 }, { 4 })
layer("Identity", {}, { 4 })

for _, class in ipairs { "Attention", "AdditiveAttention" } do
  graph(class .. " without and with a key", { { 3, 4 }, { 5, 4 }, { 5, 4 } }, function(q, v, k)
    return { L[class] { use_scale = true } { q, v }, L[class] { use_scale = false } { q, v, k } }
  end)
  graph(class .. " with its scores, causal", { { 3, 4 } }, function(x)
    return L[class] {} ({ x, x }, { use_causal_mask = true, return_attention_scores = true })
  end)
end
graph("Attention, concat", { { 3, 4 }, { 5, 4 } }, function(q, v)
  return L.Attention { score_mode = "concat", use_scale = true } { q, v }
end)

local function of_heads(class, options, more)
  local given = { name = "attention" }
  for _, part in ipairs { options, more or {} } do
    for key, value in pairs(part) do given[key] = value end
  end
  return L[class](given)
end
for class, options in pairs { MultiHeadAttention = { 2, 3 }, GroupQueryAttention = { 3, 4, 2 } } do
  graph(class .. " of other sizes", { { 3, 4 }, { 5, 6 }, { 5, 2 } }, function(q, v, k)
    return of_heads(class, options) { q, v, k }
  end)
  graph(class .. ", causal, with its scores", { { 4, 6 } }, function(x)
    return of_heads(class, options)({ x, x }, { use_causal_mask = true, return_attention_scores = true })
  end)
  graph(class .. " with a gate and a window", { { 6, 4 } }, function(x)
    return of_heads(class, options, { use_gate = true, sliding_window = 2 }) { x, x }
  end)
  graph(class .. " with masks", { { 3, 4 }, { 5, 4 }, { 3, 5 }, { 5 }, { 3 } }, function(q, v, mask, keys, queries)
    local function bits(t) return t:relu() end -- zeros where the numbers are negative
    return of_heads(class, options)({ q, v }, { attention_mask = bits(mask), value_mask = bits(keys),
      query_mask = bits(queries) })
  end)
end
graph("MultiHeadAttention of any number of steps", { { -1, 4 } }, function(x)
  return L.MultiHeadAttention { 2, 3, value_dim = 2, output_shape = { 2, 5 }, use_bias = false, name = "attention" } (
    { x, x }, { use_causal_mask = true })
end)

for class, make in pairs { Dense = function() return L.Dense { 3, name = "layer", lora_rank = 2 } end,
  Conv2D = function() return L.Conv2D { 3, 2, name = "layer", lora_rank = 2, lora_alpha = 1 } end,
  EinsumDense = function()
    return L.EinsumDense { "abcd,de->abce", { -1, -1, 3 }, name = "layer", lora_rank = 2 }
  end } do
  add(class .. " with low-rank adaptation", function()
    return fill(mgpu.Sequential { L.Input { 3, 3, 4 }, make() }), inputs_for { { 3, 3, 4 } }
  end, true)
end

add("a block of a transformer", function()
  local x = mgpu.Input { 4, 6, name = "x1" }
  local y = L.RMSNormalization { name = "norm" } (x)
  y = L.Add {} { x, L.GroupQueryAttention { 3, 2, 1, name = "attention" } ({ y, y }, { use_causal_mask = true }) }
  local z = L.Dense { 8, activation = "gelu", name = "up", lora_rank = 1 } (L.LayerNormalization {} (y))
  z = L.Add {} { y, L.Dropout { 0.5 } (L.Dense { 6, name = "down" } (z)) }
  return fill(mgpu.Model { inputs = x, outputs = z, name = "model" }), inputs_for { { 4, 6 } }
end, true)

add("images of any size", function()
  local x = mgpu.Input { -1, -1, 2, name = "x1" }
  local y = L.MaxPooling2D { 3, strides = 2, padding = "same" } (L.Conv2D { 3, 3, strides = 2, padding = "same" } (x))
  y = L.UpSampling2D { 2 } (L.Conv2DTranspose { 2, 3, strides = 2, padding = "same" } (y))
  return fill(mgpu.Model { inputs = x, outputs = y, name = "model" }), inputs_for { { 9, 6, 2 } }
end)

add("models/convnext", function()
  return fill(mgpu.models.convnext { depths = { 1, 1, 1, 1 }, projection_dims = { 4, 4, 8, 8 }, classes = 3,
    input_shape = { 32, 32, 3 }, layer_scale_init_value = 0.5 }), inputs_for { { 32, 32, 3 } }
end)

for name, shape in pairs { lenet5 = { 28, 28, 1 }, mlp = { 28, 28, 1 }, mnist_cnn = { 28, 28, 1 } } do
  add("models/" .. name, function() return fill(mgpu.models[name] {}), inputs_for { shape } end)
end
table.sort(cases, function(a, b) return a.name < b.name end)

return cases
