--- Movement of elements, made of other ops: they place elements elsewhere and compute nothing.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"
local slice = require "mgpu.tensor.slicing"

local M, ops = {}, core.ops
local as_tensor, axis_at, axis_set, check_array, fail, no_axis, read_options = arguments.as_tensor, arguments.axis_at,
  arguments.axis_set, arguments.check_array, arguments.fail, arguments.no_axis, arguments.read_options
local whole = arguments.whole

local MOST_PARTS = 64 -- that the op split makes at once

--- slice(t, ranges) -> a part of t, as t:slice {{1, 10}, {}, 3}; see slicing.lua.
-- Example:
--     local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }
--     print(t:slice { 2 }) -- row 2
--     --> tensor {3} float32 cpu:0
--     --> {4, 5, 6}
--     print(t:slice { {}, { 1, 2 } }) -- all rows, columns 1 and 2
--     --> tensor {3, 2} float32 cpu:0
--     --> {{1, 2},
--     -->  {4, 5},
--     -->  {7, 8}}
--     print(t:slice { { -1, 1, -1 }, 3 }) -- column 3 from the last row to the first
--     --> tensor {3} float32 cpu:0
--     --> {9, 6, 3}
function M.slice(t, ranges)
  if type(ranges) == "table" and arguments.has_names(ranges) then
    ranges = arguments.options_by_name("slice", { "ranges" }, ranges)
  end
  return slice(t, ranges)
end

--- transpose(t, order) -> the axes in that order; without it, in reverse order.
-- Example:
--     local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
--     print(t:transpose())
--     --> tensor {3, 2} float32 cpu:0
--     --> {{1, 4},
--     -->  {2, 5},
--     -->  {3, 6}}
--     print(table.concat(mgpu.zeros { 8, 28, 28, 3 }:transpose { 1, 4, 2, 3 }:shape(), " "))  --> 8 3 28 28
function M.transpose(t, ...)
  local order = read_options("transpose", { "order" }, ...)
  t = as_tensor("transpose", t)
  if order then return ops.permute(t, order) end
  order = {}
  for i = t:rank(), 1, -1 do order[#order + 1] = i end
  return ops.permute(t, { order = order })
end

--- flatten(t) -> the elements in one axis.
-- Example:
--     print(mgpu.tensor { { 1, 2 }, { 3, 4 } }:flatten())
--     --> tensor {4} float32 cpu:0
--     --> {1, 2, 3, 4}
function M.flatten(t, ...)
  read_options("flatten", {}, ...)
  t = as_tensor("flatten", t)
  return ops.reshape(t, { shape = { t:count() } })
end

--- expand_dims(t, axis) -> t with a new axis of size 1 at this position of the result.
-- Example:
--     local t = mgpu.zeros { 28, 28 }
--     print(table.concat(t:expand_dims(1):shape(), " ")) -- one image as a batch  --> 1 28 28
--     print(table.concat(t:expand_dims(-1):shape(), " "))  --> 28 28 1
function M.expand_dims(t, ...)
  local axis = read_options("expand_dims", { "axis" }, ...)
  t = as_tensor("expand_dims", t)
  local shape = t:shape()
  table.insert(shape, axis_at("expand_dims", axis, #shape + 1), 1)
  return ops.reshape(t, { shape = shape })
end

--- squeeze(t, axis) -> t without these axes of size 1; without `axis`, without all of them.
-- Example:
--     local t = mgpu.zeros { 1, 28, 28, 1 }
--     print(table.concat(t:squeeze():shape(), " "))  --> 28 28
--     print(table.concat(t:squeeze(1):shape(), " "))  --> 28 28 1
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
-- Example:
--     local a, b = mgpu.tensor { { 1, 2 } }, mgpu.tensor { { 3, 4 } }
--     print(mgpu.concat { a, b })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 2},
--     -->  {3, 4}}
--     print(mgpu.concat({ a, b }, 2))
--     --> tensor {1, 4} float32 cpu:0
--     --> {{1, 2, 3, 4}}
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

--- stack({a, b, ...}, axis = 1) -> the tensors along a new axis.
-- Example:
--     local a, b = mgpu.tensor { 1, 2 }, mgpu.tensor { 3, 4 }
--     print(mgpu.stack { a, b })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 2},
--     -->  {3, 4}}
--     print(mgpu.stack({ a, b }, 2))
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 3},
--     -->  {2, 4}}
function M.stack(list, ...)
  local axis, expanded = read_options("stack", { "axis" }, ...), {}
  if type(list) ~= "table" or next(list) == nil then fail("stack: expected an array of tensors") end
  check_array("stack", list)
  local first
  for i, t in ipairs(list) do
    t = as_tensor("stack", t)
    local shape = "{" .. table.concat(t:shape(), ", ") .. "}"
    first = first or shape
    if shape ~= first then fail("stack: tensor 1 has shape %s, but tensor %d has %s", first, i, shape) end
    expanded[i] = M.expand_dims(t, axis or 1)
  end
  return M.concat(expanded, { axis = axis or 1 })
end

--- split(t, n, axis = 1) -> an array of n equal parts along the axis. Errors: a size that n does not divide.
-- Example:
--     local parts = mgpu.arange(6):split(3)
--     print(#parts)  --> 3
--     print(parts[3])
--     --> tensor {2} float32 cpu:0
--     --> {4, 5}
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
  if n <= MOST_PARTS then return { ops.split(t, { axis = at, parts = n }) } end
  for i = 1, n do
    ranges[at] = { (i - 1) * size + 1, i * size }
    parts[i] = slice(t, ranges)
  end
  return parts
end

-- ---- in another order, and repeated -------------------------------------------------------------

--- flip(t, axis = all) -> the elements of an axis, or of several, in opposite order.
-- Example:
--     local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
--     print(t:flip(2)) -- each row from right to left
--     --> tensor {2, 3} float32 cpu:0
--     --> {{3, 2, 1},
--     -->  {6, 5, 4}}
--     print(t:flip()) -- along both axes
--     --> tensor {2, 3} float32 cpu:0
--     --> {{6, 5, 4},
--     -->  {3, 2, 1}}
function M.flip(t, ...)
  local axis = read_options("flip", { "axis" }, ...)
  t = as_tensor("flip", t)
  local shape, start, stop, step = t:shape(), {}, {}, {}
  local flipped = axis_set("flip", axis, #shape)
  for i, size in ipairs(shape) do
    start[i], stop[i], step[i] = 0, size, 1
    if flipped[i] and size > 0 then start[i], stop[i], step[i] = size - 1, -1, -1 end
  end
  return ops.slice(t, { start = start, stop = stop, step = step })
end

-- A list of as many whole numbers as there are axes, or one for all of them.
local function per_axis(who, what, value, axes)
  local list = type(value) == "table" and value or { value }
  if type(value) == "table" then check_array(who, list) end
  if #list ~= axes then fail("%s: got %d of %s for %d axes", who, #list, what, axes) end
  for _, n in ipairs(list) do whole(who, what, n, -math.huge) end
  return list
end

--- roll(t, shift, axis = none) -> the elements moved along the axis by `shift` places, from the end back to the start.
-- shift and axis may be lists of equal length. Without an axis the elements are moved in row-major order.
-- Example:
--     local t = mgpu.arange(5)
--     print(t:roll(2))
--     --> tensor {5} float32 cpu:0
--     --> {3, 4, 0, 1, 2}
--     print(t:roll(-1))
--     --> tensor {5} float32 cpu:0
--     --> {1, 2, 3, 4, 0}
function M.roll(t, ...)
  local shift, axis = read_options("roll", { "shift", "axis" }, ...)
  t = as_tensor("roll", t)
  local shape = t:shape()
  if no_axis(axis) then
    whole("roll", "shift", shift, -math.huge)
    return ops.reshape(M.roll(M.flatten(t), { shift = shift, axis = 1 }), { shape = shape })
  end
  local axes = type(axis) == "table" and axis or { axis }
  check_array("roll", axes)
  local shifts = per_axis("roll", "shift", shift, #axes)
  for i, a in ipairs(axes) do
    local at = axis_at("roll", a, #shape)
    local by = shape[at] > 0 and shifts[i] % shape[at] or 0
    if by > 0 then
      local head, tail = {}, {}
      for k = 1, #shape do head[k], tail[k] = {}, {} end
      head[at], tail[at] = { 1, shape[at] - by }, { shape[at] - by + 1, shape[at] }
      t = ops.concat({ slice(t, tail), slice(t, head) }, { axis = at })
    end
  end
  return t
end

-- t with each element of axis `at` repeated n times in a row (each = true), or the whole axis n times.
local function repeat_axis(t, at, n, each)
  local shape, apart, wide = t:shape(), {}, {}
  if #shape == 8 then -- no room for one more axis
    local rest = { 1, shape[at], 1 }
    for i, size in ipairs(shape) do
      if i ~= at then rest[i < at and 1 or 3] = rest[i < at and 1 or 3] * size end
    end
    shape[at] = shape[at] * n
    return ops.reshape(repeat_axis(ops.reshape(t, { shape = rest }), 2, n, each), { shape = shape })
  end
  for i, size in ipairs(shape) do
    if i == at and not each then apart[#apart + 1], wide[#wide + 1] = 1, n end
    apart[#apart + 1], wide[#wide + 1] = size, size
    if i == at and each then apart[#apart + 1], wide[#wide + 1] = 1, n end
  end
  shape[at] = shape[at] * n
  return ops.reshape(ops.broadcast_to(ops.reshape(t, { shape = apart }), { shape = wide }), { shape = shape })
end

--- tile(t, repeats) -> t repeated along its axes: repeats has a number for each axis, or fewer for the last ones, or
--- more for new axes in front. Errors: no repeats; a number below 0.
-- Example:
--     print(mgpu.tensor { 1, 2 }:tile { 2, 3 }) -- 2 rows, each 3 times the vector
--     --> tensor {2, 6} float32 cpu:0
--     --> {{1, 2, 1, 2, 1, 2},
--     -->  {1, 2, 1, 2, 1, 2}}
function M.tile(t, ...)
  local repeats = read_options("tile", { "repeats" }, ...)
  t = as_tensor("tile", t)
  if repeats == nil then fail("tile: repeats is missing: how often along each axis, as in t:tile {2, 1}") end
  local list = type(repeats) == "table" and repeats or { repeats }
  check_array("tile", list)
  if #list == 0 then return t end
  local shape = t:shape()
  while #shape < #list do table.insert(shape, 1, 1) end
  t = ops.reshape(t, { shape = shape })
  for i, n in ipairs(list) do
    whole("tile", "each of repeats", n, 0)
    if n ~= 1 then t = repeat_axis(t, #shape - #list + i, n, false) end
  end
  return t
end

--- repeat_elements(t, repeats, axis = none) -> each element of the axis `repeats` times in a row: NumPy's repeat,
--- whose name is a word of Lua.
-- repeats: a number, or a list with a number for each element. Without an axis t is flattened first.
-- Example:
--     local t = mgpu.tensor { 1, 2, 3 }
--     print(t:repeat_elements(2))
--     --> tensor {6} float32 cpu:0
--     --> {1, 1, 2, 2, 3, 3}
--     print(t:repeat_elements { 3, 0, 1 })
--     --> tensor {4} float32 cpu:0
--     --> {1, 1, 1, 3}
function M.repeat_elements(t, ...)
  local repeats, axis = read_options("repeat_elements", { "repeats", "axis" }, ...)
  t = as_tensor("repeat_elements", t)
  if axis == nil then t, axis = M.flatten(t), 1 end
  local shape = t:shape()
  local at = axis_at("repeat_elements", axis, #shape)
  if type(repeats) ~= "table" then
    return repeat_axis(t, at, whole("repeat_elements", "repeats", repeats, 0), true)
  end
  check_array("repeat_elements", repeats)
  if #repeats ~= shape[at] then
    fail("repeat_elements: %d numbers of repeats for %d elements of axis %d", #repeats, shape[at], at)
  end
  local ids = {}
  for i, n in ipairs(repeats) do
    for _ = 1, whole("repeat_elements", "each of repeats", n, 0) do ids[#ids + 1] = i - 1 end
  end
  if #ids == 0 then return repeat_axis(t, at, 0, true) end
  return ops.gather(t, core.tensor(ids, { dtype = "int32", device = t:device() }), { axis = at })
end

return M
