--- Operations of keras.ops that reduce axes, and those that run along one; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

local REDUCTION = "x | axis? keepdims?"

-- A row for an op of ours with the options axis and keepdims.
local function reduce(fn)
  return { REDUCTION, function(x, axis, keepdims) return fn(x, { axis = axis, keepdims = keepdims or false }) end }
end

M.Mean, M.Std, M.Var = reduce(composite.mean), reduce(composite.std), reduce(composite.var)
M.Sum, M.All, M.Any = reduce(ops.sum), reduce(ops.all), reduce(ops.any)
M.Amax, M.Amin, M.Median = reduce(ops.max), reduce(ops.min), reduce(composite.median)
M.Ptp = reduce(function(x, how) return ops.max(x, how) - ops.min(x, how) end)

-- `initial` is one more element of each reduction.
local function extreme(fn, join)
  return { "x | axis? keepdims? initial?", function(x, axis, keepdims, initial)
    local y = fn(x, { axis = axis, keepdims = keepdims or false })
    return initial and join(y, initial) or y
  end }
end
M.Max, M.Min = extreme(ops.max, ops.maximum), extreme(ops.min, ops.minimum)

M.Prod = { "x | axis? keepdims? dtype?", function(x, axis, keepdims, dtype)
  return ops.prod(dtype and ops.cast(x, dtype) or x, { axis = axis, keepdims = keepdims or false })
end }
M.CountNonzero = { "x | axis?", function(x, axis) return composite.count_nonzero(x, { axis = axis }) end }

M.Average = { "x weights? | axis?", function(x, weights, axis)
  if weights == nil then return composite.mean(x, { axis = axis }) end
  if axis and weights:rank() == 1 and x:rank() > 1 then -- one for each element of the axis
    if type(axis) == "table" and #axis > 1 then core.fail("usage", "average: weights of one axis for several axes") end
    axis = type(axis) == "table" and axis[1] or axis
    local shape, at = {}, axis < 0 and axis + x:rank() + 1 or axis
    for i = 1, x:rank() do shape[i] = i == at and weights:count() or 1 end
    weights = ops.reshape(weights, { shape = shape })
  end
  local wide = ops.broadcast_to(weights, { shape = x:shape() })
  return ops.sum(x * wide, { axis = axis }) / ops.sum(wide, { axis = axis })
end }

-- ---- without NaN --------------------------------------------------------------------------------

-- A reduction for which NaN are replaced; only NaN give NaN if `all` says so.
local function without_nan(fn, instead, all)
  return reduce(function(x, how)
    local absent = ops.isnan(x)
    local y = fn(ops.where(absent, instead, x), how)
    return all and ops.where(ops.all(absent, how), 0 / 0, y) or y
  end)
end
M.Nansum, M.Nanprod = without_nan(ops.sum, 0), without_nan(ops.prod, 1)
M.Nanmax, M.Nanmin = without_nan(ops.max, -math.huge, true), without_nan(ops.min, math.huge, true)
M.Nanmean = reduce(function(x, how)
  local absent = ops.isnan(x)
  local count = ops.sum(ops.cast(ops.logical_not(absent), x:dtype()), how)
  return ops.sum(ops.where(absent, 0, x), how) / count
end)

local function variance_without_nan(x, how)
  local absent, wide = ops.isnan(x), { axis = how.axis, keepdims = true }
  local here = ops.cast(ops.logical_not(absent), x:dtype())
  local mean = ops.sum(ops.where(absent, 0, x), wide) / ops.sum(here, wide)
  return ops.sum(ops.square(ops.where(absent, 0, x - mean)), how) / ops.sum(here, how)
end
M.Nanvar = reduce(variance_without_nan)
M.Nanstd = reduce(function(x, how) return ops.sqrt(variance_without_nan(x, how)) end)

-- ---- positions ----------------------------------------------------------------------------------

-- The op has no keepdims and wants an axis.
local function position_of(op)
  return { REDUCTION, function(x, axis, keepdims)
    if axis == nil then
      local y, ones = op(ops.reshape(x, { shape = { -1 } }), { axis = 1 }), {}
      for i = 1, x:rank() do ones[i] = 1 end
      return keepdims and ops.reshape(y, { shape = ones }) or y
    end
    local y = op(x, { axis = axis })
    return keepdims and composite.expand_dims(y, { axis = axis }) or y
  end }
end
M.Argmax, M.Argmin = position_of(ops.argmax), position_of(ops.argmin)

-- ---- along an axis ------------------------------------------------------------------------------

-- Without an axis of the elements in row-major order.
local function running(fn)
  return { "x | axis? dtype?", function(x, axis, dtype)
    if dtype then x = ops.cast(x, dtype) end
    if axis == nil then x, axis = ops.reshape(x, { shape = { -1 } }), 1 end
    return fn(x, { axis = axis })
  end }
end
M.Cumsum, M.Cumprod = running(ops.cumsum), running(composite.cumprod)

M.Nancumsum = { "x | axis? dtype?", function(x, ...) return M.Cumsum[2](ops.where(ops.isnan(x), 0, x), ...) end }
M.Nancumprod = { "x | axis? dtype?", function(x, ...) return M.Cumprod[2](ops.where(ops.isnan(x), 1, x), ...) end }

-- The integral of lines through points that are dx apart: the first and the last one count half.
M.Trapezoid = { "y | dx:number? axis?", function(y, dx, axis)
  local at, start, stop = arguments.axis_at("trapezoid", axis or -1, y:rank()), {}, y:shape()
  for i = 1, #stop do start[i] = 0 end
  local n = stop[at]
  stop[at] = math.min(1, n)
  local first = ops.sum(ops.slice(y, { start = start, stop = stop }), { axis = at })
  start[at], stop[at] = math.max(n - 1, 0), n
  local last = ops.sum(ops.slice(y, { start = start, stop = stop }), { axis = at })
  return (ops.sum(y, { axis = at }) - (first + last) / 2) * (dx or 1)
end }

local function quantile(scale)
  return function(x, q, axis, method, keepdims)
    if method and method ~= "linear" then
      core.fail("unsupported", ("the method %q is not supported"):format(method))
    end
    if type(q) ~= "number" then core.fail("unsupported", "q must be a number") end
    return composite.quantile(x, { q = q * scale, axis = axis, keepdims = keepdims or false })
  end
end
M.Quantile = { "x q | axis? method? keepdims?", quantile(1) }
M.Percentile = { "x q | axis? method? keepdims?", quantile(0.01) }

M.Diff = { "a | n? axis?", function(x, n, axis)
  local at = arguments.axis_at("diff", axis or -1, x:rank())
  if arguments.whole("diff", "n", n or 1, 0) > x:shape()[at] then arguments.fail("diff: n = %d is too large", n) end
  for _ = 1, n or 1 do
    local size, later, earlier = x:shape()[at], {}, {}
    for i = 1, x:rank() do later[i], earlier[i] = {}, {} end
    later[at], earlier[at] = { 2, size }, { 1, size - 1 }
    x = composite.slice(x, later) - composite.slice(x, earlier)
  end
  return x
end }

M.Sort = { "x | axis?", function(x, axis) return composite.sort(x, { axis = axis or -1 }) end }
M.Argsort = { "x | axis?", function(x, axis) return composite.argsort(x, { axis = axis or -1 }) end }

return M
