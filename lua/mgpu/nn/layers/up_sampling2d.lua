--- UpSampling2D {size = {2, 2}, interpolation = "nearest", data_format =}: enlarges images.
-- "nearest" repeats rows and columns; "bilinear" interpolates between pixel centres, as tf.image.resize does, and
-- makes floats of integers. x {batch, rows, columns, channels} -> {batch, rows * size[1], columns * size[2], channels}.
-- Example:
--     print(L.UpSampling2D { 2 } (mgpu.tensor { 1, 2 }:reshape { 1, 1, 2, 1 }):reshape { 2, 4 })
--     --> tensor {2, 4} float32 cpu:0
--     --> {{1, 1, 2, 2},
--     -->  {1, 1, 2, 2}}
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local UpSampling2D = Layer:extend("UpSampling2D", { positional = 1,
  { "size", "pair", default = { 2, 2 } },
  images.data_format,
  { "interpolation", "string", default = "nearest", values = { "nearest", "bilinear" } },
})

function UpSampling2D:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

function UpSampling2D:output_shape(shape)
  local s, f = images.shape_last(self, shape), self.size
  local function larger(i) return s[i + 1] == -1 and -1 or s[i + 1] * f[i] end
  return images.shape_back(self, { s[1], larger(1), larger(2), s[4] })
end

local function nearest(t, f)
  local s = t:shape()
  local y = ops.reshape(t, { shape = { s[1], s[2], 1, s[3], 1, s[4] } })
  y = ops.broadcast_to(y, { shape = { s[1], s[2], f[1], s[3], f[2], s[4] } })
  return ops.reshape(y, { shape = { s[1], s[2] * f[1], s[3] * f[2], s[4] } })
end

local function resized(t, f, interpolation)
  local s = t:shape()
  if not t:dtype():find "float" then t = ops.cast(t, { dtype = core.floatx() }) end
  return ops.image_resize(t, { size = { s[2] * f[1], s[3] * f[2] }, interpolation = interpolation })
end

function UpSampling2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  return images.as_last(self, x, function(t)
    if self.interpolation == "nearest" then return nearest(t, self.size) end
    return resized(t, self.size, self.interpolation)
  end)
end

return UpSampling2D
