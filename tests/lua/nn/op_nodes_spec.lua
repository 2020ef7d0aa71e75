-- Functional models with operations between layers: those of Keras 3 (keras.ops), of tf.keras (TFOpLambda,
-- SlicingOpLambda, TensorFlowOpLayer) and our own. The files are written by tests/golden/make_op_nodes.py.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local keras_models = require "mgpu.nn.keras.models"
local model_config = require "mgpu.nn.model_config"
local objects = require "mgpu.nn.keras.objects"

local L = mgpu.layers
local test = check.test
local FOLDER = "tests/golden/op_nodes/"

local can, problem = pcall(core.h5_read, FOLDER .. "few_3.15.1.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

-- The sums of float32 have other orders in Keras; the largest values are about 30.
local TOLERANCE = 2e-5

local function expected_of(version) return core.store_load(FOLDER .. "expected_" .. version .. ".safetensors") end

local function list_of(expected, what)
  local list = {}
  while expected[what .. "/" .. #list + 1] do list[#list + 1] = expected[what .. "/" .. #list + 1] end
  return list
end

-- The model of a configuration of Keras, with the weights of the script.
local function model_from(text, path, expected, name)
  local at = { path = path, custom = {}, keras2 = path:find "tf2" ~= nil }
  local model = model_config.from_config(keras_models.read(objects.decode(text), at), {}, path)
  local weights = list_of(expected, name .. "/w")
  if #weights > 0 then model:set_weights(weights) end
  return model
end

-- Static shapes hold for every batch, dtypes for every value.
local function check_static(symbol, y, what)
  local static, shape = symbol:shape(), y:shape()
  check.equal(#static, #shape, what)
  for i, size in ipairs(static) do check.truthy(size == -1 or size == shape[i], what .. ": static shape") end
  check.equal(symbol:dtype(), y:dtype(), what)
end

local function check_model(model, expected, name, least)
  local x, wanted = list_of(expected, "x"), list_of(expected, name .. "/y")
  local y = model(x)
  check.truthy(#y <= #wanted and #y >= (least or #wanted))
  for i, t in ipairs(y) do
    local what = ("%s, output %d"):format(name, i)
    check.equal(t:shape(), wanted[i]:shape(), what)
    if t:dtype() == "bool" then t = t:to "int32" end
    local w = wanted[i]:dtype() == "bool" and wanted[i]:to "int32" or wanted[i]
    if t:count() > 0 then check.near(t, w:totable(), TOLERANCE, what) end
    check_static(model.outputs[i], y[i], what)
  end
end

local SETS = { ["3.0.5"] = "3", ["3.4.1"] = "3", ["3.15.1"] = "3", ["tf2.3.4"] = "tf", ["tf2.4.4"] = "tf",
  ["tf2.15.1"] = "tf" }

-- How many outputs a model has at least, where not 10: older versions have the first ones.
local LEAST = { scaled = 3, more = 7, newer = 16 }

for version, set in pairs(SETS) do
  test(("operations in models of %s compute what they do there"):format(version), function()
    local expected, path = expected_of(set), FOLDER .. "models_" .. version .. ".zip"
    local archive = core.zip_read(path)
    for _, entry in ipairs(archive:names()) do
      local name = entry:match "^(%w+)%.json$"
      check_model(model_from(archive:read(entry), version, expected, name), expected, name, LEAST[name] or 10)
    end
    archive:close()
  end)
end

for _, file in ipairs { "few_3.0.5.keras", "few_3.15.1.keras", "few_3.4.1.h5", "few_3.15.1.h5",
  "few_tf2.3.4.h5", "few_tf2.15.1.h5" } do
  test(file .. " predicts the same, before and after we save it", function()
    local expected = expected_of(file:find "tf" and "tf" or "3")
    local model = mgpu.load_model(FOLDER .. file)
    check_model(model, expected, "few")
    for _, ending in ipairs { ".safetensors", ".keras", ".h5" } do
      local path = check.path("again" .. ending)
      model:save(path)
      check_model(mgpu.load_model(path), expected, "few")
    end
    local copy = mgpu.clone_model(model)
    copy:set_weights(model:get_weights())
    check_model(copy, expected, "few")
  end)
end

-- ---- refused and damaged ------------------------------------------------------------------------

-- The configuration of a model with one operation on x {4, 6}: its class, options, arguments and named arguments.
local function one(class, config, args, kwargs)
  config.name = "node"
  local x = { class_name = "__keras_tensor__", config = { shape = { core.null, 4, 6 }, dtype = "float32",
    keras_history = { "x", 0, 0 } } }
  for i, value in ipairs(args) do if value == "x" then args[i] = x end end
  return core.json_encode { class_name = "Functional", config = { name = "m", layers = {
    { class_name = "InputLayer", name = "x", inbound_nodes = core.empty_array,
      config = { name = "x", batch_shape = { core.null, 4, 6 }, dtype = "float32" } },
    { class_name = class, module = "keras.src.ops.numpy", name = "node", config = config,
      inbound_nodes = { { args = args, kwargs = kwargs or {} } } } },
    input_layers = { { "x", 0, 0 } }, output_layers = { { "node", 0, 0 } } } }
end

local deep = { 1 }
for _ = 1, 30 do deep = { deep } end

for what, case in pairs {
  ["an unknown operation"] = { one("Digamma", {}, { "x" }), "the op keras.ops.Digamma is not supported (layer node)",
    "unsupported" },
  ["an unknown option"] = { one("Mean", { axes = 1 }, { "x" }), 'Mean "node": the option axes = 1 is not supported',
    "unsupported" },
  ["an axis that is no number"] = { one("Mean", { axis = "a" }, { "x" }), "axis of Mean must be an axis" },
  ["an axis out of range"] = { one("Mean", { axis = 7 }, { "x" }), "is out of range" },
  ["a missing argument"] = { one("Reshape", {}, { "x" }), "Reshape lacks the argument newshape" },
  ["no input"] = { one("Add", {}, { 1, 2 }), "has no inputs" },
  ["an argument given twice"] = { one("Add", {}, { "x", 2 }, { x2 = 3 }), "x2 is given twice" },
  ["too many arguments"] = { one("Negative", {}, { "x", 2 }), "it is called with 2 arguments", "unsupported" },
  ["a list of other kinds"] = { one("Add", {}, { "x", { "a" } }), "element 1 is a string, not a number" },
  ["an argument that is too deep"] = { one("Add", {}, { "x", deep }), "too deep" },
  ["an object as an argument"] = { one("Add", {}, { "x", { class_name = "Dense", config = {} } }),
    "an argument of class Dense is not supported", "unsupported" },
  ["a constant of texts"] = { one("Add", {}, { "x", { class_name = "__numpy__", config = { value = "a",
    dtype = "object" } } }), "a constant of dtype object is not supported", "unsupported" },
  ["a huge tile"] = { one("Tile", { repeats = { 1, 1e9, 1e9 } }, { "x" }), "elements" },
  ["a huge pad"] = { one("Pad", { pad_width = { { 0, 0 }, { 0, 1e10 }, { 0, 0 } } }, { "x" }), "elements" },
  ["a huge mirrored pad"] = { one("Pad", { pad_width = 1e10, mode = "symmetric" }, { "x" }), "pad" },
  ["a huge number of classes"] = { one("OneHot", { num_classes = 1e12 }, { "x" }), "elements" },
  ["a huge shape"] = { one("BroadcastTo", { shape = { 1e6, 1e6, 1e6 } }, { "x" }), "elements" },
  ["many parts"] = { one("Split", { indices_or_sections = 1e9, axis = 1 }, { "x" }), "more than 4096" },
  ["a shape of other elements"] = { one("Reshape", { newshape = { -1, -1 } }, { "x" }), "cannot become" },
  ["an index out of range"] = { one("GetItem", {}, { "x", { 0, 9 } }), "index 9 is out of range" },
  ["an index of too many axes"] = { one("GetItem", {}, { "x", { 0, 0, 0, 0 } }), "an index of 4 entries for 3 axes" },
  ["a slice with step 0"] = { one("GetItem", {}, { "x", { { class_name = "__slice__", config = { step = 0 } } } }),
    "key of GetItem must be" },
  ["a wrong dtype"] = { one("Cast", { dtype = "int4" }, { "x" }), "dtype of Cast must be a dtype that mgpu has" },
  ["a wrong flag"] = { one("Mean", { keepdims = 3 }, { "x" }), "keepdims of Mean must be true or false" },
} do
  test("an error: " .. what, function()
    check.raises(function() model_from(case[1], "file.keras", {}, "m") end, case[2], case[3] or "data")
  end)
end

-- The configuration of a model of tf.keras: images x and other {4, 6, 2}, and a function of x with named arguments.
-- sizes: whether "first" is a node for the first size of the other image, to which arguments may refer.
local function tf_one(name, arguments, sizes)
  local function input(each)
    return { class_name = "InputLayer", name = each, inbound_nodes = core.empty_array,
      config = { name = each, batch_input_shape = { core.null, 4, 6, 2 }, dtype = "float32" } }
  end
  local function node(each, class, fn, place)
    return { class_name = class, name = each, config = { name = each, ["function"] = fn },
      inbound_nodes = { { place } } }
  end
  local list = { input "x", input "other", node("node", "TFOpLambda", name, { "x", 0, 0, arguments }) }
  if sizes then
    list[4] = node("shape", "TFOpLambda", "compat.v1.shape", { "other", 0, 0, {} })
    list[5] = node("first", "SlicingOpLambda", "__operators__.getitem", { "shape", 0, 0, { slice_spec = 0 } })
  end
  return core.json_encode { class_name = "Functional", config = { name = "m", layers = list,
    input_layers = { { "x", 0, 0 }, { "other", 0, 0 } }, output_layers = { { "node", 0, 0 } } } }
end

local FIRST = { "first", 0, 0 }

for what, case in pairs {
  ["-1 beside the size of another tensor"] = { tf_one("reshape", { shape = { FIRST, -1 } }, true),
    "a shape with computed sizes and -1 is not supported" },
  ["resizing to a computed size"] = { tf_one("image.resize", { size = { FIRST, 4 } }, true), "a computed size" },
  ["a slice from a computed position"] = { tf_one("slice", { begin = { 0, FIRST, 0, 0 }, size = { -1, 1, 1, 1 } },
    true), "a computed slice" },
  ["a slice with too few sizes"] = { tf_one("slice", { begin = { 0, 0 }, size = { -1 } }), "a computed slice" },
  ["a bias of the second axis"] = { tf_one("nn.bias_add", { bias = { 1, 2, 3, 4 }, data_format = "NCHW" }),
    "a bias of NCHW is not supported" },
  ["a descending order"] = { tf_one("argsort", { axis = 1, direction = "DESCENDING" }), "a descending order" },
} do
  test("a function of tf.keras that is not translated: " .. what, function()
    check.raises(function() model_from(case[1], "tf2.h5", {}, "m") end, case[2], "unsupported")
  end)
end

-- ---- our own ------------------------------------------------------------------------------------

test("a model with operations trains, on 1 and on 3 devices alike", function()
  local function trained(devices)
    mgpu.seed(4)
    local x, y = mgpu.Input { 4, 6, name = "x" }, mgpu.Input { 6, name = "y" }
    local h = L.Dense { 5, activation = "tanh" } (x):mean(2) * 2 - 0.5
    local table_of = { tensor = { { 1, 2, 3, 4, 5 }, { 0, 1, 0, 1, 0 } }, dtype = "float32" }
    local g = L.Operation { "Einsum", { operands = { { input = 1 }, table_of }, subscripts = "bi,ji->bj" } } (h)
    local model = mgpu.Model { inputs = { x, y }, outputs = L.Dense { 1 } (g / (1 + y:square():sum(2, true))) }
    model:compile { optimizer = "sgd", loss = "mse", devices = devices }
    local data = { mgpu.arange(144):reshape { 6, 4, 6 }:sin(), mgpu.arange(36):reshape { 6, 6 }:cos() }
    model:fit(data, mgpu.arange(6):reshape { 6, 1 }, { batch_size = 6, epochs = 2, verbose = 0 })
    return model:predict(data, { verbose = 0 }):totable()
  end
  local one_device = trained { "cpu:0" }
  check.near(trained { "cpu:0", "cpu:1", "cpu:2" }, one_device, 1e-5) -- sums of float32 in another order
end)

test("the layers that keras.applications has for itself are saved as Keras has them", function()
  local x = mgpu.Input { 4 }
  local model = mgpu.Model { inputs = x, outputs = L.CustomScaleLayer { 0.5 } { x, L.LayerScale { 0.25, 4 } (x) } }
  local path = check.path "scaled.keras"
  model:save(path)
  check.near(mgpu.load_model(path)(mgpu.tensor { { 8, 16, 0, 1 } }), { { 9, 18, 0, 1.125 } }, 0)
  local text = core.zip_read(path):read "config.json"
  check.truthy(text:find("keras.src.applications.convnext", 1, true))
  check.truthy(text:find("keras.src.applications.inception_resnet_v2", 1, true))
  check.raises(function() L.LayerScale { 0.1, 3, name = "s" } (x) end, 'LayerScale "s": the input has 4 channels, the '
    .. "layer is for 3", "usage")
  check.raises(function() L.CustomScaleLayer { 0.1 } { x, x, x } end, "takes 2 inputs, got 3", "usage")
end)

test("methods of symbolic tensors compute what those of tensors do", function()
  local x, y = mgpu.Input { 4, 6 }, mgpu.Input { 4, 6 }
  local a, b = mgpu.arange(48):reshape { 2, 4, 6 }:sin(), mgpu.arange(48):reshape { 2, 4, 6 }:cos()
  for what, fn in pairs {
    mean = function(s) return s:mean(2) end,
    keepdims = function(s) return s:sum { axis = { 2, 3 }, keepdims = true } end,
    reshape = function(s) return s:reshape { -1, 3, 8 } end, transpose = function(s) return s:transpose { 1, 3, 2 } end,
    slice = function(s) return s:slice { {}, { 2, -1, 2 }, -1 } end, one = function(s) return s:slice { {}, 2 } end,
    inner = function(s) return s:slice { {}, { 2, -2 } } end, gather = function(s) return s:argmax(2) end,
    clip = function(s) return s:clip(-0.5, 0.5) end, softmax = function(s) return s:softmax(2) end,
    maximum = function(s, t) return s:maximum(t) end,
    matmul = function(s, t) return s:matmul(t:transpose { 1, 3, 2 }) end,
    where = function(s, t) return s:gt(0):where(s, t) end, number = function(s) return s:pow(2):minimum(0.5) end,
    cast = function(s) return (s * 3):to "int32" end, top = function(s) return s:top_k(2) end,
    flip = function(s) return s:flip(2):cumsum(3) end, dims = function(s) return s:expand_dims(2):squeeze(2) end,
    repeats = function(s) return s:tile { 1, 2, 1 }:repeat_elements(2, 3) end,
  } do
    local out = fn(x, y)
    local model = mgpu.Model { inputs = { x, y }, outputs = type(out) == "table" and out[1] or out }
    check.near(model { a, b }, (fn(a, b)):totable(), 0, what)
  end
end)

test("models with the layers that held arithmetic before are loaded", function()
  local config = { class_name = "Model", config = { name = "old", layers = {
    { class_name = "Input", config = { name = "x", shape = { 3 } } },
    { class_name = "Arithmetic", config = { name = "a", operator = "sub", number = 1, reversed = true } },
    { class_name = "Arithmetic", config = { name = "b", operator = "div" } },
    { class_name = "Arithmetic", config = { name = "c", operator = "neg" } } },
    uses = { { layer = 2, inputs = { { 0, 1 } } }, { layer = 3, inputs = { { 1, 1 }, { 0, 1 } }, listed = true },
      { layer = 4, inputs = { { 2, 1 } } } },
    inputs = { { layer = 1, shape = { 3 } } }, outputs = { { 3, 1 } } } }
  local model = model_config.from_config(config)
  check.near(model(mgpu.tensor { { 1, 2, 4 } }), { { 0, 0.5, 0.75 } }, 1e-7)
end)

test("masks end at operations, as in Keras 3", function() -- the numbers are those of Keras 3.15.1
  local i = mgpu.Input { 3, dtype = "int32" }
  local embedding = L.Embedding { 4, 2, mask_zero = true }
  local h = embedding(i)
  local model = mgpu.Model { inputs = i,
    outputs = { L.GlobalAveragePooling1D {} (h * 2), L.GlobalAveragePooling1D {} (h) } }
  embedding:set_weights { mgpu.tensor { { 5, 5 }, { 1, 2 }, { 3, 4 }, { 7, 7 } } }
  local y = model(mgpu.tensor({ { 1, 2, 0 } }, { dtype = "int32" }))
  check.near(y[1], { { 6, 22 / 3 } }, 1e-6) -- one rounding of float32
  check.near(y[2], { { 2, 3 } }, 1e-6)
end)

-- ---- values at the edges ------------------------------------------------------------------------

-- The model of one operation, called with tensors.
local function operation(op, arguments, ...)
  local symbols, list = {}, { ... }
  for i, t in ipairs(list) do
    local size = t:shape()
    table.remove(size, 1)
    size.dtype = t:dtype()
    symbols[i] = mgpu.Input(size)
  end
  local y = L.Operation { op, arguments } (#list == 1 and symbols[1] or symbols)
  return mgpu.Model { inputs = symbols, outputs = y } (#list == 1 and list[1] or list)
end

local X, INF = { input = 1 }, math.huge

test("normalizations of halves are computed in float32, as in Keras", function()
  local function half(list) return mgpu.tensor({ list }, { dtype = "float16" }) end
  local large = half { 300, 400, -300 }
  -- two roundings to float16 (2^-11) of numbers about 1
  check.near(operation("RMSNorm", { x = X }, large):to "float32", { { 0.8911, 1.1882, -0.8911 } }, 1e-3)
  check.near(operation("LayerNorm", { x = X }, large):to "float32", { { 0.5392, 0.8627, -1.4018 } }, 1e-3)
  check.near(operation("Normalize", { x = X }, half { 0, 0 }):to "float32", { { 0, 0 } }, 0)
  check.near(operation("Normalize", { x = X }, half { 300, 400 }):to "float32", { { 0.6, 0.8 } }, 1e-3)
  local moments = operation("Moments", { x = X, axes = { 1 } }, half { 600, -600 })
  check.near(moments[1]:to "float32", { 0 }, 0)
  check.near(moments[2]:to "float32", { 65504 }, 0) -- float16's largest number
  check.equal(moments[2]:dtype(), "float16")
end)

test("weights of a layer_normalization lie along its axes", function()
  local x = mgpu.tensor { { { 1, 2 }, { 3, 5 } } }
  -- epsilon is 1e-7
  check.near(operation("LayerNorm", { x = X, gamma = { 1, 10 }, axis = 1 }, x), { { { -1, -1 }, { 10, 10 } } }, 1e-5)
  check.near(operation("LayerNorm", { x = X, gamma = { 1, 10 } }, x), { { { -1, 10 }, { -1, 10 } } }, 1e-5)
end)

test("large, small and infinite numbers have the values of NumPy", function()
  for _, case in ipairs {
    { "Arcsinh", { 1e30, 1e-6, -3, 0, -INF, 1 }, { 69.77069, 1e-6, -1.8184465, 0, -INF, 0.8813736 } },
    { "Arccosh", { 1e30, 1, 1.0625, 2, INF }, { 69.77069, 0, 0.3517374, 1.3169579, INF } },
  } do
    check.near(operation(case[1], { x = X }, mgpu.tensor { case[2] }), { case[3] }, 1e-5, case[1])
  end
  local a, b = mgpu.tensor { { -INF, 1, INF, 1 } }, mgpu.tensor { { -INF, 1, INF, INF } }
  local two = { x1 = X, x2 = { input = 2 } }
  check.near(operation("Logaddexp", two, a, b), { { -INF, 1.6931472, INF, INF } }, 1e-6)
  check.equal(operation("Isclose", two, a, b):totable(), { { true, true, true, false } })
  check.equal(operation("Isclose", { x1 = X, x2 = 1 }, a):totable(), { { false, true, false, true } })
  check.near(operation("Norm", { x = X, ord = "inf", axis = 1 }, mgpu.tensor { { -4, 2 } }), { 4 }, 0)
end)

test("keras.ops.image.resize does what the layer Resizing does, to images of both formats", function()
  local x = mgpu.rand { 2, 7, 6, 3 }
  for _, options in ipairs { { interpolation = "lanczos3" }, { interpolation = "lanczos5", antialias = true },
    { crop_to_aspect_ratio = true }, { pad_to_aspect_ratio = true, fill_value = 3 } } do
    local arguments, layer = { images = X, size = { 3, 9 } }, { 3, 9 }
    for key, value in pairs(options) do arguments[key], layer[key] = value, value end
    local wanted = L.Resizing(layer) (x)
    check.equal(operation("Resize", arguments, x):totable(), wanted:totable())
    arguments.data_format = "channels_first"
    local y = operation("Resize", arguments, x:transpose { 1, 4, 2, 3 })
    check.equal(y:transpose { 1, 3, 4, 2 }:totable(), wanted:totable())
  end
  local resize = require "mgpu.nn.operations.images".Resize[2]
  check.equal(resize(x[1], { 3, 9 }, "bilinear", false, true):totable(),
    L.Resizing { 3, 9, crop_to_aspect_ratio = true } (x[1]):totable())
end)

test("gray images of one channel are gray already, and other numbers of channels are refused", function()
  local x = mgpu.rand { 2, 2, 2, 1 }
  check.equal(operation("RGBToGrayscale", { images = X }, x):totable(), x:totable())
  check.raises(function() operation("RGBToGrayscale", { images = X }, mgpu.rand { 1, 2, 2, 2 }) end,
    "rgb_to_grayscale: images need 1 or 3 channels, got 2", "usage")
end)

test("infinite numbers and tensors in operations are saved and loaded", function()
  local x = mgpu.Input { 2 }
  local model = mgpu.Model { inputs = x, outputs = x:clip(-1, INF):maximum(-INF):maximum(mgpu.tensor { 1, -2 }) }
  local value = mgpu.tensor { { -4, -4 } }
  check.near(model(value), { { 1, -1 } }, 0)
  for _, ending in ipairs { ".safetensors", ".keras", ".h5" } do
    model:save(check.path("infinite" .. ending))
    check.near(mgpu.load_model(check.path("infinite" .. ending))(value), { { 1, -1 } }, 0)
  end
end)

test("unknown sizes are as large as an index, a window or a number of parts needs", function()
  local t, image = mgpu.Input { -1, 4 }, mgpu.Input { -1, -1, 3 }
  check.equal(t:slice { {}, 51 }:shape(), { -1, 4 })
  check.equal(#L.Operation { "Split", { x = X, indices_or_sections = 8, axis = 1 } } (t), 8)
  check.raises(function() return L.Operation { "Unstack", { x = X, axis = 1 } } (t) end,
    "the number of outputs depends on a size that is not known", "usage")
  check.equal(L.Operation { "TopK", { x = X, k = 30 } } (t:transpose { 1, 3, 2 })[1]:shape(), { -1, 4, 30 })
  check.equal(L.Operation { "MaxPool", { inputs = X, pool_size = 30 } } (image):shape(), { -1, -1, -1, 3 })
end)

test("arguments that do not fit are named", function()
  local x = mgpu.ones { 2, 3, 4 }
  for _, case in ipairs {
    { "Pad", { x = X, pad_width = { { 0, 0 }, { 1, 1 } } }, "pad: 2 pairs of widths for 3 axes" },
    { "GetItem", { x = X, key = { 0, { slice = {} }, { tensor = { 0, 1 }, dtype = "int32" } } },
      "an index by a tensor and a number with slices between them" },
    { "Average", { x = X, weights = { 1, 2 }, axis = { 0, 1 } }, "average: weights of one axis for several axes" },
    { "Rot90", { array = X, axes = 1 }, "rot90: axes must be two axes" },
    { "Tensordot", { x1 = X, x2 = { 1, 2 }, axes = "a" }, "tensordot: axes must be" },
    { "Add", { x1 = X, x2 = { { 1, 2 }, { 3 } } }, "the argument x2 of Add: tensor: the nested tables are ragged" },
  } do
    check.raises(function() operation(case[1], case[2], x) end, case[3])
  end
end)
