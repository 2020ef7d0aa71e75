--- The global pools, which differ in their axes and reduction only.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local reductions = {
  max = function(x, options) return core.ops.max(x, options) end,
  mean = function(x, options)
    local shape, count, dtype = x:shape(), 1, x:dtype()
    for _, axis in ipairs(options.axis) do count = count * shape[axis] end
    if dtype ~= "float16" and dtype ~= "bfloat16" then return core.ops.sum(x, options) / count end
    -- the sum of a large image is beyond float16
    local sum = core.ops.sum(core.ops.cast(x, { dtype = "float32" }), options)
    return core.ops.cast(sum / count, { dtype = dtype })
  end,
}

--- define(class_name, reduction, axes) -> a layer class over `axes` (1 or 2) image axes, with
--- data_format and keepdims.
return function(class_name, reduction, axes)
  local rank = axes + 2
  local meaning = axes == 1 and "batch, steps, channels" or "batch, rows, columns, channels"
  local Pool = Layer:extend(class_name, { positional = 0,
    images.data_format,
    { "keepdims", "boolean", default = false },
  })

  local function reduced(self)
    local first, list = images.is_first(self) and 3 or 2, {}
    for i = 1, axes do list[i] = first + i - 1 end
    return list
  end

  function Pool:build(shape) self:need_rank(shape, rank, meaning) end

  function Pool:output_shape(shape)
    local channels = images.is_first(self) and 2 or rank
    if not self.keepdims then return { shape[1], shape[channels] } end
    local out = {}
    for i = 1, rank do out[i] = (i == 1 or i == channels) and shape[i] or 1 end
    return out
  end

  function Pool:call(x)
    self:need_rank(x:shape(), rank, meaning)
    return reductions[reduction](x, { axis = reduced(self), keepdims = self.keepdims })
  end

  return Pool
end
