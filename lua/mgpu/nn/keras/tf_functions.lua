--- Layers of tf.keras 2.4 to 2.15 that call a function of TensorFlow -> our layer Operation.
--
-- {class_name = "TFOpLambda", config = {name =, ["function"] = "math.multiply"}, inbound_nodes = {{"x", 0, 0, {y =
-- 2}}}}: the function's first argument is in front, as a place or as {"_CONSTANT_VALUE", -1, value}, the others are
-- named; any of them may be the place of a tensor, {"dense", 0, 0}. SlicingOpLambda is the same with an index in
-- `slice_spec`. FUNCTIONS says which operation of keras.ops a function is, and what its arguments are called there.
local operation_arguments = require "mgpu.nn.operations.arguments"
local computed_shapes = require "mgpu.nn.keras.computed_shapes"
local core = require "mgpu.core"
local keras_operations = require "mgpu.nn.keras.operations"
local objects = require "mgpu.nn.keras.objects"

local M = {}

local given = objects.given

-- TensorFlow's function -> the operation, and the function's arguments in order: "operation=function", or one name
-- where both are equal. "!name": must not be given, or be false. change(arguments, layer), where names are not all that
-- differs, changes the arguments and `layer`, whose field op is the operation (or class_name and config say which layer
-- it is), or returns what it cannot translate.
local FUNCTIONS = {}

local function define(operation, arguments, names, change)
  local list = {}
  for word in arguments:gmatch "%S+" do
    local no, ours, theirs = word:match "^(!?)([%w_]+)=?([%w_]*)$"
    if theirs == "" then theirs = ours end
    if no == "!" then
      list[#list + 1] = { theirs }
    else
      list[#list + 1] = { theirs, ours }
    end
  end
  for name in names:gmatch "%S+" do
    FUNCTIONS[name] = { operation = operation, arguments = list, change = change }
  end
end

-- ---- element-wise -------------------------------------------------------------------------------

for operation, names in pairs {
  Absolute = "math.abs", Arccos = "math.acos", Arcsin = "math.asin", Arctan = "math.atan", Arccosh = "math.acosh",
  Arcsinh = "math.asinh", Arctanh = "math.atanh", Ceil = "math.ceil", Cos = "math.cos", Cosh = "math.cosh",
  Erf = "math.erf", Erfc = "math.erfc", Exp = "math.exp", Expm1 = "math.expm1", Floor = "math.floor",
  Isfinite = "math.is_finite", Isinf = "math.is_inf", Isnan = "math.is_nan", Log = "math.log", Log1p = "math.log1p",
  LogicalNot = "math.logical_not", Negative = "math.negative", Reciprocal = "math.reciprocal",
  Round = "math.round math.rint", Rsqrt = "math.rsqrt", Sigmoid = "math.sigmoid nn.sigmoid",
  LogSigmoid = "math.log_sigmoid", Sign = "math.sign", Sin = "math.sin", Sinh = "math.sinh", Sqrt = "math.sqrt",
  Square = "math.square", Tan = "math.tan",
  Tanh = "math.tanh nn.tanh" } do
  define(operation, "x", names)
end
define("Copy", "x=input", "identity")
define("StopGradient", "variable=input", "stop_gradient")

for operation, names in pairs {
  Add = "__operators__.add math.add", Subtract = "math.subtract",
  Multiply = "math.multiply", TrueDivide = "math.truediv math.divide __operators__.truediv",
  DivideNoNan = "math.divide_no_nan", FloorDivide = "compat.v1.floor_div math.floordiv floor_div",
  Mod = "math.floormod math.mod", Power = "math.pow", Maximum = "math.maximum", Minimum = "math.minimum",
  Greater = "math.greater", GreaterEqual = "math.greater_equal", Less = "math.less", LessEqual = "math.less_equal",
  Equal = "math.equal __operators__.eq", NotEqual = "math.not_equal __operators__.ne",
  LogicalAnd = "math.logical_and", LogicalOr = "math.logical_or", LogicalXor = "math.logical_xor" } do
  define(operation, "x1=x x2=y", names)
end

define("Arctan2", "x1=y x2=x", "math.atan2")
define("Add", "x1=value x2=bias data_format", "nn.bias_add", function(arguments)
  if type(arguments.data_format) == "string" and arguments.data_format:find "^NC" then return "a bias of NCHW" end
  arguments.data_format = nil
end)
define("Add", "xs=inputs", "math.add_n math.accumulate_n", function(_, layer) layer.class_name = "Add" end)
define("Clip", "x=t x_min=clip_value_min x_max=clip_value_max", "clip_by_value compat.v1.clip_by_value")
define("Where", "condition x1=x x2=y", "where compat.v1.where compat.v2.where where_v2")
define("Cast", "x dtype", "cast")
define("Cast", "x", "keras.backend.cast_to_floatx", function(arguments) arguments.dtype = core.floatx() end)
define("SaturateCast", "x=value dtype", "saturate_cast")
define("ConvertToTensor", "x=value dtype !dtype_hint", "convert_to_tensor")

-- ---- activations --------------------------------------------------------------------------------

for operation, names in pairs { Relu = "nn.relu", Relu6 = "nn.relu6", Selu = "nn.selu", Elu = "nn.elu",
  Softplus = "math.softplus nn.softplus", Softsign = "nn.softsign math.softsign" } do
  define(operation, "x=features", names)
end
define("Gelu", "x=features approximate", "nn.gelu", function(arguments)
  if arguments.approximate == nil then arguments.approximate = false end
end)
define("Silu", "x=features beta", "nn.silu nn.swish", function(arguments)
  if arguments.beta and arguments.beta ~= 1 then return "a beta other than 1" end
  arguments.beta = nil
end)
define("LeakyRelu", "x=features negative_slope=alpha", "nn.leaky_relu")
define("Softmax", "x=logits axis !dim", "nn.softmax compat.v1.nn.softmax")
define("LogSoftmax", "x=logits axis !dim", "nn.log_softmax compat.v1.nn.log_softmax")
define("Normalize", "x axis epsilon", "math.l2_normalize", function(arguments)
  if arguments.axis == nil or arguments.axis == core.null then return "math.l2_normalize over all axes" end
  -- TensorFlow's bounds the sum of squares, Keras's the norm
  arguments.epsilon, arguments.order = math.sqrt(arguments.epsilon or 1e-12), 2
end)
define("OneHot", "x=indices num_classes=depth !on_value !off_value axis dtype", "one_hot")

-- ---- reductions ---------------------------------------------------------------------------------

for operation, name in pairs { Mean = "mean", Sum = "sum", Max = "max", Min = "min", Prod = "prod", All = "all",
  Any = "any", Var = "variance", Std = "std", Logsumexp = "logsumexp" } do
  define(operation, "x=input_tensor axis keepdims", "math.reduce_" .. name)
  define(operation, "x=input_tensor axis keepdims !reduction_indices !keep_dims", "compat.v1.reduce_" .. name)
end
for operation, name in pairs { Argmax = "argmax", Argmin = "argmin" } do
  define(operation, "x=input axis output_type", "math." .. name, function(arguments)
    arguments.output_type = nil -- positions are int32 here
    if arguments.axis == nil then arguments.axis = 0 end
  end)
end
define("CountNonzero", "x=input axis !keepdims dtype", "math.count_nonzero", function(arguments)
  arguments.dtype = nil
end)
for operation, name in pairs { Cumsum = "cumsum", Cumprod = "cumprod" } do
  define(operation, "x axis !exclusive !reverse", "math." .. name, function(arguments)
    if arguments.axis == nil then arguments.axis = 0 end
  end)
end
local function ascending(arguments)
  if arguments.direction and arguments.direction ~= "ASCENDING" then return "a descending order" end
  arguments.direction, arguments.stable = nil, nil
end
define("Sort", "x=values axis direction", "sort", ascending)
define("Argsort", "x=values axis direction stable", "argsort", ascending)
define("TopK", "x=input k sorted", "math.top_k nn.top_k", function(arguments)
  if arguments.k == nil then arguments.k = 1 end
end)
define("Norm", "x=tensor ord axis keepdims !keep_dims", "norm linalg.norm compat.v1.norm", function(arguments)
  if arguments.ord == "euclidean" then arguments.ord = nil end
end)

-- ---- movement -----------------------------------------------------------------------------------

-- A first size that is that of the tensor itself is kept. Of other tensors it is known only where no size is open.
define("Reshape", "x=tensor newshape=shape", "reshape compat.v1.reshape", function(arguments, layer)
  local sizes, unknown, open = arguments.newshape, 0, false
  for _, size in ipairs(type(sizes) == "table" and sizes or {}) do
    if size == core.null then unknown = unknown + 1 end
    open = open or size == -1
  end
  if unknown == 0 or not open then return end
  if unknown > 1 or not layer.keeps_first then return "a shape with computed sizes and -1" end
  layer.class_name, layer.config = "Reshape", { target_shape = { unpack(sizes, 2) } }
end)
define("Ravel", "x", "keras.backend.batch_flatten", function(_, layer) layer.class_name = "Flatten" end)
define("Transpose", "x=a axes=perm !conjugate", "transpose compat.v1.transpose")
define("ExpandDims", "x=input axis dim", "expand_dims compat.v1.expand_dims", function(arguments)
  arguments.axis, arguments.dim = arguments.axis or arguments.dim, nil
end)
define("Squeeze", "x=input axis squeeze_dims", "squeeze compat.v1.squeeze", function(arguments)
  arguments.axis, arguments.squeeze_dims = arguments.axis or arguments.squeeze_dims, nil
  if arguments.axis == core.empty_array then arguments.axis = nil end
end)
define("Concatenate", "xs=values axis", "concat")
define("Stack", "x=values axis", "stack")
define("Unstack", "x=value num axis", "unstack")
define("Split", "x=value indices_or_sections=num_or_size_splits axis !num", "split", function(arguments)
  local sizes, last = arguments.indices_or_sections, 0
  if type(sizes) ~= "table" then return end
  local positions = {} -- TensorFlow's list has sizes, Keras's the positions between them
  for i = 1, #sizes - 1 do
    if type(sizes[i]) ~= "number" or sizes[i] < 0 then return "parts of unknown sizes" end
    last = last + sizes[i]
    positions[i] = last
  end
  arguments.indices_or_sections = #positions > 0 and positions or 1
end)
define("Tile", "x=input repeats=multiples", "tile")
define("Repeat", "x=input repeats axis", "repeat")
define("Flip", "x=tensor axis", "reverse")
define("Roll", "x=input shift axis", "roll")
define("Pad", "x=tensor pad_width=paddings mode constant_values", "pad compat.v1.pad", function(arguments)
  if type(arguments.mode) == "string" then arguments.mode = arguments.mode:lower() end
end)
define("BroadcastTo", "x=input shape", "broadcast_to")
define("ZerosLike", "x=input dtype", "zeros_like")
define("OnesLike", "x=input dtype", "ones_like")
define("Shape", "x=input out_type", "shape compat.v1.shape", function(arguments) arguments.out_type = nil end)

local function gather_along(arguments)
  local batch_dims = arguments.batch_dims
  arguments.batch_dims = nil
  if batch_dims and batch_dims ~= 0 then return "batch_dims other than 0" end
  if arguments.axis == nil then arguments.axis = 0 end
end
define("Take", "x=params indices !validate_indices axis batch_dims", "gather compat.v1.gather", gather_along)
define("GetItem", "x=tensor key=slice_spec", "__operators__.getitem")
define("GetItem", "x=input_ key=begin size", "slice", function(arguments)
  local begin, size, key = arguments.key, arguments.size, {}
  if type(begin) ~= "table" or type(size) ~= "table" or #begin ~= #size then return "a computed slice" end
  for i, first in ipairs(begin) do
    local n = size[i]
    if type(first) ~= "number" or type(n) ~= "number" then return "a computed slice" end
    key[i] = { slice = { first, n >= 0 and first + n or core.null, core.null } }
  end
  arguments.key, arguments.size = key, nil
end)

-- Functions of the last axes. Images have the axes -3 and -2 for height and width.
local function of_axes(operation, argument, names, options)
  define(operation, argument, names, function(arguments)
    for name, value in pairs(options) do arguments[name] = value end
  end)
end
of_axes("Swapaxes", "x=a !conjugate", "linalg.matrix_transpose", { axis1 = -2, axis2 = -1 })
of_axes("Swapaxes", "x=image", "image.transpose", { axis1 = -3, axis2 = -2 })
of_axes("Flip", "x=image", "image.flip_left_right", { axis = -2 })
of_axes("Flip", "x=image", "image.flip_up_down", { axis = -3 })
of_axes("Trace", "x", "linalg.trace", { axis1 = -2, axis2 = -1 })

-- ---- products and images ------------------------------------------------------------------------

-- Keras's product does not transpose.
define("Matmul", "x1=a x2=b transpose_a transpose_b !adjoint_a !adjoint_b !a_is_sparse !b_is_sparse !output_type "
  .. "!grad_a !grad_b", "linalg.matmul", function(arguments, layer)
  local first = arguments.transpose_a and "...ji" or "...ij"
  local second = arguments.transpose_b and "...kj" or "...jk"
  if arguments.transpose_a or arguments.transpose_b then
    layer.op, arguments.operands = "Einsum", { arguments.x1, arguments.x2 }
    arguments.subscripts, arguments.x1, arguments.x2 = first .. "," .. second .. "->...ik", nil, nil
  end
  arguments.transpose_a, arguments.transpose_b = nil, nil
end)
define("Einsum", "subscripts=equation operands=inputs", "einsum", function(arguments)
  if not arguments.operands then return "einsum, whose tensors tf.keras does not write to its files," end
end)
define("Tensordot", "x1=a x2=b axes", "tensordot")
define("Resize", "images size interpolation=method !preserve_aspect_ratio antialias", "image.resize",
  function(arguments)
    local size = arguments.size
    if type(size) == "table" and (size.input or type(size[1]) ~= "number" or type(size[2]) ~= "number") then
      return "a computed size"
    end
    if arguments.interpolation == nil then arguments.interpolation = "bilinear" end
  end)

-- {1, 2, 2, 1} as {2, 2}, and the names of TensorFlow's forms.
local FORMATS = { NHWC = "channels_last", NWC = "channels_last", NCHW = "channels_first", NCW = "channels_first" }

local function windows(arguments)
  arguments.data_format = FORMATS[arguments.data_format or "NHWC"] or arguments.data_format
  local first = arguments.data_format == "channels_first"
  for _, name in ipairs { "strides", "pool_size", "dilation_rate" } do
    local list = arguments[name]
    if type(list) == "table" and #list > 2 then
      arguments[name] = { unpack(list, first and 3 or 2, first and #list or #list - 1) }
    end
  end
  if type(arguments.padding) == "string" then arguments.padding = arguments.padding:lower() end
  arguments.use_cudnn_on_gpu = nil
end

define("Conv", "inputs=input kernel=filters kernel=filter strides padding use_cudnn_on_gpu data_format "
  .. "dilation_rate=dilations",
  "nn.conv2d compat.v1.nn.conv2d", windows)
define("Conv", "inputs=value kernel=filters strides=stride padding use_cudnn_on_gpu data_format "
  .. "dilation_rate=dilations !input", "compat.v1.nn.conv1d", windows)
define("Conv", "inputs=input kernel=filters strides=stride padding data_format dilation_rate=dilations", "nn.conv1d",
  windows)
define("Conv", "inputs=input kernel=filters kernel=filter strides padding data_format dilation_rate=dilations "
  .. "dilation_rate=dilation_rate", "nn.convolution compat.v1.nn.convolution", windows)
for operation, names in pairs { MaxPool = "compat.v1.nn.max_pool", AveragePool = "compat.v1.nn.avg_pool" } do
  define(operation, "inputs=value inputs=input pool_size=ksize strides padding data_format", names, windows)
end
for operation, names in pairs { MaxPool = "nn.max_pool2d nn.max_pool compat.v1.nn.max_pool2d nn.max_pool1d",
  AveragePool = "nn.avg_pool2d nn.avg_pool compat.v1.nn.avg_pool2d nn.avg_pool1d" } do
  define(operation, "inputs=input pool_size=ksize strides padding data_format", names, windows)
end
define("DepthToSpace", "x=input block_size data_format", "nn.depth_to_space", windows)
define("SpaceToDepth", "x=input block_size data_format", "nn.space_to_depth", windows)

-- ---- layers -------------------------------------------------------------------------------------

--- is_function(entry) -> whether a layer's entry is one of these.
function M.is_function(entry)
  local name = type(entry) == "table" and entry.class_name
  return name == "TFOpLambda" or name == "SlicingOpLambda"
end

local DEEPEST = 16 -- levels of lists in an argument

-- A value of the node in our form. what: see keras/operations.lua; with what.sizes the tensors are unknown sizes of a
-- shape, which the number of elements tells.
local function from_value(value, what, depth)
  if type(value) ~= "table" then return value end
  if depth > DEEPEST then objects.damaged(what.at, "%s: an argument is too deep", what.who) end
  if value[1] == "_CONSTANT_VALUE" then return from_value(value[3], what, depth + 1) end
  local place = what.place(value)
  if place and what.sizes then return core.null end
  if place then
    table.insert(what.places, place)
    return { input = #what.places }
  end
  if value.class_name == "__ellipsis__" then return { ellipsis = true } end
  if value.start ~= nil or value.stop ~= nil or value.step ~= nil then
    return { slice = { value.start or core.null, value.stop or core.null, value.step or core.null } }
  end
  if value.class_name ~= nil then
    objects.fail(what.at, "%s: an argument of class %s is not supported", what.who, tostring(value.class_name))
  end
  local list = {}
  for i, item in ipairs(value) do list[i] = from_value(item, what, depth + 1) end
  return #list > 0 and list or core.empty_array
end

-- The named arguments: the fourth entry of a place, in front or in each entry of a list.
local function named_arguments(node, depth)
  if type(node) ~= "table" or depth > DEEPEST then return nil end
  if type(node[1]) == "string" then return type(node[4]) == "table" and node[4] or nil end
  for _, item in ipairs(node) do
    local found = named_arguments(item, depth + 1)
    if found then return found end
  end
end

-- Whether the shape begins with the first size of the tensor that gets it, the function's first argument.
local function keeps_first(shape, values, known, what)
  local from = computed_shapes.first_of(shape, what.place, what.at.layer_at)
  local own = what.place(values[known.arguments[1][1]])
  return from and own and from.name == own.name and from.use == own.use and from.output == own.output
end

-- The operation's arguments from those of the function. layer.keeps_first tells change() that the first size of a shape
-- is that of the tensor.
local function read_arguments(known, row, values, what, layer)
  local ours, at_name, names = {}, {}, {}
  for _, pair in ipairs(known.arguments) do at_name[pair[1]] = pair[2] or false end
  for name in pairs(values) do names[#names + 1] = name end
  table.sort(names) -- so that inputs are numbered alike in each process
  for _, name in ipairs(names) do
    local value, our_name = values[name], at_name[name]
    if our_name then
      what.sizes = operation_arguments.kind_of(row, our_name) == "shape"
      local computed = what.sizes and what.place(value)
      local sizes = computed and computed_shapes.find(computed, what.at.layer_at)
      if computed and not sizes then
        objects.fail(what.at, "%s: its %s is computed by the model, which is not supported", what.who, name)
      end
      ours[our_name] = sizes or from_value(value, what, 1)
      if what.sizes then layer.keeps_first = keeps_first(value, values, known, what) end
    elseif value ~= false then
      objects.fail(what.at, "%s: the argument %s is not supported", what.who, name)
    end
  end
  return ours
end

--- from_call(entry, name, values, at, place) -> our layer's {class_name =, config =} for a call of the function with
--- these values by the names of its arguments (nil for the first one: its own), and the places of its inputs.
function M.from_call(entry, name, values, at, place)
  local known = FUNCTIONS[name]
  if not known then
    objects.fail(at, "the function tf.%s (layer %q) is not supported", name, tostring(entry.name))
  end
  local row = keras_operations.find(known.operation, at)
  local what = { at = at, who = ("layer %q"):format(tostring(entry.name)), place = place, places = {} }
  if values[1] ~= nil then values[known.arguments[1][1]], values[1] = values[1], nil end
  local layer = { op = known.operation }
  local ours = read_arguments(known, row, values, what, layer)
  local problem = known.change and known.change(ours, layer)
  if problem then objects.fail(at, "%s: %s is not supported", what.who, problem) end
  if layer.class_name then
    local options = layer.config or {}
    options.name = entry.name
    return { class_name = layer.class_name, config = options }, what.places
  end
  return keras_operations.layer(entry.name, keras_operations.find(layer.op, at), ours), what.places
end

--- from_node(entry, node, at, place) -> the same for one use of a layer.
function M.from_node(entry, node, at, place)
  local config = given(entry.config)
  local name = type(config) == "table" and config["function"]
  if type(name) ~= "string" then objects.damaged(at, "the layer %q names no function", tostring(entry.name)) end
  local values = { node }
  for key, value in pairs(named_arguments(node, 1) or {}) do
    if key ~= "name" and type(key) == "string" and given(value) ~= nil then values[key] = value end
  end
  return M.from_call(entry, name, values, at, place)
end

return M
