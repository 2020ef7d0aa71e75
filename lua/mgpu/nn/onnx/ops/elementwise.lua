--- Ops of ONNX element by element: see ops/init.lua for what a row is.
local activations = require "mgpu.nn.activations"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local elementwise = require "mgpu.nn.operations.elementwise"
local types = require "mgpu.nn.onnx.types"
local values = require "mgpu.nn.onnx.values"

local ops, map = core.ops, values.map

local M = {}

local function is_float(t) return t:dtype():find "float" ~= nil end

-- ---- one input ----------------------------------------------------------------------------------

local function unary(fn) return { "1", function(_, x) return map(fn, x) end } end

for name, op in pairs { Abs = "abs", Acos = "acos", Asin = "asin", Atan = "atan", Ceil = "ceil", Cos = "cos",
  Cosh = "cosh", Erf = "erf", Exp = "exp", Floor = "floor", IsNaN = "isnan", Log = "log", Neg = "neg",
  Not = "logical_not", Reciprocal = "reciprocal", Relu = "relu", Round = "round", Sigmoid = "sigmoid", Sign = "sign",
  Sin = "sin", Sinh = "sinh", Softplus = "softplus", Sqrt = "sqrt", Tan = "tan", Tanh = "tanh" } do
  M[name] = unary(ops[op])
end
for name, operation in pairs { Acosh = "Arccosh", Asinh = "Arcsinh", Atanh = "Arctanh" } do
  M[name] = unary(elementwise[operation][2])
end
for name, activation in pairs { HardSwish = "hard_swish", Mish = "mish", Softsign = "softsign" } do
  M[name] = unary(activations.get(activation))
end

M.IsInf = { "1 | detect_negative:int=1 detect_positive:int=1", function(c, x)
  local below, above = elementwise.Isneginf[2], elementwise.Isposinf[2]
  return map(function(t)
    if c.detect_negative ~= 0 and c.detect_positive ~= 0 then return elementwise.Isinf[2](t) end
    if c.detect_negative ~= 0 then return below(t) end
    return c.detect_positive ~= 0 and above(t) or ops.full(t:shape(), 0, "bool")
  end, x)
end }

M.Identity = { "1", function(_, x) return x end }

-- At inference nothing is dropped.
M.Dropout = { "1-3 | ratio:float? seed:int?", function(c, x, _, training)
  if training and training:number "training_mode" then
    core.fail("unsupported", "training_mode is true: export the model for inference")
  end
  if c.outputs < 2 then return x end
  return x, map(function(t) return ops.full(t:shape(), 1, "bool") end, x)
end }

-- x where it is positive, else below(x).
local function from_zero(t, below) return ops.where(ops.gt(t, 0), t, below) end

M.LeakyRelu = { "1 | alpha:float=0.01", function(c, x)
  return map(function(t) return ops.where(ops.ge(t, 0), t, t * c.alpha) end, x)
end }
M.Elu = { "1 | alpha:float=1", function(c, x)
  return map(function(t) return from_zero(t, ops.expm1(ops.minimum(t, 0)) * c.alpha) end, x)
end }
M.Selu = { "1 | alpha:float=1.67326319217681884765625 gamma:float=1.05070102214813232421875", function(c, x)
  return map(function(t) return from_zero(t, ops.expm1(ops.minimum(t, 0)) * c.alpha) * c.gamma end, x)
end }
M.Celu = { "1 | alpha:float=1", function(c, x)
  return map(function(t) return from_zero(t, ops.expm1(ops.minimum(t, 0) / c.alpha) * c.alpha) end, x)
end }
M.ThresholdedRelu = { "1 | alpha:float=1", function(c, x)
  return map(function(t) return ops.where(ops.gt(t, c.alpha), t, 0) end, x)
end }
M.HardSigmoid = { "1 | alpha:float=0.2 beta:float=0.5", function(c, x)
  return map(function(t) return composite.clip(t * c.alpha + c.beta, 0, 1) end, x)
end }
M.Shrink = { "1 | bias:float=0 lambd:float=0.5", function(c, x)
  return map(function(t)
    local y = ops.where(ops.gt(t, c.lambd), t - c.bias, 0)
    return ops.cast(ops.where(ops.lt(t, -c.lambd), t + c.bias, y), t:dtype())
  end, x)
end }
M.Gelu = { '1 | approximate:text="none"', function(c, x)
  if c.approximate == "tanh" then
    return map(function(t)
      return t * 0.5 * (1 + ops.tanh((t + ops.pow(t, 3) * 0.044715) * 0.7978845608028654))
    end, x)
  end
  if c.approximate ~= "none" then core.fail("unsupported", ("approximate = %q"):format(c.approximate)) end
  return map(function(t) return t * 0.5 * (1 + ops.erf(t * 0.7071067811865476)) end, x)
end }
M.Swish = { "1 | alpha:float=1", function(c, x)
  return map(function(t) return t * ops.sigmoid(t * c.alpha) end, x)
end }

-- Bounds are attributes up to opset 10, and inputs later.
M.Clip = { "1-3 | min:float? max:float?", function(c, x, low, high)
  low, high = low and low:tensor() or c.min, high and high:tensor() or c.max
  return map(function(t)
    if low then t = ops.maximum(t, low) end
    return high and ops.minimum(t, high) or t
  end, x)
end }

-- ---- several inputs -----------------------------------------------------------------------------

local function binary(fn) return { "2", function(_, a, b) return map(fn, a, b) end } end

for name, op in pairs { Add = "add", And = "logical_and", Equal = "eq", Greater = "gt", GreaterOrEqual = "ge",
  Less = "lt", LessOrEqual = "le", Mul = "mul", Or = "logical_or", Sub = "sub", Xor = "logical_xor" } do
  M[name] = binary(ops[op])
end

-- Integers are rounded towards zero, as in C.
local function truncated(a, b)
  local q = ops.floordiv(a, b)
  local inexact = ops.ne(q * b, a)
  return ops.where(ops.logical_and(inexact, ops.lt(q, 0)), q + 1, q)
end
M.Div = binary(function(a, b) return is_float(a) and ops.div(a, b) or truncated(a, b) end)

-- The remainder with the sign of the dividend, as in C.
local function remainder(a, b)
  local r = ops.mod(ops.abs(a), ops.abs(b))
  if is_float(a) then r = ops.where(elementwise.Isinf[2](b), ops.abs(a), r) end
  return ops.where(ops.lt(a, 0), -r, r)
end

-- fmod = 0: the sign is that of the divisor, as in Python, also where that is infinite.
M.Mod = { "2 | fmod:int=0", function(c, x, y)
  return map(function(a, b)
    if c.fmod ~= 0 then return remainder(a, b) end
    if not is_float(a) then return ops.mod(a, b) end
    local r = remainder(a, b)
    return ops.where(ops.logical_and(ops.ne(r, 0), ops.ne(ops.lt(r, 0), ops.lt(b, 0))), r + b, r)
  end, x, y)
end }

-- The result has the base's type. Powers of integers by integers are exact up to 2^53, those by fractions are rounded
-- towards zero.
M.Pow = binary(function(a, b)
  local dtype = a:dtype()
  if is_float(a) then return ops.cast(ops.pow(a, ops.cast(b, dtype)), dtype) end
  local y = ops.pow(ops.cast(a, "float64"), ops.cast(b, "float64"))
  return ops.cast(is_float(b) and y or ops.round(y), dtype)
end)

-- A slope has one axis for each of x's last ones; one of a single axis is that of the channels in old files only.
M.PRelu = binary(function(x, slope) return ops.where(ops.ge(x, 0), x, x * slope) end)

local function folded(fn, finish)
  return { "1+", function(_, ...)
    local list = { ... }
    local y = list[1]
    for i = 2, #list do y = map(fn, y, list[i]) end
    return finish and finish(y, #list) or y
  end }
end
M.Max, M.Min, M.Sum = folded(ops.maximum), folded(ops.minimum), folded(ops.add)
M.Mean = folded(ops.add, function(y, n) return map(function(t) return t / n end, y) end)

M.Where = { "3", function(_, condition, a, b) return map(ops.where, condition, a, b) end }

-- ---- types --------------------------------------------------------------------------------------

-- ONNX leaves numbers out of range undefined; here they saturate.
M.Cast = { "1 | to:int saturate:int=1 round_mode:text?", function(c, x)
  local dtype = types.dtype_of(c.to)
  return map(function(t) return ops.cast(t, dtype) end, x)
end }
M.CastLike = { "2 | saturate:int=1 round_mode:text?", function(_, x, like)
  return map(function(t) return ops.cast(t, like:dtype()) end, x)
end }

return M
