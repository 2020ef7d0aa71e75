--- PReLU {alpha_initializer = "zeros", alpha_regularizer =, alpha_constraint =, shared_axes =}
-- x where x > 0, alpha * x elsewhere, with a learned alpha. x {batch, ...} -> the same shape.
-- Weight: alpha {sizes of a sample}, with size 1 along shared_axes (one or a list; 2 = the first after the batch).
-- Errors: an axis out of range; an x of another shape than at the first call.
-- Source: He et al., Delving deep into rectifiers, 2015.
-- Example:
--     local prelu = L.PReLU { alpha_initializer = mgpu.initializers.constant { 0.25 } }
--     print(prelu(mgpu.tensor { { -4, 4 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{-1,  4}}
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local PReLU = Layer:extend("PReLU", { positional = 0,
  { "alpha_initializer", "initializer", default = "zeros" },
  { "alpha_regularizer", "regularizer" },
  { "alpha_constraint", "constraint" },
  { "shared_axes", "integer|integers" },
})

PReLU.supports_masking = true

function PReLU:build(shape)
  local sizes = { unpack(shape, 2) }
  local shared = self.shared_axes or {}
  for _, axis in ipairs(type(shared) == "table" and shared or { shared }) do
    local at = axis < 0 and axis + #shape + 1 or axis
    if at < 2 or at > #shape then
      self:fail("shared_axes: axis %d is out of range for the input %s (the batch is 1)", axis,
        self.shape_text(shape))
    end
    sizes[at - 1] = 1
  end
  self.alpha = self:add_weight { name = "alpha", shape = sizes, initializer = self.alpha_initializer,
    regularizer = self.alpha_regularizer, constraint = self.alpha_constraint }
  self.sizes = sizes
end

function PReLU:output_shape(shape) return shape end -- luacheck: no self

-- Raises unless x fits alpha. A size of 1 in alpha fits any size along a shared axis only.
local function check_input(self, shape)
  local fits = #shape == #self.sizes + 1
  for i, size in ipairs(self.sizes) do
    fits = fits and (size == shape[i + 1] or size == 1 and self.built_shape[i + 1] ~= 1)
  end
  if not fits then
    self:fail("the input %s does not fit the layer, which was built for %s", self.shape_text(shape),
      self.shape_text(self.built_shape))
  end
end

function PReLU:call(x)
  check_input(self, x:shape())
  return ops.relu(x) - self.alpha * ops.relu(-x)
end

return PReLU
