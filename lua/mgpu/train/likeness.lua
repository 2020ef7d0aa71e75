--- Tensors that a plan takes in place of others: of the same shape, dtype and device.
local core = require "mgpu.core"
local same_shape = require "mgpu.nn.losses.shapes".same

local M = {}

--- of(list, given) -> what `matches` compares, for each tensor of the list; nil unless given[i] is list[i], a tensor.
-- given: what the user gave, of which the list was made; a converted value is another one at each call.
function M.of(list, given)
  local likes = {}
  for i, t in ipairs(list) do
    if given[i] ~= t or not core.is_tensor(t) then return nil end
    likes[i] = { shape = t:shape(), dtype = t:dtype(), device = t:device() }
  end
  return likes
end

local function matches(t, like)
  return core.is_tensor(t) and t:dtype() == like.dtype and t:device() == like.device
    and same_shape(t:shape(), like.shape)
end

--- matches(list, likes): whether the list has as many tensors, each like the one of its place.
function M.matches(list, likes)
  if #list ~= #likes then return false end
  for i = 1, #likes do
    if not matches(list[i], likes[i]) then return false end
  end
  return true
end

return M
