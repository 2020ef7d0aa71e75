--- Reductions made of other ops. An axis may be a number or a list; without one, the reduction is over all axes.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, axis_set, floating, read_options = arguments.as_tensor, arguments.axis_set, arguments.floating,
  arguments.read_options

local REDUCTION = { "axis", "keepdims" }

-- rule(who, t, axis, keepdims) for a reduction. As in Keras, float16 and bfloat16 are summed in float32 and the result
-- is cast back.
local function reduce_in_float32(rule, who, t, ...)
  local axis, keepdims = read_options(who, REDUCTION, ...)
  t = floating(as_tensor(who, t))
  axis_set(who, axis, t:rank()) -- raises under this op's name, not under the name of an op inside
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

--- mean(t, axis = all, keepdims = false) -> the mean over the axes; integers give float32.
-- Example:
--     local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
--     print(t:mean():item())  --> 3.5
--     print(t:mean(2)) -- of each row
--     --> tensor {2} float32 cpu:0
--     --> {2, 5}
function M.mean(t, ...) return reduce_in_float32(mean_over, "mean", t, ...) end

--- var(t, axis = all, keepdims = false) -> the variance: the mean squared distance from the mean (biased).
-- Example:
--     print(mgpu.tensor { 1, 2, 3, 4 }:var():item())  --> 1.25
function M.var(t, ...) return reduce_in_float32(variance, "var", t, ...) end

--- std(t, axis = all, keepdims = false) -> the standard deviation: the square root of var.
-- Example:
--     local x = mgpu.tensor { { 1, 10 }, { 3, 30 } }
--     print((x - x:mean(1)) / x:std(1)) -- each column with mean 0 and standard deviation 1
--     --> tensor {2, 2} float32 cpu:0
--     --> {{-1, -1},
--     -->  { 1,  1}}
function M.std(t, ...) return reduce_in_float32(deviation, "std", t, ...) end

--- norm(t, axis = all, keepdims = false) -> the Euclidean norm: the square root of the sum of squares.
-- Example:
--     print(mgpu.tensor { { 3, 4 }, { 5, 12 } }:norm(2)) -- of each row
--     --> tensor {2} float32 cpu:0
--     --> { 5, 13}
function M.norm(t, ...) return reduce_in_float32(length, "norm", t, ...) end

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
function M.logsumexp(t, ...) return reduce_in_float32(log_of_sum, "logsumexp", t, ...) end

--- count_nonzero(t, axis = all, keepdims = false) -> how many elements are not 0; int32.
-- Example:
--     print(mgpu.tensor { { 0, 1 }, { 2, 3 } }:count_nonzero(1)) -- in each column
--     --> tensor {2} int32 cpu:0
--     --> {1, 2}
function M.count_nonzero(t, ...)
  local axis, keepdims = read_options("count_nonzero", REDUCTION, ...)
  t = as_tensor("count_nonzero", t)
  axis_set("count_nonzero", axis, t:rank())
  return ops.sum(ops.ne(t, 0), { axis = axis, keepdims = keepdims })
end

--- cumprod(t, axis = 1) -> the running product along the axis; bool and uint8 give int32. The gradient is right for
--- zeros too: it divides by nothing.
-- Example:
--     print(mgpu.tensor { 1, 2, 3, 4 }:cumprod())
--     --> tensor {4} float32 cpu:0
--     --> { 1,  2,  6, 24}
function M.cumprod(t, ...)
  local axis = read_options("cumprod", { "axis" }, ...)
  t = as_tensor("cumprod", t)
  local shape, line = t:shape(), {}
  local at = arguments.axis_at("cumprod", axis or 1, #shape)
  if t:dtype() == "bool" or t:dtype() == "uint8" then t = ops.cast(t, "int32") end
  for i, size in ipairs(shape) do line[i] = i == at and size or 1 end
  local is_first = ops.eq(ops.iota(line, at, "int32"), 0) -- the recurrence begins with t itself
  return ops.linear_scan(t, ops.where(is_first, t, ops.cast(core.tensor(0), t:dtype())), { axis = at })
end

return M
