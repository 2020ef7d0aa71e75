--- Tensors in Lua: making them, moving them, and the table of all functions on them.
--
-- RETURNS the functions that `mgpu` takes over; methods are put into core.methods. Axes count from 1 or, negative,
-- from the end; ids and classes from 0. Integers are computed in double: exact up to 2^53, and a result outside the
-- dtype's limits becomes the limit.
local arguments = require "mgpu.tensor.arguments"
local core = require "mgpu.core"
local misuse = require "mgpu.methods"

local M, methods, ops = {}, core.methods, core.ops

local function fail(message, ...) core.fail("usage", message:format(...)) end

-- Makes fn both a function of `mgpu` and a method of tensors.
local function define(name, fn)
  M[name] = fn
  methods[name] = fn
end

-- ---- making tensors -----------------------------------------------------------------------------

local OPTIONS = { "dtype", "device" }

-- The dtype and device of an options table; another key raises.
local function read_options(who, options)
  if options == nil then return nil, nil end
  if type(options) ~= "table" then
    fail("%s: the options must be a table such as {dtype = \"float32\"}, got %s", who, type(options))
  end
  for key in pairs(options) do
    if key ~= "dtype" and key ~= "device" then
      fail("%s: unknown option %q%s", who, tostring(key), core.did_you_mean(key, OPTIONS, "option"))
    end
  end
  core.check_dtype(who, options.dtype) -- the op below has another name
  return options.dtype, options.device
end

-- t on the device, if one is given.
local function on(device, t)
  if device then return core.copy_to(t, device) end
  return t
end

-- The options of a function of a shape. Errors: what colons and sizes without braces lead to: mgpu:zeros {2, 3} and
-- zeros(2, 3).
local function read_shape_options(who, shape, options)
  if shape == require "mgpu" then fail("%s is a function of mgpu: write mgpu.%s(...), with a dot", who, who) end
  if type(shape) == "number" and type(options) == "number" then
    fail("%s: the sizes are one list: write %s {%g, %g}", who, who, shape, options)
  end
  return read_options(who, options)
end

-- The shape as a list, whose faults are reported here: the op below has another name.
local function check_shape(who, shape)
  if type(shape) == "number" then shape = { shape } end
  if type(shape) ~= "table" then fail("%s: the shape must be a list, got %s", who, type(shape)) end
  local fault = core.array_fault(shape)
  if fault then fail('%s: option "shape": %s', who, fault) end
  for _, size in ipairs(shape) do arguments.whole(who, "a size of the shape", size, 0) end
  return shape
end

local function check_number(what, value)
  if type(value) ~= "number" or value ~= value or math.abs(value) == math.huge then
    fail("%s must be a number, got %s", what, type(value) == "table" and "a table" or tostring(value))
  end
end

local function check_count(what, n)
  if type(n) ~= "number" or n < 0 or n % 1 ~= 0 or n == math.huge then
    fail("%s must be a whole number of at least 0, got %s", what, tostring(n))
  end
end

--- tensor(value, {dtype =, device =}) -> a tensor of a number, a boolean or nested tables of them. dtype: floatx for
--- numbers, bool for booleans. Errors: tables of unequal lengths.
-- Example:
--     print(mgpu.tensor { { 1, 2 }, { 3, 4 } })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 2},
--     -->  {3, 4}}
--     print(mgpu.tensor({ 1, 2, 3 }, { dtype = "int32" }):dtype(), mgpu.tensor { true, false }:dtype())
--     --> int32 bool
M.tensor = core.tensor

--- full(shape, value, {dtype = floatx, device =}) -> a tensor with `value` everywhere. shape: a list, or one size.
-- Example:
--     print(mgpu.full({ 2, 3 }, 7))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{7, 7, 7},
--     -->  {7, 7, 7}}
--     print(mgpu.full({ 2 }, 255, { dtype = "uint8" }))
--     --> tensor {2} uint8 cpu:0
--     --> {255, 255}
function M.full(shape, value, options)
  local dtype, device = read_options("full", options)
  return on(device, ops.full(check_shape("full", shape), value, dtype or core.floatx()))
end

--- zeros(shape, {dtype = floatx, device =}) -> a tensor of zeros.
-- Example:
--     print(mgpu.zeros { 2, 3 })
--     --> tensor {2, 3} float32 cpu:0
--     --> {{0, 0, 0},
--     -->  {0, 0, 0}}
function M.zeros(shape, options)
  local dtype, device = read_shape_options("zeros", shape, options)
  return on(device, ops.full(check_shape("zeros", shape), 0, dtype or core.floatx()))
end

--- ones(shape, {dtype = floatx, device =}) -> a tensor of ones.
-- Example:
--     print(mgpu.ones({ 3 }, { dtype = "float64" }))
--     --> tensor {3} float64 cpu:0
--     --> {1, 1, 1}
function M.ones(shape, options)
  local dtype, device = read_shape_options("ones", shape, options)
  return on(device, ops.full(check_shape("ones", shape), 1, dtype or core.floatx()))
end

--- arange(n, options) -> 0 .. n-1; arange(first, limit, step = 1, options) -> first, first + step, ... below the limit.
--- options: {dtype = floatx, device =}. Errors: a step of 0.
-- Example:
--     print(mgpu.arange(4))
--     --> tensor {4} float32 cpu:0
--     --> {0, 1, 2, 3}
--     print(mgpu.arange(10, 0, -2.5)) -- first, limit, step
--     --> tensor {4} float32 cpu:0
--     --> {10,    7.5,  5,    2.5}
function M.arange(first, limit, step, options)
  if type(limit) == "table" then limit, options = nil, limit end
  if type(step) == "table" then step, options = nil, step end
  if limit == nil then first, limit = 0, first end
  step = step or 1
  check_number("arange: the first number", first)
  check_number("arange: the limit", limit)
  check_number("arange: the step", step)
  if step == 0 then fail("arange: the step must not be 0") end
  local dtype, device = read_options("arange", options)
  local n = math.max(0, math.ceil((limit - first) / step))
  local t = ops.iota({ n }, 1, dtype or core.floatx())
  if step ~= 1 then t = t * step end
  if first ~= 0 then t = t + first end
  return on(device, t)
end

--- linspace(first, last, n, {dtype = floatx, device =}) -> n evenly spaced numbers, both ends included.
-- Example:
--     print(mgpu.linspace(0, 1, 5))
--     --> tensor {5} float32 cpu:0
--     --> {0,    0.25, 0.5,  0.75, 1}
function M.linspace(first, last, n, options)
  local dtype, device = read_options("linspace", options)
  check_number("linspace: the first number", first)
  check_number("linspace: the last number", last)
  check_count("linspace: the count", n)
  local i = ops.iota({ n }, 1, dtype or core.floatx())
  if n < 2 then return on(device, i + first) end
  local inner = i * ((last - first) / (n - 1)) + first
  return on(device, ops.where(ops.lt(i, n - 1), inner, last)) -- the last one without rounding
end

--- eye(n, m = n, {dtype = floatx, device =}) -> a matrix {n, m} with ones on the diagonal.
-- Example:
--     print(mgpu.eye(3))
--     --> tensor {3, 3} float32 cpu:0
--     --> {{1, 0, 0},
--     -->  {0, 1, 0},
--     -->  {0, 0, 1}}
--     print(mgpu.eye(2, 3))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{1, 0, 0},
--     -->  {0, 1, 0}}
function M.eye(n, m, options)
  if type(m) == "table" then m, options = nil, m end
  local dtype, device = read_options("eye", options)
  m = m or n
  check_count("eye: the number of rows", n)
  check_count("eye: the number of columns", m)
  local row, column = ops.iota({ n, m }, 1, "int32"), ops.iota({ n, m }, 2, "int32")
  return on(device, ops.cast(ops.eq(row, column), dtype or core.floatx()))
end

local function random(who, kind, shape, a, b, options)
  local dtype, device = read_shape_options(who, shape, options)
  return on(device, ops.random { shape = check_shape(who, shape), kind = kind, a = a, b = b,
    dtype = dtype or (kind == "randint" and "int32") or core.floatx() })
end

--- rand(shape, {dtype = floatx, device =}) -> uniform random numbers in [0, 1).
-- Example:
--     local t = mgpu.rand { 2, 3 }
--     print(table.concat(t:shape(), " "), t:ge(0):all():item(), t:lt(1):all():item())  --> 2 3 true true
function M.rand(shape, options) return random("rand", "uniform", shape, 0, 1, options) end

--- randn(shape, {dtype = floatx, device =}) -> normal random numbers with mean 0 and standard deviation 1.
-- Example:
--     local t = mgpu.randn { 10000 }
--     print(("%.1f %.1f"):format(math.abs(t:mean():item()), t:std():item()))  --> 0.0 1.0
function M.randn(shape, options) return random("randn", "normal", shape, 0, 1, options) end

--- randint(low, high, shape, {dtype = "int32", device =}) -> random whole numbers from low to high - 1.
-- Example:
--     local dice = mgpu.randint(1, 7, { 1000 })
--     print(dice:min():item(), dice:max():item(), dice:dtype())  --> 1 6 int32
function M.randint(low, high, shape, options)
  check_number("randint: the lowest number", low)
  check_number("randint: the limit", high)
  return random("randint", "randint", shape, low, high, options)
end

-- ---- composite ops and indexing -----------------------------------------------------------------

for name, fn in pairs(require "mgpu.tensor.composite_ops") do define(name, fn) end
M.to_categorical = M.one_hot
M.scan = require "mgpu.tensor.scan".scan

--- t:entry(i), the same as t[i] -> entry i of the first axis, from 1, or from the end if negative.
-- Example:
--     local t = mgpu.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }
--     print(t[1]) -- the same as t:entry(1)
--     --> tensor {2} float32 cpu:0
--     --> {1, 2}
--     print(t[-1][2]:item())  --> 6
function methods.entry(t, i) return M.slice(t, { i }) end

--- t:unknown(name): raises the error of t.name for a name that no method has.
-- Example:
--     print(pcall(function() return mgpu.zeros { 2 }.summ end))
--     --> false ...: a tensor has no method "summ" (did you mean "sum"?)
function methods.unknown(t, name)
  local is_variable, names = core.is_variable(t), {}
  if is_variable then names = { "assign", "value", "name", "trainable" } end
  for known in pairs(methods) do names[#names + 1] = known end
  local foreign = require "mgpu.foreign_names"
  local advice = is_variable and foreign.advice("variable", name) or foreign.hint("tensor", name, names)
  fail("a %s has no method %q%s", is_variable and "variable" or "tensor", name, advice)
end

-- ---- dtype, device, copies ----------------------------------------------------------------------

--- t:to(dtype | device) -> the same numbers in another dtype, or on another device. Errors: an unknown name.
-- Example:
--     local t = mgpu.tensor { 1.5, -2.5 }
--     print(t:to "int32") -- a dtype
--     --> tensor {2} int32 cpu:0
--     --> { 1, -2}
--     print(t:to("cpu:1"):device()) -- a device  --> cpu:1
define("to", function(t, where)
  if type(where) ~= "string" then
    fail("to: expected the name of a dtype or device, got %s", type(where))
  end
  local is_device = not core.dtype_name(where) and (where:find ":" or core.is_device_kind(where))
  if not is_device then return ops.cast(t, where) end
  if methods.device(t) == core.device_name(where, true) then return t end
  return core.copy_to(t, where)
end)

--- t:clone() -> a copy that shares no memory with t.
-- Example:
--     local a = mgpu.tensor { 1, 2, 3 }
--     local b = a:clone()
--     a:free() -- gives up a's memory, not b's
--     print(b)
--     --> tensor {3} float32 cpu:0
--     --> {1, 2, 3}
define("clone", function(t) return core.copy_to(t) end)

local POINTERS = { float32 = "float *", float64 = "double *", int32 = "int32_t *",
  int64 = "int64_t *", uint8 = "uint8_t *", bool = "uint8_t *", float16 = "uint16_t *",
  bfloat16 = "uint16_t *" }

--- t:pointer() -> an FFI pointer to the elements in host memory, row-major. It is valid as long as the tensor lives:
--- keep the tensor.
-- Example:
--     local t = mgpu.tensor { 1.5, 2.5, 3.5 }
--     local p = t:pointer()
--     print(p[0], p[2]) -- from 0, as in C  --> 1.5 3.5
define("pointer", function(t)
  return require "ffi".cast(POINTERS[methods.dtype(t)], core.address(t))
end)

methods.text = require "mgpu.tensor.printing"
methods.shape = misuse.no_field("t:shape()[1]", methods.shape) -- a field in Python

-- ---- settings and the rest of mgpu's plain functions ---------------------------------------------

for name, fn in pairs(ops) do
  if methods[name] and not M[name] then M[name] = fn end -- ops that are not methods are internal
end

-- Functions take a number in place of a tensor, so t.sum(2) instead of t:sum(2) would be the sum of the number 2.
local function is_tensor(value) return type(value) == "userdata" end

for name, fn in pairs(methods) do
  if M[name] == fn or ops[name] then methods[name] = misuse.colon(("t:%s(...)"):format(name), is_tensor, fn) end
end

for _, name in ipairs { "eval", "variable", "grad", "value_and_grad", "no_grad",
  "rng_state", "memory", "tidy", "precision", "deterministic", "devices", "device_info",
  "error_code" } do
  M[name] = core[name]
end

--- jit(fn, {devices =}) -> a function like fn that is traced once for each kind of arguments, then runs as one plan.
--
-- devices: as in compile, but no groups. In fn, x:shard() says that the rows of x are split over the devices, in a
-- world of several processes over those of all ranks; what is computed of them is combined where that is needed, so
-- means, gradients and updates are those of all rows. Without it each device computes all of fn, which is a warning.
-- Example:
--     local step = mgpu.jit(function(x) return (x * x + 1):sum() end)
--     print(step(mgpu.tensor { 1, 2 }):item()) -- traces the function and compiles it  --> 7
--     print(step(mgpu.tensor { 3, 4 }):item()) -- runs what was compiled  --> 27
--     local mean = mgpu.jit(function(x) return x:shard():mean() end, { devices = "cpu:0-1" })
--     print(mean(mgpu.arange(5)):item()) -- three rows on cpu:0, two on cpu:1  --> 2
function M.jit(fn, given)
  if given == nil then return core.jit(fn, { many_traces = true }) end
  return core.jit(fn, require "mgpu.parallel.jit_options"(given))
end

--- set_floatx(dtype): the dtype of numbers and weights unless told otherwise; float32 at the start.
-- Example:
--     mgpu.set_floatx "float64"
--     print(mgpu.tensor { 0.1 }:dtype(), mgpu.rand({ 2 }):dtype())  --> float64 float64
--     mgpu.set_floatx "float32"
function M.set_floatx(dtype) core.floatx(dtype) end

return M
