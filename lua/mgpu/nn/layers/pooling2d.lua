--- The two windowed pools, which differ in their op only.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

--- define(class_name, op) -> a layer class with pool_size, strides, padding, data_format.
return function(class_name, op)
  local Pool = Layer:extend(class_name, { positional = 1,
    { "pool_size", "pair", default = { 2, 2 } },
    { "strides", "pair" },
    { "padding", "string", default = "valid", values = { "valid", "same" } },
    images.data_format,
  })

  function Pool:build(shape)
    self:need_rank(shape, 4, "batch, rows, columns, channels")
    self:output_shape(shape)
  end

  function Pool:output_shape(shape)
    return images.window_shape(self, shape, self.pool_size, self.strides or self.pool_size, nil,
      "window")
  end

  function Pool:call(x)
    self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
    self:output_shape(x:shape())
    local strides = self.strides or self.pool_size
    return images.as_last(self, x, function(t)
      local s = t:shape()
      return core.ops[op](t, { size = self.pool_size, strides = strides,
        pads = images.pads(self.padding, s[2], s[3], self.pool_size, strides) })
    end)
  end

  return Pool
end
