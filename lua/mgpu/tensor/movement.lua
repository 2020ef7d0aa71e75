--- Movement of elements, made of other ops: they place elements elsewhere and compute nothing.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"
local slice = require "mgpu.tensor.slicing"

local M, ops = {}, core.ops
local as_tensor, axis_at, axis_set, check_array, fail, no_axis, read_options = arguments.as_tensor, arguments.axis_at,
  arguments.axis_set, arguments.check_array, arguments.fail, arguments.no_axis, arguments.read_options

--- slice(t, ranges) -> a part of t, as t:slice {{1, 10}, {}, 3}; see slicing.lua.
function M.slice(t, ranges)
  if type(ranges) == "table" and arguments.has_names(ranges) then
    ranges = arguments.options_by_name("slice", { "ranges" }, ranges)
  end
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
