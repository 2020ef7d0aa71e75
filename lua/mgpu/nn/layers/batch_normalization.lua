--- BatchNormalization {axis = -1, momentum = 0.99, epsilon = 1e-3, center = true, scale = true, ...}
-- x {batch, ...} -> the same shape. Statistics are taken over all axes but `axis` (the channels; not 1, the batch).
-- Training:  y = gamma (x - mean) / sqrt(variance + epsilon) + beta with mean and (biased) variance of the batch,
--            and moving = moving * momentum + batch * (1 - momentum).
-- Inference, or trainable = false: the same with the moving statistics.
-- Options: beta_initializer = "zeros", gamma_initializer = "ones", moving_mean_initializer = "zeros",
-- moving_variance_initializer = "ones", beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint.
-- Weights {channels}: gamma, beta, moving_mean, moving_variance. With float16 or bfloat16 x all but x and y is
-- computed in float32. Errors: an axis that x lacks; an x with another number of channels than at the first call.
-- Source: Ioffe & Szegedy, Batch normalization, 2015; formulas of Keras.
-- Example:
--     local bn = L.BatchNormalization {}
--     local y = bn(mgpu.tensor { { 1 }, { 3 } }, { training = true }) -- mean 2, variance 1
--     print(y:round())
--     --> tensor {2, 1} float32 cpu:0
--     --> {{-1},
--     -->  { 1}}
--     -- the moving mean has gone 1 % of the way from 0 to 2
--     print(("%.2f"):format(bn.moving_mean:value():item()))  --> 0.02
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

local ops = core.ops

local BatchNormalization = Layer:extend("BatchNormalization", { positional = 0,
  { "axis", "integer", default = -1 },
  { "momentum", "number", default = 0.99, min = 0, max = 1 },
  { "epsilon", "number", default = 1e-3, min = 0 },
  { "center", "boolean", default = true },
  { "scale", "boolean", default = true },
  { "beta_initializer", "initializer", default = "zeros" },
  { "gamma_initializer", "initializer", default = "ones" },
  { "moving_mean_initializer", "initializer", default = "zeros" },
  { "moving_variance_initializer", "initializer", default = "ones" },
  { "beta_regularizer", "regularizer" },
  { "gamma_regularizer", "regularizer" },
  { "beta_constraint", "constraint" },
  { "gamma_constraint", "constraint" },
})

--- The end of the message of a step that would make the moving statistics infinite.
BatchNormalization.BAD_STATISTICS = "the moving statistics are not finite (NaN or infinite)"

BatchNormalization.supports_masking = true

-- The permutation that moves the channels to the last axis, and its inverse.
local function permutations(axis, rank)
  local there, back = {}, {}
  for i = 1, rank do if i ~= axis then there[#there + 1] = i end end
  there[rank] = axis
  for i, from in ipairs(there) do back[from] = i end
  return there, back
end

function BatchNormalization:build(shape)
  local axis = self.axis < 0 and self.axis + #shape + 1 or self.axis
  if #shape < 2 or axis < 2 or axis > #shape then
    self:fail("axis %d is out of range for the input %s", self.axis, self.shape_text(shape))
  end
  if axis ~= #shape then self.to_last, self.from_last = permutations(axis, #shape) end
  self.channels, self.at, self.rank = shape[axis], axis, #shape
  local function weight(name, trainable)
    return self:add_weight { name = name, shape = { self.channels }, trainable = trainable,
      initializer = self[name .. "_initializer"], regularizer = self[name .. "_regularizer"],
      constraint = self[name .. "_constraint"], autocast = false }
  end
  if self.scale then self.gamma = weight "gamma" end
  if self.center then self.beta = weight "beta" end
  self.moving_mean = weight("moving_mean", false)
  self.moving_variance = weight("moving_variance", false)
end

-- Mean and variance of the steps that count, {2, channels}, by Keras's formula.
local function masked_moments(self, x, mask)
  if self.to_last then self:fail "a masked input must have its channels in the last axis" end
  local axes = {}
  for i = 1, self.rank - 1 do axes[i] = i end
  local function row(t) return ops.reshape(t, { shape = { 1, self.channels } }) end
  local weight = masks.wide(mask, x)
  local count = ops.sum(weight) + 1e-7
  local mean = ops.sum(weight * x, { axis = axes }) / count
  local variance = ops.sum(weight * ops.square(x - mean), { axis = axes }) / count
  return ops.concat({ row(mean), row(variance) }, { axis = 1 })
end

-- The batch's mean and variance, {2, channels}. Updates the moving statistics; a jitted step fails if they would not be
-- finite. Activations in float16 may overflow in a step that the loss scale skips: then the statistics stay.
local function batch_moments(self, x)
  local mask = masks.now()
  local moments = mask and masked_moments(self, x, mask) or ops.moments(x)
  local half = self.compute_dtype == "float16"
  local function move(variable, row)
    local batch = ops.stop_gradient(moments[row])
    local value = variable * self.momentum + batch * (1 - self.momentum)
    if half then value = ops.where(ops.isfinite(value), value, variable) end
    variable:assign(value)
    return value
  end
  local moved = { move(self.moving_mean, 1), move(self.moving_variance, 2) }
  if core.tracing() and not half then
    core.guard_finite(moved, ("%s %q: %s"):format(self.class_name, self.name, BatchNormalization.BAD_STATISTICS))
  end
  return moments
end

-- The moving mean and variance, {2, channels}.
local function moving_moments(self)
  local row = { 1, self.channels }
  return ops.concat({ ops.reshape(self.moving_mean, row), ops.reshape(self.moving_variance, row) },
    { axis = 1 })
end

function BatchNormalization:output_shape(shape) -- luacheck: no self
  return shape
end

function BatchNormalization:call(x, training)
  local shape = x:shape()
  if #shape ~= self.rank or shape[self.at] ~= self.channels then
    self:fail("the input %s does not fit the layer, which was built for %s", self.shape_text(shape),
      self.shape_text(self.built_shape))
  end
  if self.to_last then x = ops.permute(x, { order = self.to_last }) end
  local moments = training and self.trainable and batch_moments(self, x) or moving_moments(self)
  local dtype = x:dtype()
  local gamma = self.gamma or ops.full({ self.channels }, 1, dtype)
  local beta = self.beta or ops.full({ self.channels }, 0, dtype)
  local y = ops.batch_norm(x, moments, gamma, beta, { epsilon = self.epsilon })
  return self.from_last and ops.permute(y, { order = self.from_last }) or y
end

return BatchNormalization
