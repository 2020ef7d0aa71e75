--- Flatten {}: {batch, ...} -> {batch, product}.
local core = require "mgpu.core"
local Layer = require "mgpu.layer"
local images = require "mgpu.layers.images"

local Flatten = Layer:extend("Flatten", { positional = 0, images.data_format })

function Flatten:output_shape(shape) -- luacheck: no self
  local n = 1
  for i = 2, #shape do n = n * shape[i] end
  return { shape[1], n }
end

-- channels_first data is flattened in channels_last order, as in Keras.
function Flatten:call(x)
  if x:rank() == 4 and images.is_first(self) then x = images.to_last(x) end
  local shape = x:shape()
  return core.ops.reshape(x, self:output_shape(shape))
end

return Flatten
