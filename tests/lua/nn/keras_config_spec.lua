-- Keras's configurations and what is done with files: JSON, clones, own classes, loading by name, and what is refused.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test
local L = mgpu.layers

local can, problem = pcall(core.h5_read, "tests/golden/keras/mlp_3.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

local function dense_entry(options)
  local config = { name = "d", units = 2 }
  for key, value in pairs(options or {}) do config[key] = value end
  return { class_name = "Dense", config = config }
end

-- The text of a Sequential with an input of 3 numbers and these layers.
local function text_of(...)
  local layers = { { class_name = "InputLayer", config = { batch_shape = { core.null, 3 }, dtype = "float32" } }, ... }
  return core.json_encode { class_name = "Sequential", config = { name = "m", layers = layers } }
end

local function refused(text, expected, code)
  check.raises(function() mgpu.model_from_json(text) end, expected, code)
end

test("a constraint whose axis is not an axis is refused for what it says", function()
  for _, axis in ipairs { "x", true } do
    local constraint = { class_name = "MaxNorm", config = { max_value = 2, axis = axis } }
    local text = text_of({ class_name = "Dense", config = { units = 2, kernel_constraint = constraint } })
    local message = check.raises(function() mgpu.model_from_json(text) end, "axis")
    check.falsy(message:find("bad argument", 1, true), message)
  end
end)

-- ---- the order of layers ------------------------------------------------------------------------

-- A model whose shortcut was made before the other branch, though it is as near to the output as that one's end.
local function with_shortcut()
  local x, late = mgpu.Input { 4, name = "in" }, mgpu.Input { 4, name = "late" }
  local shortcut = L.Dense { 4, name = "shortcut" } (x)
  local branch = L.Dense { 4, name = "second" } (L.Dense { 4, name = "first" } (x))
  local sum = L.Add { name = "sum" } { branch, shortcut }
  return mgpu.Model { inputs = { x, late }, outputs = L.Concatenate { name = "cat" } { sum, late } }
end

local function names_of(model)
  local names = {}
  for i, layer in ipairs(model.layers) do names[i] = layer.name end
  return table.concat(names, " ")
end

test("layers are in Keras's order, which a model from JSON or a clone keeps", function()
  local model = with_shortcut()
  check.equal(names_of(model), "in first second shortcut sum late cat") -- as Keras 3.15 prints them
  check.equal(names_of(mgpu.model_from_json(model:to_json())), names_of(model))
  check.equal(names_of(mgpu.clone_model(model)), names_of(model))
end)

test("each weight of a model inside a model returns to its place from an .h5 file", function()
  local a, b = mgpu.Input { 4 }, mgpu.Input { 4 }
  local model = mgpu.Model { inputs = { a, b }, outputs = with_shortcut() { a, b } }
  local path = check.path "nested.h5"
  model:save(path)
  local x = { mgpu.rand { 3, 4 }, mgpu.rand { 3, 4 } }
  check.equal(mgpu.load_model(path):predict(x, { verbose = 0 }), model:predict(x, { verbose = 0 }):totable())
end)

-- ---- JSON ---------------------------------------------------------------------------------------

local function two_branches()
  local a, b = mgpu.Input { 4, name = "a" }, mgpu.Input { 4, name = "b" }
  local shared = L.Dense { 4, name = "shared", activation = "tanh", kernel_constraint = "non_neg" }
  local inner = mgpu.Sequential { L.Input { 4 }, L.Dense { 2, name = "in" }, name = "inner" }
  local y = L.Add { name = "sum" } { inner(shared(a)), inner(L.Dropout { 0.5, name = "drop" } (shared(b), true)) }
  return mgpu.Model { inputs = { a, b }, outputs = { y, inner(b) }, name = "branches" }
end

test("a model from its own JSON has the same JSON, names and shapes", function()
  local model = two_branches()
  local again = mgpu.model_from_json(model:to_json())
  check.equal(again:to_json(), model:to_json())
  check.equal(again.output_names, model.output_names)
  check.equal(again:count_params(), model:count_params())
  again:set_weights(model:get_weights())
  local x = { mgpu.ones { 1, 4 }, mgpu.ones { 1, 4 } }
  check.equal(again(x)[2], model(x)[2]:totable())
end)

test("every layer of ours survives the way to Keras's form and back", function()
  local model = mgpu.load_model "tests/golden/keras/every_layer_3.keras"
  check.equal(mgpu.model_from_json(model:to_json()):to_json(), model:to_json())
end)

test("an unbuilt Sequential and a stated dtype survive", function()
  local model = mgpu.Sequential { L.Dense { 2, dtype = "float64" }, L.Dense { 3, name = "last" } }
  local again = mgpu.model_from_json(model:to_json())
  check.falsy(again.built, "built")
  check.equal(again.layers[1].compute_dtype, "float64")
  check.equal(again.layers[2].compute_dtype, "float32")
end)

test("the forms of Keras 1 and 2 are read", function()
  local first = { class_name = "Dense", config = { name = "d", units = 2, batch_input_shape = { core.null, 3 },
    kernel_regularizer = { class_name = "L1L2", config = { l1 = 0, l2 = 0.5 } }, dtype = { class_name = "Policy",
      config = { name = "float32" } }, activation = "relu" } }
  local model = mgpu.model_from_json(core.json_encode { class_name = "Sequential", keras_version = "2.2.4",
    config = { first } })
  check.equal(model.layers[1].kernel:shape(), { 3, 2 })
  check.equal(model.layers[1].kernel_regularizer.l2, 0.5)
end)

test("tuples, bytes and arrays of Python in options are what they hold", function()
  local function layer(class, config)
    config.name = "l"
    return mgpu.model_from_json(text_of { class_name = class, config = config }).layers[1]
  end
  local bytes = layer("StringLookup", { vocabulary = { { class_name = "__bytes__", value = "a" },
    { class_name = "__bytes__", value = "b" } } })
  check.equal(bytes({ { "b", "x" } }):totable(), { { 2, 0 } })
  local array = { class_name = "__numpy__", config = { value = { 0, 10 }, dtype = "float64" } }
  check.equal(layer("Discretization", { bin_boundaries = array }).bin_boundaries, { 0, 10 })
  local tuple = { class_name = "__tuple__", items = { 3, 1 } }
  check.equal(layer("Reshape", { target_shape = tuple }).target_shape, { 3, 1 })
end)

test("classes and options that we do not have are refused by name", function()
  refused(text_of { class_name = "CuDNNLSTM", config = { name = "l", units = 2 } },
    'unknown layer class "CuDNNLSTM"', "data")
  refused(text_of { class_name = "Lambda", config = { name = "l" } }, "Python code cannot be run", "unsupported")
  refused(text_of(dense_entry { fancy = 4 }), 'Dense "d": the option fancy = 4 is not supported', "unsupported")
  refused(text_of(dense_entry { activation = "maxout" }), 'the activation "maxout" is not known', "unsupported")
  refused(text_of(dense_entry { kernel_initializer = "sttf" }), 'the initializer "sttf" cannot be used', "unsupported")
  refused(text_of(dense_entry { kernel_regularizer = { class_name = "Mine", config = {} } }), '"Mine" cannot be used',
    "unsupported")
  refused(text_of(dense_entry { kernel_constraint = "Radial" }), 'constraint "Radial" cannot be used', "unsupported")
  local quantized = { class_name = "QuantizedDTypePolicy", config = { name = "int8_from_float32" } }
  check.equal(mgpu.model_from_json(text_of(dense_entry { dtype = quantized })).layers[1].quantization.bits, 8)
  for mode, why in pairs { ["float8"] = "8-bit floats", ["gptq/4/128"] = "GPTQ", ["awq/4/128"] = "AWQ" } do
    quantized.config = { mode = mode, source_name = "float32" }
    refused(text_of(dense_entry { dtype = quantized }), why .. ", is not supported", "unsupported")
  end
  quantized.config = { mode = "int4/x", source_name = "float32" }
  refused(text_of(dense_entry { dtype = quantized }), 'policy "int4/x_from_float32" is not known', "unsupported")
  refused(text_of(dense_entry { units = -1 }), '"units" must be at least 1', "data")
end)

test("hard_sigmoid of Keras 1 and 2 keeps its formula, under a name of its own", function()
  local function model_of(version)
    return mgpu.model_from_json(core.json_encode { class_name = "Sequential", keras_version = version, config = {
      layers = { { class_name = "InputLayer", config = { batch_shape = { core.null, 3 } } },
        { class_name = "Activation", config = { name = "a", activation = "hard_sigmoid" } } } } })
  end
  local x, old, new = mgpu.tensor { { -2.75, 0.5, 1 } }, model_of "2.3.1", model_of "3.4.1"
  check.near(old(x), { { 0, 0.6, 0.7 } }, 1e-6)
  check.near(new(x), { { 0.25 / 6, 0.5 + 0.5 / 6, 0.5 + 1 / 6 } }, 1e-6)
  local path = check.path "hard_sigmoid"
  for _, ending in ipairs { ".h5", ".keras", ".safetensors" } do
    old:save(path .. ending)
    check.near(mgpu.load_model(path .. ending)(x), { { 0, 0.6, 0.7 } }, 1e-6)
  end
  -- Keras asks for a function of this name: Keras 3 for one in this form, Keras 2 for the name
  check.matches(old:to_json(), '"class_name":"function","config":"hard_sigmoid_keras2"')
  refused(text_of { class_name = "Dense", config = { units = 2, activation = "hard_sigmoid_2" } }, "is not known",
    "unsupported")
end)

test("initializers, policies and options of old and new versions are read", function()
  local normal = { class_name = "VarianceScaling", config = { scale = 2, mode = "fan_in", distribution = "normal" } }
  local model = mgpu.model_from_json(text_of(dense_entry { kernel_initializer = normal, dtype = { class_name =
    "DTypePolicy", config = { name = core.null } } }))
  check.equal(model.layers[1].kernel_initializer.distribution, "truncated_normal")
  check.equal(model.layers[1].compute_dtype, "float32")
  normal.config.distribution = "uniform"
  model = mgpu.model_from_json(text_of(dense_entry { kernel_initializer = normal, dtype = { class_name =
    "DTypePolicyMap", config = { default_policy = "mixed_bfloat16", policy_map = {} } } }))
  check.equal(model.layers[1].kernel_initializer.distribution, "uniform")
  check.equal(model.layers[1].compute_dtype, "bfloat16")
  local map = { default_policy = core.null, policy_map = { dense = "int8_from_float32" } }
  refused(text_of(dense_entry { dtype = { class_name = "DTypePolicyMap", config = map } }),
    "gives inner layers policies of their own, which is not supported", "unsupported")
  refused(text_of(dense_entry { dtype = { class_name = "DTypePolicy", config = 5 } }), "no configuration", "data")
  local turn = { class_name = "RandomRotation", config = { name = "r", factor = 0.1, value_range = { 0, 255 } } }
  local images = { class_name = "InputLayer", config = { batch_shape = { core.null, 4, 4, 1 } } }
  model = mgpu.model_from_json(core.json_encode { class_name = "Sequential", config = { layers = { images, turn } } })
  check.equal(model.layers[1].factor, 0.1)
end)

-- ---- Keras 1 --------------------------------------------------------------------------------------

-- The text of Keras 1's Sequential of these layers.
local function keras1(...)
  return core.json_encode { class_name = "Sequential", config = { ... } }
end

local function old_layer(class, options)
  local config = { name = "l", batch_input_shape = { core.null, 6, 6, 2 }, input_dtype = "float32" }
  for key, value in pairs(options) do config[key] = value end
  return { class_name = class, config = config }
end

test("names of Keras 1 are translated, also without a keras_version", function()
  local model = mgpu.model_from_json(keras1(old_layer("Convolution2D", { nb_filter = 4, nb_row = 3, nb_col = 2,
    border_mode = "same", subsample = { 2, 1 }, dim_ordering = "tf", bias = false, init = "he_normal",
    W_regularizer = { name = "L1L2Regularizer", l1 = 0, l2 = 0.5 },
    W_constraint = { name = "MaxNorm", m = 2, axis = 0 } }),
    { class_name = "ZeroPadding2D", config = { name = "z", padding = { top_pad = 1, left_pad = 2 } } },
    { class_name = "ZeroPadding2D", config = { name = "y", padding = { 1, 0, 2, 0 } } },
    { class_name = "BatchNormalization", config = { name = "b", mode = 0, axis = -1, gamma_init = "one" } },
    { class_name = "Activation", config = { name = "a", activation = "hard_sigmoid" } }))
  local conv, padded = model.layers[1], model.layers[2]
  check.equal({ conv.filters, conv.kernel_size, conv.strides, conv.padding, conv.use_bias, conv.data_format },
    { 4, { 3, 2 }, { 2, 1 }, "same", false, "channels_last" })
  check.equal({ conv.kernel_regularizer.l2, conv.kernel_constraint:get_config().config.max_value }, { 0.5, 2 })
  check.equal({ padded.padding, model.layers[3].padding }, { { { 1, 0 }, { 2, 0 } }, { { 1, 0 }, { 2, 0 } } })
  check.equal(model.layers[5].activation, "hard_sigmoid_keras2")
end)

test("a Sequential of Keras 1 that joins models becomes a functional model of their layers", function()
  local function dense(name, options)
    local config = { name = name, output_dim = 3, bias = true, init = "one" }
    for key, value in pairs(options or {}) do config[key] = value end
    return { class_name = "Dense", config = config }
  end
  local first = { batch_input_shape = { core.null, 2 }, input_dtype = "float32" }
  local function sequential(...) return { class_name = "Sequential", config = { ... } } end
  local input = { class_name = "InputLayer", config = { name = "x", batch_input_shape = { core.null, 2 } } }
  local model = mgpu.model_from_json(keras1({ class_name = "Merge", config = { name = "m", mode = "sum",
    mode_type = "raw", layers = { sequential(input, dense "a"),
      sequential(sequential(dense("b", first)), dense "c") } } }, dense "d"))
  check.equal(#model.inputs, 2)
  -- the kernels are 1: 3 times (2 + 3 * 2)
  check.near(model { mgpu.ones { 1, 2 }, mgpu.ones { 1, 2 } }, { { 24, 24, 24 } }, 1e-5)
  local custom = mgpu.Layer:extend("Convolution2D", { { "nb_filter", "integer" }, { "border_mode", "string" } })
  function custom:call(x) return x * self.nb_filter end
  local mine = mgpu.model_from_json(keras1({ class_name = "Convolution2D", config = { name = "mine", nb_filter = 4,
    border_mode = "same", batch_input_shape = { core.null, 2 } } }), { custom = { Convolution2D = custom } })
  check.near(mine(mgpu.ones { 1, 2 }), { { 4, 4 } }, 0)
end)

test("the output_shape of Keras 1's Deconvolution2D becomes an output_padding, or is refused", function()
  local function layer(border_mode, stride, kernel, size)
    return mgpu.model_from_json(keras1(old_layer("Deconvolution2D", { nb_filter = 1, nb_row = kernel, nb_col = kernel,
      border_mode = border_mode, subsample = { stride, stride }, dim_ordering = "tf",
      output_shape = { core.null, size, size, 1 } })))
  end
  for _, case in ipairs { { "same", 2, 3, 12 }, { "same", 2, 3, 11 }, { "valid", 2, 3, 13 }, { "valid", 2, 3, 14 },
    { "valid", 3, 2, 18 }, { "valid", 3, 2, 17 } } do
    check.equal(layer(unpack(case))(mgpu.zeros { 1, 6, 6, 2 }):shape(), { 1, case[4], case[4], 1 })
  end
  refused(keras1(old_layer("Deconvolution2D", { nb_filter = 1, nb_row = 1, nb_col = 1, border_mode = "same",
    subsample = { 4, 4 }, dim_ordering = "tf", output_shape = { core.null, 21, 24, 1 } })), "no output_padding",
    "unsupported")
end)

test("what Keras 2 does not read of Keras 1 is refused by name", function()
  local merge = { name = "m", mode = "cos", mode_type = "raw", layers = { { class_name = "Sequential", config =
    { old_layer("Flatten", {}) } }, { class_name = "Sequential", config = { old_layer("Flatten", { name = "k" }) } } } }
  local function merged(options)
    local config = {}
    for key, value in pairs(merge) do config[key] = value end
    for key, value in pairs(options) do config[key] = value end
    return { class_name = "Merge", config = config }
  end
  refused(keras1(merged {}), 'Merge "m": the mode cos is not supported', "unsupported")
  refused(keras1(merged { mode = "sum", mode_type = "lambda" }), 'Merge "m": the mode lambda', "unsupported")
  refused(keras1(merged { mode = "sum", layers = { old_layer("Flatten", {}), { class_name = "Model", config = {} } } }),
    "only Sequential models can be merged", "unsupported")
  refused(keras1(merged { mode = "sum", layers = { { class_name = "Sequential", config = {} } } }), "damaged", "data")
  refused(keras1({ class_name = "Sequential", config = { merged { mode = "sum" } } }), "cannot be inside another model",
    "unsupported")
  local without = { class_name = "Sequential", config = { { class_name = "Dense" } } }
  refused(keras1(merged { mode = "sum", layers = { without } }), "a layer has no config", "data")
  refused(keras1(old_layer("BatchNormalization", { mode = 1 })), "mode = 1 of Keras 1 is not supported", "unsupported")
  refused(keras1(old_layer("MaxoutDense", { output_dim = 2 })), 'unknown layer class "MaxoutDense"', "data")
  refused(keras1(old_layer("Highway", {})), 'unknown layer class "Highway"', "data")
  refused(keras1 { class_name = "Merge", config = merged({ mode = "sum", layers = core.empty_array }).config },
    "damaged", "data")
end)

test("what is not a configuration is an error", function()
  refused("{", "json", "data")
  refused("[]", "configuration is damaged", "data")
  refused("{}", "no class_name or config", "data")
  refused('{"class_name": "Sequential"}', "has no layers", "data")
  refused('{"class_name": "Functional", "config": {"layers": []}}', "no inputs", "data")
  check.raises(function() mgpu.model_from_json(7) end, "keras_config_spec.lua:%d+: model_from_json: expected text",
    "usage")
  check.raises(function() mgpu.model_from_json("{}", { custm = {} }) end, 'unknown option "custm"', "usage")
end)

-- A generator of numbers below n, the same in every run.
local function numbers(seed)
  return function(n)
    seed = (seed * 16807) % 2147483647
    return seed % n
  end
end

-- The values of a JSON tree as places {table, key, path}.
local function places_of(value, list, path)
  for key, item in pairs(value) do
    local place = { value, key, path .. "/" .. tostring(key) }
    list[#list + 1] = place
    if type(item) == "table" then places_of(item, list, place[3]) end
  end
  return list
end

-- Wrong values; new ones at each call, because tables among them may be damaged in turn.
local function junk()
  return { -1, 0, 3, 1e300, "", "x", true, false, core.null, core.empty_array, { "a", 0, 0 }, { -1, core.null }, {} }
end

test("a damaged configuration makes a model or an error, whatever is wrong with it", function()
  local below = numbers(3)
  local texts = { two_branches():to_json(), mgpu.load_model "tests/golden/keras/mnist_cnn_3.keras":to_json() }
  for round = 1, 400 do
    local tree = core.json_decode(texts[1 + round % 2])
    for _ = 1, 1 + below(2) do
      local places, wrong = places_of(tree, {}, ""), junk()
      table.sort(places, function(a, b) return a[3] < b[3] end)
      local place = places[1 + below(#places)]
      place[1][place[2]] = wrong[1 + below(#wrong)]
    end
    local encoded, text = pcall(core.json_encode, tree)
    local ok, message = pcall(mgpu.model_from_json, encoded and text or "")
    if not ok then
      check.equal(type(message), "string")
      local code = core.error_code()
      check.truthy(code == "data" or code == "unsupported" or code == "oom", code .. ": " .. message)
    end
  end
end)

-- ---- own classes and clones ---------------------------------------------------------------------

local Scale = mgpu.Layer:extend("Scale", { factor = 2, inner = "integer" })
function Scale:init() self.dense, self.more = L.Dense { self.inner }, { L.Dense { self.inner, use_bias = false } } end
function Scale:call(t) return self.more[1](self.dense(t)) * self.factor end

local function with_scale() return mgpu.Sequential { L.Input { 3 }, Scale { factor = 3, inner = 4 }, L.Dense { 2 } } end

test("own layers are written, and read with custom", function()
  local x = mgpu.rand { 2, 3 }
  core.eval(x)
  for _, ending in ipairs { ".h5", ".keras" } do
    local model, path = with_scale(), check.path("scale" .. ending)
    model:save(path)
    check.raises(function() mgpu.load_model(path) end, 'unknown layer class "Scale"', "data")
    local again = mgpu.load_model(path, { custom = { Scale = Scale } })
    check.equal(again(x), model(x):totable())
  end
  check.equal(mgpu.model_from_json(with_scale():to_json(), { custom = { Scale = Scale } }).layers[1].factor, 3)
end)

test("a clone has the layers, other weights and no connection with the model", function()
  local model, x = with_scale(), mgpu.ones { 1, 3 }
  model.layers[2].trainable = false
  local clone = mgpu.clone_model(model)
  check.equal(clone.layers[1].factor, 3)
  check.equal(clone.layers[2].name, model.layers[2].name)
  check.falsy(clone.layers[2].trainable, "trainable")
  local before = model(x):totable()
  clone:set_weights(model:get_weights())
  check.equal(clone(x), before)
  clone.layers[2].kernel:assign(clone.layers[2].kernel * 2)
  check.equal(model(x), before)
  check.equal(mgpu.clone_model(two_branches()):to_json(), two_branches():to_json())
end)

test("what cannot be cloned is an error", function()
  check.raises(function() mgpu.clone_model(L.Dense { 1 }) end, "clone_model: expected a model, got Dense", "usage")
  check.raises(function() mgpu.clone_model() end, "expected a model, got a nil", "usage")
  local Other = mgpu.Layer:extend("Scale", {})
  function Other:call(t) return t end -- luacheck: no self
  local model = mgpu.Sequential { L.Input { 3 }, Scale { inner = 2 }, Other {} }
  check.raises(function() mgpu.clone_model(model) end, 'two classes of layers are called "Scale"', "usage")
end)

-- ---- weights of .h5 files -----------------------------------------------------------------------

local function network(units, names)
  names = names or { "one", "two" }
  return mgpu.Sequential { L.Input { 3 }, L.Dense { 4, name = names[1] }, L.Dense { units or 2, name = names[2] } }
end

test("weights are loaded by order, by name, and without those of other shapes", function()
  for _, ending in ipairs { ".h5", ".weights.h5" } do
    local source, path = network(), check.path("w" .. ending)
    source:save_weights(path)
    local other = network(2, { "three", "four" })
    other:load_weights(path)
    check.equal(other.layers[2].kernel:value(), source.layers[2].kernel:totable())
    local wide = network(5)
    local before = wide.layers[2].kernel:totable()
    check.raises(function() wide:load_weights(path) end,
      'two/kernel" has shape {4, 2} in the file, the model needs {4, 5}', "data")
    wide:load_weights(path, { skip_mismatch = true })
    check.equal(wide.layers[1].kernel:value(), source.layers[1].kernel:totable())
    check.equal(wide.layers[2].kernel:value(), before)
    local part = network(7, { "one", "other" })
    before = part.layers[2].kernel:totable()
    part:load_weights(path, { by_name = true })
    check.equal(part.layers[1].kernel:value(), source.layers[1].kernel:totable())
    check.equal(part.layers[2].kernel:value(), before)
    local longer = mgpu.Sequential { L.Input { 3 }, L.Dense { 3 }, L.Dense { 4, name = "one" },
      L.Dense { 2, name = "two" } }
    check.raises(function() longer:load_weights(path) end, "the file has weights of 2 layers, the model of 3", "data")
    longer:load_weights(path, { by_name = true })
    check.equal(longer.layers[3].bias:value(), source.layers[2].bias:totable())
  end
end)

test("names that need more than 64 KiB are cut into several attributes", function()
  local parts = { L.Input { 1 } }
  local name = "a_layer_with_a_name_of_sixty_characters_as_some_people_have_%05d"
  for i = 1, 1100 do parts[i + 1] = L.ReLU { name = name:format(i) } end
  parts[#parts + 1] = L.Dense { 1, name = "last" }
  local model, path = mgpu.Sequential(parts), check.path "long.h5"
  model:save_weights(path)
  local cut = 0
  for _, entry in ipairs(core.h5_read(path)) do
    if entry.path == "" and entry.attribute and entry.attribute:find "^layer_names%d$" then cut = cut + 1 end
  end
  check.equal(cut, 2)
  local kernel = model.layers[1101].kernel:totable()
  model.layers[1101].kernel:assign(mgpu.tensor { { 7 } })
  model:load_weights(path)
  check.equal(model.layers[1101].kernel:value(), kernel)
end)

test("a file without a model is an error that says so", function()
  local path = check.path "other.h5"
  network():save_weights(path)
  check.raises(function() mgpu.load_model(path) end, "the file holds weights only", "data")
  core.h5_write(path, { { path = "" }, { path = "numbers", tensor = mgpu.ones { 2 } } })
  check.raises(function() network():load_weights(path) end, "other.h5: the file has weights of 0 layers", "data")
  check.raises(function() network():save(check.path "a.weights.h5") end,
    ".weights.h5 files are not supported here: use one of ", "usage")
  check.write(path, "nothing")
  check.raises(function() mgpu.load_model(path) end, "other.h5: it is not an HDF5 file", "data")
  core.zip_write(check.path "other.keras", { { name = "a", bytes = "b" } })
  check.raises(function() mgpu.load_model(check.path "other.keras") end, 'no "config.json"', "data")
end)

test("a configuration that wants more weights than the file has is refused before memory is taken", function()
  local path, huge = check.path "huge.h5", network()
  huge:save(path)
  local list = core.h5_read(path)
  for _, entry in ipairs(list) do
    if entry.attribute == "model_config" then entry.text = entry.text:gsub('"units":4', '"units":400000000') end
  end
  core.h5_write(path, list)
  check.raises(function() mgpu.load_model(path) end, "the file is too small for the model in it", "data")
end)

test("a loss scale and its optimizer are continued, and bfloat16 weights are stored", function()
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2, dtype = "mixed_float16" }, L.Dense { 1 } }
  local adam = mgpu.optimizers.Adam { 0.01 }
  model:compile { optimizer = mgpu.optimizers.LossScaleOptimizer { adam, initial_scale = 8 }, loss = "mse" }
  model:train_on_batch(mgpu.ones { 2, 3 }, mgpu.ones { 2, 1 })
  local narrow = mgpu.Sequential { L.Input { 3 }, L.Dense { 2, dtype = "bfloat16" } }
  for _, ending in ipairs { ".h5", ".keras" } do
    local path = check.path("scaled" .. ending)
    model:save(path)
    local again = mgpu.load_model(path)
    check.equal(again.optimizer.class, "LossScaleOptimizer")
    check.equal(again.optimizer:steps_taken(), 1)
    check.equal(again.optimizer.step_counter:item(), 1)
    local a, b = model.optimizer:variables(), again.optimizer:variables()
    for i, v in ipairs(a) do check.near(b[i]:value(), v:totable(), 1e-9) end
    narrow:save(path)
    check.equal(mgpu.load_model(path).layers[1].kernel:value(), narrow.layers[1].kernel:totable())
  end
end)

test("a loss or metric that we do not have is refused by name, and compile = false goes around it", function()
  local path, model = check.path "loss.h5", network()
  model:compile { optimizer = "adam", loss = "mse", metrics = { "mae" } }
  model:save(path)
  local list = core.h5_read(path)
  for _, entry in ipairs(list) do
    if entry.attribute == "training_config" then entry.text = entry.text:gsub("MeanSquaredError", "CubicError") end
  end
  core.h5_write(path, list)
  check.raises(function() mgpu.load_model(path) end, 'the loss "CubicError" is not known', "unsupported")
  check.falsy(mgpu.load_model(path, { compile = false }).compiled, "compiled")
end)
