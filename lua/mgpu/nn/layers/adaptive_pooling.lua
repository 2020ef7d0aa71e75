--- Adaptive pooling: outputs of a given size, whatever the size of the input.
--
-- x {batch, sizes..., channels}, or channels_first -> {batch, output_size..., channels}. Output i of n along an axis of
-- size s is the mean or the largest of the elements floor(i s / n) to ceil((i + 1) s / n) - 1, counted from 0.
-- Errors: a wrong number of axes; an unknown size.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local is_half = require "mgpu.nn.mixed_precision".is_half
local Layer = require "mgpu.nn.layer"
local spaces = require "mgpu.nn.layers.spaces"

local ops = core.ops
local M = {}

-- The mean of elements, computed in float32 at least.
local function mean(x, axis, count)
  local dtype = x:dtype()
  if is_half(x) then x = ops.cast(x, { dtype = "float32" }) end
  return ops.cast(ops.sum(x, { axis = axis, keepdims = true }) / count, { dtype = dtype })
end

-- x reduced along one axis to `count` elements.
local function reduced(x, axis, count, kind)
  local size, list = x:shape()[axis], {}
  if size == count then return x end
  for i = 0, count - 1 do
    local start, stop = math.floor(i * size / count), math.ceil((i + 1) * size / count)
    local part = spaces.sliced(x, axis, start, stop)
    list[i + 1] = kind == "max" and ops.max(part, { axis = axis, keepdims = true }) or mean(part, axis, stop - start)
  end
  return #list > 1 and ops.concat(list, { axis = axis }) or list[1]
end

-- A class over `axes` sizes; kind: "max" or "mean".
local function define(class_name, axes, kind)
  local Pool = Layer:extend(class_name, { positional = 1,
    { "output_size", ({ "single", "pair", "triple" })[axes], min = axes == 1 and 1 or nil, required = true },
    images.data_format,
  })

  local function sizes(self) return axes == 1 and { self.output_size } or self.output_size end

  function Pool:build(shape)
    self:need_rank(shape, axes + 2, spaces.AXES[axes])
    local last = spaces.shape_last(self, shape)
    for i = 2, axes + 1 do
      if last[i] == 0 then self:fail("the input %s is empty", self.shape_text(shape)) end
    end
  end

  function Pool:output_shape(shape)
    local out = spaces.shape_last(self, shape)
    for i, size in ipairs(sizes(self)) do out[i + 1] = size end
    return spaces.shape_back(self, out)
  end

  function Pool:call(x)
    self:need_rank(x:shape(), axes + 2, spaces.AXES[axes])
    return spaces.as_last(self, x, function(t)
      for i, size in ipairs(sizes(self)) do t = reduced(t, i + 1, size, kind) end
      return t
    end)
  end

  return Pool
end

--- AdaptiveAveragePooling1D {output_size, data_format =}: the means of parts of a sequence.
-- x {batch, steps, channels} -> {batch, output_size, channels}.
-- Example:
--     print(L.AdaptiveAveragePooling1D { 2 } (mgpu.arange(4):reshape { 1, 4, 1 }):reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> {0.5, 2.5}
M.AdaptiveAveragePooling1D = define("AdaptiveAveragePooling1D", 1, "mean")

--- AdaptiveAveragePooling2D {output_size, data_format =}: the means of parts of an image.
-- x {batch, rows, columns, channels} -> {batch, output_size[1], output_size[2], channels}.
-- Example:
--     print(unpack(L.AdaptiveAveragePooling2D { 3 } (mgpu.ones { 1, 7, 8, 2 }):shape()))  --> 1 3 3 2
M.AdaptiveAveragePooling2D = define("AdaptiveAveragePooling2D", 2, "mean")

--- AdaptiveAveragePooling3D {output_size, data_format =}: the means of parts of a volume.
-- x {batch, depth, rows, columns, channels} -> {batch, output_size..., channels}.
-- Example:
--     print(unpack(L.AdaptiveAveragePooling3D { 2 } (mgpu.ones { 1, 4, 7, 8, 2 }):shape()))  --> 1 2 2 2 2
M.AdaptiveAveragePooling3D = define("AdaptiveAveragePooling3D", 3, "mean")

--- AdaptiveMaxPooling1D {output_size, data_format =}: the largest of parts of a sequence.
-- x {batch, steps, channels} -> {batch, output_size, channels}.
-- Example:
--     print(L.AdaptiveMaxPooling1D { 2 } (mgpu.arange(4):reshape { 1, 4, 1 }):reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> {1, 3}
M.AdaptiveMaxPooling1D = define("AdaptiveMaxPooling1D", 1, "max")

--- AdaptiveMaxPooling2D {output_size, data_format =}: the largest of parts of an image.
-- x {batch, rows, columns, channels} -> {batch, output_size[1], output_size[2], channels}.
-- Example:
--     print(unpack(L.AdaptiveMaxPooling2D { { 2, 3 } } (mgpu.ones { 1, 7, 8, 2 }):shape()))  --> 1 2 3 2
M.AdaptiveMaxPooling2D = define("AdaptiveMaxPooling2D", 2, "max")

--- AdaptiveMaxPooling3D {output_size, data_format =}: the largest of parts of a volume.
-- x {batch, depth, rows, columns, channels} -> {batch, output_size..., channels}.
-- Example:
--     print(unpack(L.AdaptiveMaxPooling3D { 2 } (mgpu.ones { 1, 4, 7, 8, 2 }):shape()))  --> 1 2 2 2 2
M.AdaptiveMaxPooling3D = define("AdaptiveMaxPooling3D", 3, "max")

return M
