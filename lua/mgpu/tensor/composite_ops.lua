--- Ops made of other ops. Each is a function of `mgpu` and a method of tensors.
--
-- Axes count from 1 or, negative, from the end. Options come by position or in one table by name, as for the ops in
-- C: t:mean(2, true) = t:mean {axis = 2, keepdims = true}. A reduction without an axis is over all axes.
-- Errors: an unknown option, an axis out of range.
local core = require "mgpu.core"
local slice = require "mgpu.tensor.slicing"

local M, ops = {}, core.ops

local function fail(message, ...) core.fail("usage", message:format(...)) end

-- t itself, or a tensor made of a number, boolean or table.
local function as_tensor(who, t)
  local kind = type(t)
  if core.is_tensor(t) or core.is_variable(t) then return t end
  if kind == "number" or kind == "boolean" or kind == "table" then return core.tensor(t) end
  fail("%s: expected a tensor, got %s", who, kind)
end

-- The axis (negative: from the end) as a position from 1.
local function axis_at(who, axis, rank)
  if type(axis) ~= "number" or axis % 1 ~= 0 then
    fail("%s: an axis is a whole number, got %s", who, type(axis) == "number" and axis or type(axis))
  end
  local at = axis < 0 and axis + rank + 1 or axis
  if axis == 0 or at < 1 or at > rank then
    fail("%s: axis %d is out of range: there are %d axes, counted from 1 (or -1 from the end)", who,
      axis, rank)
  end
  return at
end

-- Raises if a list of axes or tensors has holes or other keys.
local function check_array(who, list)
  local fault = core.array_fault(list)
  if fault then fail("%s: %s", who, fault) end
end

-- Whether the option axis names no axis: nil or an empty list.
local function no_axis(axis) return axis == nil or (type(axis) == "table" and next(axis) == nil) end

-- The set of positions from 1 that the option axis (nil: all axes, a number, or a list) means.
local function axis_set(who, axis, rank)
  local set = {}
  if type(axis) == "table" then check_array(who, axis) end
  if no_axis(axis) then
    for i = 1, rank do set[i] = true end
    return set
  end
  for _, a in ipairs(type(axis) == "table" and axis or { axis }) do
    set[axis_at(who, a, rank)] = true
  end
  return set
end

local function has_names(t)
  for key in pairs(t) do
    if type(key) == "string" then return true end
  end
  return false
end

-- The values of the options `names` in the table `given`, in their order.
local function options_by_name(who, names, given)
  local at, values = {}, {}
  for i, name in ipairs(names) do at[name] = i end
  for key, value in pairs(given) do
    if type(key) ~= "string" then
      fail("%s: the options have names, but one value has none: write NAME = value", who)
    end
    if not at[key] then
      fail("%s: unknown option %q%s", who, key, core.did_you_mean(key, names))
    end
    values[at[key]] = value
  end
  return unpack(values, 1, #names)
end

-- The values of the options `names`, given by position or in one table by name; {} is no options.
local function read_options(who, names, ...)
  local n, first = select("#", ...), (...)
  while n > 0 and select(n, ...) == nil do n = n - 1 end
  if n > #names then
    fail("%s: too many arguments: takes %d option%s", who, #names, #names == 1 and "" or "s")
  end
  if n ~= 1 or type(first) ~= "table" then return ... end
  if next(first) == nil then return end
  if has_names(first) then return options_by_name(who, names, first) end
  return first
end

local REDUCTION = { "axis", "keepdims" }

-- t, or its cast to float32 if it is integer or bool.
local function floating(t)
  if t:dtype():find "float" then return t end
  return ops.cast(t, "float32")
end

-- rule(who, t, axis, keepdims) for a reduction. As in Keras, float16 and bfloat16 are summed in float32 and the result
-- is cast back.
local function reduce_in_float32(rule, who, t, ...)
  local axis, keepdims = read_options(who, REDUCTION, ...)
  t = floating(as_tensor(who, t))
  local dtype = t:dtype()
  if dtype ~= "float16" and dtype ~= "bfloat16" then return rule(who, t, axis, keepdims) end
  return ops.cast(rule(who, ops.cast(t, "float32"), axis, keepdims), dtype)
end

local function mean_over(who, t, axis, keepdims)
  local shape, n = t:shape(), 1
  for i in pairs(axis_set(who, axis, #shape)) do n = n * shape[i] end
  return ops.sum(t, { axis = axis, keepdims = keepdims }) / n
end

local function variance(who, t, axis, keepdims)
  return mean_over(who, ops.square(t - mean_over(who, t, axis, true)), axis, keepdims)
end

local function deviation(...) return ops.sqrt(variance(...)) end

local function length(_, t, axis, keepdims)
  return ops.sqrt(ops.sum(ops.square(t), { axis = axis, keepdims = keepdims }))
end

-- ---- reductions ---------------------------------------------------------------------------------

--- mean(t, axis = all, keepdims = false) -> the mean over the axes; integers give float32.
function M.mean(t, ...) return reduce_in_float32(mean_over, "mean", t, ...) end

--- var(t, axis = all, keepdims = false) -> the variance: the mean squared distance from the mean (biased).
function M.var(t, ...) return reduce_in_float32(variance, "var", t, ...) end

--- std(t, axis = all, keepdims = false) -> the standard deviation: the square root of var.
function M.std(t, ...) return reduce_in_float32(deviation, "std", t, ...) end

--- norm(t, axis = all, keepdims = false) -> the Euclidean norm: the square root of the sum of squares.
function M.norm(t, ...) return reduce_in_float32(length, "norm", t, ...) end

-- ---- element-wise -------------------------------------------------------------------------------

--- clip(t, low, high) -> t with smaller elements replaced by low, larger ones by high; nil leaves an end open. At a
--- bound the gradient is 1, as in Keras.
function M.clip(t, ...)
  local low, high = read_options("clip", { "low", "high" }, ...)
  t = as_tensor("clip", t)
  if low ~= nil then t = ops.where(ops.lt(t, low), low, t) end
  if high ~= nil then t = ops.where(ops.gt(t, high), high, t) end
  return t
end

--- one_hot(ids, classes, dtype = floatx), also to_categorical -> ids {...} (from 0) as {..., classes} of 0 and 1.
--- dtype: a name or {dtype =}. An id outside 0 .. classes - 1 gives zeros.
function M.one_hot(ids, ...)
  local classes, dtype = read_options("one_hot", { "classes", "dtype" }, ...)
  if type(dtype) == "table" then dtype = options_by_name("one_hot", { "dtype" }, dtype) end
  if type(classes) ~= "number" or classes < 1 or classes % 1 ~= 0 then
    fail("one_hot: the number of classes must be at least 1, got %s",
      type(classes) == "number" and classes or type(classes))
  end
  local shape = as_tensor("one_hot", ids):shape()
  shape[#shape + 1] = 1
  local column = ops.cast(ops.reshape(as_tensor("one_hot", ids), { shape = shape }), "int32")
  local hot = ops.eq(column, ops.iota({ classes }, 1, "int32"))
  return ops.cast(hot, dtype or core.floatx())
end

-- ---- movement -----------------------------------------------------------------------------------

--- slice(t, ranges) -> a part of t, as t:slice {{1, 10}, {}, 3}; see slicing.lua.
function M.slice(t, ranges)
  if type(ranges) == "table" and has_names(ranges) then ranges = options_by_name("slice", { "ranges" }, ranges) end
  return slice(t, ranges)
end

--- transpose(t, order) -> the axes in that order; without it, in reverse order.
function M.transpose(t, ...)
  local order = read_options("transpose", { "order" }, ...)
  t = as_tensor("transpose", t)
  if order then return ops.permute(t, order) end
  order = {}
  for i = t:rank(), 1, -1 do order[#order + 1] = i end
  return ops.permute(t, { order = order })
end

--- flatten(t) -> the elements in one axis.
function M.flatten(t, ...)
  read_options("flatten", {}, ...)
  t = as_tensor("flatten", t)
  return ops.reshape(t, { shape = { t:count() } })
end

--- expand_dims(t, axis) -> t with a new axis of size 1 at this position of the result.
function M.expand_dims(t, ...)
  local axis = read_options("expand_dims", { "axis" }, ...)
  t = as_tensor("expand_dims", t)
  local shape = t:shape()
  table.insert(shape, axis_at("expand_dims", axis, #shape + 1), 1)
  return ops.reshape(t, { shape = shape })
end

--- squeeze(t, axis) -> t without these axes of size 1; without `axis`, without all of them.
function M.squeeze(t, ...)
  local axis = read_options("squeeze", { "axis" }, ...)
  t = as_tensor("squeeze", t)
  local shape, kept = t:shape(), {}
  local dropped = not no_axis(axis) and axis_set("squeeze", axis, #shape)
  for i, size in ipairs(shape) do
    if dropped and dropped[i] and size ~= 1 then
      fail("squeeze: axis %d has size %d, not 1", i, size)
    end
    if size ~= 1 or (dropped and not dropped[i]) then kept[#kept + 1] = size end
  end
  return ops.reshape(t, { shape = kept })
end

-- How many of the arguments, from the first on, are tensors or variables.
local function count_tensors(...)
  local n, given = select("#", ...), { ... }
  for i = 1, n do
    if not core.is_tensor(given[i]) and not core.is_variable(given[i]) then return i - 1 end
  end
  return n
end

local MOST = 255 -- inputs of one op

--- concat({a, b, ...}, axis = 1), also concat(a, b, ..., axis) -> the tensors one after another along the axis.
function M.concat(list, ...)
  local options
  if type(list) == "table" then
    if #list <= MOST then return ops.concat(list, ...) end
    options = { ... }
    check_array("concat", list)
  else
    local n = count_tensors(list, ...)
    if n <= MOST then return ops.concat(list, ...) end
    list, options = { list, ... }, {}
    for i = n + 1, 1 + select("#", ...) do options[#options + 1], list[i] = list[i], nil end
  end
  while #list > MOST do
    local longer = {}
    for first = 1, #list, MOST do
      local some = { unpack(list, first, math.min(first + MOST - 1, #list)) }
      longer[#longer + 1] = ops.concat(some, unpack(options))
    end
    list = longer
  end
  return ops.concat(list, unpack(options))
end

--- gather(t, ids, axis = 1) -> the slices of t along the axis that the whole numbers ids {...}, from 0, pick: the axis
--- is replaced by those of ids. Errors: an id outside, found when the ids are computed.
function M.gather(t, ids, ...)
  local axis = read_options("gather", { "axis" }, ...)
  t, ids = as_tensor("gather", t), as_tensor("gather", ids)
  local at = axis_at("gather", axis or 1, #t:shape())
  local picked, size = ops.gather(t, ids, { axis = at }), t:shape()[at]
  core.guard(ops.all(ops.logical_and(ops.ge(ids, 0), ops.lt(ids, size))), "data",
    ("gather: an id is not among 0 to %d, the places of axis %d from 0"):format(size - 1, at))
  return picked
end

--- stack({a, b, ...}, axis = 1) -> the tensors along a new axis.
function M.stack(list, ...)
  local axis, expanded = read_options("stack", { "axis" }, ...), {}
  if type(list) ~= "table" or next(list) == nil then fail("stack: expected an array of tensors") end
  check_array("stack", list)
  for i, t in ipairs(list) do expanded[i] = M.expand_dims(t, axis or 1) end
  return M.concat(expanded, { axis = axis or 1 })
end

--- split(t, n, axis = 1) -> an array of n equal parts along the axis. Errors: a size that n does not divide.
function M.split(t, ...)
  local n, axis = read_options("split", { "n", "axis" }, ...)
  t = as_tensor("split", t)
  local shape = t:shape()
  local at = axis_at("split", axis or 1, #shape)
  if type(n) ~= "number" or n % 1 ~= 0 then
    fail("split: the number of parts must be a whole number, got %s", type(n) == "number" and n or type(n))
  end
  if n < 1 or n > math.max(1, shape[at]) or shape[at] % n ~= 0 then
    fail("split: axis %d of size %d cannot be cut into %d equal parts", at, shape[at], n)
  end
  local parts, size, ranges = {}, shape[at] / n, {}
  for k = 1, #shape do ranges[k] = {} end
  if n == 1 then return { t } end
  for i = 1, n do
    ranges[at] = { (i - 1) * size + 1, i * size }
    parts[i] = slice(t, ranges)
  end
  return parts
end

return M
