--- GlobalAveragePooling2D {keepdims =, data_format =}: the mean over rows and columns.
local images = require "mgpu.layers.images"
local Layer = require "mgpu.layer"

local Pool = Layer:extend("GlobalAveragePooling2D", { positional = 0, images.data_format,
  { "keepdims", "boolean", default = false } })

function Pool:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

function Pool:output_shape(shape)
  local channels = images.shape_last(self, shape)[4]
  if not self.keepdims then return { shape[1], channels } end
  return images.shape_back(self, { shape[1], 1, 1, channels })
end

function Pool:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  return images.as_last(self, x, function(t) return t:mean({ 2, 3 }, self.keepdims) end)
end

return Pool
