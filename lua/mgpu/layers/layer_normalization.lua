--- LayerNormalization {axis = -1, epsilon = 1e-3, center =, scale =, ...}
-- y = gamma (x - mean) / sqrt(variance + epsilon) + beta with mean and variance over the axes (one, or a
-- list; 1 = batch, -1 = last) of each sample; gamma and beta have the sizes of these axes
-- (Ba, Kiros & Hinton 2016; Keras's formulas).
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local ops = core.ops

local LayerNormalization = Layer:extend("LayerNormalization", { positional = 0,
  { "axis", "integer|shape", default = -1 },
  { "epsilon", "number", default = 1e-3, min = 0 },
  { "center", "boolean", default = true },
  { "scale", "boolean", default = true },
  { "beta_initializer", "initializer", default = "zeros" },
  { "gamma_initializer", "initializer", default = "ones" },
  { "beta_regularizer", "regularizer" },
  { "gamma_regularizer", "regularizer" },
})

function LayerNormalization:build(shape)
  local axes, seen, sizes = {}, {}, {}
  for _, axis in ipairs(type(self.axis) == "table" and self.axis or { self.axis }) do
    local at = axis < 0 and axis + #shape + 1 or axis
    if at < 1 or at > #shape or seen[at] then
      self:fail("axis %d is out of range, or given twice, for the input %s", axis, self.shape_text(shape))
    end
    seen[at] = true
    axes[#axes + 1] = at
  end
  table.sort(axes)
  self.axes, self.wide = axes, {}
  for i = 1, #shape do self.wide[i] = seen[i] and shape[i] or 1 end
  for i, at in ipairs(axes) do sizes[i] = shape[at] end
  local function weight(name)
    return self:add_weight { name = name, shape = sizes, initializer = self[name .. "_initializer"],
      regularizer = self[name .. "_regularizer"] }
  end
  if self.scale then self.gamma = weight "gamma" end
  if self.center then self.beta = weight "beta" end
end

function LayerNormalization:output_shape(shape) return shape end -- luacheck: no self

function LayerNormalization:call(x)
  local shape, count = x:shape(), 1
  for _, axis in ipairs(self.axes) do count = count * shape[axis] end
  local over = { axis = self.axes, keepdims = true }
  local centered = x - ops.sum(x, over) / count
  local variance = ops.sum(ops.square(centered), over) / count
  local y = centered * ops.rsqrt(variance + self.epsilon)
  -- gamma and beta in the places of their axes
  local function wide(v) return #self.wide == 1 and v or ops.reshape(v, { shape = self.wide }) end
  if self.gamma then y = y * wide(self.gamma) end
  return self.beta and y + wide(self.beta) or y
end

return LayerNormalization
