-- The cases of every op, which ops_spec.lua runs.
--
-- A case is { "op", inputs..., options }:
--   an input   { shape, low, high }   numbers in [low, high), made from a fixed formula
--              { shape, ints = n }    whole numbers 0 .. n-1
--              { shape, choose = {..} }  one of the given numbers; dtype: of this input
--              { shape, numbers = {..} }  these numbers; dtype: of this input
--   options    the op's attributes (after the inputs), and for the test:
--     dtypes   dtypes of the floating-point inputs; default float32, float64, float16 and bfloat16
--     grad     indexes of the inputs whose gradient is tested; false: none; default: all floating ones
--     tol      tolerance in float32, relative to the largest number of the result; default 2e-6, a few
--              roundings. ops_spec.lua has the tolerances of the other dtypes
--     why      the reason for another tolerance
--   errors     cases that must be refused: { "op", inputs..., options, error = text of the message }
--
-- To add an op, add its cases here or in the file of its family (axis_rows.lua, image_rows.lua, int8_rows.lua, ...;
-- error_rows.lua for errors): an op without a case fails a test.

local rows = {}
local function case(c) rows[#rows + 1] = c end
-- A case that must be refused.
local function bad(c)
  c.grad = false
  case(c)
end

-- ---- element-wise -------------------------------------------------------------------------------

local FLOATS = { "float32", "float64", "float16", "bfloat16" }
local ALL = { "float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool" }

local function unary(name, low, high, more)
  for _, shape in ipairs { { 3, 5 }, {}, { 0, 4 }, { 2, 3, 4, 17 }, { 70000 } } do
    local c = { name, { shape, low, high } }
    for k, v in pairs(more or {}) do c[k] = v end
    if shape[1] == 70000 then c.grad = false end
    case(c)
  end
end

-- Some kernels use polynomial approximations, which may differ from libm by a few units in the last place.
local APPROX = { tol = 1e-6, why = "polynomial against libm: a few ulp" }

unary("neg", -3, 3, { dtypes = FLOATS })
unary("abs", 0.1, 3, { dtypes = FLOATS })
unary("sign", 0.1, 3, { grad = false })
unary("square", -3, 3, { dtypes = FLOATS, tol = 2e-6 })
unary("sqrt", 0.1, 9)
unary("rsqrt", 0.1, 9)
unary("reciprocal", 0.5, 9)
unary("exp", -5, 5, APPROX)
unary("expm1", -1, 1, APPROX)
unary("log", 0.1, 9, APPROX)
unary("log1p", -0.5, 2, APPROX)
unary("sin", -3, 3, APPROX)
unary("cos", -3, 3, APPROX)
unary("tan", -1, 1, APPROX)
unary("asin", -0.9, 0.9, APPROX)
unary("acos", -0.9, 0.9, APPROX)
unary("atan", -3, 3, APPROX)
unary("sinh", -3, 3, APPROX)
unary("cosh", -3, 3, APPROX)
unary("tanh", -3, 3, APPROX)
unary("sigmoid", -6, 6, APPROX)
unary("relu", 0.1, 3)
unary("relu", -3, -0.1)
unary("softplus", -6, 6, APPROX)
unary("erf", -3, 3, APPROX)
unary("floor", -3, 3, { grad = false })
unary("ceil", -3, 3, { grad = false })
unary("round", -3, 3, { grad = false })
unary("logical_not", -1, 1, { grad = false })
unary("isnan", -1, 1, { grad = false })
unary("isfinite", -1, 1, { grad = false })
unary("stop_gradient", -1, 1, { grad = false })

for _, to in ipairs(ALL) do
  case { "cast", { { 5, 7 }, -3, 300 }, dtype = to, grad = false }
  case { "cast", { { 5, 7 }, ints = 200 }, dtype = to }
end

local PAIRS = { { { 3, 4 }, { 3, 4 } }, { { 3, 1 }, { 4 } }, { {}, { 2, 3 } }, { { 0, 3 }, { 1, 3 } },
  { { 2, 5, 3, 7 }, { 7 } }, { { 2, 1, 3, 1 }, { 5, 1, 7 } } }

local function binary(name, low, high, more)
  for _, p in ipairs(PAIRS) do
    local c = { name, { p[1], low, high }, { p[2], low, high } }
    for k, v in pairs(more or {}) do c[k] = v end
    case(c)
  end
end

binary("add", -3, 3, { dtypes = FLOATS })
binary("sub", -3, 3)
binary("mul", -3, 3, { dtypes = FLOATS })
binary("div", 0.5, 3)
binary("pow", 0.5, 2, APPROX)
binary("mod", 0.5, 3, { grad = false })
binary("floordiv", 0.5, 3, { grad = false })
binary("maximum", -3, 3)
binary("minimum", -3, 3)
binary("atan2", 0.5, 3, APPROX)
for _, name in ipairs { "gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or",
  "logical_xor" } do
  binary(name, -3, 3, { grad = false })
  case { name, { { 4, 9 }, ints = 2 }, { { 9 }, ints = 2 } }
end
case { "add", { { 3, 4 }, ints = 100 }, { { 4 }, ints = 9 } }
case { "mod", { { 3, 4 }, ints = 100 }, { { 4 }, choose = { 3, 7, -5 } } }
case { "div", { { 3, 4 }, ints = 100 }, { { 4 }, choose = { 3, 7, -5 } } }
case { "where", { { 3, 4 }, ints = 2 }, { { 3, 4 }, -3, 3 }, { { 4 }, -3, 3 } }
case { "where", { { 3, 1 }, ints = 2 }, { {}, -3, 3 }, { { 3, 4 }, -3, 3 } }

-- ---- several results ----------------------------------------------------------------------------

case { "split", { { 3, 8 }, -3, 3 }, axis = 2, parts = 4 }
case { "split", { { 6, 5 }, -3, 3 }, axis = 1, parts = 3 }
case { "split", { { 2, 9, 5 }, -3, 3 }, axis = -2, parts = 3 }
case { "split", { { 32, 16 }, -3, 3 }, axis = 1, parts = 2 } -- parts of the input's memory
case { "split", { { 70, 128 }, -3, 3 }, axis = 2, parts = 64, grad = false }
case { "split", { { 0, 4 }, -3, 3 }, axis = 2, parts = 2 }
case { "split", { { 300, 600 }, -3, 3 }, axis = 2, parts = 3, grad = false }
for _, to in ipairs(ALL) do
  case { "split", { { 5, 6 }, choose = { 0, 1, 2, 7 } }, axis = 2, parts = 2, as = to, grad = false }
end

-- ---- collectives: on one device they return their input --------------------------------------------

case { "shard", { { 6, 3 }, -3, 3 } }
case { "shard", { { 5 }, ints = 9 } }
case { "transfer", { { 4, 3 }, -3, 3 } }
case { "all_reduce", { { 4, 3 }, -3, 3 } }
case { "reduce", { { 4, 3 }, -3, 3 } }
case { "broadcast", { { 4, 3 }, -3, 3 } }
case { "all_gather", { { 4, 3 }, -3, 3 } }

-- ---- ops without inputs -------------------------------------------------------------------------

case { "full", shape = { 3, 4 }, value = 2.5 }
case { "full", shape = {}, value = 7, dtype = "int32" }
case { "iota", shape = { 3, 4 }, axis = 1 }
case { "iota", shape = { 3, 4, 2 }, axis = 2, dtype = "int32" }
for _, kind in ipairs { "uniform", "normal", "truncated_normal" } do
  case { "random", shape = { 5, 7, 3 }, kind = kind, a = -1, b = 2, stream = 3, tol = 1e-6,
    why = "logarithm and cosine in float32 or double, rounded to float32" }
  case { "random", shape = { 40, 1000 }, kind = kind, dtype = "float64" }
end
case { "random", shape = { 5, 7, 3 }, kind = "bernoulli", a = 0.3, dtype = "bool" }
case { "random", shape = { 9, 9, 100 }, kind = "bernoulli", a = 0.75, dtype = "bool" }
case { "random", shape = { 1001 }, kind = "randint", a = -5, b = 12, dtype = "int32" }
for _, to in ipairs(ALL) do
  case { "full", shape = { 3, 67 }, value = 2.7, dtype = to }
  case { "full", shape = { 65537 }, value = -1e10, dtype = to }
  case { "iota", shape = { 2, 300, 3 }, axis = 2, dtype = to }
  case { "iota", shape = { 3001 }, axis = 1, dtype = to }
  case { "iota", shape = { 5, 0 }, axis = 1, dtype = to }
  case { "random", shape = { 4099 }, kind = "randint", a = 0, b = to == "bool" and 2 or 200, dtype = to }
end
for _, kind in ipairs { "uniform", "normal", "truncated_normal" } do
  for _, to in ipairs(FLOATS) do
    case { "random", shape = { 3, 1367 }, kind = kind, a = -1, b = 2, dtype = to,
      tol = 1e-6, why = "normal numbers: another libm, rounded" }
  end
end
case { "random", shape = { 0, 5 } }

-- ---- reductions ---------------------------------------------------------------------------------

local SUMMED = { tol = 5e-6, why = "sums in another order" }
for _, name in ipairs { "sum", "max", "min", "prod" } do
  for _, o in ipairs { {}, { axis = 1 }, { axis = -1 }, { axis = { 1, 3 } }, { axis = 2, keepdims = true } } do
    case { name, { { 3, 4, 5 }, 0.5, 1.5 }, axis = o.axis, keepdims = o.keepdims, tol = SUMMED.tol,
      why = SUMMED.why }
  end
  case { name, { { 6, 33, 17, 20 }, 0.9, 1.1 }, axis = { 1, 2, 3 }, grad = false, tol = 1e-5,
    why = SUMMED.why }
  case { name, { { 100, 1000 }, 0.99, 1.01 }, axis = 2, grad = false, tol = 1e-5, why = SUMMED.why }
end
case { "sum", { { 0, 3 }, 0, 1 }, axis = 1 }
for _, axes in ipairs { { 2, 4 }, { 1, 3, 4 }, { 1, 2, 4 }, { 3 } } do
  for _, name in ipairs { "sum", "max", "min" } do
    case { name, { { 5, 7, 66, 3 }, -1, 2 }, axis = axes, grad = false, tol = 1e-5, why = SUMMED.why }
  end
end
case { "prod", { { 0, 3 }, 0, 1 }, axis = 1 }
case { "prod", { { 2, 3 }, choose = { 0, 2, 3 } }, axis = 2, dtypes = { "float64" } }
case { "sum", { { 5, 9 }, ints = 100 }, axis = 2 }
case { "max", { { 5, 9 }, ints = 100 }, axis = 2 }
for _, name in ipairs { "all", "any" } do
  case { name, { { 5, 3 }, ints = 2 }, axis = 2 }
  case { name, { { 5, 3 }, ints = 2 } }
end
for _, name in ipairs { "sum", "prod", "max", "min", "all", "any" } do
  for _, axes in ipairs { {}, { 2, 4 }, { 1, 2, 3 }, { 3 }, { 1, 2, 4 } } do
    case { name, { { 5, 7, 18, 3 }, choose = { 0, 1, 1, 1, 1 } }, dtypes = ALL, axis = axes, grad = false }
  end
  case { name, { { 1, 3, 1 }, choose = { 0, 0.5, 2 } }, dtypes = FLOATS, axis = { 1, 3 }, grad = false }
end
for _, name in ipairs { "argmax", "argmin" } do
  case { name, { { 5, 9 }, -1, 1 }, axis = 2, grad = false }
  case { name, { { 5, 9, 2 }, ints = 3 }, axis = 1 }
end
case { "cumsum", { { 4, 5, 3 }, -1, 1 }, axis = 2, tol = 5e-6, why = SUMMED.why }
case { "all_finite", { { 4, 5 }, -1, 1 }, { { 3 }, -1, 1 }, grad = false }
-- Integers near the ends of their dtypes: sums and products are int64 and wrap around.
for _, of in ipairs { { "bool", { 0, 1, 1 } }, { "uint8", { 0, 1, 200, 255, 3 } },
  { "int32", { -2 ^ 31, 2 ^ 31 - 1, 5, -7 } }, { "int64", { -2 ^ 53, 2 ^ 53 - 1, 3, -1 } } } do
  local dtypes, numbers = { of[1] }, of[2]
  for _, name in ipairs { "sum", "prod", "max", "min", "all", "any" } do
    for _, o in ipairs { { { 5, 7, 66, 3 }, { 2, 4 } }, { { 9, 130 }, 1 }, { { 9, 130 }, 2 }, { { 3, 70001 }, 2 },
      { { 20001, 4 }, 1 }, { { 30000 } } } do
      case { name, { o[1], choose = numbers }, axis = o[2], grad = false, dtypes = dtypes }
    end
  end
  for _, name in ipairs { "argmax", "argmin", "cumsum" } do
    for _, o in ipairs { { { 5, 7, 66 }, 2 }, { { 3, 20001 }, 2 }, { { 20001, 3 }, 1 }, { { 400, 2 }, 2 } } do
      case { name, { o[1], choose = numbers }, axis = o[2], grad = false, dtypes = dtypes }
    end
  end
  local matrices, more = { { 2, 5, 9 }, choose = numbers }, { { 9, 4 }, choose = numbers }
  case { "matmul", matrices, more, grad = false, dtypes = dtypes }
  case { "linear_scan", matrices, matrices, axis = 3, grad = false, dtypes = dtypes }
end

-- ---- movement -----------------------------------------------------------------------------------

case { "reshape", { { 3, 4, 5 }, -1, 1 }, shape = { 5, -1 } }
case { "reshape", { { 1 }, -1, 1 }, shape = {} }
case { "permute", { { 3, 4, 5 }, -1, 1 }, order = { 3, 1, 2 } }
case { "permute", { { 2, 6, 7, 33 }, -1, 1 }, order = { 1, 4, 2, 3 } }
case { "permute", { { 4, 5 }, ints = 9 }, order = { 2, 1 } }
case { "slice", { { 6, 7 }, -1, 1 }, start = { 1, 0 }, stop = { 6, 7 }, step = { 2, 1 } }
case { "slice", { { 6, 7 }, -1, 1 }, start = { 5, 6 }, stop = { -1, 1 }, step = { -2, -1 } }
case { "slice", { { 6, 7 }, -1, 1 }, start = { 2, 3 }, stop = { 2, 5 }, step = { 1, 1 } }
case { "pad", { { 3, 4 }, -1, 1 }, before = { 1, 0 }, after = { 2, 3 }, value = 7 }
case { "pad", { { 3, 4 }, -1, 1 }, before = { 1, 0 }, after = { 2, 3 }, interior = { 1, 2 } }
case { "concat", { { 2, 3 }, -1, 1 }, { { 2, 1 }, -1, 1 }, { { 2, 0 }, -1, 1 }, axis = 2 }
case { "concat", { { 2, 3 }, -1, 1 }, { { 4, 3 }, -1, 1 }, axis = 1 }
case { "broadcast_to", { { 3, 1 }, -1, 1 }, shape = { 2, 3, 4 } }
case { "reverse", { { 3, 4, 2 }, -1, 1 }, axis = 2 }
case { "gather", { { 6, 3, 2 }, -1, 1 }, { { 4 }, ints = 6 }, axis = 1 }
case { "gather", { { 6, 5, 2 }, -1, 1 }, { { 2, 3 }, ints = 5 }, axis = 2 }
case { "gather", { { 300, 28, 28 }, ints = 256 }, { { 50 }, ints = 300 }, axis = 1 }
case { "gather", { { 3, 9 }, -1, 1 }, { { 4 }, choose = { 0, 9, -1, 8 } }, axis = 2, grad = false }
case { "gather", { { 3, 9 }, ints = 50 }, { { 4 }, choose = { 0, 9, -1, 8 } }, axis = 2 }
case { "permute", { { 200, 300 }, -1, 1 }, order = { 2, 1 }, grad = false }
case { "permute", { { 5, 40, 3, 70 }, -1, 1 }, order = { 4, 2, 1, 3 }, grad = false }
case { "slice", { { 5, 40, 3, 7 }, -1, 1 }, start = { 4, 0, 2, 6 }, stop = { -1, 40, 0, -1 },
  step = { -2, 3, -1, -1 }, grad = false }
case { "broadcast_to", { { 40, 1, 70 }, -1, 1 }, shape = { 5, 40, 3, 70 }, grad = false }

-- Elements of 1 to 8 bytes; odd sizes, tails, eight axes and none; copies of whole rows and of single elements.
local function moved(c)
  c.dtypes, c.grad = ALL, false
  case(c)
end
for _, shape in ipairs { { 33, 65 }, { 64, 96 }, { 17, 1000 }, { 65537, 3 }, { 3, 65537 }, { 0, 5 } } do
  moved { "permute", { shape, -3, 300 }, order = { 2, 1 } }
end
moved { "permute", { { 40, 50, 4 }, -3, 300 }, order = { 2, 1, 3 } }
moved { "permute", { { 37, 41, 2 }, -3, 300 }, order = { 2, 1, 3 } }
moved { "permute", { { 18, 5, 3, 33 }, -3, 300 }, order = { 4, 2, 3, 1 } }
moved { "permute", { { 2, 3, 2, 3, 2, 3, 2, 3 }, -3, 300 }, order = { 8, 2, 6, 4, 5, 3, 7, 1 } }
moved { "permute", { { 2, 17, 2, 1, 2, 3, 2, 18 }, -3, 300 }, order = { 1, 8, 3, 4, 7, 6, 5, 2 } }
moved { "slice", { { 9, 64 }, -3, 300 }, start = { 1, 16 }, stop = { 9, 48 }, step = { 2, 1 } }
moved { "slice", { { 9, 67 }, -3, 300 }, start = { 0, 3 }, stop = { 9, 66 }, step = { 1, 1 } }
moved { "slice", { { 9, 67 }, -3, 300 }, start = { 8, 66 }, stop = { -1, 0 }, step = { -3, -5 } }
moved { "slice", { { 65537, 2 }, -3, 300 }, start = { 1, 1 }, stop = { 65537, 2 }, step = { 2, 1 } }
moved { "reverse", { { 5, 64 }, -3, 300 }, axis = 1 }
moved { "reverse", { { 5, 67 }, -3, 300 }, axis = 2 }
moved { "reverse", { { 0, 3 }, -3, 300 }, axis = 1 }
moved { "broadcast_to", { {}, -3, 300 }, shape = { 3, 65537 } }
moved { "broadcast_to", { { 1, 64 }, -3, 300 }, shape = { 9, 64 } }
moved { "broadcast_to", { { 67, 1 }, -3, 300 }, shape = { 2, 67, 5 } }
moved { "broadcast_to", { { 1, 3 }, -3, 300 }, shape = { 0, 3 } }
moved { "reshape", { { 33, 65 }, -3, 300 }, shape = { 65, -1 } }
moved { "pad", { { 2, 5, 6, 16 }, -3, 300 }, before = { 0, 1, 2 }, after = { 0, 1, 0 }, value = 3 }
moved { "pad", { { 2, 5, 6, 3 }, -3, 300 }, before = { 1, 1, 0, 1 }, after = { 0, 2, 0, 1 }, value = 1 }
moved { "pad", { { 4, 64 }, -3, 300 }, before = { 1, 16 }, after = { 0, 32 }, interior = { 2, 0 } }
moved { "pad", { { 4, 1, 7 }, -3, 300 }, before = { 0, 3 }, after = { 2 }, interior = { 1, 4, 2 } }
moved { "pad", { { 0, 3 }, -3, 300 }, before = { 1, 0 }, after = { 1, 2 }, value = 5 }
moved { "pad", { { 2, 1, 2, 1, 2, 1, 2, 2 }, -3, 300 }, before = { 1, 0, 1, 0, 1, 0, 0, 1 },
  after = { 0, 1, 0, 1, 0, 0, 1, 1 }, interior = { 1, 0, 1, 0, 0, 0, 1, 2 }, value = 9 }
moved { "pad", { { 65537 }, -3, 300 }, before = { 3 }, after = { 2 }, value = 9 }

local function concat(axis, n, shape_of)
  local c = { "concat", axis = axis }
  for i = 1, n do c[i + 1] = { shape_of(i), -3, 300 } end
  moved(c)
end
concat(1, 41, function(i) return { i % 7 * 11, 3 } end)
concat(2, 255, function(i) return { 3, i % 5 } end)
concat(2, 17, function(i) return { 5, i * 16, 2 } end)
concat(3, 3, function(i) return { 2, 3, i, 64 } end)
concat(1, 3, function(i) return { i == 2 and 65537 or 5 } end)
concat(2, 2, function() return { 0, 4 } end)

-- Ids of every integer dtype, rows from one byte to many vectors, ids outside the table, and no ids.
for _, as in ipairs { "uint8", "int32", "int64" } do
  case { "gather", { { 200, 12 }, -3, 300 }, { { 7, 30 }, ints = 200 }, axis = 1, as = as,
    dtypes = ALL, grad = false }
  case { "scatter_add", { { 3, 700, 2 }, -1, 1 }, { { 700 }, ints = 250 }, axis = 2, size = 230,
    as = as, dtypes = FLOATS, grad = false }
end
moved { "gather", { { 3, 9, 5 }, -3, 300 }, { { 4 }, choose = { 0, 9, -1, 8 } }, axis = 2, as = "int32" }
moved { "gather", { { 9, 5 }, -3, 300 }, { { 65537 }, ints = 10 }, axis = 1, as = "int32" }
moved { "gather", { { 9, 64 }, -3, 300 }, { { 0 }, ints = 9 }, axis = 1, as = "int32" }
moved { "gather", { { 0, 4 }, -3, 300 }, { { 3 }, ints = 1 }, axis = 1, as = "int32" }

-- ---- matmul -------------------------------------------------------------------------------------

local MATMUL = { tol = 1e-5, why = "products summed in another order" }
local function matmul(a, b, o)
  o = o or {}
  case { "matmul", { a, -1, 1 }, { b, -1, 1 }, transpose_a = o.ta, transpose_b = o.tb,
    tol = MATMUL.tol, why = MATMUL.why, grad = o.grad }
end
matmul({ 3, 4 }, { 4, 5 })
matmul({ 4, 3 }, { 4, 5 }, { ta = true })
matmul({ 3, 4 }, { 5, 4 }, { tb = true })
matmul({ 4, 3 }, { 5, 4 }, { ta = true, tb = true })
matmul({ 2, 3, 4 }, { 2, 4, 5 })
matmul({ 2, 1, 3, 4 }, { 3, 4, 5 })
matmul({ 2, 3, 4 }, { 4, 5 })
matmul({ 4 }, { 4, 5 })
matmul({ 3, 4 }, { 4 })
matmul({ 4 }, { 4 })
matmul({ 0, 4 }, { 4, 5 })
matmul({ 3, 0 }, { 0, 5 })
matmul({ 100, 300 }, { 300, 77 }, { grad = false })
-- Transposed and large factors, the larger one on either side, and many small products.
matmul({ 50, 300 }, { 300, 300 }, { tb = true, grad = false })
matmul({ 700, 90 }, { 77, 90 }, { tb = true, grad = false })
matmul({ 40, 30, 50 }, { 40, 50, 20 }, { grad = false })
-- Few results of long sums.
matmul({ 5, 3001 }, { 3001, 9 }, { grad = false })
matmul({ 3001, 7 }, { 4, 3001 }, { ta = true, tb = true, grad = false })

-- ---- convolution and pooling --------------------------------------------------------------------

local CONV = { tol = 1e-5, why = "products summed in another order" }
-- The cpu device's Winograd convolutions are off by 8.6e-6 of the largest result in the worst of 180 random cases.
local function winograd(o)
  o.grad, o.tol, o.why = false, 2e-5, "sums of transformed terms, which are larger than the result"
  return o
end
local function conv(x, w, o)
  o = o or {}
  case { "conv2d", { x, -1, 1 }, { w, -1, 1 }, strides = o.strides, pads = o.pads,
    dilations = o.dilations, groups = o.groups, tol = o.tol or CONV.tol, why = o.why or CONV.why, grad = o.grad }
end
conv({ 2, 5, 6, 3 }, { 3, 3, 3, 4 })
conv({ 1, 4, 4, 1 }, { 1, 1, 1, 1 })
conv({ 2, 5, 6, 3 }, { 3, 2, 3, 4 }, { strides = { 2, 1 }, pads = { 1, 0, 0, 1 } })
conv({ 2, 7, 7, 2 }, { 3, 3, 2, 2 }, { dilations = { 2, 2 }, pads = { 1, 1, 1, 1 } })
conv({ 2, 5, 5, 4 }, { 3, 3, 2, 6 }, { groups = 2 })
conv({ 2, 5, 5, 4 }, { 3, 3, 1, 4 }, { groups = 4 })
conv({ 3, 9, 9, 16 }, { 3, 3, 16, 32 }, { grad = false })
conv({ 2, 12, 12, 17 }, { 3, 3, 17, 33 }, { grad = false, pads = { 1, 1, 1, 1 } })
conv({ 4, 28, 28, 1 }, { 5, 5, 1, 6 }, { grad = false, pads = { 2, 2, 2, 2 } })
-- One channel: more images than a vector has lanes, and threads that share them.
conv({ 37, 12, 11, 1 }, { 5, 5, 1, 6 }, { grad = false, pads = { 2, 2, 2, 2 } })
conv({ 19, 11, 10, 1 }, { 3, 4, 1, 7 }, { grad = false, pads = { 0, 1, 2, 0 } }) -- a whole vector of images, and a part
conv({ 4, 14, 14, 6 }, { 5, 5, 6, 16 }, { grad = false })
conv({ 17, 13, 11, 6 }, { 5, 5, 6, 7 }, { grad = false, pads = { 2, 1, 0, 2 } })
conv({ 16, 9, 8, 12 }, { 3, 3, 4, 15 }, { grad = false, pads = { 1, 1, 1, 1 }, groups = 3 })
conv({ 4, 14, 14, 64 }, { 3, 3, 64, 64 }, winograd {})
conv({ 4, 15, 13, 17 }, { 3, 3, 17, 33 }, winograd {})
conv({ 2, 16, 19, 48 }, { 3, 3, 48, 32 }, winograd { pads = { 1, 1, 0, 2 } })
conv({ 3, 21, 18, 32 }, { 2, 2, 32, 40 }, winograd { pads = { 1, 0, 0, 1 } })
conv({ 2, 18, 17, 24 }, { 4, 4, 24, 33 }, winograd { pads = { 1, 2, 3, 0 } })
conv({ 2, 17, 20, 17 }, { 5, 5, 17, 32 }, winograd { pads = { 2, 2, 1, 4 } })
conv({ 3, 29, 28, 64 }, { 3, 3, 64, 64 }, winograd { strides = { 2, 2 }, pads = { 0, 1, 1, 1 } })
conv({ 5, 24, 21, 20 }, { 6, 6, 20, 30 }, winograd { strides = { 2, 2 }, pads = { 3, 2, 2, 3 } })
conv({ 4, 25, 26, 19 }, { 7, 7, 19, 21 }, winograd { strides = { 2, 2 }, pads = { 3, 3, 2, 3 } })
conv({ 3, 41, 38, 3 }, { 7, 7, 3, 64 }, winograd { strides = { 2, 2 }, pads = { 3, 2, 2, 3 } })
conv({ 3, 40, 150, 1 }, { 3, 3, 1, 10 }, { grad = false })
conv({ 2, 23, 19, 3 }, { 4, 5, 3, 68 },
  { grad = false, strides = { 2, 3 }, dilations = { 3, 2 }, pads = { 4, 3, 2, 5 } })
conv({ 2, 9, 9, 4 }, { 2, 2, 4, 130 }, { grad = false, strides = { 3, 3 } })
conv({ 3, 9, 70, 6 }, { 3, 3, 1, 12 }, { grad = false, groups = 6, pads = { 1, 1, 1, 1 } })
conv({ 0, 5, 5, 2 }, { 3, 3, 2, 2 }, { grad = false })

local function conv_backward(x, w, y, o)
  o = o or {}
  case { "conv2d_grad_input", { y, -1, 1 }, { w, -1, 1 }, strides = o.strides, pads = o.pads,
    dilations = o.dilations, groups = o.groups, input_shape = x, tol = o.tol or CONV.tol, why = o.why or CONV.why,
    grad = o.grad }
  case { "conv2d_grad_weight", { x, -1, 1 }, { y, -1, 1 }, strides = o.strides, pads = o.pads,
    dilations = o.dilations, groups = o.groups, kernel_shape = w, tol = o.tol or CONV.tol, why = o.why or CONV.why,
    grad = o.grad }
end
conv_backward({ 2, 5, 6, 3 }, { 3, 3, 3, 4 }, { 2, 3, 4, 4 })
conv_backward({ 2, 6, 5, 2 }, { 3, 3, 2, 3 }, { 2, 3, 3, 3 }, { strides = { 2, 2 }, pads = { 1, 1, 1, 1 } })
conv_backward({ 2, 8, 8, 3 }, { 1, 1, 3, 4 }, { 2, 4, 4, 4 }, { strides = { 2, 2 } })
conv_backward({ 2, 9, 8, 6 }, { 1, 1, 1, 6 }, { 2, 3, 8, 6 }, { strides = { 3, 1 }, groups = 6, grad = false })
conv_backward({ 3, 7, 5, 3 }, { 1, 1, 3, 18 }, { 3, 7, 5, 18 }) -- these three are matrix products
conv_backward({ 2, 40, 41, 37 }, { 1, 1, 37, 40 }, { 2, 40, 41, 40 }, { grad = false, tol = 1e-5 })
conv_backward({ 2, 4, 4, 300 }, { 1, 1, 300, 500 }, { 2, 4, 4, 500 }, { grad = false })
conv_backward({ 4, 28, 28, 1 }, { 5, 5, 1, 6 }, { 4, 28, 28, 6 }, { pads = { 2, 2, 2, 2 }, grad = false })
conv_backward({ 37, 12, 11, 1 }, { 5, 5, 1, 6 }, { 37, 12, 11, 6 }, { pads = { 2, 2, 2, 2 }, grad = false })
conv_backward({ 19, 11, 10, 1 }, { 3, 4, 1, 7 }, { 19, 10, 9, 7 }, { pads = { 0, 1, 2, 0 }, grad = false })
conv_backward({ 4, 14, 14, 6 }, { 5, 5, 6, 16 }, { 4, 10, 10, 16 }, { grad = false })
conv_backward({ 17, 13, 11, 6 }, { 5, 5, 6, 7 }, { 17, 12, 9, 7 }, { pads = { 2, 1, 0, 2 }, grad = false })
conv_backward({ 16, 9, 8, 12 }, { 3, 3, 4, 15 }, { 16, 9, 8, 15 },
  { pads = { 1, 1, 1, 1 }, groups = 3, grad = false })
conv_backward({ 3, 14, 14, 64 }, { 3, 3, 64, 32 }, { 3, 12, 12, 32 }, winograd {})
conv_backward({ 2, 7, 7, 17 }, { 3, 3, 17, 33 }, { 2, 5, 5, 33 }, { grad = false })
conv_backward({ 4, 15, 13, 17 }, { 3, 3, 17, 33 }, { 4, 13, 11, 33 }, winograd {})
conv_backward({ 2, 16, 19, 48 }, { 3, 3, 48, 32 }, { 2, 16, 19, 32 }, winograd { pads = { 1, 1, 0, 2 } })
conv_backward({ 3, 21, 18, 32 }, { 2, 2, 32, 40 }, { 3, 21, 18, 40 }, winograd { pads = { 1, 0, 0, 1 } })
conv_backward({ 2, 18, 17, 24 }, { 4, 4, 24, 33 }, { 2, 18, 17, 33 }, winograd { pads = { 1, 2, 3, 0 } })
conv_backward({ 2, 17, 20, 17 }, { 5, 5, 17, 32 }, { 2, 17, 21, 32 }, winograd { pads = { 2, 2, 1, 4 } })
conv_backward({ 3, 29, 28, 64 }, { 3, 3, 64, 64 }, { 3, 14, 14, 64 },
  winograd { strides = { 2, 2 }, pads = { 0, 1, 1, 1 } })
conv_backward({ 5, 24, 21, 20 }, { 6, 6, 20, 30 }, { 5, 12, 11, 30 },
  winograd { strides = { 2, 2 }, pads = { 3, 2, 2, 3 } })
conv_backward({ 4, 25, 26, 19 }, { 7, 7, 19, 21 }, { 4, 13, 13, 21 },
  winograd { strides = { 2, 2 }, pads = { 3, 3, 2, 3 } })
conv_backward({ 3, 41, 38, 3 }, { 7, 7, 3, 64 }, { 3, 20, 19, 64 },
  winograd { strides = { 2, 2 }, pads = { 3, 2, 2, 3 } })
conv_backward({ 3, 40, 150, 1 }, { 3, 3, 1, 10 }, { 3, 38, 148, 10 }, { grad = false })
conv_backward({ 2, 23, 19, 3 }, { 4, 5, 3, 68 }, { 2, 11, 6, 68 },
  { grad = false, strides = { 2, 3 }, dilations = { 3, 2 }, pads = { 4, 3, 2, 5 } })
conv_backward({ 2, 9, 9, 4 }, { 2, 2, 4, 130 }, { 2, 3, 3, 130 }, { grad = false, strides = { 3, 3 } })
conv_backward({ 3, 9, 70, 6 }, { 3, 3, 1, 12 }, { 3, 9, 70, 12 }, { grad = false, groups = 6, pads = { 1, 1, 1, 1 } })
conv({ 2, 9, 8, 8 }, { 3, 2, 1, 8 },
  { grad = false, groups = 8, strides = { 2, 1 }, dilations = { 1, 2 }, pads = { 1, 1, 1, 0 } })
conv_backward({ 2, 9, 8, 8 }, { 3, 2, 1, 8 }, { 2, 5, 7, 8 },
  { grad = false, groups = 8, strides = { 2, 1 }, dilations = { 1, 2 }, pads = { 1, 1, 1, 0 } })
conv_backward({ 2, 18, 18, 40 }, { 5, 5, 1, 40 }, { 2, 14, 14, 40 }, { grad = false, groups = 40 })
conv_backward({ 3, 17, 20, 37 }, { 5, 4, 1, 37 }, { 3, 9, 7, 37 },
  { grad = false, groups = 37, strides = { 2, 3 }, pads = { 2, 3, 1, 2 } })
conv_backward({ 2, 15, 9, 16 }, { 3, 4, 1, 16 }, { 2, 11, 5, 16 },
  { grad = false, groups = 16, dilations = { 3, 2 }, pads = { 0, 2, 1, 1 } })
conv_backward({ 2, 3, 2, 9 }, { 7, 7, 1, 9 }, { 2, 3, 2, 9 }, { grad = false, groups = 9, pads = { 3, 3, 3, 3 } })
-- depthwise on the cpu: tiles of 1 to 8 results, blocks of 128 channels, vectors of channels that overlap
for _, size in ipairs { { 4, 16 }, { 5, 24 }, { 10, 150 }, { 11, 20 }, { 27, 33 } } do
  local width, c = unpack(size)
  local images, filters = { 1, 3, width, c }, { 3, 3, 1, c }
  conv(images, filters, { grad = false, groups = c, pads = { 1, 1, 1, 1 } })
  conv_backward(images, filters, images, { grad = false, groups = c, pads = { 1, 1, 1, 1 } })
end
conv_backward({ 2, 7, 7, 4 }, { 3, 3, 2, 6 }, { 2, 4, 4, 6 }, { groups = 2, strides = { 2, 2 }, pads = { 1, 1, 1, 1 } })

for _, name in ipairs { "max_pool2d", "avg_pool2d" } do
  case { name, { { 2, 6, 4, 3 }, -1, 1 } }
  case { name, { { 2, 7, 5, 1 }, -1, 1 }, size = { 3, 2 }, strides = { 2, 1 } }
  case { name, { { 2, 7, 5, 17 }, -1, 1 }, size = { 3, 3 }, strides = { 2, 2 }, pads = { 1, 1, 1, 1 } }
  case { name, { { 3, 22, 22, 32 }, -1, 1 }, grad = false }
end
case { "max_pool2d_grad", { { 2, 6, 4, 3 }, -1, 1 }, { { 2, 3, 2, 3 }, pooled = 1 },
  { { 2, 3, 2, 3 }, -1, 1 }, grad = { 3 } }
case { "max_pool2d_grad", { { 2, 6, 4, 16 }, ints = 2 }, { { 2, 3, 2, 16 }, pooled = 1 },
  { { 2, 3, 2, 16 }, ints = 9 }, as = "float32", grad = false }
case { "max_pool2d_pick", { { 2, 6, 4, 3 }, -1, 1 }, { { 2, 3, 2, 3 }, pooled = 1 },
  { { 2, 6, 4, 3 }, -1, 1 }, grad = { 3 } }
-- an odd number of channels; windows that overlap, skip cells, or reach into the padding
for _, c in ipairs { 1, 17, 33, 100 } do
  for _, o in ipairs {
    { y = { 2, 4, 3, c } }, { y = { 2, 5, 4, c }, size = { 3, 3 }, strides = { 2, 2 }, pads = { 1, 1, 1, 1 } },
    { y = { 2, 8, 3, c }, size = { 2, 3 }, strides = { 1, 2 } },
    { y = { 2, 3, 2, c }, size = { 2, 2 }, strides = { 3, 3 } } } do
    case { "max_pool2d_grad", { { 2, 9, 7, c }, -1, 1 }, { o.y, pooled = 1 }, { o.y, -1, 1 },
      size = o.size, strides = o.strides, pads = o.pads, grad = false }
    case { "avg_pool2d_grad", { o.y, -1, 1 }, size = o.size, strides = o.strides, pads = o.pads,
      input_shape = { 2, 9, 7, c }, grad = false }
    for _, name in ipairs { "max_pool2d", "avg_pool2d" } do
      case { name, { { 2, 9, 7, c }, -1, 1 }, size = o.size, strides = o.strides, pads = o.pads,
        grad = false }
    end
  end
end
case { "avg_pool2d_grad", { { 2, 3, 2, 3 }, -1, 1 }, input_shape = { 2, 6, 4, 3 } }
case { "avg_pool2d_grad", { { 2, 4, 3, 16 }, -1, 1 }, size = { 3, 3 }, strides = { 2, 2 },
  pads = { 1, 1, 1, 1 }, input_shape = { 2, 7, 5, 16 } }

-- ---- normalisation ------------------------------------------------------------------------------

local NORM = { tol = 1e-5, why = "means over many rows" }
for _, x in ipairs { { 6, 3 }, { 2, 3, 4, 5 }, { 3, 11, 13, 32 }, { 1, 6 }, { 1000, 1 }, { 37, 17 },
  { 1000, 65 }, { 3, 9, 9, 200 }, { 9001, 7 } } do
  local c = x[#x]
  local grad = c <= 5 and nil
  if c > 5 then grad = false end
  case { "own_rows", { { 4, 3 }, -3, 3 }, grad = false }
case { "moments", { x, -1, 2 }, tol = NORM.tol, why = NORM.why, grad = grad }
  case { "batch_norm", { x, -1, 2 }, { { 2, c }, 0.5, 1.5 }, { { c }, 0.5, 1.5 }, { { c }, -1, 1 },
    epsilon = 1e-3, tol = NORM.tol, why = NORM.why, grad = grad }
  case { "batch_norm_reduce", { x, -1, 2 }, { { 2, c }, 0.5, 1.5 }, { x, -1, 1 }, epsilon = 1e-3,
    tol = 1e-5, why = NORM.why, grad = false }
end
-- so large that full tiles of 64 channels are stored past the caches
case { "batch_norm", { { 8, 45, 64, 96 }, -1, 2 }, { { 2, 96 }, 0.5, 1.5 }, { { 96 }, 0.5, 1.5 }, { { 96 }, -1, 1 },
  epsilon = 1e-3, tol = NORM.tol, why = NORM.why, grad = false, dtypes = { "float32", "bfloat16" } }
for _, x in ipairs { { 6, 3 }, { 2, 3, 5 }, { 4 }, { 300, 65 }, { 2, 70, 256 }, { 2, 12000 }, { 0, 4 } } do
  local c, grad = x[#x], nil
  if c > 5 then grad = false end
  for _, epsilon in ipairs { 1e-3, 0.5 } do
    case { "layer_norm", { x, -1, 2 }, { { c }, 0.5, 1.5 }, { { c }, -1, 1 }, epsilon = epsilon, tol = NORM.tol,
      why = NORM.why, grad = grad }
    case { "layer_norm_grad", { x, -1, 2 }, { { c }, 0.5, 1.5 }, { x, -1, 1 }, epsilon = epsilon, tol = NORM.tol,
      why = NORM.why, grad = grad }
    case { "layer_norm_reduce", { x, -1, 2 }, { x, -1, 1 }, epsilon = epsilon, tol = 1e-5, why = NORM.why,
      grad = grad }
  end
end
-- A mean far from 0: rows in which x - mean is a thousandth of x.
for _, x in ipairs { { 40, 256 }, { 3, 3000 } } do
  local far, row = { x, 999, 1001 }, { { x[#x] }, 0.5, 1.5 }
  local tol, why = 1e-3, "float32 holds x to 6e-5, a ten-thousandth of the deviation"
  local dtypes = { "float32" }
  case { "layer_norm", far, row, row, dtypes = dtypes, tol = tol, why = why, grad = false }
  case { "layer_norm_grad", far, row, { x, -1, 1 }, dtypes = dtypes, tol = tol, why = why, grad = false }
  case { "layer_norm_reduce", far, { x, -1, 1 }, dtypes = dtypes, tol = tol, why = why, grad = false }
end
-- 16-bit images with float32 statistics, gamma and beta; both devices compute sums in float32.
local HALVES = { "float16", "bfloat16" }
for _, x in ipairs { { 6, 3 }, { 3, 4, 5, 17 } } do
  local c = x[#x]
  local y, row = { x, -1, 2 }, { { c }, 0.5, 1.5 }
  case { "moments", y, dtypes = HALVES, grad = false }
  case { "batch_norm", y, { { 2, c }, 0.5, 1.5 }, row, row, dtypes = HALVES, grad = false }
  case { "batch_norm_reduce", y, { { 2, c }, 0.5, 1.5 }, y, dtypes = HALVES, grad = false }
  case { "layer_norm", y, row, row, dtypes = HALVES, grad = false }
  case { "layer_norm_grad", y, row, y, dtypes = HALVES, grad = false }
  case { "layer_norm_reduce", y, y, dtypes = HALVES, grad = false }
  case { "softmax", y, axis = -1, dtypes = HALVES, grad = false }
end
for _, x in ipairs { { 4, 7 }, { 2, 3, 5 }, { 300, 100 }, { 0, 4 } } do
  for axis = 1, #x do
    local grad = nil
    if x[1] == 300 then grad = false end
    case { "softmax_grad", { x, 0, 1 }, { x, -1, 1 }, axis = axis, grad = grad }
  end
end
for _, name in ipairs { "softmax", "log_softmax" } do
  case { name, { { 4, 10 }, -3, 3 }, axis = -1, tol = 2e-6 }
  case { name, { { 4, 3, 5 }, -3, 3 }, axis = 2, tol = 2e-6 }
  case { name, { { 2, 3 }, 700, 900 }, axis = -1, tol = 2e-6, grad = false }
end
-- Short and long rows, one row, no rows, no classes; targets that are no probability distribution.
for _, x in ipairs { { 4, 10 }, { 2, 3, 5 }, { 7 }, { 300, 100 }, { 3, 2500 }, { 2, 70000 }, { 0, 4 }, { 4, 0 } } do
  local rows_shape = { unpack(x, 1, #x - 1) }
  local logits, targets, dy = { x, -3, 3 }, { x, 0, 1 }, { rows_shape, -1, 1 }
  local labels = { rows_shape, ints = x[#x] }
  local grad = nil
  if x[1] == 300 or x[#x] > 1000 then grad = false end
  case { "softmax_cross_entropy", logits, targets, grad = grad }
  case { "softmax_cross_entropy_grad", logits, targets, dy, grad = grad }
  case { "sparse_softmax_cross_entropy", logits, labels, grad = grad }
  case { "sparse_softmax_cross_entropy_grad", logits, labels, dy, grad = grad }
end
-- Large logits, infinities and NaN, also where the target is 0, and labels that are not classes.
local LIMITS = { 1, -1 / 0, 0.5, 2, 3, 1 / 0, -2, 0, 0 / 0, -1, 2.5 }
for _, logits in ipairs { { { 40, 3 }, 700, 900 }, { { 40, 3 }, choose = LIMITS }, { { 3, 1500 }, choose = LIMITS },
  { { 6, 5 }, choose = { -1 / 0, 1 } } } do
  local x = logits[1]
  local dy, labels = { { x[1] }, -1, 1 }, { { x[1] }, choose = { 0, 1, -1, 2, x[2], 1000000 } }
  local targets = { x, choose = { 0, 1, 0.25 } }
  case { "softmax_cross_entropy", logits, targets, dtypes = FLOATS, grad = false }
  case { "softmax_cross_entropy_grad", logits, targets, dy, dtypes = FLOATS, grad = false }
  for _, name in ipairs { "sparse_softmax_cross_entropy", "sparse_softmax_cross_entropy_grad" } do
    for _, label in ipairs { "int32", "int64", "uint8" } do
      local ids = { labels[1], choose = label == "uint8" and { 0, 1, 2, 250 } or labels.choose, dtype = label }
      case { name, logits, ids, name:find "grad" and dy or nil, dtypes = FLOATS, grad = false }
    end
  end
end
case { "prod_grad", { { 3, 4 }, -1, 1 }, { { 3 }, -1, 1 } }
case { "scatter_add", { { 4, 3 }, -1, 1 }, { { 4 }, ints = 6 }, axis = 1, size = 6 }
case { "scatter_add", { { 2, 5, 7 }, -1, 1 }, { { 5 }, choose = { 2, 0, -1, 9 } }, axis = 2, size = 4, grad = false }
case { "scatter_add", { { 300, 200 }, -1, 1 }, { { 300 }, ints = 50 }, axis = 1, size = 50, grad = false }
case { "scatter_add", { { 40000, 2 }, -1, 1 }, { { 40000 }, ints = 30000 }, axis = 1, size = 30000, grad = false }
-- Many ids for few rows, one row named by most ids, a row named by none, and integers that overflow.
local function scatter(dy, ids, size, more)
  local c = { "scatter_add", { dy, -1, 1 }, ids, axis = 1, size = size, as = "int32", dtypes = FLOATS,
    grad = false, tol = 1e-5, why = "many terms, summed in another order" }
  for k, v in pairs(more or {}) do c[k] = v end
  case(c)
end
scatter({ 9000, 3 }, { { 9000 }, ints = 2 }, 2)
scatter({ 9000, 33 }, { { 9000 }, choose = { 7, 7, 7, 7, 7, 7, 300, 299, -5, 1000000, 7, 7, 0 } }, 301)
scatter({ 65537 }, { { 65537 }, choose = { 4, 3 } }, 5)
scatter({ 65537 }, { { 65537 }, ints = 70000 }, 70000)
scatter({ 300, 2 }, { { 300 }, choose = { 9, -1 } }, 9)
scatter({ 0, 2 }, { { 0 }, ints = 3 }, 9)
scatter({ 300, 0 }, { { 300 }, ints = 3 }, 9)
case { "scatter_add", { { 1000, 3 }, -3, 300 }, { { 1000 }, ints = 40 }, axis = 1, size = 40, as = "int32",
  dtypes = { "uint8", "int32", "int64", "bool" }, grad = false }

dofile "tests/ops/axis_rows.lua"(case, bad, FLOATS, ALL)
dofile "tests/ops/image_rows.lua"(case, bad, ALL)
dofile "tests/ops/int8_rows.lua"(case, bad)
dofile "tests/ops/spectrum_rows.lua"(case, bad)
dofile "tests/ops/empty_rows.lua"(case)
dofile "tests/ops/error_rows.lua"(bad)

return rows
