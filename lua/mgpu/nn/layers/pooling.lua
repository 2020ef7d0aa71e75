--- Pooling layers: the largest or the mean of windows, or of whole images and sequences.
--
-- Images are x {batch, rows, columns, channels}, sequences x {batch, steps, channels}, or channels_first. The dtype
-- stays. Windows and padding as in Keras: the output has floor((size - pool) / stride) + 1 entries along an axis
-- with padding "valid", ceil(size / stride) with "same". Padding does not count in a maximum or a mean.
-- Errors: a wrong number of axes; a window larger than the input.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"
local sequences = require "mgpu.nn.layers.sequences"
local spaces = require "mgpu.nn.layers.spaces"

local M = {}

local IMAGE_AXES, SEQUENCE_AXES = "batch, rows, columns, channels", "batch, steps, channels"
local PADDING = { "padding", "string", default = "valid", values = { "valid", "same" } }

-- ---- windows ------------------------------------------------------------------------------------

-- A class over images; op: "max_pool2d" or "avg_pool2d".
local function define_pool2d(class_name, op)
  local Pool = Layer:extend(class_name, { positional = 1,
    { "pool_size", "pair", default = { 2, 2 } },
    { "strides", "pair" },
    PADDING,
    images.data_format,
  })

  function Pool:build(shape)
    self:need_rank(shape, 4, IMAGE_AXES)
    self:output_shape(shape)
  end

  function Pool:output_shape(shape)
    return images.window_shape(self, shape, self.pool_size, self.strides or self.pool_size, nil, "window")
  end

  function Pool:call(x)
    self:need_rank(x:shape(), 4, IMAGE_AXES)
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

-- A class over sequences, which are images of one row.
local function define_pool1d(class_name, op)
  local Pool = Layer:extend(class_name, { positional = 1,
    { "pool_size", "single", default = 2, min = 1 },
    { "strides", "single", min = 1 },
    PADDING,
    sequences.data_format,
  })

  function Pool:build(shape)
    self:need_rank(shape, 3, SEQUENCE_AXES)
    self:output_shape(shape)
  end

  function Pool:output_shape(shape)
    return sequences.window_shape(self, shape, self.pool_size, self.strides or self.pool_size, nil, "window")
  end

  function Pool:call(x)
    self:need_rank(x:shape(), 3, SEQUENCE_AXES)
    self:output_shape(x:shape())
    local stride = self.strides or self.pool_size
    return sequences.as_image(self, x, function(t)
      return core.ops[op](t, { size = { 1, self.pool_size }, strides = { 1, stride },
        pads = sequences.pads(self.padding, t:shape()[3], self.pool_size, stride) })
    end)
  end

  return Pool
end

--- MaxPooling2D {pool_size = 2, strides = pool_size, padding = "valid", data_format =}: the largest of each window.
-- x {batch, rows, columns, channels} -> {batch, rows', columns', channels}.
-- Example:
--     local image = mgpu.arange(16):reshape { 1, 4, 4, 1 }
--     print(L.MaxPooling2D {} (image):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 5,  7},
--     -->  {13, 15}}
M.MaxPooling2D = define_pool2d("MaxPooling2D", "max_pool2d")

--- AveragePooling2D {pool_size = 2, strides = pool_size, padding = "valid", data_format =}: the mean of each window.
-- x {batch, rows, columns, channels} -> {batch, rows', columns', channels}.
-- Example:
--     local image = mgpu.arange(16):reshape { 1, 4, 4, 1 }
--     print(L.AveragePooling2D { 2 } (image):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 2.5,  4.5},
--     -->  {10.5, 12.5}}
M.AveragePooling2D = define_pool2d("AveragePooling2D", "avg_pool2d")

--- MaxPooling1D {pool_size = 2, strides = pool_size, padding = "valid", data_format =}: the largest of each window.
-- x {batch, steps, channels} -> {batch, steps', channels}.
-- Example:
--     local steps = mgpu.tensor { 3, 1, 4, 1, 5, 9 }:reshape { 1, 6, 1 }
--     print(L.MaxPooling1D { 3 } (steps):reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> {4, 9}
M.MaxPooling1D = define_pool1d("MaxPooling1D", "max_pool2d")

--- AveragePooling1D {pool_size = 2, strides = pool_size, padding = "valid", data_format =}: the mean of each window.
-- x {batch, steps, channels} -> {batch, steps', channels}.
-- Example:
--     local steps = mgpu.tensor { 1, 3, 5, 7 }:reshape { 1, 4, 1 }
--     print(L.AveragePooling1D { 2, strides = 1 } (steps):reshape { -1 })
--     --> tensor {3} float32 cpu:0
--     --> {2, 4, 6}
M.AveragePooling1D = define_pool1d("AveragePooling1D", "avg_pool2d")

-- ---- whole images and sequences -------------------------------------------------------------------

local reductions = {
  max = function(x, options) return core.ops.max(x, options) end,
  mean = function(x, options)
    local shape, count, dtype = x:shape(), 1, x:dtype()
    for _, axis in ipairs(options.axis) do count = count * shape[axis] end
    if dtype ~= "float16" and dtype ~= "bfloat16" then return core.ops.sum(x, options) / count end
    -- the sum over a large image would overflow float16
    local sum = core.ops.sum(core.ops.cast(x, { dtype = "float32" }), options)
    return core.ops.cast(sum / count, { dtype = dtype })
  end,
}

-- The mean over the steps that count, as in Keras.
local function masked_mean(x, mask, axis, keepdims)
  local shape, how = mask:shape(), { axis = axis, keepdims = keepdims }
  table.insert(shape, axis == 2 and 3 or 2, 1)
  local kept = core.ops.reshape(mask, { shape = shape })
  local sum = core.ops.sum(core.ops.where(kept, x, 0), how)
  return sum / core.ops.sum(core.ops.cast(kept, { dtype = x:dtype() }), how)
end

--- define_global(class_name, reduction, axes) -> a class that reduces that many axes of steps, rows, columns, ...
local function define_global(class_name, reduction, axes)
  local rank = axes + 2
  local meaning = spaces.AXES[axes]
  local Pool = Layer:extend(class_name, { positional = 0,
    images.data_format,
    { "keepdims", "boolean", default = false },
  })

  local function reduced_axes(self)
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
    local mask = axes == 1 and reduction == "mean" and masks.now()
    if mask then return masked_mean(x, mask, images.is_first(self) and 3 or 2, self.keepdims) end
    return reductions[reduction](x, { axis = reduced_axes(self), keepdims = self.keepdims })
  end

  return Pool
end
M.define_global = define_global

--- GlobalMaxPooling2D {data_format =, keepdims = false}: the largest of each channel.
-- x {batch, rows, columns, channels} -> {batch, channels}; with keepdims {batch, 1, 1, channels}.
-- Example:
--     print(L.GlobalMaxPooling2D {} (mgpu.arange(8):reshape { 1, 2, 2, 2 }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{6, 7}}
M.GlobalMaxPooling2D = define_global("GlobalMaxPooling2D", "max", 2)

--- GlobalAveragePooling2D {data_format =, keepdims = false}: the mean of each channel.
-- x {batch, rows, columns, channels} -> {batch, channels}; with keepdims {batch, 1, 1, channels}.
-- Example:
--     local features = mgpu.ones { 2, 7, 7, 64 }
--     print(unpack(L.GlobalAveragePooling2D {} (features):shape()))  --> 2 64
M.GlobalAveragePooling2D = define_global("GlobalAveragePooling2D", "mean", 2)

--- GlobalMaxPooling1D {data_format =, keepdims = false}: the largest of each channel.
-- x {batch, steps, channels} -> {batch, channels}; with keepdims {batch, 1, channels}.
-- Example:
--     local sentences = L.Embedding { 100, 16 } (mgpu.tensor { { 4, 8, 15 }, { 16, 23, 42 } })
--     print(unpack(L.GlobalMaxPooling1D {} (sentences):shape()))  --> 2 16
M.GlobalMaxPooling1D = define_global("GlobalMaxPooling1D", "max", 1)

--- GlobalAveragePooling1D {data_format =, keepdims = false}: the mean of each channel, without masked steps.
-- x {batch, steps, channels} -> {batch, channels}; with keepdims {batch, 1, channels}.
-- Example:
--     local steps = mgpu.tensor { { { 1, 10 }, { 3, 20 } } }
--     print(L.GlobalAveragePooling1D {} (steps))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{ 2, 15}}
M.GlobalAveragePooling1D = define_global("GlobalAveragePooling1D", "mean", 1)

return M
