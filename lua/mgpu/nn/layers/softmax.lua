--- Softmax {axis = -1}: e^x / sum(e^x) along an axis, or over a list of axes together (1 = batch, -1 = last).
-- x of any shape -> the same shape. Masked steps (nn/masks.lua) take no part, and are 0 in the output, as in Keras.
-- Errors: an axis out of range or given twice.
-- Example:
--     print(L.Softmax {} (mgpu.tensor { { 0, 0, 0, 0 } }))
--     --> tensor {1, 4} float32 cpu:0
--     --> {{0.25, 0.25, 0.25, 0.25}}
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

local ops = core.ops

local Softmax = Layer:extend("Softmax", { positional = 1,
  { "axis", "integer|integers", default = -1 } })

Softmax.supports_masking = true

-- The axes from 1.
local function axes_of(self, shape)
  local axes, seen = {}, {}
  for i, axis in ipairs(type(self.axis) == "table" and self.axis or { self.axis }) do
    local at = axis < 0 and axis + #shape + 1 or axis
    if at < 1 or at > #shape then
      self:fail("axis %d is out of range for the input %s (the batch is 1)", axis, self.shape_text(shape))
    end
    if seen[at] then self:fail("axis %d is given twice", axis) end
    seen[at], axes[i] = true, at
  end
  if #axes == 0 then self:fail "axis is an empty list" end
  return axes
end

function Softmax:build(shape) axes_of(self, shape) end

function Softmax:output_shape(shape)
  axes_of(self, shape)
  return shape
end

-- The number used as minus infinity, by dtype.
local MASKED = { float16 = -3e4 }

local function softmax(x, axes)
  if #axes == 1 then return ops.softmax(x, { axis = axes[1] }) end
  local dtype, over = x:dtype(), { axis = axes, keepdims = true }
  if is_half(x) then x = ops.cast(x, { dtype = "float32" }) end
  local e = ops.exp(x - ops.stop_gradient(ops.max(x, over)))
  return ops.cast(e / ops.sum(e, over), { dtype = dtype })
end

function Softmax:call(x)
  local axes, mask = axes_of(self, x:shape()), masks.now()
  if not mask then return softmax(x, axes) end
  mask = masks.aligned(mask, x)
  -- along an axis that is masked as a whole the first `where` leaves equal shares
  return ops.where(mask, softmax(ops.where(mask, x, MASKED[x:dtype()] or -1e9), axes), 0)
end

return Softmax
