--- What the layers for categories read and return: nested tables of strings or numbers, and encoded indices.
local core = require "mgpu.core"

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

--- refuse_call(layer): the `call` of layers that read values, which models do not have when they are built.
function M.refuse_call(layer)
  layer:fail "reads values, which a model does not have while it is made: use it on data, as in dataset:map"
end

--- encode(indices, mode, depth, dtype) -> the tensor of indices as "int", "one_hot", "multi_hot" or "count" says.
--- Indices outside of 0 to depth - 1 count nowhere.
function M.encode(indices, mode, depth, dtype)
  if mode == "int" then return indices:to(dtype) end
  local shape = indices:shape()
  if #shape == 0 then
    indices, shape = indices:reshape { 1 }, { 1 }
  end
  if mode == "one_hot" then
    if #shape > 1 and shape[#shape] == 1 then
      shape[#shape] = nil
      indices = indices:reshape(shape)
    end
    return indices:one_hot(depth, dtype)
  end
  local hot, axis = indices:one_hot(depth, dtype), #shape > 1 and 2 or 1
  return mode == "count" and hot:sum(axis) or hot:max(axis)
end

return M
