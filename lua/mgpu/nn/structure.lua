--- The structure of a model that plans depend on besides its tensors: which layers it has, their names and dtype
--- policies. Comparing it with what it was costs a few table reads a layer, so that a plan can be used again at once.
local core = require "mgpu.core"

local M = {}

-- Whether the layer's class is one of ours, whose inner layers do not change by themselves.
local function is_ours(layer)
  local known = layer.is_network or rawget(require "mgpu.nn.layers", layer.class_name)
  return known and (layer.is_network or layer.meta == known.meta)
end

--- of(model, of_all) -> what is_same compares; nil, unless `of_all`, for a model with layers of the user's own classes,
--- whose fields may be replaced at any time.
function M.of(model, of_all)
  local kept, ours = { pattern = core.trainable_pattern(), layers = {}, names = {}, streams = {}, policies = {},
    inner = {} }, true
  model:each_layer(function(layer)
    local i = #kept.layers + 1
    kept.layers[i], kept.names[i], kept.streams[i] = layer, layer.name, layer.stream_name
    kept.policies[i] = layer.dtype_policy
    local list = layer.is_network and rawget(layer, "layers")
    kept.inner[i] = list and { unpack(list) } or false
    ours = ours and is_ours(layer)
  end)
  return (ours or of_all) and kept or nil
end

--- is_same(kept): whether the model is as it was at the call of `of` that returned kept.
function M.is_same(kept)
  if core.trainable_pattern() ~= kept.pattern then return false end
  local names, streams, policies, inner = kept.names, kept.streams, kept.policies, kept.inner
  for i, layer in ipairs(kept.layers) do
    if rawget(layer, "name") ~= names[i] or rawget(layer, "dtype_policy") ~= policies[i]
      or rawget(layer, "stream_name") ~= streams[i] then
      return false
    end
    local list = inner[i]
    if list then
      local now = rawget(layer, "layers")
      if #now ~= #list then return false end
      for k = 1, #list do
        if now[k] ~= list[k] then return false end
      end
    end
  end
  return true
end

return M
