--- Elements picked by tensors of ids, which count from 0. Ids that are out of range are found when they are computed.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, axis_at, fail, read_options, whole = arguments.as_tensor, arguments.axis_at, arguments.fail,
  arguments.read_options, arguments.whole

-- Raises, once the ids are computed, if one is not 0 .. size - 1.
local function guard_ids(who, ids, size, place)
  core.guard(ops.all(ops.logical_and(ops.ge(ids, 0), ops.lt(ids, size))), "data",
    ("%s: an id is not among 0 to %d, the places of %s from 0"):format(who, size - 1, place))
end

local function text(shape) return "{" .. table.concat(shape, ", ") .. "}" end

--- gather(t, ids, axis = 1) -> the slices of t along the axis that the whole numbers ids {...}, from 0, pick: the axes
--- of ids replace the axis. Errors: an id outside, found when the ids are computed.
-- Example:
--     local t = mgpu.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }
--     local ids = mgpu.tensor({ 2, 0 }, { dtype = "int32" })
--     print(t:gather(ids)) -- the rows 2 and 0
--     --> tensor {2, 2} float32 cpu:0
--     --> {{5, 6},
--     -->  {1, 2}}
--     print(mgpu.tensor { { 1, 2, 3 } }:gather(ids, 2)) -- columns
--     --> tensor {1, 2} float32 cpu:0
--     --> {{3, 1}}
function M.gather(t, ids, ...)
  local axis = read_options("gather", { "axis" }, ...)
  t, ids = as_tensor("gather", t), as_tensor("gather", ids)
  local at = axis_at("gather", axis or 1, #t:shape())
  local picked, size = ops.gather(t, ids, { axis = at }), t:shape()[at]
  guard_ids("gather", ids, size, "axis " .. at)
  return picked
end

-- ids as take_along_axis wants them: repeated to x's sizes in front of the axis, and behind it all 1 or x's sizes.
local function fitted(who, x, ids, at)
  local s, given, wanted, ones = x:shape(), ids:shape(), {}, true
  if #s ~= #given then fail("%s: ids of shape %s for a tensor of shape %s", who, text(given), text(s)) end
  for i = at + 1, #s do ones = ones and given[i] == 1 end
  for i = 1, #s do
    wanted[i] = (i == at or i > at and ones) and given[i] or s[i]
    if given[i] ~= wanted[i] and given[i] ~= 1 then
      fail("%s: ids of shape %s for a tensor of shape %s along axis %d", who, text(given), text(s), at)
    end
  end
  return ops.broadcast_to(ids, { shape = wanted })
end

--- take_along_axis(t, ids, axis = 1) -> element [..., ids[..., i, ...], ...] of t for each place of ids, which has the
--- rank of t: each row picks for itself.
-- ids {..., k, ...}: whole numbers from 0; axes other than `axis` have the sizes of t, or 1, which is repeated. With 1
-- in all axes behind `axis`, whole slices are picked. Gradient: to t. Errors: an id outside, found when it is computed.
-- Example:
--     local t = mgpu.tensor { { 10, 30, 20 }, { 60, 50, 40 } }
--     local best = t:argmax(2):expand_dims(2) -- {2, 1}: a position in each row
--     print(t:take_along_axis(best, 2))
--     --> tensor {2, 1} float32 cpu:0
--     --> {{30},
--     -->  {60}}
function M.take_along_axis(t, ids, ...)
  local axis = read_options("take_along_axis", { "axis" }, ...)
  t, ids = as_tensor("take_along_axis", t), as_tensor("take_along_axis", ids)
  local at = axis_at("take_along_axis", axis or 1, t:rank())
  if ids:dtype():find "float" then fail("take_along_axis: ids must be integers, got %s", ids:dtype()) end
  local repeated = fitted("take_along_axis", t, ids, at)
  guard_ids("take_along_axis", ids, t:shape()[at], "axis " .. at)
  return ops.take_along_axis(t, repeated, { axis = at })
end

--- slice_rows(t, start, size) -> {n, size...}: from each row t[i], the part of `size` that begins at start[i].
-- t {n, a, b, ...}; start {n, k}: positions from 0 along the k axes behind the first; size: k whole numbers. Axes
-- without a position are taken whole. So x:slice_rows(start, {h, w}) crops images {n, rows, columns, channels}.
-- Gradient: to t. Errors: a part that reaches over the end, found when it is computed.
-- Example:
--     local images = mgpu.arange(18):reshape { 2, 3, 3, 1 }
--     local corners = mgpu.tensor({ { 0, 0 }, { 1, 1 } }, { dtype = "int32" }) -- row, column from 0, for each image
--     print(images:slice_rows(corners, { 2, 2 }):reshape { 2, 4 })
--     --> tensor {2, 4} float32 cpu:0
--     --> {{ 0,  1,  3,  4},
--     -->  {13, 14, 16, 17}}
function M.slice_rows(t, start, ...)
  local size = read_options("slice_rows", { "size" }, ...)
  t, start = as_tensor("slice_rows", t), as_tensor("slice_rows", start)
  if type(size) == "number" then size = { size } end
  if type(size) ~= "table" then fail("slice_rows: the size must be a list, got %s", type(size)) end
  arguments.check_array("slice_rows", size)
  for _, n in ipairs(size) do whole("slice_rows", "a size", n, 1) end
  local shape, given = t:shape(), start:shape()
  if #given ~= 2 or #size == 0 or given[1] ~= shape[1] or given[2] ~= #size or #size >= #shape then
    fail("slice_rows: start of shape %s and size %s do not fit a tensor of shape %s", text(given), text(size),
      text(shape))
  end
  if start:dtype():find "float" then fail("slice_rows: start must hold integers, got %s", start:dtype()) end
  start = ops.cast(start, "int64")
  for k, n in ipairs(size) do
    if n > shape[1 + k] then fail("slice_rows: %d entries of an axis of %d", n, shape[1 + k]) end
    local first = core.methods.slice(start, { {}, { k, k } })
    guard_ids("slice_rows", first, shape[1 + k] - n + 1, "a part of axis " .. 1 + k)
    local ids, ones = first + ops.iota({ 1, n }, 2, "int64"), {}
    for i = 1, #shape do ones[i] = i == 1 and shape[1] or i == 1 + k and n or 1 end
    t = ops.take_along_axis(t, fitted("slice_rows", t, ops.reshape(ids, { shape = ones }), 1 + k), { axis = 1 + k })
  end
  return t
end

-- ---- scatter ------------------------------------------------------------------------------------

-- ids {..., k} as numbers of the first k axes of `shape` in row-major order, in one axis; then the number of those
-- places, and the sizes that follow.
local function places(who, ids, shape)
  if ids:dtype():find "float" then fail("%s: ids must be integers, got %s", who, ids:dtype()) end
  local given, rest, n = ids:shape(), {}, 1
  local depth = given[#given]
  if #given < 1 or depth < 1 or depth > #shape then
    fail("%s: ids of shape %s for a tensor of shape %s: the last axis of ids has a number for each of its first axes",
      who, text(given), text(shape))
  end
  for i = depth + 1, #shape do rest[#rest + 1] = shape[i] end
  ids = ops.cast(ops.reshape(ids, { shape = { -1, depth } }), "int64")
  local flat
  for i = 1, depth do
    local column = core.methods.slice(ids, { {}, i })
    guard_ids(who, column, shape[i], "axis " .. i)
    flat = flat and flat * shape[i] + column or column
    n = n * shape[i]
  end
  return flat, n, rest
end

-- values {..., rest}, whose first axes are those of ids {..., k}, as {number of ids, rest}.
local function listed(who, values, ids, rest)
  local wanted, given = ids:shape(), values:shape()
  local count = ids:count() / wanted[#wanted]
  wanted[#wanted] = nil
  for _, size in ipairs(rest) do wanted[#wanted + 1] = size end
  if text(given) ~= text(wanted) then
    fail("%s: values of shape %s, expected %s", who, text(given), text(wanted))
  end
  return ops.reshape(values, { shape = { count, unpack(rest) } })
end

local function check_sizes(who, shape)
  if type(shape) ~= "table" then fail("%s: the shape must be a list, got %s", who, type(shape)) end
  arguments.check_array(who, shape)
  for _, size in ipairs(shape) do whole(who, "a size", size, 0) end
end

--- scatter(ids, values, shape) -> zeros of that shape with the values added where ids say; equal ids add up.
-- ids {..., k}: positions from 0 along the first k axes; values {..., the other axes of shape}. As tf.scatter_nd, but
-- integers and bool give int64, as sums of them do. Gradient: to the values. Errors: an id outside, found when it is
-- computed.
-- Example:
--     local ids = mgpu.tensor({ { 3 }, { 0 }, { 3 } }, { dtype = "int32" })
--     print(mgpu.scatter(ids, mgpu.tensor { 1, 2, 10 }, { 5 })) -- place 3 gets 1 + 10
--     --> tensor {5} float32 cpu:0
--     --> { 2,  0,  0, 11,  0}
function M.scatter(ids, values, ...)
  local shape = read_options("scatter", { "shape" }, ...)
  ids, values = as_tensor("scatter", ids), as_tensor("scatter", values)
  check_sizes("scatter", shape)
  local flat, n, rest = places("scatter", ids, shape)
  local rows = listed("scatter", values, ids, rest)
  if not rows:dtype():find "float" then rows = ops.cast(rows, "int64") end
  local y = ops.scatter_add(rows, flat, { axis = 1, size = n })
  return ops.reshape(y, { shape = shape })
end

--- scatter_add(t, ids, values) -> t with the values added where ids say, in the dtype of t; see scatter.
-- Example:
--     local t = mgpu.zeros { 2, 3 }
--     local ids = mgpu.tensor({ { 0, 1 }, { 1, 2 } }, { dtype = "int32" }) -- row 0 column 1, row 1 column 2
--     print(mgpu.scatter_add(t, ids, mgpu.tensor { 5, 7 }))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{0, 5, 0},
--     -->  {0, 0, 7}}
function M.scatter_add(t, ids, values, ...)
  read_options("scatter_add", {}, ...)
  t = as_tensor("scatter_add", t)
  local sums, dtype = M.scatter(ids, values, { shape = t:shape() }), t:dtype()
  if sums:dtype() ~= "int64" then sums = ops.cast(sums, dtype) end -- int64 is cast once t is added
  return ops.cast(t + sums, dtype)
end

--- scatter_update(t, ids, values) -> t with the values in place of what was there; of equal ids the last one counts.
-- ids and values as in scatter. Gradient: to t where it stays, and to the values that are used.
-- Example:
--     local t = mgpu.ones { 3, 2 }
--     local ids = mgpu.tensor({ { 2 } }, { dtype = "int32" })
--     print(t:scatter_update(ids, mgpu.tensor { { 8, 9 } })) -- row 2, from 0, is replaced
--     --> tensor {3, 2} float32 cpu:0
--     --> {{1, 1},
--     -->  {1, 1},
--     -->  {8, 9}}
function M.scatter_update(t, ids, values, ...)
  read_options("scatter_update", {}, ...)
  t, ids, values = as_tensor("scatter_update", t), as_tensor("scatter_update", ids),
    as_tensor("scatter_update", values)
  local shape = t:shape()
  local flat, n, rest = places("scatter_update", ids, shape)
  local rows, ones = listed("scatter_update", values, ids, rest), { n }
  if rows:shape()[1] == 0 then return t end
  local last = ops.scatter_last(flat, { size = n })
  for i = 1, #rest do ones[1 + i] = 1 end
  local chosen = ops.gather(rows, ops.maximum(last, 0), { axis = 1 })
  local there = ops.reshape(t, { shape = { n, unpack(rest) } })
  local y = ops.where(ops.reshape(ops.ge(last, 0), { shape = ones }), ops.cast(chosen, t:dtype()), there)
  return ops.reshape(y, { shape = shape })
end

return M
