-- Model files that are damaged, hostile, or of another program: refused before memory is taken, with a message.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test
local L = mgpu.layers

local function network()
  return mgpu.Sequential { name = "net", L.Input { 4 }, L.Dense { 3, name = "hidden" }, L.Dense { 2, name = "out" } }
end

-- Saves a network, lets `change(tensors, notes, config)` alter what is in the file, and writes that to `path`.
local function altered(change)
  local path = check.path "altered.safetensors"
  network():save(path)
  local tensors, notes = core.store_load(path)
  local config = core.json_decode(notes.config)
  change(tensors, notes, config)
  if type(notes.config) == "string" and notes.config:sub(1, 1) == "{" then notes.config = core.json_encode(config) end
  core.store_save(path, tensors, notes)
  return path
end

local function refused(change, expected)
  local path = altered(change)
  local message = check.raises(function() mgpu.load_model(path) end, expected, "data")
  check.matches(message, "altered%.safetensors")
  check.matches(message, "hostile_models_spec.lua:%d+: ")
end

test("the weights of the configuration must be in the file before memory is taken for them", function()
  local before = mgpu.memory("cpu:0").used
  refused(function(_, _, config) config.config.layers[1].config.units = 40000000 end,
    'the file is too small for the model in it: it has no room for the weight "hidden/kernel" of shape {4, 40000000}')
  refused(function(_, _, config)
    config.config.layers[1].config.kernel_initializer = "orthogonal"
    config.config.input_shape[1] = 100000
  end, "no room for the weight")
  check.truthy(mgpu.memory("cpu:0").peak - before < 1e6, "no memory for the weights")
end)

test("a model that is loaded is not initialised", function()
  local path = altered(function(_, _, config)
    config.config.layers[1].config.kernel_initializer = { class_name = "no_such_rule", config = {} }
  end)
  check.raises(function() mgpu.load_model(path) end, "initializer", "data")
  network():save(path)
  local state = core.json_encode(core.rng_state())
  local model = mgpu.load_model(path)
  check.equal(core.json_encode(core.rng_state()), state)
  check.equal(#model:get_weights(), 4)
end)

test("tensors that are missing, too many, misshaped or of another kind are refused", function()
  refused(function(tensors) tensors["hidden/kernel"] = nil end, "no room for the weight")
  refused(function(tensors) tensors.stray = mgpu.ones { 100 } end, "the file has the weights stray")
  refused(function(tensors) tensors["hidden/kernel"] = mgpu.ones { 3, 4 } end,
    'the weight "hidden/kernel" has shape {3, 4}')
  refused(function(tensors) tensors["hidden/kernel"] = mgpu.ones({ 4, 3 }, { dtype = "int32" }) end,
    'the weight "hidden/kernel" is int32 in the file, the model needs float32')
  refused(function(tensors) tensors["optimizer/iterations"] = mgpu.ones {} end,
    'the model has no place for the tensor "optimizer/iterations"')
  refused(function(tensors, notes)
    tensors["out/bias"], tensors.bias = nil, tensors["out/bias"]
    notes.weights = '["hidden/bias", "hidden/kernel", "bias", "out/kernel"]'
  end, "the file lacks the weights out/bias")
end)

test("float16 weights of another program can be loaded", function()
  local path = altered(function(tensors) tensors["hidden/bias"] = mgpu.ones({ 3 }, { dtype = "float16" }) end)
  check.equal(mgpu.load_model(path):get_layer "hidden".bias, { 1, 1, 1 })
end)

test("damaged metadata and configurations are errors in the data that name the file", function()
  refused(function(_, notes) notes.format = "mgpulua 999" end, 'the format is "mgpulua 999"')
  refused(function(_, notes) notes.config = "[1, 2" end, 'the metadata "config" is damaged')
  refused(function(_, notes) notes.config = "3" end, 'the metadata "config" is damaged')
  refused(function(_, notes) notes.weights = "{" end, 'the metadata "weights" is damaged')
  refused(function(_, _, config) config.config.layers = 7 end, "it has no layers")
  refused(function(_, _, config) config.config.layers[1].config.units = -3 end, "the configuration is damaged: Dense")
  refused(function(_, _, config) config.config.layers[1].config.unit = 3 end, 'unknown option "unit"')
  refused(function(_, _, config) config.config.layers[1].class_name = "Sequential" end, "it has no layers")
  refused(function(_, _, config) config.config.dtype = "float9" end, "float9")
  refused(function(_, _, config) config.class_name = "Modell" end, 'a model cannot be a "Modell"')
  refused(function(_, _, config)
    for i = 1, 10001 do config.config.layers[i] = { class_name = "Flatten", config = { name = "f" .. i } } end
  end, "it has more than 10000 layers")
  refused(function(_, _, config) config.config.input_shape = { "a" } end, "the configuration is damaged")
end)

test("a damaged configuration of a functional model says what is damaged, not where Lua failed", function()
  local x = mgpu.Input { 6, 6, 2 }
  local conv = mgpu.layers.Conv2D { 2, 3, padding = "same" }
  local model = mgpu.Model { inputs = x, outputs = conv(conv(x)) }
  local function read(change)
    local entry = { class_name = "Model", config = model:get_config() }
    entry = core.json_decode(core.json_encode(entry))
    return pcall(require "mgpu.nn.model_config".from_config, change(entry), {}, "m.json")
  end
  for what, change in pairs {
    ["it has no layers"] = function() return 7 end,
    ["an input is not described"] = function(e) e.config.inputs[1] = 7 return e end,
    ["a use of a layer is not described"] = function(e) e.config.uses[2] = 7 return e end,
    ["takes one tensor, got an array of 1"] = function(e) e.config.uses[#e.config.uses].listed = true return e end,
  } do
    local ok, message = read(change)
    check.equal(ok, false)
    check.matches(message, "m.json: the configuration is damaged: .*" .. what)
    check.equal(core.error_code(), "data")
  end
end)

test("a damaged training state is an error in the data that names the file", function()
  local path = check.path "compiled.safetensors"
  local function refused_state(change, expected)
    local model = network()
    model:compile { optimizer = "adam", loss = "mse" }
    model:fit(mgpu.rand { 4, 4 }, mgpu.rand { 4, 2 }, { verbose = 0 })
    model:save(path)
    local tensors, notes = core.store_load(path)
    local config = core.json_decode(notes.config)
    change(tensors, config.compiled)
    notes.config = core.json_encode(config)
    core.store_save(path, tensors, notes)
    check.matches(check.raises(function() mgpu.load_model(path) end, expected, "data"), "compiled%.safetensors")
    mgpu.load_model(path, { compile = false })
  end
  refused_state(function(tensors) tensors["optimizer/iterations"] = nil end, "optimizer/iterations")
  refused_state(function(tensors) tensors["optimizer/99/momentum"] = mgpu.ones { 1 } end, "optimizer/99/momentum")
  refused_state(function(tensors) tensors["optimizer/iterations"] = mgpu.ones { 2 } end, "optimizer/iterations")
  refused_state(function(_, compiled) compiled.optimizer.config.learning_rate = "fast" end, "learning_rate")
  refused_state(function(_, compiled) compiled.optimizer.class_name = "Odam" end, "Odam")
  refused_state(function(_, compiled) compiled.optimizer = 3 end, "damaged")
  refused_state(function(_, compiled) compiled.outputs[1].loss.config.reduction = {} end, "reduction")
end)

test("a custom class must be a class of layers", function()
  local path = check.path "custom.safetensors"
  network():save(path)
  check.raises(function() mgpu.load_model(path, { custom = { Dense = { new = function() end } } }) end,
    "custom.Dense must be a class made by mgpu.Layer:extend, got a table", "usage")
  check.raises(function() mgpu.load_model(path, { custom = { Dense = mgpu.optimizers.Adam } }) end,
    "custom.Dense is not a class of layers")
end)

test("weights that are not finite are loaded with a warning that names them", function()
  local path = altered(function(tensors)
    tensors["out/bias"] = mgpu.tensor { 1, 0 / 0 }
    tensors["hidden/bias"] = mgpu.tensor { 1, 2, 1 / 0 }
  end)
  local said, output = {}, mgpu.output
  mgpu.output = function(text) said[#said + 1] = text end
  local ok, message = pcall(mgpu.load_model, path)
  mgpu.output = output
  check.truthy(ok, message)
  check.equal(#said, 1)
  check.matches(said[1], 'altered.safetensors: warning: NaN or infinite numbers in "hidden/bias", "out/bias"\n')
end)

test("numbers that are not finite are found with every instruction set", function()
  local path, tensors = check.path "numbers.safetensors", {}
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    tensors[dtype] = mgpu.tensor({ 1, 2, 65504, 3, 4 }, { dtype = dtype })
    tensors[dtype .. "_inf"] = mgpu.tensor({ 1, 2, 3, 4, -1 / 0 }, { dtype = dtype })
    tensors[dtype .. "_nan"] = mgpu.tensor({ 0 / 0, 2, 3 }, { dtype = dtype })
  end
  core.store_save(path, tensors)
  local script = check.path "numbers.lua"
  check.write(script, [[
    local _, bad = require "mgpu.core".store_open(arg[1]):read()
    local names = {}
    for name in pairs(bad) do names[#names + 1] = bad[name] == true and name or bad[name] end
    table.sort(names)
    print(table.concat(names, " "))]])
  for _, isa in ipairs { "", "MGPU_ISA=baseline " } do
    local out = check.run(("%s%s %s %s 2>&1"):format(isa, check.program, script, path))
    check.equal(out, "bfloat16_inf bfloat16_nan float16_inf float16_nan float32_inf float32_nan float64_inf "
      .. "float64_nan\n")
  end
end)

test("a flipped bit anywhere in a model file is found", function()
  local path = check.path "flipped.safetensors"
  network():save(path)
  local bytes, seed = check.read(path), 1
  for _ = 1, 300 do
    seed = (seed * 16807) % 2147483647
    local at, mask = seed % #bytes + 1, 2 ^ (seed % 8)
    local flipped = string.char(bit.bxor(bytes:byte(at), mask))
    check.write(path, bytes:sub(1, at - 1) .. flipped .. bytes:sub(at + 1))
    local ok = pcall(mgpu.load_model, path)
    if ok or core.error_code() ~= "data" and core.error_code() ~= "unsupported" then
      check.fail(("byte %d, mask %d: %s"):format(at, mask, ok and "loaded" or core.error_code()))
    end
  end
end)

test("equal models give equal files", function()
  local files = {}
  for i = 1, 2 do
    mgpu.seed(3)
    local path = check.path("equal" .. i .. ".safetensors")
    network():save(path)
    files[i] = check.read(path)
  end
  check.truthy(files[1] == files[2], "equal files")
end)
