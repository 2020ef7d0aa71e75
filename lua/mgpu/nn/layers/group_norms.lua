--- Normalization of each sample: by groups of channels, by the root mean square, to length 1.
-- x {batch, ...} -> the same shape. With float16 or bfloat16 x all but x and y is computed in float32.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"

local ops = core.ops
local M = {}

-- The axis counted from 1. Errors: out of range; one before `first`.
local function axis_at(self, axis, shape, first)
  local at = axis < 0 and axis + #shape + 1 or axis
  if at < first or at > #shape then
    self:fail("axis %d is out of range for the input %s (the batch is 1)", axis, self.shape_text(shape))
  end
  return at
end

-- The axes of an option that is one axis or a list, sorted.
local function axes_of(self, shape, first)
  local axes = {}
  for i, axis in ipairs(type(self.axis) == "table" and self.axis or { self.axis }) do
    axes[i] = axis_at(self, axis, shape, first)
  end
  table.sort(axes)
  for i = 2, #axes do
    if axes[i] == axes[i - 1] then self:fail("axis %d is given twice", axes[i]) end
  end
  if #axes == 0 then self:fail "axis is an empty list" end
  return axes
end

local function in_float32(x) return is_half(x) and ops.cast(x, { dtype = "float32" }) or x end

local function in_dtype(self, y)
  local dtype = self.compute_dtype
  return y:dtype() == dtype and y or ops.cast(y, { dtype = dtype })
end

local function same_shape(_, shape) return shape end

-- ---- GroupNormalization -------------------------------------------------------------------------

--- GroupNormalization {groups = 32, axis = -1, epsilon = 1e-3, center = true, scale = true, ...}
-- y = gamma (x - mean) / sqrt(variance + epsilon) + beta with mean and variance of each group of channels of each
-- sample; axis: the channels. groups = -1: as many groups as channels (instance normalization).
-- Weights {channels}: gamma, beta. Options: beta_initializer = "zeros", gamma_initializer = "ones", beta_regularizer,
-- gamma_regularizer, beta_constraint, gamma_constraint. Errors: groups that do not divide the channels; an axis out of
-- range. Source: Wu & He, Group normalization, 2018.
-- Example:
--     local y = L.GroupNormalization { 2 } (mgpu.tensor { { 1, 3, 10, 30 } }) -- two groups of two channels
--     print(y:round())
--     --> tensor {1, 4} float32 cpu:0
--     --> {{-1,  1, -1,  1}}
local GroupNormalization = Layer:extend("GroupNormalization", kernels.weight_options({ positional = 1,
  { "groups", "integer", default = 32, min = -1 },
  { "axis", "integer", default = -1 },
  { "epsilon", "number", default = 1e-3, min = 0 },
  { "center", "boolean", default = true },
  { "scale", "boolean", default = true },
}, { { "beta", "zeros" }, { "gamma", "ones" } }))

GroupNormalization.supports_masking, GroupNormalization.output_shape = true, same_shape

function GroupNormalization:build(shape)
  self.at = axis_at(self, self.axis, shape, 2)
  self.channels, self.rank = shape[self.at], #shape
  if self.channels == -1 then self:fail("the number of channels must be known, got %s", self.shape_text(shape)) end
  if self.groups == -1 then self.groups = self.channels end
  if self.groups < 1 or self.channels % self.groups ~= 0 then
    self:fail("%d channels cannot be divided into %d groups", self.channels, self.groups)
  end
  local function weight(name)
    return self:add_weight { name = name, shape = { self.channels }, initializer = self[name .. "_initializer"],
      regularizer = self[name .. "_regularizer"], constraint = self[name .. "_constraint"], autocast = false }
  end
  if self.scale then self.gamma = weight "gamma" end
  if self.center then self.beta = weight "beta" end
end

function GroupNormalization:call(x)
  local shape = x:shape()
  if #shape ~= self.rank or shape[self.at] ~= self.channels then
    self:fail("the input %s does not fit the layer, which was built for %s", self.shape_text(shape),
      self.shape_text(self.built_shape))
  end
  local each = self.channels / self.groups
  local grouped, wide, over, count = {}, {}, {}, 1
  for axis, size in ipairs(shape) do
    local split = axis == self.at
    for _, part in ipairs(split and { self.groups, each } or { size }) do
      grouped[#grouped + 1], wide[#wide + 1] = part, split and part or 1
      if axis > 1 and not (split and #grouped == self.at) then
        over[#over + 1], count = #grouped, count * part
      end
    end
  end
  local t = in_float32(ops.reshape(x, { shape = grouped }))
  local how = { axis = over, keepdims = true }
  local centered = t - ops.sum(t, how) / count
  local y = centered * ops.rsqrt(ops.sum(ops.square(centered), how) / count + self.epsilon)
  if self.gamma then y = y * ops.reshape(self.gamma, { shape = wide }) end
  if self.beta then y = y + ops.reshape(self.beta, { shape = wide }) end
  return in_dtype(self, ops.reshape(y, { shape = shape }))
end

M.GroupNormalization = GroupNormalization

-- ---- RMSNormalization ---------------------------------------------------------------------------

--- RMSNormalization {axis = -1, epsilon = 1e-6}: x / sqrt(mean(x^2) + epsilon) * scale, with the mean over the axes
-- (one or a list; 2 is the first after the batch).
-- Weight: scale, with the sizes of the axes; it multiplies the last axes of x, as in Keras. Errors: an axis out of
-- range. Source: Zhang & Sennrich, Root mean square layer normalization, 2019.
-- Example:
--     local y = L.RMSNormalization {} (mgpu.tensor { { 3, -3 } })
--     print(y:round())
--     --> tensor {1, 2} float32 cpu:0
--     --> {{ 1, -1}}
local RMSNormalization = Layer:extend("RMSNormalization", { positional = 0,
  { "axis", "integer|integers", default = -1 },
  { "epsilon", "number", default = 1e-6, min = 0 },
})

RMSNormalization.output_shape = same_shape

function RMSNormalization:build(shape)
  local sizes = {}
  for i, axis in ipairs(axes_of(self, shape, 2)) do sizes[i] = shape[axis] end
  for i = 1, #sizes do
    local size = shape[#shape - #sizes + i]
    if sizes[i] ~= size and sizes[i] ~= 1 then
      self:fail("the scale %s of these axes does not fit the last axes of the input %s", self.shape_text(sizes),
        self.shape_text(shape))
    end
  end
  self.scale = self:add_weight { name = "scale", shape = sizes, initializer = "ones" }
end

function RMSNormalization:call(x)
  local shape, count = x:shape(), 1
  local axes = axes_of(self, shape, 2)
  for _, axis in ipairs(axes) do count = count * shape[axis] end
  local t = in_float32(x)
  local mean = ops.sum(ops.square(t), { axis = axes, keepdims = true }) / count
  return in_dtype(self, t * ops.rsqrt(mean + self.epsilon) * self.scale)
end

M.RMSNormalization = RMSNormalization

-- ---- UnitNormalization --------------------------------------------------------------------------

--- UnitNormalization {axis = -1}: x scaled to length 1 over the axes (one or a list; 1 = batch). Squares of lengths
-- below 1e-12 count as 1e-12, as in Keras. Errors: an axis out of range.
-- Example:
--     print((L.UnitNormalization {} (mgpu.tensor { { 3, 4 } }) * 10):round())
--     --> tensor {1, 2} float32 cpu:0
--     --> {{6, 8}}
local UnitNormalization = Layer:extend("UnitNormalization", { positional = 0,
  { "axis", "integer|integers", default = -1 },
})

UnitNormalization.supports_masking, UnitNormalization.output_shape = true, same_shape

function UnitNormalization:build(shape) axes_of(self, shape, 1) end

function UnitNormalization:call(x)
  local t = in_float32(x)
  local squares = ops.sum(ops.square(t), { axis = axes_of(self, x:shape(), 1), keepdims = true })
  return in_dtype(self, t * ops.rsqrt(ops.maximum(squares, 1e-12)))
end

M.UnitNormalization = UnitNormalization

return M
