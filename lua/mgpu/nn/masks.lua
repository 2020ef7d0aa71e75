--- Masks: which steps of a sequence count, as in Keras's masking.
--
-- A mask is a bool tensor {batch, steps} that belongs to a tensor {batch, steps, ...}. Embedding {mask_zero = true} and
-- Masking make one; a layer whose class says supports_masking = true passes the mask of its input on to its output
-- (or what its method compute_mask returns), any other layer drops it, as in Keras. Losses and metrics leave masked
-- values out.
-- layer_call.lua does so around each call; a layer that needs the mask in `call` reads it by now().
local core = require "mgpu.core"

local M = {}

-- A mask is kept in the environment of its tensor's userdata, and so dies with it.
local KEY = {}
local made = false -- whether any mask was ever made: without masks a call costs nothing more
local current -- the mask of the call in progress, or an array of masks for an array of inputs

--- get(t) -> the mask of a tensor, or nil.
function M.get(t)
  local environment = made and type(t) == "userdata" and debug.getfenv(t)
  return environment and rawget(environment, KEY) or nil
end

--- set(t, mask): the tensor has this mask from here on.
function M.set(t, mask)
  made = true
  debug.setfenv(t, { [KEY] = mask })
end

--- of(x) -> the mask of a tensor; for an array of tensors an array of masks with false where there is none; nil if
--- nothing is masked.
function M.of(x)
  if not made then return nil end
  if type(x) ~= "table" then return M.get(x) end
  local list, any = {}, false
  for i, t in ipairs(x) do
    list[i] = M.get(t) or false
    any = any or list[i]
  end
  return any and list or nil
end

--- beside(mask, x) -> the mask, or array of masks, on the device of the tensor x, or of each in the array x.
function M.beside(mask, x)
  if type(mask) ~= "table" then return core.place(mask, x:device()) end
  local list = {}
  for i, own in ipairs(mask) do list[i] = own and core.place(own, x[i]:device()) end
  return list
end

--- now() -> the mask of the input of the call in progress, or nil.
function M.now() return current end

--- with(mask, fn, ...) -> what fn(...) returns, with `mask` as the mask of the call in progress.
function M.with(mask, fn, ...)
  if mask == nil and current == nil then return fn(...) end
  local before = current
  current = mask
  local results = { pcall(fn, ...) }
  current = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

--- covers(mask, shape): whether each value of a tensor of that shape belongs to an element of the mask: the shape
--- begins with the sizes of the mask.
function M.covers(mask, shape)
  for axis, size in ipairs(mask:shape()) do
    if shape[axis] ~= size then return false end
  end
  return true
end

--- aligned(mask, t) -> the mask with axes of size 1 at its end, so that it broadcasts against t.
function M.aligned(mask, t)
  local shape = mask:shape()
  while #shape < t:rank() do shape[#shape + 1] = 1 end
  return core.ops.reshape(mask, { shape = shape })
end

--- wide(mask, t) -> aligned(mask, t) in the dtype of t.
function M.wide(mask, t) return core.ops.cast(M.aligned(mask, t), { dtype = t:dtype() }) end

return M
