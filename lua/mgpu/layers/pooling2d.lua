--- The two windowed pools, which differ in their op only.
local core = require "mgpu.core"
local images = require "mgpu.layers.images"
local Layer = require "mgpu.layer"

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
    local s, out, strides = images.shape_last(self, shape), {}, self.strides or self.pool_size
    for i = 1, 2 do
      out[i] = images.output_size(s[i + 1], self.pool_size[i], strides[i], self.padding)
      if out[i] < 1 and s[i + 1] ~= -1 then
        self:fail("the window {%d, %d} does not fit into the input %s", self.pool_size[1],
          self.pool_size[2], self.shape_text(shape))
      end
    end
    return images.shape_back(self, { s[1], out[1], out[2], s[4] })
  end

  function Pool:call(x)
    self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
    local strides = self.strides or self.pool_size
    return images.as_last(self, x, function(t)
      local s = t:shape()
      return core.ops[op](t, { size = self.pool_size, strides = strides,
        pads = images.pads(self.padding, s[2], s[3], self.pool_size, strides) })
    end)
  end

  return Pool
end
