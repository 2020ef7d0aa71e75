--- Operations of keras.ops element by element; see init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

-- ---- one operand --------------------------------------------------------------------------------

for name, op in pairs { Absolute = "abs", Abs = "abs", Arccos = "acos", Arcsin = "asin", Arctan = "atan", Ceil = "ceil",
  Cos = "cos", Cosh = "cosh", Exp = "exp", Expm1 = "expm1", Fabs = "abs", Floor = "floor", Isfinite = "isfinite",
  Isnan = "isnan", Log = "log", Log1p = "log1p", LogicalNot = "logical_not", Negative = "neg",
  Reciprocal = "reciprocal", Sign = "sign", Sin = "sin", Sinh = "sinh", Sqrt = "sqrt", Square = "square", Tan = "tan",
  Tanh = "tanh" } do
  M[name] = { "x", ops[op] }
end

local function unchanged(x) return x end
for _, name in ipairs { "Copy", "Conjugate", "Conj", "Real" } do M[name] = { "x", unchanged } end
M.Array = { "x | dtype?", function(x, dtype) return dtype and ops.cast(x, dtype) or x end }

-- log(s + sqrt(s^2 + 1)) of the size s, in forms in which nothing cancels below 1 and nothing overflows above.
M.Arcsinh = { "x", function(x)
  local negative = ops.lt(x, 0)
  local size = ops.where(negative, -x, x)
  local small, large = ops.minimum(size, 1), ops.maximum(size, 1)
  local square = ops.square(small)
  local y = ops.where(ops.lt(size, 1), ops.log1p(small + square / (ops.sqrt(square + 1) + 1)),
    ops.log(large) + ops.log1p(ops.sqrt(ops.square(ops.reciprocal(large)) + 1)))
  return ops.where(negative, -y, y)
end }
-- log(x + sqrt(x^2 - 1)), without the square.
M.Arccosh = { "x", function(x)
  local r = ops.reciprocal(x)
  local apart = ops.where(ops.isfinite(x), (x - 1) * r, 1)
  return ops.log(x) + ops.log1p(ops.sqrt(apart * (r + 1)))
end }
M.Arctanh = { "x", function(x) return (ops.log1p(x) - ops.log1p(-x)) * 0.5 end }
M.Cbrt = { "x", function(x) return ops.sign(x) * ops.pow(ops.abs(x), 1 / 3) end }
M.Deg2rad = { "x", function(x) return x * (math.pi / 180) end }
M.Rad2deg = { "x", function(x) return x * (180 / math.pi) end }
M.Exp2 = { "x", function(x) return ops.pow(2, x) end }
M.Log2 = { "x", function(x) return ops.log(x) * (1 / math.log(2)) end }
M.Log10 = { "x", function(x) return ops.log(x) * (1 / math.log(10)) end }

local function is_infinite(x) return ops.logical_not(ops.logical_or(ops.isfinite(x), ops.isnan(x))) end
M.Isinf = { "x", is_infinite }
M.Isposinf = { "x", function(x) return ops.logical_and(is_infinite(x), ops.gt(x, 0)) end }
M.Isneginf = { "x", function(x) return ops.logical_and(is_infinite(x), ops.lt(x, 0)) end }

-- The largest finite number of a dtype.
local LARGEST = { float16 = 65504, bfloat16 = 3.3895313892515355e38, float32 = 3.4028234663852886e38,
  float64 = 1.7976931348623157e308 }

M.NanToNum = { "x | nan? posinf? neginf?", function(x, nan, posinf, neginf)
  local largest = LARGEST[x:dtype()]
  if not largest then return x end
  local above, below = ops.logical_and(is_infinite(x), ops.gt(x, 0)), ops.logical_and(is_infinite(x), ops.lt(x, 0))
  x = ops.where(ops.isnan(x), nan or 0, x)
  return ops.where(above, posinf or largest, ops.where(below, neginf or -largest, x))
end }

M.Round = { "x | decimals?", function(x, decimals)
  local scale = 10 ^ (decimals or 0)
  return scale == 1 and ops.round(x) or ops.round(x * scale) / scale
end }
M.Signbit = { "x", function(x)
  if not x:dtype():find "float" then return ops.lt(x, 0) end
  return ops.lt(ops.where(ops.eq(x, 0), ops.reciprocal(x), x), 0) -- -0 too
end }
M.Sinc = { "x", function(x)
  local at = ops.where(ops.eq(x, 0), 1, x) * math.pi
  return ops.where(ops.eq(x, 0), 1, ops.sin(at) / at)
end }
M.Trunc = { "x", function(x) return ops.sign(x) * ops.floor(ops.abs(x)) end }
M.Clip = { "x | x_min? x_max?", function(x, low, high) return composite.clip(x, low, high) end }

-- ---- several operands ---------------------------------------------------------------------------

for name, op in pairs { Add = "add", Arctan2 = "atan2", Divide = "div", Equal = "eq", FloorDivide = "floordiv",
  Greater = "gt", GreaterEqual = "ge", Less = "lt", LessEqual = "le", LogicalAnd = "logical_and",
  LogicalOr = "logical_or", LogicalXor = "logical_xor", Maximum = "maximum", Minimum = "minimum", Mod = "mod",
  Multiply = "mul", NotEqual = "ne", Power = "pow", Subtract = "sub", TrueDivide = "div" } do
  M[name] = { "x1 x2", ops[op] }
end

-- The other operand where one is NaN.
local function but_nan(op)
  return { "x1:tensor x2:tensor", function(a, b)
    return ops.where(ops.isnan(a), b, ops.where(ops.isnan(b), a, op(a, b)))
  end }
end
M.Fmax, M.Fmin = but_nan(ops.maximum), but_nan(ops.minimum)
M.Ldexp = { "x1:tensor x2:tensor", function(x, n) return x * ops.pow(2, ops.cast(n, { dtype = x:dtype() })) end }

M.DivideNoNan = { "x1 x2", function(a, b)
  local none = ops.eq(b, 0)
  return ops.where(none, 0, ops.div(a, ops.where(none, 1, b)))
end }

-- The remainder with the sign of a, as in C.
M.Fmod = { "x1 x2", function(a, b) return ops.sign(a) * ops.mod(ops.abs(a), ops.abs(b)) end }
M.Heaviside = { "x1 x2", function(x, at_zero)
  return ops.where(ops.lt(x, 0), 0, ops.where(ops.gt(x, 0), 1, at_zero))
end }
M.Hypot = { "x1 x2", function(a, b) return ops.sqrt(ops.square(a) + ops.square(b)) end }

-- The larger one is taken out, so that nothing overflows.
local function log_of_sum(a, b)
  local apart = ops.where(ops.eq(a, b), 0, ops.sub(a, b)) -- infinities that are equal are 0 apart
  return ops.maximum(a, b) + ops.softplus(-ops.abs(apart))
end
M.Logaddexp = { "x1 x2", log_of_sum }
M.Logaddexp2 = { "x1 x2", function(a, b)
  return log_of_sum(a * math.log(2), b * math.log(2)) * (1 / math.log(2))
end }

M.Isclose = { "x1 x2 rtol? atol? | equal_nan:boolean?", function(a, b, rtol, atol, equal_nan)
  local within = (atol or 1e-8) + ops.abs(b) * (rtol or 1e-5)
  local close = ops.logical_and(ops.le(ops.abs(ops.sub(a, b)), within), ops.lt(within, math.huge))
  close = ops.logical_or(close, ops.eq(a, b)) -- infinities
  return equal_nan and ops.logical_or(close, ops.logical_and(ops.isnan(a), ops.isnan(b))) or close
end }

M.Where = { "condition x1 x2", function(condition, a, b) return ops.where(ops.cast(condition, "bool"), a, b) end }

-- Of several conditions the first that holds.
M.Select = { "condlist:tensors choicelist:tensors default?", function(conditions, choices, default)
  local y = default or 0
  for i = #conditions, 1, -1 do y = ops.where(conditions[i], choices[i], y) end
  return y
end }

return M
