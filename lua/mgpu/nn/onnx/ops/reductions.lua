--- Ops of ONNX along axes: reductions, softmax, sorting; see ops/init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local pad_axes = require "mgpu.nn.onnx.pad_axes"
local values = require "mgpu.nn.onnx.values"

local ops, axis_at = core.ops, values.axis_at

local M = {}

-- ---- reductions ---------------------------------------------------------------------------------

-- The axes that a node reduces, from 0, sorted; nil: none, x stays as it is. Attribute or, in later opsets, input.
local function reduced_axes(c, x, axes)
  local list, given = {}, axes and axes:numbers "axes" or c.axes or {}
  if #given == 0 then
    if c.noop_with_empty_axes ~= 0 then return nil end
    for i = 1, x:rank() do list[i] = i - 1 end
    return list
  end
  for i, axis in ipairs(given) do list[i] = axis_at(axis, x:rank()) end
  return list
end

-- Whether the axes are all those behind the channels: then what stays, {batch, channels}, has one order only.
local function are_spatial(axes, rank)
  local seen, n = {}, 0
  for _, axis in ipairs(axes) do
    if axis < 2 then return false end
    if not seen[axis] then n = n + 1 end
    seen[axis] = true
  end
  return n == rank - 2
end

-- fn(tensor, how): how = {axis =, keepdims =} as our reductions have it.
local function reduce(fn)
  return { "1-2 | axes:ints? keepdims:int=1 noop_with_empty_axes:int=0", function(c, x, axes)
    local list, rank = reduced_axes(c, x, axes), x:rank()
    local keepdims, how = c.keepdims ~= 0, { axis = {} }
    if not list then return values.map(function(t) return fn(t) end, x) end
    if #list == 0 then return values.map(function(t) return fn(t) end, x) end -- a scalar
    how.keepdims = keepdims
    local last = x:only_last() and (keepdims or are_spatial(list, rank))
    for i, axis in ipairs(list) do how.axis[i] = last and values.axis_last(axis, rank) or axis + 1 end
    if not last then return values.plain(fn(x:tensor(), how)) end
    return values.last(fn(x:last(), how))
  end }
end

-- Sums of integers are int64 here and keep their type in ONNX. Without `how` there is nothing to add up.
local function sum(t, how) return how and ops.cast(ops.sum(t, how), t:dtype()) or t end

-- The largest or smallest element; of none, the limit of the dtype.
local LOWEST = { uint8 = 0, bool = 0, int32 = -2 ^ 31, int64 = -2 ^ 63 }
local HIGHEST = { uint8 = 255, bool = 1, int32 = 2 ^ 31 - 1, int64 = 2 ^ 63 }
local function extreme(op, limits, infinity)
  return function(t, how)
    if not how then return t end
    if t:count() > 0 then return op(t, how) end
    return ops.full(ops.sum(t, how):shape(), limits[t:dtype()] or infinity, t:dtype())
  end
end

M.ReduceSum = reduce(sum)
M.ReduceProd = reduce(function(t, how) return how and ops.cast(ops.prod(t, how), t:dtype()) or t end)
M.ReduceMax = reduce(extreme(ops.max, LOWEST, -math.huge))
M.ReduceMin = reduce(extreme(ops.min, HIGHEST, math.huge))
M.ReduceMean = reduce(function(t, how) return how and ops.cast(composite.mean(t, how), t:dtype()) or t end)
M.ReduceL1 = reduce(function(t, how) return sum(ops.abs(t), how) end)
M.ReduceSumSquare = reduce(function(t, how) return sum(t * t, how) end)
M.ReduceL2 = reduce(function(t, how) return ops.cast(ops.sqrt(sum(t * t, how)), t:dtype()) end)
M.ReduceLogSum = reduce(function(t, how) return ops.cast(ops.log(sum(t, how)), t:dtype()) end)
M.ReduceLogSumExp = reduce(function(t, how)
  if not how then return t end
  if t:count() == 0 then return ops.log(sum(t, how)) end
  return ops.cast(composite.logsumexp(t, how), t:dtype())
end)

-- ---- softmax ------------------------------------------------------------------------------------

-- Up to opset 12 these are over all axes from `axis` on together, which is 1 by default; later over `axis` alone.
local function over_axis(fn)
  return { "1 | axis:int?", function(c, x)
    local rank = x:rank()
    local at = axis_at(c.axis or (c.opset < 13 and 1 or -1), rank)
    if c.opset >= 13 or at == rank - 1 then
      local t, axis_in, wrap = values.along(x)
      return wrap(fn(t, axis_in(at)))
    end
    local shape, rows, t = x:shape(), 1, x:tensor()
    for i = 1, at do rows = rows * shape[i] end
    local flat = ops.reshape(t, { shape = { rows, rows > 0 and t:count() / rows or 0 } })
    return values.plain(ops.reshape(fn(flat, 2), { shape = shape }))
  end }
end

M.Softmax = over_axis(function(t, axis) return ops.softmax(t, { axis = axis }) end)
M.LogSoftmax = over_axis(function(t, axis) return ops.log_softmax(t, { axis = axis }) end)
M.Hardmax = over_axis(function(t, axis)
  local size, shape = t:shape()[axis], {}
  for i = 1, t:rank() do shape[i] = i == axis and size or 1 end
  local places = ops.reshape(ops.iota({ size }, 1, "int32"), { shape = shape })
  local best = composite.expand_dims(ops.argmax(t, { axis = axis }), { axis = axis })
  return ops.cast(ops.eq(places, best), t:dtype())
end)

-- ---- positions ----------------------------------------------------------------------------------

local function argument(op)
  return { "1 | axis:int=0 keepdims:int=1 select_last_index:int=0", function(c, x)
    local at, t = axis_at(c.axis, x:rank()) + 1, x:tensor()
    local y
    if c.select_last_index ~= 0 then
      y = t:shape()[at] - 1 - ops[op](ops.reverse(t, { axis = at }), { axis = at })
    else
      y = ops[op](t, { axis = at })
    end
    y = ops.cast(y, "int64")
    return values.plain(c.keepdims ~= 0 and composite.expand_dims(y, { axis = at }) or y)
  end }
end
M.ArgMax, M.ArgMin = argument "argmax", argument "argmin"

-- `sorted` = 0 leaves the order open.
M.TopK = { "1-2 | axis:int=-1 largest:int=1 sorted:int=1 k:int?", function(c, x, k)
  local at, t = axis_at(c.axis, x:rank()) + 1, x:tensor()
  local n = k and k:number "K" or c.k
  if not n or n < 0 or n > t:shape()[at] then
    core.fail("data", ("K = %s for an axis of %d elements"):format(tostring(n), t:shape()[at]))
  end
  local ids = ops.argsort(t, { axis = at, descending = c.largest ~= 0, count = n })
  return values.plain(ops.take_along_axis(t, ids, { axis = at })), values.plain(ops.cast(ids, "int64"))
end }

-- t with a 0 in front of the axis, and without its last element.
local function shifted(t, at)
  local ranges, size = {}, t:shape()[at]
  for i = 1, t:rank() do ranges[i] = i == at and { 1, size } or {} end
  return size == 0 and t or composite.slice(pad_axes(t, at, { 1 }, { 0 }), ranges)
end

M.CumSum = { "2 | exclusive:int=0 reverse:int=0", function(c, x, axis)
  local at, t = axis_at(axis:number "the axis", x:rank()) + 1, x:tensor()
  if c.reverse ~= 0 then t = ops.reverse(t, { axis = at }) end
  if c.exclusive ~= 0 then t = shifted(t, at) end
  local y = ops.cast(ops.cumsum(t, { axis = at }), t:dtype())
  return values.plain(c.reverse ~= 0 and ops.reverse(y, { axis = at }) or y)
end }

return M
