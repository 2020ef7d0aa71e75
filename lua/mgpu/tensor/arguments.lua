--- The arguments of ops made of other ops: tensors, axes, options by position or by name. `who` is the op's name, which
-- begins each message.
local core = require "mgpu.core"

local M, ops = {}, core.ops

--- fail(message, ...): raises a usage error; the message begins with the op's name.
function M.fail(message, ...) core.fail("usage", message:format(...)) end
local fail = M.fail

--- as_tensor(who, t) -> t itself, or a tensor made of a number, boolean or table.
function M.as_tensor(who, t)
  local kind = type(t)
  if core.is_tensor(t) or core.is_variable(t) then return t end
  if kind == "number" or kind == "boolean" or kind == "table" then return core.tensor(t) end
  fail("%s: expected a tensor, got %s", who, kind)
end

--- axis_at(who, axis, rank) -> the axis (negative: from the end) as a position from 1. Errors: out of range.
function M.axis_at(who, axis, rank)
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

--- check_array(who, list): raises if a list of axes or tensors has holes or other keys.
function M.check_array(who, list)
  local fault = core.array_fault(list)
  if fault then fail("%s: %s", who, fault) end
end

--- no_axis(axis) -> whether the option axis names no axis: nil or an empty list.
function M.no_axis(axis) return axis == nil or (type(axis) == "table" and next(axis) == nil) end

--- axis_set(who, axis, rank) -> the set of positions from 1 that the option axis (nil: all axes, a number, or a list)
-- means. Errors: out of range; an axis that is given twice.
function M.axis_set(who, axis, rank)
  local set = {}
  if type(axis) == "table" then M.check_array(who, axis) end
  if M.no_axis(axis) then
    for i = 1, rank do set[i] = true end
    return set
  end
  for _, a in ipairs(type(axis) == "table" and axis or { axis }) do
    local at = M.axis_at(who, a, rank)
    if set[at] then fail("%s: axis %d is given twice", who, at) end
    set[at] = true
  end
  return set
end

--- has_names(t) -> whether the table has a string key.
function M.has_names(t)
  for key in pairs(t) do
    if type(key) == "string" then return true end
  end
  return false
end

--- options_by_name(who, names, given) -> the values of the options `names` in the table `given`, in their order.
function M.options_by_name(who, names, given)
  local at, values = {}, {}
  for i, name in ipairs(names) do at[name] = i end
  for key, value in pairs(given) do
    if type(key) ~= "string" then
      fail("%s: the options have names, but one value has none: write NAME = value", who)
    end
    if not at[key] then
      fail("%s: unknown option %q%s", who, key, core.did_you_mean(key, names, "option"))
    end
    values[at[key]] = value
  end
  return unpack(values, 1, #names)
end

--- read_options(who, names, ...) -> the values of the options `names`, given by position or in one table by name; {} is
-- no options.
function M.read_options(who, names, ...)
  local n, first = select("#", ...), (...)
  while n > 0 and select(n, ...) == nil do n = n - 1 end
  if n > #names then
    fail("%s: too many arguments: takes %d option%s", who, #names, #names == 1 and "" or "s")
  end
  if n ~= 1 or type(first) ~= "table" then return ... end
  if next(first) == nil then return end
  if M.has_names(first) then return M.options_by_name(who, names, first) end
  return first
end

--- floating(t) -> t, or its cast to float32 if it is integer or bool.
function M.floating(t)
  if t:dtype():find "float" then return t end
  return ops.cast(t, "float32")
end

--- whole(who, what, value, low) -> the value, a whole number of at least `low`. Errors: anything else.
function M.whole(who, what, value, low)
  if type(value) == "number" and value % 1 == 0 and value >= low and value < math.huge then return value end
  fail("%s: %s must be a whole number%s, got %s", who, what, low > -math.huge and " of at least " .. low or "",
    tostring(value))
end

return M
