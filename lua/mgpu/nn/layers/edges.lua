--- Padding, cropping and repeating of sequences and volumes; those of images are in image_sizes.lua.
--
-- Sequences are x {batch, steps, channels}, volumes x {batch, depth, rows, columns, channels}, or channels_first.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"
local spaces = require "mgpu.nn.layers.spaces"

local ops = core.ops
local M = {}

-- What differs between sequences and volumes: the number of sizes, the type of margins and of factors.
local SEQUENCE = { axes = 1, margins = "margin", factors = "single" }
local VOLUME = { axes = 3, margins = "margins3", factors = "triple" }

local function margins_of(kind, n)
  local list = {}
  for i = 1, kind.axes do list[i] = { n, n } end
  return kind.axes == 1 and list[1] or list
end

-- The margins {{before, after}, ...} of the option.
local function listed(kind, value) return kind.axes == 1 and { value } or value end

local function with_rank(class, kind)
  function class:build(shape)
    self:need_rank(shape, kind.axes + 2, spaces.AXES[kind.axes])
    self:output_shape(shape)
  end
end

-- ---- padding ------------------------------------------------------------------------------------

local function define_padding(class_name, kind)
  local Padding = Layer:extend(class_name, { positional = 1,
    { "padding", kind.margins, default = margins_of(kind, 1) }, images.data_format })
  with_rank(Padding, kind)

  function Padding:output_shape(shape)
    local out = spaces.shape_last(self, shape)
    for i, margin in ipairs(listed(kind, self.padding)) do
      if out[i + 1] ~= -1 then out[i + 1] = out[i + 1] + margin[1] + margin[2] end
    end
    return spaces.shape_back(self, out)
  end

  function Padding:call(x)
    self:need_rank(x:shape(), kind.axes + 2, spaces.AXES[kind.axes])
    local first = images.is_first(self) and 2 or 1
    for i, margin in ipairs(listed(kind, self.padding)) do x = spaces.padded(x, first + i, margin[1], margin[2]) end
    return x
  end

  return Padding
end

--- ZeroPadding1D {padding = 1, data_format =}: adds steps of zeros before and behind a sequence.
-- padding: a number, or {before, after}. x {batch, steps, channels} -> {batch, steps + before + after, channels}.
-- Example:
--     print(L.ZeroPadding1D { { 1, 2 } } (mgpu.ones { 1, 2, 1 }):reshape { -1 })
--     --> tensor {5} float32 cpu:0
--     --> {0, 1, 1, 0, 0}
M.ZeroPadding1D = define_padding("ZeroPadding1D", SEQUENCE)

--- ZeroPadding3D {padding = 1, data_format =}: adds zeros at the edges of volumes.
-- padding: a number, {depth, rows, columns}, or {{before, after}, {before, after}, {before, after}}.
-- x {batch, depth, rows, columns, channels} -> the same with larger sizes.
-- Example:
--     print(unpack(L.ZeroPadding3D { { 1, 2, 3 } } (mgpu.ones { 1, 2, 2, 2, 1 }):shape()))  --> 1 4 6 8 1
M.ZeroPadding3D = define_padding("ZeroPadding3D", VOLUME)

-- ---- cropping -----------------------------------------------------------------------------------

local function define_cropping(class_name, kind, cropping)
  local declared = { positional = 1, { "cropping", kind.margins, default = margins_of(kind, cropping) } }
  declared[2] = kind.axes > 1 and images.data_format or nil
  local Cropping = Layer:extend(class_name, declared)
  with_rank(Cropping, kind)

  local function is_first(self) return kind.axes > 1 and images.is_first(self) end

  function Cropping:output_shape(shape)
    local out, first = { unpack(shape) }, is_first(self) and 2 or 1
    for i, margin in ipairs(listed(kind, self.cropping)) do
      local axis = first + i
      if out[axis] ~= -1 then
        out[axis] = out[axis] - margin[1] - margin[2]
        if out[axis] < 1 then
          self:fail("cropping {%d, %d} of axis %d leaves nothing of the input %s", margin[1], margin[2], axis,
            self.shape_text(shape))
        end
      end
    end
    return out
  end

  function Cropping:call(x)
    local shape, first = x:shape(), is_first(self) and 2 or 1
    self:need_rank(shape, kind.axes + 2, spaces.AXES[kind.axes])
    self:output_shape(shape)
    for i, margin in ipairs(listed(kind, self.cropping)) do
      x = spaces.sliced(x, first + i, margin[1], shape[first + i] - margin[2])
    end
    return x
  end

  return Cropping
end

--- Cropping1D {cropping = 1}: removes steps before and behind a sequence.
-- cropping: a number, or {before, after}. x {batch, steps, channels} -> {batch, steps - before - after, channels}.
-- Errors: a cropping that leaves nothing.
-- Example:
--     print(L.Cropping1D { { 1, 2 } } (mgpu.arange(5):reshape { 1, 5, 1 }):reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> {1, 2}
M.Cropping1D = define_cropping("Cropping1D", SEQUENCE, 1)

--- Cropping3D {cropping = 1, data_format =}: removes what is at the edges of volumes.
-- cropping: a number, {depth, rows, columns}, or {{before, after}, {before, after}, {before, after}}.
-- x {batch, depth, rows, columns, channels} -> the same with smaller sizes. Errors: a cropping that leaves nothing.
-- Example:
--     print(unpack(L.Cropping3D {} (mgpu.ones { 1, 4, 6, 8, 2 }):shape()))  --> 1 2 4 6 2
M.Cropping3D = define_cropping("Cropping3D", VOLUME, 1)

-- ---- repeating ----------------------------------------------------------------------------------

local function define_repeating(class_name, kind)
  local declared = { positional = 1, { "size", kind.factors, default = kind.axes == 1 and 2 or { 2, 2, 2 },
    min = kind.axes == 1 and 1 or nil } }
  declared[2] = kind.axes > 1 and images.data_format or nil
  local UpSampling = Layer:extend(class_name, declared)
  with_rank(UpSampling, kind)

  local function factors(self) return kind.axes == 1 and { self.size } or self.size end
  local function first_axis(self) return kind.axes > 1 and images.is_first(self) and 2 or 1 end

  function UpSampling:output_shape(shape)
    local out, first = { unpack(shape) }, first_axis(self)
    for i, factor in ipairs(factors(self)) do
      if out[first + i] ~= -1 then out[first + i] = out[first + i] * factor end
    end
    return out
  end

  function UpSampling:call(x)
    self:need_rank(x:shape(), kind.axes + 2, spaces.AXES[kind.axes])
    local first = first_axis(self)
    for i, factor in ipairs(factors(self)) do
      local shape, axis = x:shape(), first + i
      local inner, wide, out = { unpack(shape) }, { unpack(shape) }, { unpack(shape) }
      table.insert(inner, axis + 1, 1)
      table.insert(wide, axis + 1, factor)
      out[axis] = out[axis] * factor
      x = ops.reshape(ops.broadcast_to(ops.reshape(x, { shape = inner }), { shape = wide }), { shape = out })
    end
    return x
  end

  return UpSampling
end

--- UpSampling1D {size = 2}: repeats each step. x {batch, steps, channels} -> {batch, steps * size, channels}.
-- Example:
--     print(L.UpSampling1D { 2 } (mgpu.tensor { 1, 2 }:reshape { 1, 2, 1 }):reshape { -1 })
--     --> tensor {4} float32 cpu:0
--     --> {1, 1, 2, 2}
M.UpSampling1D = define_repeating("UpSampling1D", SEQUENCE)

--- UpSampling3D {size = {2, 2, 2}, data_format =}: repeats planes, rows and columns.
-- x {batch, depth, rows, columns, channels} -> {batch, depth * size[1], rows * size[2], columns * size[3], channels}.
-- Example:
--     print(unpack(L.UpSampling3D { { 1, 2, 3 } } (mgpu.ones { 1, 2, 2, 2, 1 }):shape()))  --> 1 2 4 6 1
M.UpSampling3D = define_repeating("UpSampling3D", VOLUME)

return M
