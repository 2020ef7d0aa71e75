--- Whether values are close: numbers, tensors and tables of them.
local core = require "mgpu.core"
local options = require "mgpu.options"
local ordered_keys = require "mgpu.ordered_keys"

local ops = core.ops

local CLOSE = options.declare {
  { "rtol", "number", min = 0 }, { "atol", "number", min = 0 },
  { "equal_nan", "boolean", default = false },
}

-- By dtype: relative and absolute tolerance, those of torch.testing.assert_close. Others must be equal.
local TOLERANCES = { float64 = { 1e-7, 1e-7 }, float32 = { 1.3e-6, 1e-5 }, float16 = { 1e-3, 1e-5 },
  bfloat16 = { 1.6e-2, 1e-5 } }
local WIDTHS = { float64 = 3, float32 = 2, float16 = 1, bfloat16 = 1 }

local function fail(path, message, ...)
  core.fail("usage", ("assert_close: %s: %s"):format(path, message:format(...)))
end

local function is_tensor(value) return core.is_tensor(value) or core.is_variable(value) end
local function value_of(t) return core.is_variable(t) and t:value() or t end
local function wide(t) return ops.cast(t, { dtype = "float64" }) end

-- The tolerances for two dtypes; a table of numbers has none.
local function tolerances(a, b, given)
  local dtype = a or b or "float64"
  if a and b and (WIDTHS[b] or 9) < (WIDTHS[a] or 9) then dtype = b end
  local default = TOLERANCES[dtype] or { 0, 0 }
  return given.rtol or default[1], given.atol or default[2]
end

-- The position of element n (from 0) in a shape, from 1, as in "[2, 3]".
local function position(n, shape)
  local at = {}
  for axis = #shape, 1, -1 do
    at[axis] = n % shape[axis] + 1
    n = math.floor(n / shape[axis])
  end
  return "[" .. table.concat(at, ", ") .. "]"
end

-- Fails with the number of elements that differ and the worst of them; `excess` is negative where they are close.
local function report(path, actual, expected, differs, excess, rtol, atol)
  local count = ops.sum(ops.cast(differs, { dtype = "int64" })):item()
  local shape = actual:shape()
  local worst = ops.argmax(ops.reshape(ops.where(differs, excess, -math.huge), { shape = { -1 } }), { axis = 1 }):item()
  local function entry(t) return ops.reshape(t, { shape = { -1 } }):slice { worst + 1 }:item() end
  fail(path, "%d of %d numbers differ; the worst%s is %.9g, expected %.9g (allowed: %g + %g times that)", count,
    actual:count(), #shape > 0 and " at " .. position(worst, shape) or "", entry(actual), entry(expected), atol, rtol)
end

local function compare_tensors(path, actual, expected, given)
  local a = is_tensor(actual) and value_of(actual)
  local e = is_tensor(expected) and value_of(expected)
  local rtol, atol = tolerances(a and a:dtype(), e and e:dtype(), given)
  a, e = a or require "mgpu.tensor".tensor(actual, { dtype = "float64" }),
    e or require "mgpu.tensor".tensor(expected, { dtype = "float64" })
  local got, wanted = table.concat(a:shape(), ", "), table.concat(e:shape(), ", ")
  if got ~= wanted then fail(path, "the shape is {%s}, expected {%s}", got, wanted) end
  a, e = wide(a), wide(e:to(a:device()))
  local gap = ops.abs(a - e) - (ops.abs(e) * rtol + atol)
  local same = ops.logical_or(ops.eq(a, e), ops.le(gap, 0)) -- infinities are equal or not
  if given.equal_nan then same = ops.logical_or(same, ops.logical_and(ops.ne(a, a), ops.ne(e, e))) end
  if not ops.all(same):item() then
    local excess = ops.where(ops.eq(gap, gap), gap, math.huge) -- a NaN is the worst
    report(path, a, e, ops.logical_not(same), excess, rtol, atol)
  end
end

-- The sizes of an array of numbers, or of such arrays with equal sizes, as text; nil for anything else.
local function sizes_of(value)
  if type(value) == "number" then return "" end
  if type(value) ~= "table" or getmetatable(value) or #value == 0 then return nil end
  local sizes = sizes_of(value[1])
  for key, entry in pairs(value) do
    if type(key) ~= "number" or not sizes or sizes_of(entry) ~= sizes then return nil end
  end
  return #value .. " " .. sizes
end

local compare

local function compare_fields(path, actual, expected, given)
  for _, key in ipairs(ordered_keys(expected)) do
    local name = type(key) == "number" and ("%s[%d]"):format(path, key) or ("%s.%s"):format(path, tostring(key))
    if actual[key] == nil then fail(name, "is missing") end
    compare(name, actual[key], expected[key], given)
  end
  for _, key in ipairs(ordered_keys(actual)) do
    if expected[key] == nil then fail(path, "has the field %s, which is not expected", tostring(key)) end
  end
end

function compare(path, actual, expected, given)
  local kind, wanted = type(actual), type(expected)
  local numbers = (is_tensor(actual) or sizes_of(actual)) and (is_tensor(expected) or sizes_of(expected))
  if numbers and (is_tensor(actual) or is_tensor(expected) or kind == wanted) then
    return compare_tensors(path, actual, expected, given)
  elseif kind == "table" and wanted == "table" then
    return compare_fields(path, actual, expected, given)
  elseif kind ~= wanted then
    fail(path, "is a %s, expected a %s", kind, wanted)
  elseif actual ~= expected then
    fail(path, "is %s, expected %s", tostring(actual), tostring(expected))
  end
end

--- assert_close(actual, expected, {rtol, atol, equal_nan = false}): an error unless the numbers are close.
-- Numbers, tensors, variables and tables of them in any depth; a tensor may be compared with a table of numbers. Two
-- numbers are close if |actual - expected| <= atol + rtol |expected|. The default tolerances depend on the dtype, the
-- narrower one of two: rtol 1.3e-6 and atol 1e-5 for float32, 1e-7 and 1e-7 for float64 and numbers of Lua, 1e-3 and
-- 1e-5 for float16, 1.6e-2 and 1e-5 for bfloat16 (those of torch.testing.assert_close), and 0 for integers. Other
-- values must be equal. The error names the worst element, or the field that differs.
-- Example:
--     local testing = mgpu.testing
--     testing.assert_close(mgpu.tensor { 0.1, 0.2 } + 0.1, { 0.2, 0.3 })
--     print(pcall(testing.assert_close, { loss = { 1, 2, 3 } }, { loss = { 1, 2, 4 } }))
--     --> false	... assert_close: actual.loss: 1 of 3 numbers differ; the worst at [3] is 3, expected 4 ...
return function(actual, expected, given)
  compare("actual", actual, expected, options.check("assert_close", CLOSE, given or {}))
end
