-- Reading .onnx files: models of PyTorch, TensorFlow and scikit-learn, ONNX's own tests of single ops, and our files
-- predict what they did where they come from.

local cases = require "golden.onnx_cases"
local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"
local onnx_files = require "onnx_files"
local onnx_nodes = require "onnx_nodes"

local test = check.test
local L = mgpu.layers

local MODELS = "tests/golden/onnx_models/"
local SUMS = 2e-6 -- sums of a few hundred products of float32, in another order
local names = {}
for _, program in ipairs { "attention", "encoder", "images", "mlp", "movement", "recurrent", "resnet", "sequences",
  "keras_attention", "keras_causal", "keras_convolutions", "keras_recurrent", "keras_two" } do
  for _, exporter in ipairs { "old", "new" } do names[#names + 1] = program .. "_" .. exporter end
end
for _, name in ipairs { "boosted_two", "forest", "linear", "logistic", "logistic_two", "mlp_regressor", "mlp_two",
  "normalized", "ridge", "scaled", "tree" } do
  names[#names + 1] = "sklearn_" .. name
end

-- The inputs of a model and what it is to predict.
local function data_of(name)
  local data, xs, ys = mgpu.load(MODELS .. name:gsub("_old$", ""):gsub("_new$", "") .. ".npz"), {}, {}
  for i = 0, 9 do xs[i + 1], ys[i + 1] = data["x" .. i], data["y" .. i] end
  return #xs > 1 and xs or xs[1], ys
end

local function listed(y) return type(y) == "table" and y or { y } end

local function numbers(t) return t:to "float64":flatten():totable() end

-- Labels of scikit-learn may have one axis less than ONNX's.
local function check_outputs(y, ys, tolerance)
  check.equal(#listed(y), #ys)
  for i, t in ipairs(listed(y)) do
    check.equal(t:count(), ys[i]:count())
    check.near(numbers(t), numbers(ys[i]), tolerance)
  end
end

for _, name in ipairs(names) do
  test(name .. " predicts what its program computed, also from the files that we write", function()
    local model, x, ys = mgpu.load_model(MODELS .. name .. ".onnx"), data_of(name)
    local tolerance = name:find "sklearn" and 2e-5 or SUMS -- scikit-learn computes in float64
    check_outputs(model(x), ys, tolerance)
    check_outputs(model:predict(x), ys, tolerance)
    local before = listed(model(x))
    for _, ending in ipairs { "onnx", "safetensors", "keras" } do
      local path = check.path("again." .. ending)
      model:save(path)
      local again = mgpu.load_model(path)
      check.equal({ again.input_names, again.output_names }, { model.input_names, model.output_names })
      -- another order of the nodes may choose other kernels
      for i, t in ipairs(listed(again(x))) do check.near(numbers(t), numbers(before[i]), SUMS) end
    end
  end)
end

test("a model has the inputs, outputs and weights of the file", function()
  local model = mgpu.load_model(MODELS .. "resnet_old.onnx")
  check.equal({ model.input_names, model.inputs[1]:shape() }, { { "x" }, { -1, 3, -1, -1 } })
  check.equal(model.outputs[1]:shape(), { -1, 5 })
  check.equal(model.layers[2]:ops(), { Add = 2, Conv = 6, Flatten = 1, Gemm = 1, GlobalAveragePool = 1, MaxPool = 1,
    Relu = 5 })
  local weights = {}
  for _, v in ipairs(model.variables) do weights[v.name:match "/(.*)$"] = table.concat(v:shape(), " ") end
  check.equal(weights["out.weight"], "5 6")
  check.equal(weights["blocks.1.short.weight"], "1 1 4 6") -- {rows, columns, channels, filters}
end)

-- ---- ONNX's own tests ---------------------------------------------------------------------------

test("ONNX's tests of single ops pass", function()
  local n = 0
  onnx_nodes.each("tests/golden/onnx_nodes", check.path "node.onnx", function(name, how, why)
    n = n + 1
    if how ~= "passes" then check.fail(("%s %s: %s"):format(name, how, why or "")) end
  end)
  check.equal(n, 286)
end)

test("the manual lists all ops that are read", function()
  local ops, page = require "mgpu.nn.onnx.ops", check.read "lua/manual/saving.md"
  for _, domain in ipairs { "", "ai.onnx.ml" } do
    for _, name in ipairs(ops.names(domain)) do check.truthy(page:find("`" .. name .. "`", 1, true), name) end
  end
end)

-- ---- our own files ------------------------------------------------------------------------------

for i, case in ipairs(cases) do
  test(case.name .. " predicts from the .onnx file what it did", function()
    if i % 4 ~= 0 then check.slow() end
    local model, inputs = case.make()
    local path, x = check.path "case.onnx", #inputs > 1 and inputs or inputs[1]
    model:save(path)
    local again = mgpu.load_model(path)
    check.equal(again.input_names, model.order and model.input_names or { "input" })
    local y, t = listed(model(x)), listed(again(x))
    for k in ipairs(y) do
      check.equal(t[k]:shape(), y[k]:shape())
      local scale = math.max(1, y[k]:to "float64":abs():max():item())
      local tolerance = y[k]:dtype():find "16" and 2e-2 or 1e-5 -- halves compute parts in float32 there
      check.near(numbers(t[k]), numbers(y[k]), tolerance * scale)
    end
  end)
end

-- ---- training -----------------------------------------------------------------------------------

test("weights are frozen unless they are asked to be trainable", function()
  local path = MODELS .. "mlp_old.onnx"
  local frozen, free = mgpu.load_model(path), mgpu.load_model(path, { trainable = true })
  check.equal({ #frozen.trainable_variables, #free.trainable_variables, #free.variables }, { 0, 6, 6 })
  local x, y = mgpu.rand { 32, 6 }, mgpu.tensor { { 1, 0, 0 } }:tile { 32, 1 }
  free:compile { optimizer = mgpu.optimizers.Adam { 0.05 }, loss = "mse" }
  local h = free:fit(x, y, { epochs = 20, verbose = 0 })
  check.truthy(h.history.loss[20] < h.history.loss[1] / 4)
  free:save(check.path "tuned.onnx")
  check.near(numbers(mgpu.load_model(check.path "tuned.onnx")(x)), numbers(free(x)), 1e-6)
end)

test("the statistics of batch normalization are not trained", function()
  local source = mgpu.Sequential { L.Input { 4, 4, 2 }, L.Conv2D { 3, 3 }, L.BatchNormalization {}, L.Flatten {} }
  source:save(check.path "norm.onnx")
  local model = mgpu.load_model(check.path "norm.onnx", { trainable = true })
  check.equal({ #model.variables, #model.trainable_variables }, { 6, 4 })
end)

test("a weight that is not finite is named, a mask with infinities is not trained", function()
  local path = onnx_files.write(check.path "odd.onnx", function(g)
    local x = g:add_input("x", { -1, 2 }, "float32").plain
    local masked = g:op("Add", { x, g:tensor("mask", mgpu.tensor { 0, -math.huge }) })
    local y = g:op("MatMul", { g:op("Relu", { masked }), g:tensor("kernel", mgpu.tensor { { 1, 0 / 0 }, { 1, 1 } }) })
    g:add_output("y", g.value(y, { -1, 2 }, "float32"))
  end)
  check.write(check.path "script.lua", ("local mgpu = require 'mgpu'\n"
    .. "local m = mgpu.load_model(%q, { trainable = true })\n"
    .. "print(#m.variables, #m.trainable_variables)"):format(path))
  local out = check.run(check.program .. " " .. check.path "script.lua" .. " 2>&1")
  check.matches(out, 'odd.onnx: warning: NaN or infinite numbers in "kernel"\n')
  check.matches(out, "2\t1\n")
end)

test("trainable = false freezes a model of any file", function()
  fixtures.linear():save(check.path "m.safetensors")
  check.equal(#mgpu.load_model(check.path "m.safetensors", { trainable = false }).trainable_variables, 0)
end)

-- ---- sizes --------------------------------------------------------------------------------------

test("a model exported for one batch size refuses others, and tells how to predict", function()
  local path = onnx_files.write(check.path "fixed.onnx", function(g)
    local x = g:add_input("x", { 2, 3 }, "float32")
    g:add_output("y", g.value(g:op("Relu", { x.plain }), { 2, 3 }, "float32"))
  end)
  local model = mgpu.load_model(path)
  check.equal(model:predict(mgpu.ones { 6, 3 }, { batch_size = 2 }):shape(), { 6, 3 })
  check.raises(function() model:predict(mgpu.ones { 6, 3 }) end,
    "a batch of 6 was given, the model was exported for batches of 2: use {batch_size = 2}", "usage")
  check.raises(function() model(mgpu.ones { 3, 3 }) end, "a batch of 3 was given", "usage")
end)

test("outputs without rows of the batch are not joined, also if their number would fit", function()
  for columns, batch in pairs { [3] = 32, [4] = 2 } do
    local path = onnx_files.write(check.path "turned.onnx", function(g)
      local x = g:add_input("x", { -1, columns }, "float32").plain
      g:add_output("y", g.value(g:op("Transpose", { x }, { perm = { 1, 0 } }), { columns, -1 }, "float32"))
    end)
    local model, x = mgpu.load_model(path), mgpu.ones { 40, columns }
    check.equal(model:predict(x, { batch_size = 40 }):shape(), { columns, 40 })
    check.raises(function() model:predict(x, { batch_size = batch }) end, ("predict: output 1 has %d rows for a batch "
      .. "of %d, so the outputs of several batches cannot be joined: give a batch_size for all rows, or call model(x)")
      :format(columns, batch), "usage")
  end
end)

test("a graph for one size that its file does not tell says which sizes were tried", function()
  local x, constant = onnx_files.message { 1, "x", 2, onnx_files.message { 1, onnx_files.message { 1, 1, 2,
    onnx_files.message { 1, onnx_files.message { 2, "n" } } } } }, onnx_files.message { 1, 7, 2, 1, 8, "w",
    9, ("\0"):rep(28) }
  local path = onnx_files.write_graph(check.path "seven.onnx", { 1, onnx_files.message { 1, "x", 1, "w", 2, "y",
    3, "n", 4, "Add" }, 5, constant, 11, x, 12, onnx_files.message { 1, "y" } })
  local text = check.raises(function() mgpu.load_model(path) end, 'seven.onnx: OnnxGraph "', "data")
  check.matches(text, 'node "n" %(Add, opset 17%): add: .*; unknown sizes were tried as 24, 224, 8, 1, since the file '
    .. 'does not declare the shapes of its outputs')
end)

test("ids that are fractions are refused, whole numbers of any dtype are ids", function()
  local model = mgpu.load_model(MODELS .. "encoder_new.onnx")
  local ids = mgpu.tensor({ { 3, 0, 7 } }, { dtype = "int64" })
  check.equal(numbers(model(ids:to "float32")), numbers(model(ids)))
  check.raises(function() model(mgpu.tensor { { 3, 0.5, 7 } }) end,
    'the input "x" has fractions, the graph takes int64', "data")
end)

test("shapes that a graph computes are known when a jitted function is traced", function()
  local path = onnx_files.write(check.path "shape.onnx", function(g)
    local x = g:add_input("x", { -1, 4, 6 }, "float32").plain
    local size = g:op("Gather", { g:op("Shape", { x }), g:integers { 0 } }, { axis = 0 })
    local shape = g:op("Concat", { size, g:integers { -1 } }, { axis = 0 })
    g:add_output("y", g.value(g:op("Reshape", { x, shape }), { -1, 24 }, "float32"))
  end)
  local model = mgpu.load_model(path)
  local f = mgpu.jit(function(x) return model(x) end)
  check.equal(f(mgpu.ones { 3, 4, 6 }):shape(), { 3, 24 })
  check.equal(f(mgpu.ones { 5, 4, 6 }):shape(), { 5, 24 })
end)

-- The file of one op over x {-1, 2} of float32, behind a Cast to `dtype`, with further inputs that add(g) makes.
local function op_file(op, attributes, dtype, add)
  return onnx_files.write(check.path(op .. ".onnx"), function(g)
    local x = g:add_input("x", { -1, 2 }, "float32")
    local y = g:op(op, { g:plain(g:cast(x, dtype)), add(g) }, attributes)
    g:add_output("y", g.value(y, { -1, 2 }, dtype))
  end)
end

test("an exclusive sum does not have its own element, however large that is", function()
  local function axis(g) return g:number(1, "int64") end
  local before = mgpu.load_model(op_file("CumSum", { exclusive = 1 }, "float32", axis))
  check.equal(before(mgpu.tensor { { math.huge, 2 } }):totable(), { { 0, math.huge } })
  local behind = mgpu.load_model(op_file("CumSum", { exclusive = 1, reverse = 1 }, "float32", axis))
  check.equal(behind(mgpu.tensor { { 1e30, 2 } }):totable(), { { 2, 0 } })
end)

test("sizes and places of Resize are those of scales in float32", function()
  local function resized(scale, columns, attributes)
    local path = onnx_files.write(check.path "resize.onnx", function(g)
      local x = g:add_input("x", { -1, 1, 1, columns }, "float32").plain
      local y = g:op("Resize", { x, "", g:tensor("s", mgpu.tensor { 1, 1, 1, scale }) }, attributes)
      g:add_output("y", g.value(y, { -1, 1, 1, -1 }, "float32"))
    end)
    local row = {}
    for i = 1, columns do row[i] = i - 1 end
    return mgpu.load_model(path)(mgpu.tensor { { { row } } }):flatten():totable()
  end
  -- 12 * 7 / 12 is below 7 with the scale's error: onnxruntime and TensorFlow have 7 columns
  check.equal(#resized(7 / 12, 12, { mode = "linear", coordinate_transformation_mode = "half_pixel" }), 7)
  check.equal(#resized(7 / 12, 12, { mode = "nearest", coordinate_transformation_mode = "asymmetric" }), 7)
  -- 6.5 / 1.3 - 0.5 is 4.5, which becomes 4, and above it in float64, which would become 5; as onnxruntime
  check.equal(resized(1.3, 6, { mode = "nearest", coordinate_transformation_mode = "half_pixel" }),
    { 0, 1, 1, 2, 3, 4, 4 })
end)

test("powers of integers by fractions are rounded towards zero", function()
  local model = mgpu.load_model(op_file("Pow", nil, "int32", function(g) return g:number(0.5, "float32") end))
  check.equal(model(mgpu.tensor { { 3, 8 } }):totable(), { { 1, 2 } }) -- as onnxruntime
end)

test("columns with a large mean are standardized exactly", function()
  local model = mgpu.load_model(op_file("MeanVarianceNormalization", { axes = { 0 } }, "float32", function() end))
  check.equal(model(mgpu.tensor { { 4096, 0 }, { 4097, 1 } }):totable(), { { -1, -1 }, { 1, 1 } })
end)

test("one row of coefficients gives the scores of two classes", function()
  local expected = { NONE = { { -1, 1 }, { 2, -2 } },
    LOGISTIC = { { 0.26894142, 0.73105858 }, { 0.88079708, 0.11920292 } },
    SOFTMAX = { { 0.11920292, 0.88079708 }, { 0.98201379, 0.01798621 } } } -- as onnx.reference
  for transform, scores in pairs(expected) do
    local path = onnx_files.write(check.path "classes.onnx", function(g)
      local x = g:add_input("x", { -1, 1 }, "float32")
      local ys = g:ops("LinearClassifier", { x.plain }, { coefficients = { kind = "floats", value = { 1 } },
        classlabels_ints = { kind = "ints", value = { 5, 6 } }, intercepts = { kind = "floats", value = { 0 } },
        post_transform = transform }, 2, "ai.onnx.ml")
      g:add_output("label", g.value(ys[1], { -1 }, "int64"))
      g:add_output("scores", g.value(ys[2], { -1, 2 }, "float32"))
    end)
    local y = mgpu.load_model(path)(mgpu.tensor { { 1 }, { -2 } })
    check.equal(y[1]:totable(), { 6, 5 })
    check.near(y[2], scores, 1e-6)
  end
end)

test("a constant may have infinities", function()
  local path = onnx_files.write_graph(check.path "infinite.onnx", {
    1, onnx_files.message { 2, "c", 4, "Constant", 5, onnx_files.message { 1, "value_floats", 7, "\0\0\128\127\0\0\0\0",
      20, 6 } },
    1, onnx_files.message { 1, "x", 1, "c", 2, "y", 4, "Max" },
    11, onnx_files.message { 1, "x", 2, onnx_files.message { 1, onnx_files.message { 1, 1, 2,
      onnx_files.message { 1, onnx_files.message { 2, "n" }, 1, onnx_files.message { 1, 2 } } } } },
    12, onnx_files.message { 1, "y" } })
  check.equal(mgpu.load_model(path)(mgpu.tensor { { 1, -1 } }):totable(), { { math.huge, 0 } })
end)

test("an image stays channels-last between convolutions", function()
  local model = mgpu.load_model(MODELS .. "resnet_old.onnx")
  local f = mgpu.jit(function(x) return model(x) end)
  f(mgpu.ones { 1, 3, 17, 21 })
  local _, permutations = f:dump():gsub("permute", "")
  check.equal(permutations, 1) -- of the input
end)

test("a constant condition chooses a branch", function()
  local function branch(g, number)
    return g.branch(function(inner)
      local value = g.attribute_tensor(mgpu.tensor { number / 2 }) -- a tensor of an attribute, and one of the branch
      local half = inner:op("ConstantOfShape", { inner:op("Shape", { "x" }) }, { value = value })
      return inner:op("Sum", { "x", half, inner:number(number / 2, "float32") })
    end)
  end
  local path = onnx_files.write(check.path "if.onnx", function(g)
    local x = g:add_input("x", { -1, 2 }, "float32").plain
    local rank = g:op("Size", { g:op("Shape", { x }) })
    local condition = g:op("Equal", { rank, g:number(2, "int64") })
    local y = onnx_files.add_if(g, condition, branch(g, 1), branch(g, 10))
    g:add_output("y", g.value(y, { -1, 2 }, "float32"))
  end)
  check.equal(mgpu.load_model(path)(mgpu.zeros { 1, 2 }):totable(), { { 1, 1 } })
  check.raises(function() mgpu.load_model(path):save(check.path "again.onnx") end, "branches cannot be saved", "usage")
end)

-- ---- what is not supported ----------------------------------------------------------------------

-- A file with a node over one input of three numbers.
local function file_with(op, attributes, domain, opset, dtype)
  return onnx_files.write(check.path "one.onnx", function(g)
    local x = g:add_input("x", { -1, 3 }, dtype or "float32")
    g.scope = "here"
    g:add_output("y", g.value(g:ops(op, { x.plain }, attributes, 1, domain)[1], { -1, 3 }, "float32"))
  end, opset)
end

local function refused(path, expected)
  local message = check.raises(function() mgpu.load_model(path) end, expected, "unsupported")
  check.matches(message, "one.onnx: ")
end

test("an op that is not supported is refused with its node and opset", function()
  refused(file_with "NonMaxSupression",
    'an op of ONNX that is not supported, opset 17: NonMaxSupression (node "here/NonMaxSupression")')
  refused(file_with("Reluu"), 'Reluu (node "here/Reluu") (did you mean "Relu"?)')
  refused(file_with("FusedMatMul", nil, "com.microsoft"),
    'com.microsoft.FusedMatMul (node "here/FusedMatMul"): there are no ops of the domain "com.microsoft"')
end)

test("an attribute that is not supported is refused, as is one of a wrong type", function()
  refused(file_with("Relu", { alpha = 2 }),
    'node "here/Relu" (Relu, opset 17): the attribute "alpha" is not supported: those of this op are none')
  refused(file_with("LeakyRelu", { alpha = 2 }), 'the attribute "alpha" has the type int: expected float')
  refused(file_with("Concat"), 'node "here/Concat" (Concat, opset 17): the attribute "axis" is missing')
  refused(file_with("Gelu", { approximate = "cubic" }), 'approximate = "cubic"')
  refused(file_with("Add"), "1 inputs, the op takes 2")
end)

test("opsets that are not known are refused", function()
  refused(file_with("Relu", nil, nil, 8), "opset 8: those from 9 to 28 are supported")
  refused(file_with("Relu", nil, nil, 29), "opset 29: those from 9 to 28 are supported")
end)

test("a number that depends on the data where a constant is needed is refused", function()
  local path = onnx_files.write(check.path "one.onnx", function(g)
    local x = g:add_input("x", { -1 }, "int64")
    g:add_output("y", g.value(g:op("Reshape", { x.plain, x.plain }), { -1 }, "int64"))
  end)
  refused(path, 'node "/Reshape" (Reshape, opset 17): the shape depends on the data or on weights')
end)

test("the layer cannot be saved as .onnx beside layers of another opset", function()
  local inner = mgpu.load_model(MODELS .. "keras_two_new.onnx")
  local a, b = mgpu.Input { 4 }, mgpu.Input { 4 }
  local model = mgpu.Model { inputs = { a, b }, outputs = L.Dense { 2 } (inner { a, b }[1]) }
  check.equal(#model(mgpu.ones { 2, 4 } and { mgpu.ones { 2, 4 }, mgpu.ones { 2, 4 } }):shape(), 2)
  check.raises(function() model:save(check.path "beside.onnx") end,
    "its opset is 18, which cannot be saved as .onnx beside other layers, whose opset is 17", "usage")
  local other = mgpu.load_model(MODELS .. "keras_two_old.onnx")
  local both = mgpu.Model { inputs = { a, b }, outputs = { inner { a, b }[1], other { a, b }[1] } }
  check.raises(function() both:save(check.path "both.onnx") end, "its opset is not that of OnnxGraph", "usage")
  model:save(check.path "beside.safetensors")
  check.equal(#mgpu.load_model(check.path "beside.safetensors").variables, #model.variables)
end)

-- ---- damaged files ------------------------------------------------------------------------------

local message = onnx_files.message

-- A tensor {1} of float32, or of another type.
local function tensor(name, dtype, bytes) return message { 1, 1, 2, dtype or 1, 8, name, 9, bytes or "\0\0\0\0" } end

-- x, of a type; and a node that makes y of it, with attributes.
local function value_info(name, dtype)
  local dims = message { 1, message { 2, "n" } }
  return message { 1, name, 2, message { 1, message { 1, dtype or 1, 2, dims } } }
end
local function node(op, ...)
  local fields = { 1, "x", 2, "y", 3, "n", 4, op }
  for _, attribute in ipairs { ... } do
    fields[#fields + 1], fields[#fields + 2] = 5, attribute
  end
  return message(fields)
end

for what, case in pairs {
  ["two tensors of one name"] = { { 5, tensor "w", 5, tensor "w" }, 'the tensor "w" is there twice', "data" },
  ["an attribute without a type"] = { { 1, node("Relu", message { 1, "a" }) },
    'node "n" (Relu): the attribute "a" has no known type', "data" },
  ["a constant without a type"] = { { 1, node("Constant", message { 1, "value_int", 3, 5 }) },
    'node "n" (Constant): the attribute "value_int" has no known type', "data" },
  ["an attribute of a function"] = { { 1, node("Relu", message { 1, "a", 20, 2, 21, "b" }) },
    'the attribute "a" refers to one of a function', "data" },
  ["a tensor that is missing"] = { { 1, node("Relu", message { 1, "a", 20, 4 }) }, 'the attribute "a" is empty',
    "data" },
  ["an attribute twice"] = { { 1, node("Relu", message { 1, "a", 20, 2 }, message { 1, "a", 20, 2 }) },
    'node "n" has the attribute "a" twice', "data" },
  ["a constant of texts"] = { { 1, node("Constant", message { 1, "value_string", 4, "a", 20, 3 }) },
    'node "n" (Constant): the attribute "value_string" is not supported', "unsupported" },
  ["an input that is no tensor"] = { { 1, node "Relu", 11, message { 1, "x", 2, message { 4, message {} } } },
    'the input "x" is no tensor', "unsupported" },
  ["an input of texts"] = { { 1, node "Relu", 11, value_info("x", 8) },
    'the input "x": elements of type string are not supported', "unsupported" },
  ["integers that numbers of Lua cannot hold"] = { { 1, message { 1, "x", 1, "w", 2, "y", 4, "Add" },
    5, tensor("w", 7, "\0\0\0\0\0\0\64\0"), 11, value_info("x", 7), 12, message { 1, "y" } },
    'the tensor "w" has integers above 2^53', "unsupported" },
} do
  test("a file is refused for " .. what, function()
    local path = onnx_files.write_graph(check.path "odd.onnx", case[1])
    check.matches(check.raises(function() mgpu.load_model(path) end, case[2], case[3]), "odd%.onnx")
  end)
end

test("a model whose file of external data is missing says so", function()
  check.write(check.path "alone.onnx", check.read(MODELS .. "mlp_new.onnx"))
  check.raises(function() mgpu.load_model(check.path "alone.onnx") end, 'alone.onnx: the tensor "0.weight" is in a '
    .. "file of external data, which must lie beside the model: cannot look at ", "io")
end)

test("a graph of too many nodes is refused", function()
  local fields, one = { 11, value_info "x", 12, message { 1, "x100001" } }, { 1, "x", 2, "x1", 4, "Relu" }
  for i = 1, 100001 do
    one[2], one[4] = i == 1 and "x" or "x" .. i - 1, "x" .. i
    fields[#fields + 1], fields[#fields + 2] = 1, message(one)
  end
  local path = onnx_files.write_graph(check.path "long.onnx", fields)
  check.raises(function() mgpu.load_model(path) end, "a graph of more than 100000 nodes", "unsupported")
end)

test("a model of too many tensors is refused", function()
  local fields, empty = {}, message { 1, 0, 2, 1 }
  for i = 1, 2 * (2 ^ 18 + 1), 2 do fields[i], fields[i + 1] = 5, empty end
  local path = onnx_files.write_graph(check.path "tensors.onnx", fields)
  check.raises(function() mgpu.load_model(path) end, "the model has more than 262144 tensors", "unsupported")
end)

test("reading a file that is not a model says so", function()
  check.write(check.path "empty.onnx", "")
  check.raises(function() mgpu.load_model(check.path "empty.onnx") end, "is no ONNX model: it has no graph", "data")
  check.raises(function() mgpu.load_model(check.path "none.onnx") end, "cannot open", "io")
  fixtures.linear():save(check.path "w.safetensors")
  check.write(check.path "renamed.onnx", check.read(check.path "w.safetensors"))
  check.raises(function() mgpu.load_model(check.path "renamed.onnx") end, "renamed.onnx: the ONNX file is damaged",
    "data")
  check.falsy(pcall(core.onnx_open, check.path ""))
end)
