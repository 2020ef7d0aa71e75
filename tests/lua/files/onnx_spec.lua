-- Saving as .onnx: the files are those that onnx.checker and onnxruntime have accepted (golden set onnx), and they say
-- what the models compute.

local cases = require "golden.onnx_cases"
local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local golden = require "golden.load" "onnx"
local mgpu = require "mgpu"
local reader = require "protobuf_reader"

local test = check.test
local L = mgpu.layers

-- ---- reading ------------------------------------------------------------------------------------

-- The graph in a file: nodes {op, inputs, outputs}, constants {name, dims, dtype, bytes}, inputs and outputs {name,
-- dtype, sizes}.
local function read(path)
  local model = reader.fields(check.read(path))
  local opset = reader.fields(model[8][1])
  check.equal({ model[1], model[2], opset[2] }, { { 8 }, { "mgpulua" }, { 17 } })
  local graph = reader.fields(model[7][1])
  local function values(list)
    local found = {}
    for i, bytes in ipairs(list or {}) do
      local value = reader.fields(bytes)
      local tensor = reader.fields(reader.fields(value[2][1])[1][1])
      local sizes = {}
      for k, dim in ipairs(reader.fields(tensor[2][1])[1]) do
        local fields = reader.fields(dim)
        sizes[k] = fields[1] and fields[1][1] or fields[2][1]
      end
      found[i] = { name = value[1][1], dtype = tensor[1][1], sizes = sizes }
    end
    return found
  end
  local nodes, constants = {}, {}
  for i, bytes in ipairs(graph[1] or {}) do
    local node = reader.fields(bytes)
    nodes[i] = { op = node[4][1], inputs = node[1], outputs = node[2], name = node[3][1] }
  end
  for i, bytes in ipairs(graph[5] or {}) do
    local tensor = reader.fields(bytes)
    constants[i] = { name = tensor[8][1], dims = tensor[1] or {}, dtype = tensor[2][1], bytes = tensor[9][1] }
  end
  return { nodes = nodes, constants = constants, inputs = values(graph[11]), outputs = values(graph[12]) }
end

-- The types of the ops, in order.
local function ops_of(graph)
  local list = {}
  for i, node in ipairs(graph.nodes) do list[i] = node.op end
  return list
end

local function saved(model)
  local path = check.path "model.onnx"
  model:save(path)
  return read(path)
end

-- ---- against onnxruntime ------------------------------------------------------------------------

check.equal(#golden.cases, #cases)

for i, case in ipairs(cases) do
  local wanted = golden.cases[i]
  test(case.name .. " is saved as checked, and predicts what onnxruntime computes", function()
    local model, inputs = case.make()
    local path = check.path "case.onnx"
    model:save(path)
    if not case.rounds then check.equal(check.run("sha256sum < '" .. path .. "'"):match "%x+", wanted.sha256) end
    local y = model(#inputs > 1 and inputs or inputs[1])
    y = type(y) == "table" and y or { y }
    local outputs = read(path).outputs
    check.equal({ #y, #outputs }, { #wanted.outputs, #wanted.names })
    for k, t in ipairs(y) do
      check.equal(outputs[k].name, wanted.names[k])
      check.equal(t:shape(), wanted.shapes[k])
      check.near(t:reshape { -1 }:totable(), wanted.outputs[k], 1e-5)
    end
  end)
end

-- ---- the graph ----------------------------------------------------------------------------------

test("images are transposed at the ends of a chain of image layers only", function()
  local graph = saved(mgpu.Sequential { L.Input { 8, 8, 3 }, L.Conv2D { 4, 3, activation = "relu" },
    L.BatchNormalization {}, L.MaxPooling2D { 2 }, L.Dropout { 0.5 }, L.Activation { "gelu" }, L.ZeroPadding2D { 1 },
    L.Conv2D { 4, 3 }, L.Flatten {}, L.Dense { 2, name = "last" } })
  check.equal(ops_of(graph), { "Transpose", "Conv", "Relu", "BatchNormalization", "MaxPool", "Mul", "Erf", "Mul", "Add",
    "Mul", "Pad", "Conv", "Transpose", "Flatten", "Gemm", "Identity" })
  check.equal({ graph.inputs, graph.outputs }, { { { name = "input", dtype = 1, sizes = { "batch", 8, 8, 3 } } },
    { { name = "last", dtype = 1, sizes = { "batch", 2 } } } })
  check.equal(#saved(mgpu.Sequential { L.Input { 8, 8, 3 }, L.Conv2D { 4, 3 }, L.GlobalAveragePooling2D {} }).nodes, 4)
end)

test("weights of a shared layer are stored once; two layers of one name keep their own", function()
  local x = mgpu.Input { 3, name = "x" }
  local inner = mgpu.Sequential { L.Input { 3 }, L.Dense { 3, name = "dense" }, name = "inner" }
  local dense = L.Dense { 3, name = "dense" }
  local model = mgpu.Model { inputs = x, outputs = dense(inner(dense(x))) }
  local graph, names, kernels = saved(model), {}, 0
  for _, constant in ipairs(graph.constants) do
    check.falsy(names[constant.name], constant.name)
    names[constant.name] = true
    if #constant.dims == 2 then kernels = kernels + 1 end
  end
  check.equal({ #graph.constants, kernels }, { 4, 2 })
  check.equal(ops_of(graph), { "Gemm", "Gemm", "Gemm", "Identity" })
end)

test("a file has the dtype of its model; layers of another dtype get casts", function()
  for dtype, code in pairs { float16 = 10, bfloat16 = 1, float64 = 11 } do -- ONNX has few ops for bfloat16
    local model = mgpu.Sequential { L.Input { shape = { 3 }, dtype = dtype }, L.Dense { 2, dtype = dtype } }
    local graph = saved(model)
    check.equal({ graph.inputs[1].dtype, graph.outputs[1].dtype, graph.constants[1].dtype }, { code, code, code })
    check.equal(ops_of(graph), { "Gemm", "Identity" })
    if dtype ~= "float16" then
      check.equal(reader.numbers(graph.constants[1].bytes, dtype == "float64" and 8 or 4),
        model.variables[1]:value():reshape { -1 }:totable())
    end
  end
  local mixed = mgpu.Sequential { L.Input { 3 }, L.Dense { 2, dtype = "mixed_float16" },
    L.BatchNormalization { dtype = "mixed_float16" }, L.Dense { 2, dtype = "float32" } }
  check.equal(ops_of(saved(mixed)),
    { "Cast", "Gemm", "Cast", "BatchNormalization", "Cast", "Cast", "Gemm", "Identity" })
end)

test("a compiled model is saved without what compile made, a loss that is a function included", function()
  local model = fixtures.linear { loss = function(a, b) return (a - b):square():reshape { -1 } end }
  check.equal(ops_of(saved(model)), { "Gemm", "Identity" })
end)

-- ---- what cannot be saved -----------------------------------------------------------------------

-- Asserts that saving the model raises the message and leaves no file.
local function refused(model, message, code)
  local path = check.path "refused.onnx"
  check.raises(function() model:save(path) end, message, code or "usage")
  check.falsy(core.file_exists(path))
end

test("layers that ONNX lacks are refused by name, before anything is written", function()
  refused(mgpu.Sequential { L.Input { 3 }, L.Lambda { function(x) return x end, name = "same" } }, 'Lambda "same"')
  local Own = mgpu.Layer:extend "Own"
  function Own:call(x) return x end -- luacheck: no self
  refused(mgpu.Sequential { L.Input { 3 }, Own { name = "mine" } }, 'Own "mine": ONNX has no op')
  local Dense = mgpu.Layer:extend "Dense" -- of the user, with a name of ours
  function Dense:call(x) return x end -- luacheck: no self
  refused(mgpu.Sequential { L.Input { 3 }, Dense { name = "fake" } }, 'Dense "fake": ONNX has no op')
  refused(mgpu.Sequential { L.Input { 3 }, L.Activation { function(x) return x end, name = "f" } },
    'Activation "f": its activation is a function')
  refused(mgpu.Sequential { L.Input { 3 }, L.Embedding { 4, 2, mask_zero = true, name = "words" } },
    'Embedding "words": mask_zero')
  refused(mgpu.Sequential { L.Input { 2, 2, 1 }, L.UpSampling2D { interpolation = "lanczos3", name = "wide" } },
    'UpSampling2D "wide": interpolation "lanczos3" cannot be saved as .onnx')
  refused(mgpu.Sequential { L.Input { 3, 2 }, L.Masking { name = "masked" } }, 'Masking "masked": ONNX has no op')
  refused(mgpu.Sequential { L.Input { 3, 2 }, L.LSTM { 2, recurrent_activation = "hard_sigmoid", name = "hard" } },
    'LSTM "hard": recurrent_activation = hard_sigmoid has no form')
  local lacked = { ConvLSTM2D = { { filters = 3, kernel_size = 2 }, { 4, 5, 5, 1 } }, MelSpectrogram = { {}, { 4000 } },
    STFTSpectrogram = { {}, { 4000, 1 } } }
  for class, row in pairs(lacked) do
    row[1].name = "it"
    refused(mgpu.Sequential { L.Input(row[2]), L[class](row[1]) }, class .. ' "it": ONNX has no op')
  end
  local image = mgpu.Input { 2, 3, 4 }
  refused(mgpu.Model { inputs = image, outputs = L.MultiHeadAttention { 2, 3, name = "far" } { image, image } },
    'MultiHeadAttention "far": only inputs {batch, steps, features}')
  local cell = L.RNN { L.LSTMCell { 2 } }
  refused(mgpu.Sequential { L.Input { 3, 2 }, L.Bidirectional { cell } }, "ONNX has no op for this class")
  local kept = L.GRU { 2, stateful = true, name = "kept" }
  kept(mgpu.ones { 1, 3, 2 }):sum():item()
  refused(mgpu.Sequential { L.Input { 3, 2 }, kept }, 'GRU "kept": it is stateful')
  local x = mgpu.Input { 3 }
  refused(mgpu.Model { inputs = x, outputs = L.Dropout { 0.5, name = "always" } (x, { training = true }) },
    'Dropout "always": it is used with training = true')
end)

test("ModelCheckpoint refuses a layer that ONNX lacks before the first step", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Lambda { function(x) return x end, name = "same" }, L.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse" }
  local x, y = fixtures.line(4)
  local function fit(m)
    m:fit(x, y, { verbose = 0, callbacks = mgpu.callbacks.ModelCheckpoint { check.path "{epoch}.onnx" } })
  end
  check.raises(function() fit(model) end, 'Lambda "same": ONNX has no op', "usage")
  fit(fixtures.linear { loss = function(a, b) return (a - b):square():reshape { -1 } end })
  check.equal(ops_of(read(check.path "1.onnx")), { "Gemm", "Identity" })
end)

test("a .onnx file is for whole models only", function()
  local model = fixtures.linear()
  check.raises(function() model:save_weights(check.path "w.onnx") end,
    "%.onnx files are not supported here: use one of", "usage")
  check.raises(function() model:load_weights(check.path "w.onnx") end,
    "%.onnx files are not supported here: use one of", "usage")
  check.raises(function() model:save(check.path "w.onnx", { bogus = 1 }) end, "bogus", "usage")
end)

test("a disk that fails leaves the old file", function()
  local model, path = fixtures.linear(), check.path "kept.onnx"
  model:save(path)
  local before = check.read(path)
  for at = 1, 30 do
    core.file_fault { at = at, error = "ENOSPC" }
    local ok, message = pcall(model.save, model, path)
    local hit = core.file_fault()
    check.equal(check.read(path), before)
    if not hit then break end
    check.truthy(ok or message:find "No space left", message)
  end
end)
