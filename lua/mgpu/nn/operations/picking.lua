--- Operations of keras.ops that pick elements: indices and slices of Python, take, diagonals; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops
local fail = arguments.fail

local M = {}

-- ---- x[key] -------------------------------------------------------------------------------------

-- The first position, the end and the step of a slice of Python, positions from 0; then how many elements it has.
local function positions(slice, size)
  local first, stop, step = slice[1], slice[2], slice[3] or 1
  local low, high = step > 0 and 0 or -1, step > 0 and size or size - 1
  local function within(n, default)
    if n == nil then return default end
    return math.max(low, math.min(n < 0 and n + size or n, high))
  end
  first, stop = within(first, step > 0 and 0 or size - 1), within(stop, step > 0 and size or -1)
  local n = math.max(0, math.ceil((stop - first) / step))
  if n == 0 then first, stop, step = 0, 0, 1 end
  return first, stop, step, n
end

-- The key with one entry for each axis of x, and new axes: "..." and missing entries are whole axes.
local function entry_for_each_axis(key, rank)
  local used, list, open = 0, {}, nil
  for i, item in ipairs(key) do
    if item == "..." then
      if open then fail "an index has two Ellipsis" end
      open = i
    elseif item ~= core.null then
      used = used + 1
    end
  end
  if used > rank then fail("an index of %d entries for %d axes", used, rank) end
  for i = 1, #key + (open and 0 or 1) do
    if i == (open or #key + 1) then
      for _ = 1, rank - used do list[#list + 1] = {} end
    else
      list[#list + 1] = key[i]
    end
  end
  return list
end

-- Picks by a tensor of positions, negative ones from the end, along an axis.
local function pick(x, ids, at)
  local size = x:shape()[at]
  if ids:dtype() == "bool" then fail "an index by booleans is not supported: its size depends on the values" end
  if ids:dtype():find "float" then ids = ops.cast(ids, "int32") end
  return composite.gather(x, ops.where(ops.lt(ids, 0), ids + size, ids), { axis = at })
end

-- A number is one more index by a tensor, to NumPy. If something is between them, the indexed axis becomes the first.
local function check_places(key)
  local last, with_tensor, apart
  for i, item in ipairs(key) do
    local is_tensor = core.is_tensor(item)
    if is_tensor or type(item) == "number" then
      apart, with_tensor, last = apart or last and i > last + 1, with_tensor or is_tensor, i
    end
  end
  if apart and with_tensor then fail "an index by a tensor and a number with slices between them is not supported" end
end

M.GetItem = { "x key", function(x, key)
  local size, start, stop, step, shape, tensor, at = x:shape(), {}, {}, {}, {}, nil, nil
  local axis = 0
  check_places(key)
  for _, item in ipairs(entry_for_each_axis(key, #size)) do
    if item == core.null then
      shape[#shape + 1] = 1
    else
      axis = axis + 1
      start[axis], stop[axis], step[axis] = 0, size[axis], 1
      if type(item) == "number" then
        local place = item < 0 and item + size[axis] or item
        if place < 0 or place >= size[axis] then
          fail("index %d is out of range: the axis has %d elements", item, size[axis])
        end
        start[axis], stop[axis] = place, place + 1
      elseif type(item) == "table" then
        local n
        start[axis], stop[axis], step[axis], n = positions(item, size[axis])
        shape[#shape + 1] = n
      else
        if tensor then fail "an index by several tensors is not supported" end
        shape[#shape + 1] = size[axis]
        tensor, at = item, #shape
      end
    end
  end
  x = ops.reshape(ops.slice(x, { start = start, stop = stop, step = step }), { shape = shape })
  return tensor and pick(x, tensor, at) or x
end }

-- ---- by positions -------------------------------------------------------------------------------

M.Take = { "x indices | axis?", function(x, ids, axis)
  if axis == nil then x, axis = composite.flatten(x), 1 end
  return pick(x, ids, arguments.axis_at("take", axis, x:rank()))
end }

M.TakeAlongAxis = { "x indices | axis?", function(x, ids, axis)
  if axis == nil then x, ids, axis = composite.flatten(x), composite.flatten(ids), 1 end
  local size = x:shape()[arguments.axis_at("take_along_axis", axis, x:rank())]
  return composite.take_along_axis(x, ops.where(ops.lt(ids, 0), ids + size, ids), { axis = axis })
end }

-- ---- triangles and diagonals --------------------------------------------------------------------

M.Tril = { "x | k?", function(x, k) return composite.tril(x, { k = k or 0 }) end }
M.Triu = { "x | k?", function(x, k) return composite.triu(x, { k = k or 0 }) end }
M.Diag = { "x | k?", function(x, k) return composite.diag(x, { offset = k or 0 }) end }

-- x with the two axes of its matrices last.
local function matrices(x, axis1, axis2)
  local rank, order = x:rank(), {}
  local a, b = arguments.axis_at("diagonal", axis1 or 1, rank), arguments.axis_at("diagonal", axis2 or 2, rank)
  for i = 1, rank do if i ~= a and i ~= b then order[#order + 1] = i end end
  order[rank - 1], order[rank] = a, b
  return ops.permute(x, { order = order })
end
M.Diagonal = { "x | offset? axis1? axis2?", function(x, offset, axis1, axis2)
  return composite.diagonal(matrices(x, axis1, axis2), { offset = offset or 0 })
end }
M.Trace = { "x | offset? axis1? axis2?", function(x, offset, axis1, axis2)
  return composite.trace(matrices(x, axis1, axis2), { offset = offset or 0 })
end }

return M
