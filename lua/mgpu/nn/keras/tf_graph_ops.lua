--- Layers of tf.keras 1.15 to 2.3 that are an op of TensorFlow's graph (TensorFlowOpLayer) -> our layer Operation.
--
-- {config = {node_def = {op = "Sub", input = {"Sub/x", "x"}, attr = {...}}, constants = {["0"] = 1}}, inbound_nodes =
-- {{{"x", 0, 0, {}}}}}: constants are at these positions of the op's inputs, counted from 0, tensors of the model at
-- the others. OPS says which function of TensorFlow (tf_functions.lua) the op is a call of.
local base64 = require "mgpu.io.base64"
local core = require "mgpu.core"
local objects = require "mgpu.nn.keras.objects"
local tf_functions = require "mgpu.nn.keras.tf_functions"

local M = {}

local given = objects.given

-- op -> the function, the names of its arguments in the order of the op's inputs, and "argument=attribute" for those
-- that are attributes. change(values, attributes): what else differs, RETURNS a problem.
local OPS = {}

local function define(names, name, inputs, attributes, change)
  local op = { name = name, inputs = {}, attributes = {}, change = change }
  for input in inputs:gmatch "%S+" do op.inputs[#op.inputs + 1] = input end
  for argument, attribute in (attributes or ""):gmatch "([%w_]+)=([%w_]+)" do op.attributes[argument] = attribute end
  for each in names:gmatch "%S+" do OPS[each] = op end
end

for op, name in pairs { Abs = "abs", Acos = "acos", Acosh = "acosh", Asin = "asin", Asinh = "asinh", Atan = "atan",
  Atanh = "atanh", Ceil = "ceil", Cos = "cos", Cosh = "cosh", Erf = "erf", Erfc = "erfc", Exp = "exp", Expm1 = "expm1",
  Floor = "floor", IsFinite = "is_finite", IsInf = "is_inf", IsNan = "is_nan", Log = "log", Log1p = "log1p",
  LogicalNot = "logical_not", Neg = "negative", Reciprocal = "reciprocal", Round = "round", Rsqrt = "rsqrt",
  Sigmoid = "sigmoid", Sign = "sign", Sin = "sin", Sinh = "sinh", Sqrt = "sqrt", Square = "square", Tan = "tan",
  Tanh = "tanh" } do
  define(op, "math." .. name, "x")
end
for op, name in pairs { Add = "add", AddV2 = "add", Sub = "subtract", Mul = "multiply",
  RealDiv = "truediv", Div = "truediv", DivNoNan = "divide_no_nan", FloorDiv = "floordiv", FloorMod = "floormod",
  Pow = "pow", Maximum = "maximum", Minimum = "minimum", Greater = "greater", GreaterEqual = "greater_equal",
  Less = "less", LessEqual = "less_equal", Equal = "equal", NotEqual = "not_equal", LogicalAnd = "logical_and",
  LogicalOr = "logical_or" } do
  define(op, "math." .. name, "x y")
end
for op, name in pairs { Relu = "relu", Relu6 = "relu6", Selu = "selu", Elu = "elu", Softplus = "softplus",
  Softsign = "softsign" } do
  define(op, "nn." .. name, "features")
end
for op, name in pairs { Mean = "mean", Sum = "sum", Max = "max", Min = "min", Prod = "prod", All = "all",
  Any = "any" } do
  define(op, "math.reduce_" .. name, "input_tensor axis", "keepdims=keep_dims")
end

define("Atan2", "math.atan2", "y x")
define("BiasAdd", "nn.bias_add", "value bias", "data_format=data_format")
define("Rint", "math.rint", "x")
define("Slice", "slice", "input_ begin size")
define("LeakyRelu", "nn.leaky_relu", "features", "alpha=alpha")
define("Softmax", "nn.softmax", "logits")
define("LogSoftmax", "nn.log_softmax", "logits")
define("Identity", "identity", "input")
-- Of functions with a gradient of their own, such as swish; the other inputs are what the gradient needs.
define("IdentityN", "identity", "input others", "", function(values) values.others = nil end)
define("StopGradient", "stop_gradient", "input")
define("Select SelectV2", "where", "condition x y")
define("Cast", "cast", "x", "dtype=DstT")
define("ArgMax", "math.argmax", "input axis")
define("ArgMin", "math.argmin", "input axis")
define("Cumsum", "math.cumsum", "x axis", "exclusive=exclusive reverse=reverse")
define("Cumprod", "math.cumprod", "x axis", "exclusive=exclusive reverse=reverse")
define("TopKV2", "math.top_k", "input k", "sorted=sorted")
define("Reshape", "reshape", "tensor shape")
define("Transpose", "transpose", "a perm")
define("ExpandDims", "expand_dims", "input axis")
define("Squeeze", "squeeze", "input", "axis=squeeze_dims")
define("Pack", "stack", "*values", "axis=axis")
define("Unpack", "unstack", "value", "num=num axis=axis")
define("ConcatV2", "concat", "*values axis")
define("AddN", "math.add_n", "*inputs")
define("Split", "split", "axis value", "num_or_size_splits=num_split")
define("SplitV", "split", "value num_or_size_splits axis")
define("Tile", "tile", "input multiples")
define("Pad", "pad", "tensor paddings")
define("PadV2", "pad", "tensor paddings constant_values")
define("MirrorPad", "pad", "tensor paddings", "mode=mode")
define("ReverseV2", "reverse", "tensor axis")
define("Roll", "roll", "input shift axis")
define("BroadcastTo", "broadcast_to", "input shape")
define("ZerosLike", "zeros_like", "input")
define("OnesLike", "ones_like", "input")
define("Shape", "shape", "input")
define("GatherV2", "gather", "params indices axis", "batch_dims=batch_dims")
define("OneHot", "one_hot", "indices depth on_value off_value", "axis=axis dtype=T", function(values)
  if values.on_value ~= 1 or values.off_value ~= 0 then return "one_hot with values other than 1 and 0" end
  values.on_value, values.off_value = nil, nil
end)
define("MatMul", "linalg.matmul", "a b", "transpose_a=transpose_a transpose_b=transpose_b")
define("BatchMatMul BatchMatMulV2", "linalg.matmul", "a b", "transpose_a=adj_x transpose_b=adj_y")
define("Conv2D", "nn.conv2d", "input filters", "strides=strides padding=padding data_format=data_format "
  .. "dilations=dilations")
define("MaxPool", "nn.max_pool2d", "input", "ksize=ksize strides=strides padding=padding data_format=data_format")
define("AvgPool", "nn.avg_pool2d", "input", "ksize=ksize strides=strides padding=padding data_format=data_format")
define("DepthToSpace", "nn.depth_to_space", "input", "block_size=block_size data_format=data_format")
define("SpaceToDepth", "nn.space_to_depth", "input", "block_size=block_size data_format=data_format")

local function resized(method)
  return function(values, attributes)
    if not attributes.half_pixel_centers then return "resizing without half_pixel_centers" end
    values.method = method
  end
end
define("ResizeBilinear", "image.resize", "images size", "", resized "bilinear")
define("ResizeNearestNeighbor", "image.resize", "images size", "", resized "nearest")

-- Whether bit i of the mask is set.
local function bit_set(mask, i) return math.floor((mask or 0) / 2 ^ i) % 2 == 1 end

define("StridedSlice", "__operators__.getitem", "tensor begin end strides", "", function(values, masks)
  local begin, stop, strides, spec = values.begin, values["end"], values.strides, {}
  values.begin, values["end"], values.strides = nil, nil, nil
  if type(begin) ~= "table" or type(stop) ~= "table" or type(strides) ~= "table" then return "a computed slice" end
  for i = 1, #begin do
    if bit_set(masks.ellipsis_mask, i - 1) then
      spec[i] = { class_name = "__ellipsis__" }
    elseif bit_set(masks.new_axis_mask, i - 1) then
      spec[i] = core.null
    elseif bit_set(masks.shrink_axis_mask, i - 1) then
      spec[i] = begin[i]
    else
      spec[i] = { start = not bit_set(masks.begin_mask, i - 1) and begin[i] or core.null,
        stop = not bit_set(masks.end_mask, i - 1) and stop[i] or core.null, step = strides[i] }
    end
  end
  values.slice_spec = spec
end)

define("Einsum", "einsum", "*inputs", "equation=equation")

-- ---- attributes ---------------------------------------------------------------------------------

local DTYPES = { DT_FLOAT = "float32", DT_DOUBLE = "float64", DT_HALF = "float16", DT_BFLOAT16 = "bfloat16",
  DT_INT32 = "int32", DT_INT64 = "int64", DT_UINT8 = "uint8", DT_BOOL = "bool" }

-- The value of an attribute: {i = "5"}, {b = true}, {f = 0.1}, {s = "U0FNRQ=="}, {type = "DT_FLOAT"}, {list = {i =
-- ...}}.
local function attribute(value)
  if type(value) ~= "table" then return nil end
  if value.b ~= nil then return value.b end
  if value.f ~= nil then return value.f end
  if value.i ~= nil then return tonumber(value.i) end
  if type(value.s) == "string" then return base64.decode(value.s) end
  if value.type ~= nil then return DTYPES[value.type] or tostring(value.type) end
  local numbers = type(value.list) == "table" and value.list.i
  if type(numbers) ~= "table" then return nil end
  local list = {}
  for i, n in ipairs(numbers) do list[i] = tonumber(n) end
  return list
end

-- ---- layers -------------------------------------------------------------------------------------

--- is_graph_op(entry) -> whether a layer's entry is one of these.
function M.is_graph_op(entry) return type(entry) == "table" and entry.class_name == "TensorFlowOpLayer" end

-- The values of the op's inputs: constants, and the places of tensors in their order.
local function inputs_of(definition, config, node, who, at)
  local constants, values, next_place = given(config.constants) or {}, {}, 1
  local places = type(node[1]) == "string" and { node } or node
  for i, name in ipairs(type(definition.input) == "table" and definition.input or {}) do
    if type(name) ~= "string" or name:sub(1, 1) == "^" then break end -- "^": no value, but an order
    local constant = type(constants) == "table" and given(constants[tostring(i - 1)])
    if constant ~= nil and constant ~= false then
      values[i] = constant
    else
      values[i] = places[next_place] or objects.damaged(at, "%s: input %d is missing", who, i)
      next_place = next_place + 1
    end
  end
  return values
end

-- The function's arguments by name.
local function arguments_of(op, inputs, attributes)
  local values, fixed = {}, #op.inputs - 1
  for i, name in ipairs(op.inputs) do
    if name:sub(1, 1) == "*" then -- all inputs but those that follow
      values[name:sub(2)] = { unpack(inputs, 1, #inputs - fixed) }
    else
      local from = op.inputs[1]:sub(1, 1) == "*" and #inputs - #op.inputs + i or i
      values[name] = inputs[from]
    end
  end
  for name, from in pairs(op.attributes) do values[name] = attributes[from] end
  return values
end

--- from_node(entry, node, at, place) -> our layer's {class_name =, config =} for one use, and the places of its inputs.
function M.from_node(entry, node, at, place)
  local config, who = given(entry.config), ("layer %q"):format(tostring(entry.name))
  local definition = type(config) == "table" and config.node_def
  if type(definition) == "string" then definition = core.json_decode(definition) end
  if type(definition) ~= "table" or type(definition.op) ~= "string" then
    objects.damaged(at, "%s has no node_def", who)
  end
  local op, attributes = OPS[definition.op], {}
  if not op then objects.fail(at, "the TensorFlow op %s (%s) is not supported", definition.op, who) end
  for name, value in pairs(type(definition.attr) == "table" and definition.attr or {}) do
    attributes[name] = attribute(value)
  end
  local values = arguments_of(op, inputs_of(definition, config, node, who, at), attributes)
  local problem = op.change and op.change(values, attributes)
  if problem then objects.fail(at, "%s: %s is not supported", who, problem) end
  return tf_functions.from_call(entry, op.name, values, at, place)
end

return M
