--- What the layers for categories read and return: nested tables of strings or numbers, and encoded indices.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local function is_text(x) return type(x) == "string" or type(x) == "table" and (x[1] == nil or is_text(x[1])) end

--- is_text(x) -> whether x is a string or a nested table of strings.
M.is_text = is_text

--- map(x, fn) -> a nested table like x with fn(value) for each value.
function M.map(x, fn)
  if type(x) ~= "table" then return fn(x) end
  local list = {}
  for i, value in ipairs(x) do list[i] = M.map(value, fn) end
  return list
end

--- each(x, visit): calls visit(value) for each value of a nested table.
function M.each(x, visit)
  if type(x) ~= "table" then return visit(x) end
  for _, value in ipairs(x) do M.each(value, visit) end
end

--- plain(x) -> a tensor as nested numbers; anything else as it is.
function M.plain(x)
  if not core.is_tensor(x) then return x end
  if core.tracing() then
    core.fail("usage", "a layer that reads values was called while mgpu.jit traces, where there are none: give "
      .. "dataset:map the layer itself")
  end
  return x:rank() == 0 and x:item() or x:totable()
end

--- encoded_shape(layer, shape, mode, depth) -> the shape of encode's result for indices of this shape, whose first size
--- is the batch. depth: nil if the layer has no vocabulary yet, which only "int" allows.
function M.encoded_shape(layer, shape, mode, depth)
  if mode == "int" then return shape end
  if not depth then layer:fail("has no vocabulary yet: a model can be made of it after adapt or set_vocabulary") end
  local sizes = { unpack(shape) }
  if mode == "one_hot" then
    if #sizes > 1 and sizes[#sizes] == 1 then sizes[#sizes] = nil end
  elseif #sizes < 2 then
    layer:fail('output_mode "%s" counts the values of each row, but a row of shape %s is one value: give the Input the '
      .. "shape {1}", mode, layer.shape_text(shape))
  else
    table.remove(sizes, 2)
  end
  sizes[#sizes + 1] = depth
  return sizes
end

--- each_batch(who, data, add): calls add(batch) for each batch of a dataset, or add(data) for anything else.
-- Errors: a dataset without an end.
function M.each_batch(who, data, add)
  if type(data) ~= "table" or not data.iter then return add(data) end
  checks.ends(who, data)
  for batch in data:iter() do add(batch) end
end

-- How often each of the `depth` indices stands along the axis of {...}, int64 {..., depth}; others count nowhere.
-- weights: what each of the indices counts, a tensor like them; nil: 1.
local function counts(indices, depth, axis, weights)
  local order, shape = {}, indices:shape()
  for i = 1, #shape do
    if i ~= axis then order[#order + 1] = i end
  end
  order[#shape] = axis
  local lines, n = 1, table.remove(shape, axis)
  for _, size in ipairs(shape) do lines = lines * size end
  shape[#shape + 1] = depth
  local flat = ops.permute(indices, { order = order }):reshape { lines, n }
  local inside = ops.logical_and(ops.ge(flat, 0), ops.lt(flat, depth))
  local places = ops.where(inside, ops.cast(flat, { dtype = "int64" }), depth) + ops.iota({ lines, 1 }, 1, "int64")
    * (depth + 1)
  local each = weights and ops.permute(weights, { order = order }):reshape { -1 } or ops.full({ lines * n }, 1, "int64")
  local sums = ops.scatter_add(each, places:reshape { -1 },
    { axis = 1, size = lines * (depth + 1) })
  return sums:reshape { lines, depth + 1 }:slice { {}, { 1, depth } }:reshape(shape)
end

--- encode(indices, mode, depth, dtype) -> the tensor of indices as "int", "one_hot", "multi_hot" or "count" says.
--- Indices outside of 0 to depth - 1 count nowhere. weights: for "count", what each index counts; nil: 1.
function M.encode(indices, mode, depth, dtype, weights)
  if mode == "int" then return indices:to(dtype) end
  local shape = indices:shape()
  if #shape == 0 then
    indices, shape = indices:reshape { 1 }, { 1 }
    weights = weights and weights:reshape { 1 }
  end
  if mode == "one_hot" then
    if #shape > 1 and shape[#shape] == 1 then
      shape[#shape] = nil
      indices = indices:reshape(shape)
    end
    return indices:one_hot(depth, dtype)
  end
  local found = counts(indices, depth, #shape > 1 and 2 or 1, weights)
  return (mode == "count" and found or found:minimum(1)):to(dtype)
end

return M
