--- Pooling of volumes: the largest or the mean of windows, or of whole volumes.
--
-- x {batch, depth, rows, columns, channels}, or channels_first. Windows, padding and errors as in pooling.lua.
-- RETURNS the classes by name.
local Layer = require "mgpu.nn.layer"
local images = require "mgpu.nn.layers.images"
local pooling = require "mgpu.nn.layers.pooling"
local spaces = require "mgpu.nn.layers.spaces"
local volumes = require "mgpu.nn.layers.volumes"

local M = {}

-- A class over volumes; op: "max_pool2d" or "avg_pool2d".
local function define(class_name, op)
  local Pool = Layer:extend(class_name, { positional = 1,
    { "pool_size", "triple", default = { 2, 2, 2 } },
    { "strides", "triple" },
    { "padding", "string", default = "valid", values = { "valid", "same" } },
    images.data_format,
  })

  function Pool:build(shape)
    self:need_rank(shape, 5, spaces.AXES[3])
    self:output_shape(shape)
  end

  function Pool:output_shape(shape)
    return spaces.window_shape(self, shape, self.pool_size, self.strides or self.pool_size, nil, "window")
  end

  function Pool:call(x)
    self:need_rank(x:shape(), 5, spaces.AXES[3])
    self:output_shape(x:shape())
    return spaces.as_last(self, x, function(t)
      return volumes.pool(op, t, self.pool_size, self.strides or self.pool_size, self.padding)
    end)
  end

  return Pool
end

--- MaxPooling3D {pool_size = 2, strides = pool_size, padding = "valid", data_format =}: the largest of each window.
-- x {batch, depth, rows, columns, channels} -> {batch, depth', rows', columns', channels}.
-- Example:
--     print(L.MaxPooling3D {} (mgpu.arange(8):reshape { 1, 2, 2, 2, 1 }):item())  --> 7
M.MaxPooling3D = define("MaxPooling3D", "max_pool2d")

--- AveragePooling3D {pool_size = 2, strides = pool_size, padding = "valid", data_format =}: the mean of each window.
-- x {batch, depth, rows, columns, channels} -> {batch, depth', rows', columns', channels}.
-- Example:
--     print(L.AveragePooling3D {} (mgpu.arange(8):reshape { 1, 2, 2, 2, 1 }):item())  --> 3.5
M.AveragePooling3D = define("AveragePooling3D", "avg_pool2d")

--- GlobalMaxPooling3D {data_format =, keepdims = false}: the largest of each channel.
-- x {batch, depth, rows, columns, channels} -> {batch, channels}; with keepdims {batch, 1, 1, 1, channels}.
-- Example:
--     print(L.GlobalMaxPooling3D {} (mgpu.arange(8):reshape { 1, 2, 2, 2, 1 }):item())  --> 7
M.GlobalMaxPooling3D = pooling.define_global("GlobalMaxPooling3D", "max", 3)

--- GlobalAveragePooling3D {data_format =, keepdims = false}: the mean of each channel.
-- x {batch, depth, rows, columns, channels} -> {batch, channels}; with keepdims {batch, 1, 1, 1, channels}.
-- Example:
--     print(L.GlobalAveragePooling3D {} (mgpu.arange(8):reshape { 1, 2, 2, 2, 1 }):item())  --> 3.5
M.GlobalAveragePooling3D = pooling.define_global("GlobalAveragePooling3D", "mean", 3)

return M
