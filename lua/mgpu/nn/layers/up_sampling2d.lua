--- UpSampling2D {size = {2, 2}, interpolation = "nearest", data_format =}: enlarges images.
-- "nearest" repeats rows and columns; "bilinear" interpolates between pixel centres, as tf.image.resize does, and
-- makes floats of integers. x {batch, rows, columns, channels} -> {batch, rows * size[1], columns * size[2], channels}.
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

-- {n * factor, n}: the interpolation weights of the old pixels in each new one, on the device of t.
local function interpolation_weights(n, factor, dtype, t)
  local rows = {}
  for i = 1, n * factor do
    local row = {}
    for k = 1, n do row[k] = 0 end
    local at = (i - 0.5) / factor - 0.5
    local low = math.floor(at)
    local first, second = math.max(low, 0), math.min(low + 1, n - 1)
    row[first + 1] = row[first + 1] + 1 - (at - low)
    row[second + 1] = row[second + 1] + at - low
    rows[i] = row
  end
  return core.tensor(rows, { dtype = dtype, device = t:device() })
end

local function bilinear(t, f)
  local given = t:dtype():find "float" and t:dtype() or core.floatx()
  local dtype = given == "float64" and given or "float32" -- float16 would round the weights
  local s = t:shape()
  t = ops.cast(t, { dtype = dtype })
  local h, w = s[2] * f[1], s[3] * f[2]
  local y = ops.reshape(t, { shape = { s[1], s[2], s[3] * s[4] } })
  y = ops.matmul(interpolation_weights(s[2], f[1], dtype, t), y)
  y = ops.matmul(interpolation_weights(s[3], f[2], dtype, t), ops.reshape(y, { shape = { s[1] * h, s[3], s[4] } }))
  return ops.cast(ops.reshape(y, { shape = { s[1], h, w, s[4] } }), { dtype = given })
end

function UpSampling2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  return images.as_last(self, x, function(t)
    return (self.interpolation == "nearest" and nearest or bilinear)(t, self.size)
  end)
end

return UpSampling2D
