--- The methods of symbolic tensors that make operations: x:mean(2) is Mean with axis = 1.
--
-- A method has the name and the options of the method of tensors; METHODS says which operation it is and, in the order
-- of the method's options, what they are called there: "operation's name=ours", or one name where both are equal.
local arguments = require "mgpu.nn.operations.arguments"
local core = require "mgpu.core"
local operations = require "mgpu.nn.operations"
local tensor_arguments = require "mgpu.tensor.arguments"

local METHODS = { reshape = "Reshape newshape=shape", transpose = "Transpose axes=order",
  permute = "Transpose axes=order", expand_dims = "ExpandDims axis", squeeze = "Squeeze axis", flip = "Flip axis",
  roll = "Roll shift axis", tile = "Tile repeats", repeat_elements = "Repeat repeats axis",
  split = "Split indices_or_sections=n axis", slice = "GetItem key=ranges",
  gather = "Take indices=ids axis", clip = "Clip x_min=low x_max=high",
  cast = "Cast dtype", to = "Cast dtype", one_hot = "OneHot num_classes=classes dtype", top_k = "TopK k",
  where = "Where x1=a x2=b", matmul = "Matmul x2=b", softmax = "Softmax axis", log_softmax = "LogSoftmax axis",
  argmax = "Argmax axis", argmin = "Argmin axis", sort = "Sort axis", argsort = "Argsort axis", cumsum = "Cumsum axis",
  cumprod = "Cumprod axis", broadcast_to = "BroadcastTo shape", stop_gradient = "StopGradient" }

for method, operation in pairs { sum = "Sum", mean = "Mean", max = "Max", min = "Min", prod = "Prod", var = "Var",
  std = "Std", all = "All", any = "Any", logsumexp = "Logsumexp" } do
  METHODS[method] = operation .. " axis keepdims"
end
for method, operation in pairs { abs = "Absolute", acos = "Arccos", asin = "Arcsin", atan = "Arctan", ceil = "Ceil",
  cos = "Cos", cosh = "Cosh", erf = "Erf", exp = "Exp", expm1 = "Expm1", floor = "Floor", isfinite = "Isfinite",
  isnan = "Isnan", log = "Log", log1p = "Log1p", logical_not = "LogicalNot", neg = "Negative",
  reciprocal = "Reciprocal", relu = "Relu", round = "Round", rsqrt = "Rsqrt", sigmoid = "Sigmoid", sign = "Sign",
  sin = "Sin", sinh = "Sinh", softplus = "Softplus", sqrt = "Sqrt", square = "Square", tan = "Tan",
  tanh = "Tanh" } do
  METHODS[method] = operation
end
for method, operation in pairs { add = "Add", sub = "Subtract", mul = "Multiply", div = "Divide", pow = "Power",
  mod = "Mod", floordiv = "FloorDivide", maximum = "Maximum", minimum = "Minimum", atan2 = "Arctan2", gt = "Greater",
  ge = "GreaterEqual", lt = "Less", le = "LessEqual", eq = "Equal", ne = "NotEqual", logical_and = "LogicalAnd",
  logical_or = "LogicalOr", logical_xor = "LogicalXor" } do
  METHODS[method] = operation .. " x2=b"
end

local M = {}

-- ---- our values as Keras's ----------------------------------------------------------------------

local to_keras = {}

function to_keras.axis(value)
  if type(value) == "number" then return value > 0 and value - 1 or value end
  local list = {}
  for i, axis in ipairs(value) do list[i] = to_keras.axis(axis) end
  return list
end

-- A range {first, last, step}, positions from 1 with the last one included, as a slice.
local function slice_of(range)
  local first, last, step = range[1], range[2], range[3]
  if step and step < 0 then core.fail("usage", "slice: a symbolic tensor cannot be sliced backwards: use flip") end
  if last == -1 then last = nil end
  if last and last < 0 then last = last + 1 end
  return { slice = { first and first > 0 and first - 1 or first or core.null, last or core.null, step or core.null } }
end

function to_keras.key(ranges)
  local key, last = {}, 0
  for axis in pairs(ranges) do last = math.max(last, type(axis) == "number" and axis or 0) end
  for axis = 1, last do
    local r = ranges[axis] or {}
    key[axis] = type(r) == "number" and to_keras.axis(r) or slice_of(r)
  end
  return key
end

-- A value as an argument of the operation: tensors as constants; inputs: gets the symbolic tensors.
local function operand(value, inputs, is_symbol)
  if core.is_tensor(value) then return { tensor = value:totable(), dtype = value:dtype() } end
  if not is_symbol(value) then return value end
  inputs[#inputs + 1] = value
  return { input = #inputs }
end

--- find(name, is_symbol, apply) -> the method, or nil. is_symbol(value) recognises symbolic tensors; apply(operation,
--- arguments, inputs) makes the node.
function M.find(name, is_symbol, apply)
  local text = type(name) == "string" and METHODS[name]
  if not text then return nil end
  local operation, names, options = text:match "%S+", {}, {}
  for ours, theirs in text:sub(#operation + 1):gmatch "([%w_]+)=?([%w_]*)" do
    names[#names + 1] = theirs == "" and ours or theirs
    options[#options + 1] = ours
  end
  local row = operations.find(operation)
  return function(self, ...)
    if not is_symbol(self) then core.fail("usage", ("%s: call it with a colon, as in t:%s(...)"):format(name, name)) end
    local given, inputs = {}, { self }
    given[row.arguments[1].name] = { input = 1 }
    local first = ...
    local values = is_symbol(first) and { ... } or { tensor_arguments.read_options(name, names, ...) }
    for i, option in ipairs(options) do
      local kind = arguments.kind_of(row, option)
      if values[i] ~= nil then
        given[option] = (to_keras[kind] or operand)(values[i], inputs, is_symbol)
      end
    end
    return apply(operation, given, inputs)
  end
end

return M
