--- Tensors in Lua: making them, the composed ops, indexing and printing.
--
-- Returns the table of functions that `mgpu` takes over. What is a method too stands in core.methods.
-- Axes count from 1 or, negative, from the end; ids and classes from 0.
local core = require "mgpu.core"

local M, methods, ops = {}, core.methods, core.ops
local unpack = unpack

local function fail(message, ...) core.fail("usage", message:format(...)) end

--- Both a function of `mgpu` and a method.
local function define(name, fn)
  M[name] = fn
  methods[name] = fn
end

-- ---- making tensors -----------------------------------------------------------------------------

local OPTIONS = { "dtype", "device" }

-- dtype and device of the options table; anything else in it is an error.
local function read_options(who, options)
  if options == nil then return nil, nil end
  if type(options) ~= "table" then
    fail("%s: the options must be a table such as {dtype = \"float32\"}, got %s", who, type(options))
  end
  for key in pairs(options) do
    if key ~= "dtype" and key ~= "device" then
      local near = type(key) == "string" and core.nearest(key, OPTIONS)
      fail("%s: unknown option %q%s", who, tostring(key),
        near and (" (did you mean %q?)"):format(near) or "")
    end
  end
  return options.dtype, options.device
end

local function on(device, t)
  if device then return core.copy_to(t, device) end
  return t
end

local function check_shape(who, shape)
  if type(shape) == "number" then return { shape } end
  if type(shape) ~= "table" then fail("%s: the shape must be a list, got %s", who, type(shape)) end
  return shape
end

--- tensor(value, {dtype=, device=}): from a number, a boolean or nested tables of them.
M.tensor = core.tensor

--- full(shape, value, {dtype=, device=})
function M.full(shape, value, options)
  local dtype, device = read_options("full", options)
  return on(device, ops.full(check_shape("full", shape), value, dtype or core.floatx()))
end

--- zeros(shape, {dtype=, device=})
function M.zeros(shape, options)
  local dtype, device = read_options("zeros", options)
  return on(device, ops.full(check_shape("zeros", shape), 0, dtype or core.floatx()))
end

--- ones(shape, {dtype=, device=})
function M.ones(shape, options)
  local dtype, device = read_options("ones", options)
  return on(device, ops.full(check_shape("ones", shape), 1, dtype or core.floatx()))
end

--- arange(n): 0 .. n-1; arange(first, limit[, step]): without the limit.
function M.arange(first, limit, step, options)
  if type(limit) == "table" then limit, options = nil, limit end
  if type(step) == "table" then step, options = nil, step end
  if limit == nil then first, limit = 0, first end
  step = step or 1
  if type(first) ~= "number" or type(limit) ~= "number" or type(step) ~= "number" then
    fail("arange: expected numbers")
  end
  if step == 0 then fail("arange: the step must not be 0") end
  local dtype, device = read_options("arange", options)
  local n = math.max(0, math.ceil((limit - first) / step))
  local t = ops.iota({ n }, 1, dtype or core.floatx())
  if step ~= 1 then t = t * step end
  if first ~= 0 then t = t + first end
  return on(device, t)
end

--- linspace(first, last, n): n numbers, both ends included.
function M.linspace(first, last, n, options)
  local dtype, device = read_options("linspace", options)
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then fail("linspace: n must be at least 1") end
  local count = ops.iota({ n }, 1, dtype or core.floatx())
  return on(device, count * (n > 1 and (last - first) / (n - 1) or 0) + first)
end

--- eye(n[, m]): ones on the diagonal.
function M.eye(n, m, options)
  if type(m) == "table" then m, options = nil, m end
  local dtype, device = read_options("eye", options)
  m = m or n
  local row, column = ops.iota({ n, m }, 1, "int32"), ops.iota({ n, m }, 2, "int32")
  return on(device, row:eq(column):cast(dtype or core.floatx()))
end

local function random(who, kind, shape, a, b, options)
  local dtype, device = read_options(who, options)
  return on(device, ops.random { shape = check_shape(who, shape), kind = kind, a = a, b = b,
    dtype = dtype or (kind == "randint" and "int32") or core.floatx() })
end

--- rand(shape): uniform in [0, 1)
function M.rand(shape, options) return random("rand", "uniform", shape, 0, 1, options) end

--- randn(shape): normal with mean 0 and standard deviation 1
function M.randn(shape, options) return random("randn", "normal", shape, 0, 1, options) end

--- randint(low, high, shape): whole numbers from low to high - 1
function M.randint(low, high, shape, options)
  return random("randint", "randint", shape, low, high, options)
end

--- one_hot(ids, classes[, {dtype=}]): ids from 0; also to_categorical.
function M.one_hot(ids, classes, options)
  local dtype = read_options("one_hot", options)
  if type(ids) == "table" then ids = core.tensor(ids, { dtype = "int32" }) end
  if type(classes) ~= "number" or classes < 1 then
    fail("one_hot: the number of classes must be at least 1")
  end
  local shape = ids:shape()
  local counted = ops.iota({ classes }, 1, "int32")
  shape[#shape + 1] = 1
  return ids:reshape(shape):cast "int32":eq(counted):cast(dtype or core.floatx())
end
M.to_categorical = M.one_hot
methods.one_hot = M.one_hot

-- ---- composed ops -------------------------------------------------------------------------------

local function axis_list(t, axis)
  local rank, seen = t:rank(), {}
  if axis == nil then
    for i = 1, rank do seen[i] = true end
    return seen
  end
  for _, a in ipairs(type(axis) == "table" and axis or { axis }) do
    seen[a < 0 and a + rank + 1 or a] = true
  end
  return seen
end

-- Takes (axis, keepdims) or one table of them.
local function reduction_options(who, axis, keepdims)
  if type(axis) ~= "table" or #axis > 0 and axis.axis == nil and axis.keepdims == nil then
    return axis, keepdims
  end
  for key in pairs(axis) do
    if key ~= "axis" and key ~= "keepdims" then
      local near = type(key) == "string" and core.nearest(key, { "axis", "keepdims" })
      fail("%s: unknown option %q%s", who, tostring(key),
        near and (" (did you mean %q?)"):format(near) or "")
    end
  end
  return axis.axis, axis.keepdims
end

local function count_along(t, axis)
  local shape, n = t:shape(), 1
  for i in pairs(axis_list(t, axis)) do n = n * (shape[i] or 1) end
  return n
end

local function floating(t)
  local dtype = t:dtype()
  if dtype:find "float" then return t end
  return t:cast "float32"
end

--- mean over axes: the sum divided by the count; integers give float32.
define("mean", function(t, axis, keepdims)
  if type(t) ~= "userdata" then t = core.tensor(t) end
  axis, keepdims = reduction_options("mean", axis, keepdims)
  t = floating(t)
  return ops.sum(t, { axis = axis, keepdims = keepdims }) / count_along(t, axis)
end)

--- var(iance) over axes: the mean squared distance from the mean (biased).
define("var", function(t, axis, keepdims)
  axis, keepdims = reduction_options("var", axis, keepdims)
  t = floating(t)
  return methods.mean(ops.square(t - methods.mean(t, axis, true)), axis, keepdims)
end)

--- std: the square root of var.
define("std", function(t, axis, keepdims) return methods.var(t, axis, keepdims):sqrt() end)

--- clip(t, low, high): nil leaves an end open.
define("clip", function(t, low, high)
  if low ~= nil then t = ops.maximum(t, low) end
  if high ~= nil then t = ops.minimum(t, high) end
  return t
end)

--- norm: the square root of the sum of squares.
define("norm", function(t, axis, keepdims)
  axis, keepdims = reduction_options("norm", axis, keepdims)
  return ops.sqrt(ops.sum(ops.square(t), { axis = axis, keepdims = keepdims }))
end)

--- transpose: all axes in opposite order, or an order of axes.
define("transpose", function(t, order)
  if order then return ops.permute(t, order) end
  order = {}
  for i = t:rank(), 1, -1 do order[#order + 1] = i end
  return ops.permute(t, order)
end)

--- flatten: one axis.
define("flatten", function(t) return ops.reshape(t, { -1 }) end)

--- expand_dims(t, axis): a new axis of size 1 that has this position afterwards.
define("expand_dims", function(t, axis)
  local shape = t:shape()
  local at = axis < 0 and axis + #shape + 2 or axis
  if at < 1 or at > #shape + 1 then fail("expand_dims: axis %d is out of range", axis) end
  table.insert(shape, at, 1)
  return ops.reshape(t, shape)
end)

--- squeeze(t[, axis]): without axes of size 1.
define("squeeze", function(t, axis)
  local shape, kept, dropped = t:shape(), {}, axis and axis_list(t, axis)
  for i, size in ipairs(shape) do
    if dropped and dropped[i] and size ~= 1 then
      fail("squeeze: axis %d has size %d, not 1", i, size)
    end
    if size ~= 1 or (dropped and not dropped[i]) then kept[#kept + 1] = size end
  end
  return ops.reshape(t, kept)
end)

--- stack({a, b, ...}, axis): along a new axis (default the first).
M.stack = function(list, axis)
  local expanded = {}
  for i, t in ipairs(list) do expanded[i] = methods.expand_dims(t, axis or 1) end
  return ops.concat(expanded, { axis = axis or 1 })
end

--- split(t, n, axis): n equal parts along an axis (default the first).
define("split", function(t, n, axis)
  axis = axis or 1
  local shape = t:shape()
  local at = axis < 0 and axis + #shape + 1 or axis
  if not shape[at] or shape[at] % n ~= 0 then
    fail("split: axis %d of size %s cannot be cut into %d equal parts", axis, tostring(shape[at]), n)
  end
  local parts, size = {}, shape[at] / n
  for i = 1, n do
    local ranges = {}
    for k = 1, #shape do ranges[k] = {} end
    ranges[at] = { (i - 1) * size + 1, i * size }
    parts[i] = methods.slice(t, ranges)
  end
  return parts
end)

-- ---- indexing -----------------------------------------------------------------------------------

local function position(i, size, axis)
  if type(i) ~= "number" or i % 1 ~= 0 then fail("slice: axis %d: positions are whole numbers", axis) end
  if i == 0 then fail("slice: axis %d: positions count from 1, or -1 from the end; got 0", axis) end
  local at = i < 0 and size + i + 1 or i
  if at < 1 or at > size then
    fail("slice: axis %d has %d entries, there is no position %d", axis, size, i)
  end
  return at
end

-- {first, last, step} of one axis, as start, stop, step from 0.
local function range(r, size, axis)
  local step = r[3] or 1
  if step == 0 then fail("slice: axis %d: the step must not be 0", axis) end
  if size == 0 and r[1] == nil and r[2] == nil then return 0, 0, step end
  local first = r[1] == nil and (step > 0 and 1 or size) or position(r[1], size, axis)
  local last = r[2] == nil and (step > 0 and size or 1) or position(r[2], size, axis)
  if step > 0 then return first - 1, math.max(last, first - 1), step end
  return first - 1, math.min(last - 2, first - 1), step
end

--- slice(t, {range, ...}): one entry an axis: {first, last[, step]} (both included, from 1 or negative
--- from the end), {} for all, or a number, which drops the axis. Missing axes are taken whole.
define("slice", function(t, ranges)
  if type(ranges) ~= "table" then fail("slice: expected a table of ranges, got %s", type(ranges)) end
  local shape = t:shape()
  if ranges.start then return ops.slice(t, ranges) end
  local start, stop, step, kept = {}, {}, {}, {}
  for axis in pairs(ranges) do
    if type(axis) ~= "number" or axis > #shape then
      fail("slice: %d ranges for a tensor of %d axes", #ranges, #shape)
    end
  end
  for axis, size in ipairs(shape) do
    local r = ranges[axis]
    if type(r) == "number" then
      local at = position(r, size, axis)
      start[axis], stop[axis], step[axis] = at - 1, at, 1
    else
      start[axis], stop[axis], step[axis] = range(r or {}, size, axis)
      local n = step[axis] > 0 and math.ceil((stop[axis] - start[axis]) / step[axis])
        or math.ceil((start[axis] - stop[axis]) / -step[axis])
      kept[#kept + 1] = math.max(0, n)
    end
  end
  local part = ops.slice(t, { start = start, stop = stop, step = step })
  if #kept == #shape then return part end
  return ops.reshape(part, kept)
end)

-- t[i]: entry i of the first axis.
function methods.entry(t, i) return methods.slice(t, { i }) end

-- ---- dtype, device, copies ----------------------------------------------------------------------

--- to(dtype | device): the same numbers as another dtype, or on another device.
define("to", function(t, where)
  if type(where) ~= "string" then fail("to: expected the name of a dtype or device") end
  if where:find "^/?%a+:" or where == "cpu" or where == "cuda" or where == "ref" or where == "gpu" then
    if t:device() == where then return t end
    return core.copy_to(t, where)
  end
  return ops.cast(t, where)
end)

--- clone: a copy in memory of its own.
define("clone", function(t) return core.copy_to(t) end)

local POINTERS = { float32 = "float *", float64 = "double *", int32 = "int32_t *",
  int64 = "int64_t *", uint8 = "uint8_t *", bool = "uint8_t *", float16 = "uint16_t *",
  bfloat16 = "uint16_t *" }

--- pointer: an FFI pointer to the elements in host memory, row-major. It is valid as long as the
--- tensor lives: keep the tensor.
define("pointer", function(t)
  return require "ffi".cast(POINTERS[t:dtype()], core.address(t))
end)

-- ---- printing -----------------------------------------------------------------------------------

local EDGE, LIMIT = 3, 200 -- entries shown at each end once a tensor has more than LIMIT

local function number_text(v, integer)
  if type(v) == "boolean" then return tostring(v) end
  if integer then return ("%d"):format(v) end
  return ("%.4g"):format(v)
end

local function entries(part, depth, integer, all, indent)
  if type(part) ~= "table" then return number_text(part, integer) end
  local lines, n = {}, #part
  for i = 1, n do
    if all or n <= 2 * EDGE or i <= EDGE or i > n - EDGE then
      lines[#lines + 1] = entries(part[i], depth - 1, integer, all, indent .. " ")
    elseif i == EDGE + 1 then
      lines[#lines + 1] = "..."
    end
  end
  local separator = depth > 1 and "," .. ("\n"):rep(1) .. indent .. " " or ", "
  return "{" .. table.concat(lines, separator) .. "}"
end

-- Only the rows that are shown are brought to Lua.
local function shown_part(t, shape)
  local ranges = {}
  if t:count() <= LIMIT then return t, true end
  for axis, size in ipairs(shape) do
    ranges[axis] = {}
    if size > 2 * EDGE + 1 then
      local first = methods.slice(t, (function() local r = {} for k = 1, axis - 1 do r[k] = {} end
        r[axis] = { 1, EDGE + 1 } return r end)())
      local last = methods.slice(t, (function() local r = {} for k = 1, axis - 1 do r[k] = {} end
        r[axis] = { -EDGE, -1 } return r end)())
      t = ops.concat({ first, last }, { axis = axis })
    end
  end
  return t, false
end

--- What print shows: the numbers (a screenful at most), then shape, dtype and device.
function methods.text(t)
  local shape, dtype = t:shape(), t:dtype()
  local head = ("tensor {%s} %s %s"):format(table.concat(shape, ", "), dtype, t:device())
  if core.tracing() then return head .. " (being traced)" end
  local part, all = shown_part(t, shape)
  if t:count() == 0 then return head end
  return head .. (#shape > 0 and "\n" or " ")
    .. entries(part:totable(), #shape, dtype:find "int" ~= nil, all, "")
end

-- ---- settings and the rest of mgpu's plain functions ---------------------------------------------

for name, fn in pairs(ops) do
  if not M[name] then M[name] = fn end
end
M.slice = methods.slice

for _, name in ipairs { "eval", "variable", "grad", "value_and_grad", "no_grad", "jit", "seed",
  "rng_state", "memory", "precision", "deterministic", "devices", "device_info", "error_code" } do
  M[name] = core[name]
end

--- set_floatx(dtype): what numbers and weights become unless told otherwise.
function M.set_floatx(dtype) core.floatx(dtype) end

--- tidy(fn): calls fn and frees every tensor made inside, except those it returns.
function M.tidy(fn, ...)
  local results = { core.tidy(fn, ...) }
  return unpack(results)
end

return M
