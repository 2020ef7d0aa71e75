--- The two windowed pools over sequences, which differ in their op only.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local sequences = require "mgpu.nn.layers.sequences"

--- define(class_name, op) -> a layer class with pool_size, strides, padding, data_format.
return function(class_name, op)
  local Pool = Layer:extend(class_name, { positional = 1,
    { "pool_size", "single", default = 2, min = 1 },
    { "strides", "single", min = 1 },
    { "padding", "string", default = "valid", values = { "valid", "same" } },
    sequences.data_format,
  })

  function Pool:build(shape)
    self:need_rank(shape, 3, "batch, steps, channels")
    self:output_shape(shape)
  end

  function Pool:output_shape(shape)
    return sequences.window_shape(self, shape, self.pool_size, self.strides or self.pool_size, nil,
      "window")
  end

  function Pool:call(x)
    self:need_rank(x:shape(), 3, "batch, steps, channels")
    self:output_shape(x:shape())
    local stride = self.strides or self.pool_size
    return sequences.as_image(self, x, function(t)
      return core.ops[op](t, { size = { 1, self.pool_size }, strides = { 1, stride },
        pads = sequences.pads(self.padding, t:shape()[3], self.pool_size, stride) })
    end)
  end

  return Pool
end
