-- Graphs of ONNX that are wrong or not supported: what the errors say. Most are graphs of one node over an input x.

local error_cases = require "error_cases"
local mgpu = require "mgpu"

local L = mgpu.layers

-- Attributes: {kind, value} by name.
local function attributes(given)
  local out = {}
  for name, a in pairs(given or {}) do out[name] = { kind = a[1], value = a[2] } end
  return out
end

local function int(value) return { "int", value } end
local function ints(...) return { "ints", { ... } } end
local function floats(...) return { "floats", { ... } } end
local function text(value) return { "text", value } end

-- A constant: its numbers and shape.
local function constant(name, dtype, shape, values)
  return { name = name, dtype = dtype, shape = shape, values = values }
end

local function graph(changes)
  local g = { opset = 17, inputs = { { name = "x", dtype = "float32", shape = { -1, 2 } } }, constants = {},
    nodes = { { op = "Relu", name = "n", inputs = { "x" }, outputs = { "y" } } }, outputs = { { name = "y" } } }
  for key, value in pairs(changes) do g[key] = value end
  return g
end

-- Makes the layer, and calls it with zeros of a shape.
local function run(changes, shape)
  local layer = L.OnnxGraph { graph(changes) }
  return layer(mgpu.zeros(shape or { 2, 2 }))
end

-- One node over x of this shape and constants: { shape, values, dtype = "int64" } each; false leaves an input out.
local function node(op, given, shape, ...)
  local inputs, constants = { "x" }, {}
  for i, item in ipairs { ... } do
    inputs[i + 1] = item and "c" .. i or ""
    if item then constants[#constants + 1] = constant("c" .. i, item[3] or "int64", item[1], item[2]) end
  end
  local x = {}
  for i = 1, #shape do x[i] = -1 end
  return run({ opset = given and given.opset or 17, learners = 3, constants = constants,
    inputs = { { name = "x", dtype = "float32", shape = x } },
    nodes = { { op = op, domain = given and given.domain, name = "n", inputs = inputs,
      outputs = given and given.outputs or { "y" }, attributes = attributes(given and given.attributes) } } }, shape)
end

local function list(...) return { { select("#", ...) }, { ... } } end
local function zeros(...)
  local n, values = 1, {}
  for _, size in ipairs { ... } do n = n * size end
  for i = 1, n do values[i] = 0 end
  return { { ... }, values, "float32" }
end

local cases = {}
local function case(what, fn, expected, code) cases[#cases + 1] = { what, fn, expected, code = code or "data" } end

-- Of one node: refused(op, given, shape, constants..., text) by what is not supported; wrong(...) by what is damaged.
local function add(code)
  return function(op, given, shape, ...)
    local rest = { ... }
    local n = select("#", ...)
    local expected = rest[n]
    case(op .. ": " .. expected, function() node(op, given, shape, unpack(rest, 1, n - 1)) end, expected, code)
  end
end
local refused, wrong = add "unsupported", add "data"

local function with(given, more)
  local out = { attributes = given }
  for key, value in pairs(more or {}) do out[key] = value end
  return out
end

-- ---- the graph ----------------------------------------------------------------------------------

local function changed(what, changes, expected, code) case(what, function() run(changes) end, expected, code) end

changed("no opset", { opset = {} }, "opset", "unsupported")
changed("an old opset", { opset = 8 }, "opset 8: those from 9 to 28 are supported", "unsupported")
case("no opset for an op", function()
  local g = graph {}
  g.opset = nil
  L.OnnxGraph { g }
end, "it names no opset of ONNX")
changed("an opset of learners", { learners = 9 }, "opset 9 of ai.onnx.ml: those from 1 to 5", "unsupported")
changed("no inputs", { inputs = {} }, "the graph has no inputs", "unsupported")
changed("an input that is no table", { inputs = { 1 } }, "an input is no table")
changed("a scalar input", { inputs = { { name = "x", dtype = "float32", shape = {} } } },
  'the input "x" has no known number of axes', "unsupported")
changed("an input without dtype", { inputs = { { name = "x", shape = { 2 } } } }, "an entry of inputs lacks its name")
changed("weights that are no list", { weights = { a = 1 } }, "weights are no list")
changed("a name twice", { constants = { constant("x", "float32", {}, { 1 }) } }, '"x" is there twice')
changed("a constant without numbers", { constants = { constant("c", "float32", { 2 }, { 1 }) } },
  'the constant "c" has not the 2 numbers of its shape')
changed("a constant of texts", { constants = { constant("c", "float32", { 1 }, { "a" }) } },
  'the constant "c" has no numbers')
changed("nodes that are no list", { nodes = { a = {} } }, "its nodes are no list")
changed("inputs with a hole", { nodes = { { op = "Add", name = "n", inputs = { nil, "x" }, outputs = { "y" } } } },
  "a node lacks its op, inputs or outputs")
changed("a shape with a hole", { weights = { { name = "w", dtype = "float32", shape = { nil, 2 } } } },
  "an entry of weights lacks its name, dtype or shape")
changed("a node without op", { nodes = { { name = "n", inputs = {}, outputs = {} } } }, "a node lacks its op")
changed("a name that nothing makes", { nodes = { { op = "Relu", name = "n", inputs = { "z" }, outputs = { "y" } } } },
  'node "n" (Relu) reads "z", which is not made before it')
changed("a result twice", { nodes = { { op = "Relu", name = "n", inputs = { "x" }, outputs = { "x" } } } },
  '"x" is made twice')
changed("no outputs", { outputs = {} }, "it has no outputs")
changed("an output that nothing makes", { outputs = { { name = "z" } } }, 'the output "z" is not made')
changed("an impossible output", { outputs = { { name = "y", shape = { -2 } } } }, 'the shape of the output "y"')
changed("several ops", { nodes = { { op = "Loop", name = "a", inputs = { "x" }, outputs = { "b" } },
  { op = "Foo", domain = "bar", name = "c", inputs = { "b" }, outputs = { "y" } } } },
  '2 ops of ONNX that are not supported, opset 17: Loop (node "a"), bar.Foo (node "c"): there are no ops of the domain',
  "unsupported")
changed("an attribute without value", { nodes = { { op = "Elu", name = "n", inputs = { "x" }, outputs = { "y" },
  attributes = { alpha = { kind = "float" } } } } }, 'the attribute "alpha"')
changed("a constant of an attribute", { nodes = { { op = "ConstantOfShape", name = "n", inputs = { "x" },
  outputs = { "y" }, attributes = { value = { kind = "tensor", value = "z" } } } } },
  'the attribute "value" names no constant')
changed("an output too many", { nodes = { { op = "Relu", name = "n", inputs = { "x" }, outputs = { "y", "z" } } } },
  'node "n" (Relu, opset 17): output 2 is not supported', "unsupported")
refused("Relu", with { slope = int(1) }, { 2, 2 }, 'the attribute "slope" is not supported: those of this op are none')
refused("Elu", with { alpha = int(1) }, { 2, 2 }, 'the attribute "alpha" has the type int: expected float')
refused("Concat", nil, { 2, 2 }, 'the attribute "axis" is missing')
refused("Add", nil, { 2, 2 }, "1 inputs, the op takes 2")
refused("Clip", nil, { 2, 2 }, zeros(), zeros(), zeros(), "4 inputs, the op takes 1 to 3")
refused("Where", nil, { 2, 2 }, false, zeros(), "input 2 is missing")

-- ---- branches -----------------------------------------------------------------------------------

local function branch(output, nodes) return { kind = "graph", value = { nodes = nodes or {}, outputs = output } } end
local function condition(attributes_of_if, constants)
  return { constants = constants or { constant("c", "bool", {}, { true }) },
    nodes = { { op = "If", name = "n", inputs = { constants and "x" or "c" }, outputs = { "y" },
      attributes = attributes_of_if } } }
end
changed("a branch that is missing", condition {}, "then_branch is missing", "unsupported")
changed("a branch without its output", condition { then_branch = branch { { name = "z" } } },
  'the branch lacks its output "z"')
changed("a condition that depends on the data", condition({ then_branch = branch { { name = "x" } },
  else_branch = branch { { name = "x" } } }, {}), "the condition depends on the data or on weights", "unsupported")
local deep = branch { { name = "x" } }
for _ = 1, 9 do
  deep = branch({ { name = "x" } }, { { op = "If", name = "n", inputs = { "c" }, outputs = { "" },
    attributes = { then_branch = deep, else_branch = deep } } })
end
changed("branches in branches", condition { then_branch = deep, else_branch = deep }, "branches are nested too deep",
  "unsupported")

-- ---- elementwise, reductions, learners ----------------------------------------------------------

refused("Dropout", nil, { 2, 2 }, zeros(), { {}, { true }, "bool" }, "training_mode is true")
refused("Gelu", with { approximate = text "x" }, { 2, 2 }, 'approximate = "x"')
refused("Cast", with { to = int(3) }, { 2, 2 }, "elements of type int8 are not supported")
wrong("Softmax", with { axis = int(2) }, { 2, 2 }, "the axis 2 is out of range: there are 2 axes")
wrong("TopK", nil, { 2, 2 }, list(3), "K = 3 for an axis of 2 elements")
wrong("TopK", nil, { 2, 2 }, list(1, 2), "K must be one number, got 2")
local ml = { domain = "ai.onnx.ml" }
wrong("Scaler", with({ scale = floats(1, 2, 3) }, ml), { 2, 2 }, "3 numbers in scale for 2 columns")
refused("Normalizer", with({ norm = text "L3" }, ml), { 2, 2 }, 'norm = "L3"')
wrong("LinearRegressor", with({ coefficients = floats(1, 2, 3) }, ml), { 2, 2 }, "3 coefficients for 1 rows of results")
wrong("LinearRegressor", with({ coefficients = floats(1, 2), intercepts = floats(1, 2) }, ml), { 2, 2 },
  "2 intercepts for 1 results")
refused("LinearRegressor", with({ coefficients = floats(1, 2), post_transform = text "PROBIT" }, ml), { 2, 2 },
  'post_transform = "PROBIT"')
refused("LinearClassifier", with({ coefficients = floats(1, 2), classlabels_strings = { "texts", { "a" } } }, ml),
  { 2, 2 }, "classlabels_strings: texts are no tensors")
wrong("LinearClassifier", with({ coefficients = floats(1, 2) }, ml), { 2, 2 }, "classlabels_ints are missing")
wrong("LinearClassifier", with({ coefficients = floats(1, 2), intercepts = floats(1),
  classlabels_ints = ints(1, 2, 3) }, ml), { 2, 2 }, "3 labels for 1 rows of coefficients")
-- A tree of three nodes; changes: other attributes.
local function tree(changes)
  local given = { nodes_treeids = ints(0, 0, 0), nodes_nodeids = ints(0, 1, 2), nodes_featureids = ints(0, 0, 0),
    nodes_values = floats(0.5, 0, 0), nodes_modes = { "texts", { "BRANCH_LEQ", "LEAF", "LEAF" } },
    nodes_truenodeids = ints(1, 0, 0), nodes_falsenodeids = ints(2, 0, 0), target_treeids = ints(0, 0),
    target_nodeids = ints(1, 2), target_ids = ints(0, 0), target_weights = floats(1, 2) }
  for name, value in pairs(changes) do given[name] = value end
  return with(given, ml)
end
local function texts(...) return { "texts", { ... } } end
local FOREST = "TreeEnsembleRegressor"
wrong(FOREST, tree { nodes_values = floats(1) }, { 2, 2 }, "nodes_values has 1 entries for 3 nodes")
wrong(FOREST, tree { nodes_nodeids = ints(0, 1, 1) }, { 2, 2 }, "the node 1 of tree 0 is there twice")
refused(FOREST, tree { nodes_modes = texts("BRANCH_ODD", "LEAF", "LEAF") }, { 2, 2 }, 'the mode "BRANCH_ODD"')
wrong(FOREST, tree { nodes_truenodeids = ints(7, 0, 0) }, { 2, 2 }, "a node leads to node 7, which its tree lacks")
wrong(FOREST, tree { nodes_truenodeids = ints(2, 0, 0) }, { 2, 2 }, "two nodes lead to node 2")
wrong(FOREST, tree { nodes_featureids = ints(2, 0, 0) }, { 2, 2 }, "a node asks for column 2 of 2")
wrong(FOREST, tree { target_ids = ints(0) }, { 2, 2 }, "target_weights has another length")
wrong(FOREST, tree { target_ids = ints(0, 1) }, { 2, 2 }, "target_weights has an entry for no leaf or target")
wrong(FOREST, tree { base_values = floats(1, 2) }, { 2, 2 }, "2 base_values")
wrong(FOREST, tree {}, { 2, 2, 2 }, "an input of 3 axes, expected rows and columns")
refused(FOREST, tree { n_targets = int(2 ^ 40) }, { 2, 2 }, "1099511627776 results of 3 nodes")
refused(FOREST, tree { aggregate_function = text "ODD" }, { 2, 2 }, 'aggregate_function = "ODD"')
wrong(FOREST, tree { nodes_treeids = ints(), nodes_nodeids = ints(), nodes_featureids = ints(),
  nodes_values = floats(), nodes_modes = texts(), nodes_truenodeids = ints(), nodes_falsenodeids = ints() }, { 2, 2 },
  "there are no nodes")
local function classes(changes)
  local given = tree(changes)
  for _, name in ipairs { "treeids", "nodeids", "ids", "weights" } do
    given.attributes["class_" .. name], given.attributes["target_" .. name] = given.attributes["target_" .. name], nil
  end
  return given
end
refused("TreeEnsembleClassifier", classes { classlabels_strings = texts "a" }, { 2, 2 }, "texts are no tensors")
wrong("TreeEnsembleClassifier", classes {}, { 2, 2 }, "classlabels_int64s are missing")
case("TreeEnsembleRegressor: too deep", function()
  local n, given = 600, { {}, {}, {}, {}, {}, {}, {} }
  for i = 0, 2 * n do -- inner nodes 0, 2, 4 ...; each has a leaf and the next one
    local leaf = i % 2 == 1 or i == 2 * n
    for k, value in ipairs { 0, i, 0, 0, leaf and "LEAF" or "BRANCH_LEQ", leaf and 0 or i + 1, leaf and 0 or i + 2 } do
      given[k][i + 1] = value
    end
  end
  node(FOREST, tree { nodes_treeids = { "ints", given[1] }, nodes_nodeids = { "ints", given[2] },
    nodes_featureids = { "ints", given[3] }, nodes_values = { "floats", given[4] }, nodes_modes = { "texts", given[5] },
    nodes_truenodeids = { "ints", given[6] }, nodes_falsenodeids = { "ints", given[7] } }, { 2, 2 })
end, "a tree of more than 512 levels", "unsupported")
wrong("Gemm", nil, { 2, 2, 2 }, zeros(2, 2), "the factors must be matrices")

-- ---- movement -----------------------------------------------------------------------------------

wrong("Reshape", nil, { 2, 2 }, list(1, 1, 0), "size 3 is 0, for an input of 2 axes")
wrong("Flatten", with { axis = int(3) }, { 2, 2 }, "the axis 3 is out of range")
wrong("Squeeze", nil, { 2, 2 }, list(0), "axis 0 has size 2, not 1")
wrong("Unsqueeze", nil, { 2, 2 }, "axes are missing")
wrong("Unsqueeze", nil, { 2, 2 }, list(0, 0), "the axis 0 is given twice")
wrong("Transpose", with { perm = ints(0) }, { 2, 2 }, "1 axes in perm, for an input of 2")
wrong("Split", nil, { 2, 2 }, list(1, 1), "1 outputs for 2 parts")
wrong("Split", with { num_outputs = int(2 ^ 45) }, { 2, 2 }, "num_outputs = 35184372088832, for 1 outputs")
wrong("Split", with({}, { outputs = { "y", "z" } }), { 2, 2 }, list(1, 2), "parts of 3 elements together")
wrong("Slice", nil, { 2, 2 }, list(0), list(1), list(0), list(0), "a step is 0")
refused("Slice", nil, { 2, 2 }, list(0), list(2 ^ 62), list(0), list(-1), "an end beyond 2^53 with a negative step")
wrong("Slice", nil, { 2, 2 }, list(0, 0), list(1), "an end is missing")
wrong("Slice", nil, { 2, 2 }, "starts are missing")
wrong("Slice", nil, { 2, 2 }, list(0), "ends are missing")
wrong("Tile", nil, { 2, 2 }, list(1), "1 repeats for 2 axes")
wrong("Pad", with { mode = text "edge" }, { 2, 2 }, list(0, 2 ^ 21, 0, 0), "a width of 2097152")
-- One op over a large axis, which Expand makes.
local function over_large_axis(op, code, given_attributes, ...)
  local given = { ... }
  case(op .. " over a large axis", function()
    local constants, inputs = { constant("s", "int64", { 3 }, { 2 ^ 31, 1, 2 }) }, { "large" }
    for i = 1, #given - 1 do
      inputs[i + 1] = given[i] and "c" .. i or ""
      if given[i] then constants[#constants + 1] = constant("c" .. i, "int64", { #given[i] }, given[i]) end
    end
    run { constants = constants, nodes = {
      { op = "Expand", name = "n", inputs = { "x", "s" }, outputs = { "large" } },
      { op = op, name = "n", inputs = inputs, outputs = { "y" },
        attributes = given_attributes } } }
  end, given[#given], code)
end
over_large_axis("Pad", "data", attributes { mode = text "edge" }, { 1, 0, 0, 0, 0, 0 },
  'the mode "edge" for an axis of 2147483648 elements')
over_large_axis("Resize", "unsupported", attributes { mode = text "linear", antialias = int(1) }, false, false,
  { 2, 2, 2 }, "an axis of 2147483648 elements resized to 2 with 2147483648 weights each")
wrong("Pad", nil, { 2, 2 }, list(-2, 0, -1, 0), "axis 0 has 2 elements, of which all and more are cut off")
wrong("Pad", with { mode = text "edge" }, { 2, 2 }, list(-2, 0, 1, 0), "axis 0 is empty")
wrong("Pad", nil, { 2, 2 }, "pads are missing")
refused("Pad", with { mode = text "odd" }, { 2, 2 }, list(0, 0, 0, 0), 'the mode "odd"')
wrong("Pad", nil, { 2, 2 }, list(0, 0), "2 pads for 2 axes")
case("Range: delta is 0", function()
  run { constants = { constant("a", "int64", {}, { 0 }) },
    nodes = { { op = "Range", name = "n", inputs = { "a", "a", "a" }, outputs = { "y" } } } }
end, "delta is 0")
case("Range: too many", function()
  run { constants = { constant("a", "int64", {}, { 0 }), constant("b", "int64", {}, { 2 ^ 40 }),
    constant("c", "int64", {}, { 1 }) },
    nodes = { { op = "Range", name = "n", inputs = { "a", "b", "c" }, outputs = { "y" } } } }
end, "1099511627776 numbers are too many")
wrong("EyeLike", nil, { 2, 2, 2 }, "a matrix is expected, got 3 axes")
wrong("DepthToSpace", with { blocksize = int(2) }, { 2, 2 }, "images of 4 axes are expected, got 2 axes")
wrong("DepthToSpace", with { blocksize = int(2) }, { 1, 2, 1, 1 }, "2 channels cannot be cut into blocks of 2")
refused("DepthToSpace", with { blocksize = int(1), mode = text "odd" }, { 1, 2, 1, 1 }, 'the mode "odd"')
wrong("SpaceToDepth", with { blocksize = int(2) }, { 1, 1, 2, 3 }, "{2, 3} cannot be cut into blocks of 2")

-- ---- picking ------------------------------------------------------------------------------------

wrong("GatherElements", nil, { 2, 2 }, list(0), "indices have fewer axes")
wrong("GatherND", nil, { 2, 2 }, { { 1, 3 }, { 0, 0, 0 } }, "indices of 2 axes, the last one of 3, for an input of 2")
wrong("ScatterND", nil, { 2, 2 }, { { 1, 3 }, { 0, 0, 0 } }, zeros(1), "indices of the last size 3")
refused("ScatterND", with { reduction = text "max" }, { 2, 2 }, { { 1, 1 }, { 0 } }, zeros(1, 2),
  'reduction = "max": only none and add are')
wrong("ScatterElements", nil, { 2, 2 }, list(0), zeros(1), "indices of 1 axes for an input of 2")
wrong("OneHot", nil, { 2 }, list(0), zeros(2), "depth = 0")
wrong("Compress", nil, { 2 }, { { 2 }, { false, false }, "bool" }, "nothing is chosen")
refused("NonZero", nil, { 2 }, "the input, whose positions are wanted, depends on the data or on weights")

-- ---- windows, normalizations, images, recurrent -------------------------------------------------

wrong("Conv", with { strides = ints(1) }, { 1, 1, 3, 3 }, zeros(1, 1, 2, 2),
  "1 numbers in strides, for 2 spatial axes")
wrong("Conv", with { strides = ints(0, 1) }, { 1, 1, 3, 3 }, zeros(1, 1, 2, 2), "strides has 0")
wrong("Conv", with { pads = ints(0, -1, 0, 0) }, { 1, 1, 3, 3 }, zeros(1, 1, 2, 2), "pads has -1")
wrong("Conv", with { kernel_shape = ints(3, 3) }, { 1, 1, 3, 3 }, zeros(1, 1, 2, 2),
  "kernel_shape is {3, 3}, for a kernel of {2, 2}")
refused("Conv", nil, { 1, 1 }, zeros(1, 1), "0 spatial axes: one, two or three are")
refused("Conv", with { auto_pad = text "odd" }, { 1, 1, 3 }, zeros(1, 1, 1), 'auto_pad = "odd"')
wrong("Conv", nil, { 1, 1, 3 }, zeros(1, 1, 1, 1), "a kernel of 4 axes for an input of 3")
wrong("Conv", nil, { 1, 2, 3 }, zeros(1, 1, 1), "2 channels for a kernel of 1")
wrong("ConvTranspose", with { pads = ints(2, 2) }, { 1, 1, 3 }, zeros(1, 1, 2), "the output would be empty")
refused("ConvTranspose", with { group = int(2) }, { 1, 2, 2, 2, 2 }, zeros(2, 1, 1, 1, 1),
  "groups over three spatial axes")
refused("ConvTranspose", with { auto_pad = text "SAME_UPPER", strides = ints(2) }, { 1, 1, 3 }, zeros(1, 1, 1),
  'auto_pad = "SAME_UPPER" for a kernel smaller than its strides')
wrong("MaxPool", with { kernel_shape = ints(4) }, { 1, 1, 3 }, "a window of 4 for an axis of 3")
wrong("MaxPool", nil, { 1, 1, 3 }, "kernel_shape is missing")
refused("MaxPool", with({ kernel_shape = ints(1) }, { outputs = { "y", "z" } }), { 1, 1, 3 }, "the output Indices")
refused("LpPool", with { kernel_shape = ints(40, 40) }, { 1, 1, 40, 40 }, "a window of 1600 cells")
wrong("GlobalMaxPool", nil, { 1, 2 }, "there is no spatial axis")
refused("BatchNormalization", with { training_mode = int(1) }, { 1, 1 }, zeros(1), zeros(1), zeros(1), zeros(1),
  "training_mode: export the model for inference")
refused("BatchNormalization", with { spatial = int(0) }, { 1, 1 }, zeros(1), zeros(1), zeros(1), zeros(1),
  "spatial = 0")
wrong("InstanceNormalization", nil, { 1, 1 }, zeros(1), zeros(1), "there is no spatial axis")
wrong("GroupNormalization", with { num_groups = int(2) }, { 1, 3, 2 }, zeros(3), zeros(3),
  "3 channels cannot be divided into 2 groups")
refused("LpNormalization", with { p = int(3) }, { 1, 2 }, "p = 3")
wrong("LRN", with { size = int(0) }, { 1, 2, 2 }, "size = 0")
refused("Resize", with { keep_aspect_ratio_policy = text "odd" }, { 1, 2 }, false, false, list(1, 4),
  'keep_aspect_ratio_policy = "odd"')
refused("Resize", with { coordinate_transformation_mode = text "odd" }, { 1, 2 }, false, false, list(1, 4),
  'coordinate_transformation_mode = "odd"')
refused("Resize", with { mode = text "odd" }, { 1, 2 }, false, false, list(1, 4), 'the mode "odd"')
refused("Resize", with { nearest_mode = text "odd" }, { 1, 2 }, false, false, list(1, 4), 'nearest_mode = "odd"')
wrong("Resize", with { keep_aspect_ratio_policy = text "not_larger" }, { 1, 2 }, false, false, list(1, 2, 3),
  "3 sizes for 2 axes")
wrong("Resize", nil, { 1, 2 }, false, false, list(1, 2 ^ 30), "axis 1 of 2 elements cannot become one of 1073741824")
wrong("Resize", nil, { 1, 2 }, "neither scales nor sizes are given")
wrong("Resize", with { coordinate_transformation_mode = text "tf_crop_and_resize" }, { 1, 2 }, false, false, list(1, 4),
  "roi is missing")
wrong("Upsample", with({}, { opset = 9 }), { 1, 2 }, "scales are missing")
refused("RNN", with { activations = { "texts", { "Tanh" } }, activation_alpha = floats(1) }, { 1, 1, 1 },
  zeros(1, 1, 1), zeros(1, 1, 1), "activation_alpha and activation_beta")
refused("RNN", with { activations = { "texts", { "Odd" } } }, { 1, 1, 1 }, zeros(1, 1, 1), zeros(1, 1, 1),
  'the activation "Odd"')
wrong("RNN", with { direction = text "odd" }, { 1, 1, 1 }, zeros(1, 1, 1), zeros(1, 1, 1), 'direction = "odd"')
wrong("RNN", nil, { 1, 1, 1 }, zeros(1, 1), zeros(1, 1, 1), "X, W and R have three axes")
wrong("RNN", with { hidden_size = int(2) }, { 1, 1, 1 }, zeros(1, 1, 1), zeros(1, 1, 1), "hidden_size = 2, R has 1")
wrong("LSTM", nil, { 1, 1, 1 }, zeros(1, 1, 1), zeros(1, 1, 1), "W and R do not fit the direction and the hidden size")

wrong("Attention", with({}, { opset = 23 }), { 1, 2, 4 }, zeros(1, 2, 4), zeros(1, 2, 4),
  "queries of 3 axes cannot be divided into nil heads")
wrong("Attention", with({}, { opset = 23 }), { 1, 3, 2, 4 }, zeros(1, 2, 2, 4), zeros(1, 2, 2, 4),
  "3 heads of queries for 2 of keys")
wrong("Attention", with({}, { opset = 23 }), { 1, 2, 2, 4 }, zeros(1, 2, 2, 4), zeros(1, 2, 2, 4), false,
  zeros(1, 2, 1, 4), "past_key and past_value must be given together")

-- ---- calls --------------------------------------------------------------------------------------

case("another number of inputs", function()
  local layer = L.OnnxGraph { graph {} }
  layer { mgpu.zeros { 1, 2 }, mgpu.zeros { 1, 2 } }
end, "2 inputs were given, the graph takes 1", "usage")
case("another shape", function() run({}, { 2, 3 }) end,
  'the input "x" has the shape {2, 3}, the graph takes {None, 2}', "usage")
case("another number of axes", function() run({}, { 2, 2, 1 }) end,
  'the input "x" has the shape {2, 2, 1}, the graph takes {None, 2}', "usage")

error_cases(cases)
