--- Elements in order along an axis. Equal elements keep their order (the sort is stable), and NaN comes last, whether
-- the order is ascending or descending.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, axis_at, fail, no_axis, read_options = arguments.as_tensor, arguments.axis_at, arguments.fail,
  arguments.no_axis, arguments.read_options

-- t and the axis of an op that has one; a number or list of options as for all.
local function read(who, t, ...)
  local axis, descending = read_options(who, { "axis", "descending" }, ...)
  if descending ~= nil and type(descending) ~= "boolean" then
    fail('%s: option "descending" must be true or false, got %s', who, type(descending))
  end
  t = as_tensor(who, t)
  return t, axis_at(who, axis or -1, t:rank()), descending
end

--- argsort(t, axis = -1, descending = false) -> the positions, from 0, of the elements in order; int32.
-- Example:
--     local t = mgpu.tensor { 30, 10, 20 }
--     print(t:argsort()) -- 10 is at position 1, 20 at 2, 30 at 0
--     --> tensor {3} int32 cpu:0
--     --> {1, 2, 0}
--     print(t:argsort { descending = true })
--     --> tensor {3} int32 cpu:0
--     --> {0, 2, 1}
function M.argsort(t, ...)
  local axis, descending
  t, axis, descending = read("argsort", t, ...)
  return ops.argsort(t, { axis = axis, descending = descending })
end

--- sort(t, axis = -1, descending = false) -> the elements of the axis in order. Gradient: each element's own.
-- Example:
--     local t = mgpu.tensor { { 3, 1, 2 }, { 6, 5, 4 } }
--     print(t:sort())
--     --> tensor {2, 3} float32 cpu:0
--     --> {{1, 2, 3},
--     -->  {4, 5, 6}}
--     print(t:sort { axis = 1, descending = true })
--     --> tensor {2, 3} float32 cpu:0
--     --> {{6, 5, 4},
--     -->  {3, 1, 2}}
function M.sort(t, ...)
  local axis, descending
  t, axis, descending = read("sort", t, ...)
  return ops.take_along_axis(t, ops.argsort(t, { axis = axis, descending = descending }), { axis = axis })
end

--- top_k(t, k, axis = -1) -> the k largest elements of the axis, the largest first, and their positions from 0 (int32).
--- Of equal elements the first are taken. Errors: a k that is not 0 to the size of the axis.
-- Example:
--     local values, positions = mgpu.tensor { 10, 40, 30, 20 }:top_k(2)
--     print(values)
--     --> tensor {2} float32 cpu:0
--     --> {40, 30}
--     print(positions)
--     --> tensor {2} int32 cpu:0
--     --> {1, 2}
function M.top_k(t, ...)
  local k, axis = read_options("top_k", { "k", "axis" }, ...)
  t = as_tensor("top_k", t)
  local at = axis_at("top_k", axis or -1, t:rank())
  local size = t:shape()[at]
  if type(k) ~= "number" or k % 1 ~= 0 or k < 0 or k > size then
    fail("top_k: k must be a whole number from 0 to %d, the size of axis %d; got %s", size, at, tostring(k))
  end
  local ids = ops.argsort(t, { axis = at, descending = true, count = k })
  return ops.take_along_axis(t, ids, { axis = at }), ids
end

--- quantile(t, q, axis = all, keepdims = false) -> the number below which the fraction q (0 to 1) of the elements lies,
--- interpolated linearly between two of them, as NumPy's quantile; NaN if there is a NaN.
-- Example:
--     local t = mgpu.tensor { 10, 20, 30, 40 }
--     print(t:quantile(0.5):item(), t:quantile(0.25):item())  --> 25 17.5
function M.quantile(t, ...)
  local q, axis, keepdims = read_options("quantile", { "q", "axis", "keepdims" }, ...)
  if type(q) ~= "number" or not (q >= 0 and q <= 1) then
    fail("quantile: q must be a number from 0 to 1, got %s", tostring(q))
  end
  t = arguments.floating(as_tensor("quantile", t))
  local shape = t:shape()
  local over, order, kept, left, n = arguments.axis_set("quantile", axis, #shape), {}, {}, {}, 1
  for i, size in ipairs(shape) do
    kept[i] = over[i] and 1 or size
    if not over[i] then order[#order + 1], left[#left + 1] = i, size end
  end
  local result = keepdims and kept or { unpack(left) }
  for i, size in ipairs(shape) do if over[i] then order[#order + 1], n = i, n * size end end
  if n == 0 then fail("quantile: no elements in a tensor of shape {%s}", table.concat(shape, ", ")) end
  left[#left + 1] = n
  local lines = #shape > 0 and ops.permute(t, { order = order }) or t
  local sorted = M.sort(ops.reshape(lines, { shape = left }))
  local function entry(i)
    local ranges = {}
    for k = 1, #left - 1 do ranges[k] = {} end
    ranges[#left] = i
    return core.methods.slice(sorted, ranges)
  end
  local place = q * (n - 1)
  local low = math.floor(place)
  local y = entry(low + 1)
  if place > low then y = y + (entry(low + 2) - y) * (place - low) end
  local last = entry(n) -- NaN sorts last
  y = ops.where(ops.isnan(last), last, y)
  return ops.reshape(y, { shape = result })
end

--- median(t, axis = all, keepdims = false) -> the middle element, or the mean of the two in the middle; NaN if there is
--- a NaN.
-- Example:
--     print(mgpu.tensor { 1, 100, 2 }:median():item())  --> 2
--     print(mgpu.tensor { { 1, 2, 9 }, { 4, 6, 5 } }:median(2))
--     --> tensor {2} float32 cpu:0
--     --> {2, 5}
function M.median(t, ...)
  local axis, keepdims = read_options("median", { "axis", "keepdims" }, ...)
  return M.quantile(t, { q = 0.5, axis = not no_axis(axis) and axis or nil, keepdims = keepdims })
end

return M
