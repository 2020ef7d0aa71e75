--- Flatten {data_format =}: x {batch, ...} -> {batch, product of the other sizes}.
-- channels_first data are flattened in channels_last order, as in Keras.
-- Example:
--     print(unpack(L.Flatten {} (mgpu.ones { 8, 7, 7, 64 }):shape()))  --> 8 3136
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local images = require "mgpu.nn.layers.images"

local Flatten = Layer:extend("Flatten", { positional = 0, images.data_format })

function Flatten:output_shape(shape) -- luacheck: no self
  local n = 1
  for i = 2, #shape do
    if shape[i] == -1 then return { shape[1], -1 } end
    n = n * shape[i]
  end
  return { shape[1], n }
end

-- channels_first data is flattened in channels_last order, as in Keras.
function Flatten:call(x)
  local rank = x:rank()
  if rank > 2 and images.is_first(self) then
    local order = { 1 }
    for i = 3, rank do order[i - 1] = i end
    order[rank] = 2
    x = core.ops.permute(x, { order = order })
  end
  return core.ops.reshape(x, self:output_shape(x:shape()))
end

return Flatten
