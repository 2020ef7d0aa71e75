--- Activations as layers, with and without weights. x of any shape -> the same shape, unless the class says otherwise.
-- RETURNS the classes by name.
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"
local regularizers = require "mgpu.nn.regularizers"

local ops = core.ops

local M = {}

-- ---- Activation ---------------------------------------------------------------------------------

--- Activation {activation}: any activation, by name or as a function; see mgpu.activations.
-- x of any shape -> the same shape (softmax and the like: as the function says). Errors: an unknown name.
-- Example:
--     local model = mgpu.Sequential { L.Activation { "relu" }, L.Activation { function(x) return x * x end } }
--     print(model(mgpu.tensor { { -3, 3 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{0, 9}}
local Activation = Layer:extend("Activation", { positional = 1,
  { "activation", "activation", required = true } })

Activation.supports_masking = true

function Activation:init() self.activate = activations.get(self.activation, tostring(self)) end

function Activation:call(x) return self.activate(x) end

--- shape_after(layer, shape) -> the shape that the layer's own activation makes of `shape`: glu halves an axis, and a
--- function may do anything.
function Activation.shape_after(layer, shape)
  if layer.activate ~= activations.glu and type(layer.activation) ~= "function" then return shape end
  return Activation { layer.activation, name = layer.name }:output_shape(shape)
end

M.Activation = Activation

-- ---- ReLU ---------------------------------------------------------------------------------------

--- ReLU {max_value =, negative_slope = 0, threshold = 0}
-- max_value where x >= max_value; x where x > threshold; negative_slope (x - threshold) elsewhere (Keras's formula).
-- x of any shape -> the same shape. Errors: an option below 0.
-- Example:
--     print(L.ReLU { max_value = 6 } (mgpu.tensor { -1, 3, 8 }))
--     --> tensor {3} float32 cpu:0
--     --> {0, 3, 6}
local ReLU = Layer:extend("ReLU", { positional = 1,
  { "max_value", "number", min = 0 },
  { "negative_slope", "number", default = 0, min = 0 },
  { "threshold", "number", default = 0, min = 0 },
})

ReLU.supports_masking = true

function ReLU:output_shape(shape) return shape end -- luacheck: no self

function ReLU:call(x)
  return activations.relu(x, self.negative_slope, self.max_value, self.threshold)
end

M.ReLU = ReLU

-- ---- LeakyReLU ----------------------------------------------------------------------------------

--- LeakyReLU {negative_slope = 0.3}: x where x > 0, negative_slope * x elsewhere (Keras's formula).
-- x of any shape -> the same shape.
-- Example:
--     print(L.LeakyReLU { 0.5 } (mgpu.tensor { -2, 0, 2 }))
--     --> tensor {3} float32 cpu:0
--     --> {-1,  0,  2}
local LeakyReLU = Layer:extend("LeakyReLU", { positional = 1,
  { "negative_slope", "number", default = 0.3, min = 0 } })

LeakyReLU.supports_masking = true

function LeakyReLU:output_shape(shape) return shape end -- luacheck: no self

function LeakyReLU:call(x) return activations.leaky_relu(x, self.negative_slope) end

M.LeakyReLU = LeakyReLU

-- ---- ELU ----------------------------------------------------------------------------------------

--- ELU {alpha = 1}: x where x > 0, alpha (e^x - 1) elsewhere. x of any shape -> the same shape.
-- Source: Clevert et al., Exponential linear units, 2016.
-- Example:
--     print((L.ELU { 0.5 } (mgpu.tensor { -100, -1, 2 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-50, -32, 200}
local ELU = Layer:extend("ELU", { positional = 1, { "alpha", "number", default = 1 } })

ELU.supports_masking = true

function ELU:output_shape(shape) return shape end -- luacheck: no self

function ELU:call(x) return activations.elu(x, self.alpha) end

M.ELU = ELU

-- ---- PReLU --------------------------------------------------------------------------------------

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

M.PReLU = PReLU

-- ---- Softmax ------------------------------------------------------------------------------------

--- Softmax {axis = -1}: e^x / sum(e^x) along an axis, or over a list of axes together (1 = batch, -1 = last).
-- x of any shape -> the same shape. Masked steps (nn/masks.lua) take no part, and are 0 in the output, as in Keras.
-- Errors: an axis out of range or given twice.
-- Example:
--     print(L.Softmax {} (mgpu.tensor { { 0, 0, 0, 0 } }))
--     --> tensor {1, 4} float32 cpu:0
--     --> {{0.25, 0.25, 0.25, 0.25}}
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

M.Softmax = Softmax

-- ---- ThresholdedReLU ----------------------------------------------------------------------------

--- ThresholdedReLU {theta = 1}: x where x > theta, 0 elsewhere (Keras 1 and 2; Keras 3 has ReLU { threshold = theta }
--- with another formula below a maximum).
-- x of any shape -> the same shape. Source: Konda et al., Zero-bias autoencoders, 2015.
-- Example:
--     print(L.ThresholdedReLU { 0.5 } (mgpu.tensor { -2, 0.5, 2 }))
--     --> tensor {3} float32 cpu:0
--     --> {0, 0, 2}
local ThresholdedReLU = Layer:extend("ThresholdedReLU", { positional = 1,
  { "theta", "number", default = 1, min = 0 } })

ThresholdedReLU.supports_masking = true

function ThresholdedReLU:output_shape(shape) return shape end -- luacheck: no self

function ThresholdedReLU:call(x) return ops.where(ops.gt(x, self.theta), x, 0) end

M.ThresholdedReLU = ThresholdedReLU

-- ---- ActivityRegularization ---------------------------------------------------------------------

--- ActivityRegularization {l1 = 0, l2 = 0}: adds l1 * sum |x| + l2 * sum x^2 of the average sample to the loss, and
--- passes x on.
-- x of any shape -> the same shape.
-- Example:
--     local layer = L.ActivityRegularization { l2 = 0.5 }
--     local model = mgpu.Sequential { mgpu.Input { 2 }, layer }
--     model:compile { optimizer = "sgd", loss = "mse" }
--     local x = mgpu.tensor { { 2, 0 }, { 0, 4 } }
--     -- the mean of 0.5 * 2^2 and 0.5 * 4^2
--     print(model:evaluate(x, x, { verbose = 0 }).loss)  --> 5
local ActivityRegularization = Layer:extend("ActivityRegularization", { positional = 2,
  { "l1", "number", default = 0, min = 0 },
  { "l2", "number", default = 0, min = 0 },
})

ActivityRegularization.supports_masking = true

function ActivityRegularization:init()
  self.activity_regularizer = regularizers.L1L2 { l1 = self.l1, l2 = self.l2 }
end

function ActivityRegularization:output_shape(shape) return shape end -- luacheck: no self

function ActivityRegularization:call(x) return x end -- luacheck: no self

M.ActivityRegularization = ActivityRegularization

return M
