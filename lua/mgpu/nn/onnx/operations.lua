--- Operations of functional models (layers/operation.lua) as ops of ONNX: those element by element, reductions,
--- and those of axes.
local M = {}

local function output_shape(layer, vs)
  local shapes = {}
  for i, v in ipairs(vs) do shapes[i] = v.shape end
  return layer:output_shape(#shapes > 1 and shapes or shapes[1])
end

-- ---- element by element -------------------------------------------------------------------------

local UNARY = { Absolute = "Abs", Ceil = "Ceil", Cos = "Cos", Cosh = "Cosh", Erf = "Erf", Exp = "Exp", Floor = "Floor",
  Log = "Log", Negative = "Neg", Reciprocal = "Reciprocal", Relu = "Relu", Round = "Round", Sigmoid = "Sigmoid",
  Sign = "Sign", Sin = "Sin", Sinh = "Sinh", Softplus = "Softplus", Softsign = "Softsign", Sqrt = "Sqrt", Tan = "Tan",
  Tanh = "Tanh" }

local BINARY = { Add = "Add", Divide = "Div", Maximum = "Max", Minimum = "Min", Multiply = "Mul", Power = "Pow",
  Subtract = "Sub", TrueDivide = "Div" }

-- The remainder with the sign of b.
local function remainder(g, a, b)
  local whole = g:op("Floor", { g:op("Div", { a, b }) })
  return g:op("Sub", { a, g:op("Mul", { whole, b }) })
end

local function operate(g, op, a, b)
  if op == "Mod" then return remainder(g, a, b) end
  return g:op(BINARY[op], { a, b })
end

-- Two inputs broadcast as they are; a number does not care about the order of axes.
local function binary(g, layer, vs)
  local a, b = layer.arguments.x1, layer.arguments.x2
  if type(a) == "table" and type(b) == "table" then
    if not (a.input and b.input) then layer:fail "a constant tensor cannot be saved as .onnx" end
    local first, second = vs[a.input], vs[b.input]
    return g.value(operate(g, layer.op, g:plain(first), g:plain(second)), output_shape(layer, vs),
      first.dtype)
  end
  return g:map(vs[1], function(x)
    if type(a) == "table" then return operate(g, layer.op, x, g:number(b, vs[1].dtype)) end
    return operate(g, layer.op, g:number(a, vs[1].dtype), x)
  end)
end

-- ---- reductions ---------------------------------------------------------------------------------

local REDUCTIONS = { Amax = "ReduceMax", Amin = "ReduceMin", Max = "ReduceMax", Mean = "ReduceMean", Min = "ReduceMin",
  Prod = "ReduceProd", Sum = "ReduceSum" }

local function reduction(g, layer, vs)
  local axis, keepdims = layer.arguments.axis, layer.arguments.keepdims and 1 or 0
  local op, x = REDUCTIONS[layer.op], g:plain(vs[1])
  local axes = type(axis) == "number" and { axis } or axis
  local name
  if op == "ReduceSum" then -- axes are an input of this one only
    name = g:op(op, { x, axes and g:integers(axes) }, { keepdims = keepdims })
  else
    name = g:op(op, { x }, { axes = axes, keepdims = keepdims })
  end
  return g.value(name, output_shape(layer, vs), vs[1].dtype)
end

-- ---- axes ---------------------------------------------------------------------------------------

local function as_list(axis) return type(axis) == "table" and axis or { axis } end

-- Axes of size 1 that are added or dropped, and another order of axes.
local AXES = {
  ExpandDims = function(g, x, arguments) return g:op("Unsqueeze", { x, g:integers(as_list(arguments.axis)) }) end,
  Squeeze = function(g, x, arguments)
    return g:op("Squeeze", { x, arguments.axis and g:integers(as_list(arguments.axis)) })
  end,
  Transpose = function(g, x, arguments) return g:op("Transpose", { x }, { perm = arguments.axes }) end,
}

-- ---- the layer ----------------------------------------------------------------------------------

function M.Operation(g, layer, given)
  local vs = layer.count > 1 and given or { given }
  for _, v in ipairs(vs) do
    if not v.dtype:find "float" then layer:fail("an operation on %s cannot be saved as .onnx", v.dtype) end
  end
  local op, arguments = layer.op, layer.arguments
  if UNARY[op] then return g:map(vs[1], function(x) return g:op(UNARY[op], { x }) end) end
  if op == "Square" then return g:map(vs[1], function(x) return g:op("Mul", { x, x }) end) end
  if BINARY[op] or op == "Mod" then return binary(g, layer, vs) end
  if REDUCTIONS[op] and not arguments.initial and not arguments.dtype then return reduction(g, layer, vs) end
  if AXES[op] then
    return g.value(AXES[op](g, g:plain(vs[1]), arguments), output_shape(layer, vs), vs[1].dtype)
  end
  layer:fail("the operation %s cannot be saved as .onnx", op)
end

return M
