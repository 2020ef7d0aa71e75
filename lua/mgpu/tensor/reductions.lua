--- Reductions made of other ops. An axis may be a number or a list; without one, the reduction is over all axes.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, axis_set, read_options = arguments.as_tensor, arguments.axis_set, arguments.read_options

local REDUCTION = { "axis", "keepdims" }

-- The dtypes in which reductions are computed whose results have fractions. The result has the dtype of the elements,
-- or float32 if they are integers. As in Keras, float16 and bfloat16 are reduced in float32.
local COMPUTED_IN = { float16 = "float32", bfloat16 = "float32", bool = "float32", uint8 = "float32",
  int32 = "float64", int64 = "float64" }
-- A mean divides the sum, which is exact in int64. Only sums of int64 may leave its range.
local MEAN_COMPUTED_IN = { float16 = "float32", bfloat16 = "float32", int64 = "float64" }

-- rule(who, t, axis, keepdims) for a reduction.
local function reduce(rule, computed_in, who, t, ...)
  local axis, keepdims = read_options(who, REDUCTION, ...)
  t = as_tensor(who, t)
  axis_set(who, axis, t:rank()) -- raises under this op's name, not under the name of an op inside
  local dtype = t:dtype()
  local wide = computed_in[dtype]
  if not wide then return rule(who, t, axis, keepdims) end
  return ops.cast(rule(who, ops.cast(t, wide), axis, keepdims), dtype:find "float" and dtype or "float32")
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

--- mean(t, axis = all, keepdims = false) -> the mean over the axes; integers give float32.
-- Example:
--     local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
--     print(t:mean():item())  --> 3.5
--     print(t:mean(2)) -- of each row
--     --> tensor {2} float32 cpu:0
--     --> {2, 5}
function M.mean(t, ...) return reduce(mean_over, MEAN_COMPUTED_IN, "mean", t, ...) end

--- var(t, axis = all, keepdims = false) -> the variance: the mean squared distance from the mean (biased).
-- Example:
--     print(mgpu.tensor { 1, 2, 3, 4 }:var():item())  --> 1.25
function M.var(t, ...) return reduce(variance, COMPUTED_IN, "var", t, ...) end

--- std(t, axis = all, keepdims = false) -> the standard deviation: the square root of var.
-- Example:
--     local x = mgpu.tensor { { 1, 10 }, { 3, 30 } }
--     print((x - x:mean(1)) / x:std(1)) -- each column with mean 0 and standard deviation 1
--     --> tensor {2, 2} float32 cpu:0
--     --> {{-1, -1},
--     -->  { 1,  1}}
function M.std(t, ...) return reduce(deviation, COMPUTED_IN, "std", t, ...) end

--- norm(t, axis = all, keepdims = false) -> the Euclidean norm: the square root of the sum of squares.
-- Example:
--     print(mgpu.tensor { { 3, 4 }, { 5, 12 } }:norm(2)) -- of each row
--     --> tensor {2} float32 cpu:0
--     --> { 5, 13}
function M.norm(t, ...) return reduce(length, COMPUTED_IN, "norm", t, ...) end

-- As Keras: the largest element is taken out first, so that nothing overflows; one that is infinite stays.
local function log_of_sum(_, t, axis, keepdims)
  local top = ops.stop_gradient(ops.max(t, { axis = axis, keepdims = true }))
  top = ops.where(ops.isfinite(top), top, ops.cast(core.tensor(0), t:dtype()))
  local y = ops.log(ops.sum(ops.exp(t - top), { axis = axis, keepdims = true })) + top
  return keepdims and y or ops.reshape(y, { shape = ops.sum(y, { axis = axis }):shape() })
end

--- logsumexp(t, axis = all, keepdims = false) -> the logarithm of the sum of exp(t), without overflow.
-- Example:
--     local t = mgpu.tensor { 1000, 1000 }
--     print(("%.2f %s"):format(t:logsumexp():item(), t:exp():sum():log():item()))  --> 1000.69 inf
function M.logsumexp(t, ...) return reduce(log_of_sum, COMPUTED_IN, "logsumexp", t, ...) end

--- count_nonzero(t, axis = all, keepdims = false) -> how many elements are not 0; int64.
-- Example:
--     print(mgpu.tensor { { 0, 1 }, { 2, 3 } }:count_nonzero(1)) -- in each column
--     --> tensor {2} int64 cpu:0
--     --> {1, 2}
function M.count_nonzero(t, ...)
  local axis, keepdims = read_options("count_nonzero", REDUCTION, ...)
  t = as_tensor("count_nonzero", t)
  axis_set("count_nonzero", axis, t:rank())
  return ops.sum(ops.ne(t, 0), { axis = axis, keepdims = keepdims })
end

--- cumprod(t, axis = 1) -> the running product along the axis; integers and bool give int64. The gradient is right
--- for zeros too: it divides by nothing.
-- Example:
--     print(mgpu.tensor { 1, 2, 3, 4 }:cumprod())
--     --> tensor {4} float32 cpu:0
--     --> { 1,  2,  6, 24}
function M.cumprod(t, ...)
  local axis = read_options("cumprod", { "axis" }, ...)
  t = as_tensor("cumprod", t)
  local shape, line = t:shape(), {}
  local at = arguments.axis_at("cumprod", axis or 1, #shape)
  for i, size in ipairs(shape) do line[i] = i == at and size or 1 end
  local is_first = ops.eq(ops.iota(line, at, "int32"), 0) -- the recurrence begins with t itself
  return ops.linear_scan(t, ops.where(is_first, t, ops.cast(core.tensor(0), t:dtype())), { axis = at })
end

return M
