--- Normalization of batches and of rows, with learned scales and offsets.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local initializers = require "mgpu.nn.initializers"
local is_half = require "mgpu.nn.mixed_precision".is_half
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

local ops = core.ops

local M = {}

-- ---- BatchNormalization -------------------------------------------------------------------------

--- BatchNormalization {axis = -1, momentum = 0.99, epsilon = 1e-3, center = true, scale = true, ...}
-- x {batch, ...} -> the same shape. Statistics are taken over all axes but `axis` (the channels; not 1, the batch).
-- Training:  y = gamma (x - mean) / sqrt(variance + epsilon) + beta with mean and (biased) variance of the batch,
--            and moving = moving * momentum + batch * (1 - momentum).
-- Inference, or trainable = false: the same with the moving statistics.
-- Options: beta_initializer = "zeros", gamma_initializer = "ones", moving_mean_initializer = "zeros",
-- moving_variance_initializer = "ones", beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint.
-- Weights {channels}: gamma, beta, moving_mean, moving_variance. With float16 or bfloat16 x all but x and y is
-- computed in float32. synchronized is accepted and changes nothing: statistics are those of the whole batch, on any
-- number of devices. renorm: training uses r * (x - mean) / sqrt(variance + epsilon) + d in place of the normalized x,
-- with r = deviation / renorm_stddev and d = (mean - renorm_mean) / renorm_stddev, which renorm_clipping limits ({rmin
-- =, rmax =, dmax =}) and no gradient passes; the weights moving_stddev, renorm_mean and renorm_stddev, the last two
-- moved by renorm_momentum = 0.99, come after the others. Errors: an axis that x lacks; an x with another number of
-- channels than at the first call.
-- Source: Ioffe & Szegedy, Batch normalization, 2015; Ioffe, Batch renormalization, 2017;
-- formulas of Keras.
-- Example:
--     local bn = L.BatchNormalization {}
--     local y = bn(mgpu.tensor { { 1 }, { 3 } }, { training = true }) -- mean 2, variance 1
--     print(y:round())
--     --> tensor {2, 1} float32 cpu:0
--     --> {{-1},
--     -->  { 1}}
--     -- the moving mean has gone 1 % of the way from 0 to 2
--     print(("%.2f"):format(bn.moving_mean:value():item()))  --> 0.02
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
  { "synchronized", "boolean", default = false },
  { "renorm", "boolean", default = false },
  { "renorm_clipping", "table" },
  { "renorm_momentum", "number", default = 0.99, min = 0, max = 1 },
})

--- The end of the message of a step that would make the moving statistics infinite.
BatchNormalization.BAD_STATISTICS = "the moving statistics are not finite (NaN or infinite)"

BatchNormalization.supports_masking = true

local CLIPPING = { rmin = true, rmax = true, dmax = true }

function BatchNormalization:init()
  local clipping = self.renorm_clipping or {}
  for key, value in pairs(clipping) do
    if not CLIPPING[key] or type(value) ~= "number" then
      self:fail("renorm_clipping has the entry %s, which is none of the numbers rmin, rmax and dmax", tostring(key))
    end
  end
  if clipping.rmin and clipping.rmax and clipping.rmax < clipping.rmin then
    self:fail("renorm_clipping: rmax = %g is below rmin = %g", clipping.rmax, clipping.rmin)
  elseif (clipping.dmax or 0) < 0 then
    self:fail("renorm_clipping: dmax = %g is below 0", clipping.dmax)
  end
end

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
  local function weight(name, trainable, initializer)
    return self:add_weight { name = name, shape = { self.channels }, trainable = trainable,
      initializer = initializer or self[name .. "_initializer"], regularizer = self[name .. "_regularizer"],
      constraint = self[name .. "_constraint"], autocast = false }
  end
  if self.scale then self.gamma = weight "gamma" end
  if self.center then self.beta = weight "beta" end
  self.moving_mean = weight("moving_mean", false)
  self.moving_variance = weight("moving_variance", false)
  if not self.renorm then return end
  local variance = initializers.get(self.moving_variance_initializer)
  local function deviation(...) return ops.sqrt(variance(...)) end
  self.moving_stddev = weight("moving_stddev", false, deviation)
  self.renorm_mean = weight("renorm_mean", false, self.moving_mean_initializer)
  self.renorm_stddev = weight("renorm_stddev", false, deviation)
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

-- What batch renormalization makes of the batch's moments: the factors for gamma and beta, and the new values of the
-- moving statistics by name.
local function renormalized(self, moments)
  local mean, stddev = ops.stop_gradient(moments[1]), ops.sqrt(ops.stop_gradient(moments[2]) + self.epsilon)
  local scale, clipping = ops.maximum(self.renorm_stddev, math.sqrt(self.epsilon)), self.renorm_clipping or {}
  local r, d = stddev / scale, (mean - self.renorm_mean) / scale
  if clipping.rmin then r = ops.maximum(r, clipping.rmin) end
  if clipping.rmax then r = ops.minimum(r, clipping.rmax) end
  if clipping.dmax then d = ops.maximum(ops.minimum(d, clipping.dmax), -clipping.dmax) end
  local function moved(name, value, momentum) return self[name] * momentum + value * (1 - momentum) end
  local moving = moved("moving_stddev", stddev, self.momentum)
  return r, d, { renorm_mean = moved("renorm_mean", mean, self.renorm_momentum),
    renorm_stddev = moved("renorm_stddev", stddev, self.renorm_momentum),
    moving_mean = moved("moving_mean", mean, self.momentum), moving_stddev = moving,
    moving_variance = ops.relu(ops.square(moving) - self.epsilon) }
end

-- Gives the moving statistics their new values, by name; a jitted step fails if these would not be finite. Activations
-- in float16 may overflow in a step that the loss scale skips: then the statistics stay.
local function move(self, values)
  local half, moved = self.compute_dtype == "float16", {}
  for _, name in ipairs { "moving_mean", "moving_variance", "moving_stddev", "renorm_mean", "renorm_stddev" } do
    local value, variable = values[name], self[name]
    if value then
      if half then value = ops.where(ops.isfinite(value), value, variable) end
      variable:assign(value)
      moved[#moved + 1] = value
    end
  end
  if core.tracing() and not half then
    core.guard_finite(moved, ("%s %q: %s"):format(self.class_name, self.name, BatchNormalization.BAD_STATISTICS))
  end
end

-- The batch's mean and variance, {2, channels}, and the factors of renormalization, if the layer has it. Updates the
-- moving statistics.
local function batch_moments(self, x)
  local mask = masks.now()
  local moments = mask and masked_moments(self, x, mask) or ops.moments(x)
  if self.renorm then
    local r, d, values = renormalized(self, moments)
    move(self, values)
    return moments, r, d
  end
  local function moved(variable, row)
    return variable * self.momentum + ops.stop_gradient(moments[row]) * (1 - self.momentum)
  end
  move(self, { moving_mean = moved(self.moving_mean, 1), moving_variance = moved(self.moving_variance, 2) })
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
  local moments, r, d
  if training and self.trainable then moments, r, d = batch_moments(self, x) else moments = moving_moments(self) end
  local dtype = x:dtype()
  local gamma = self.gamma or ops.full({ self.channels }, 1, dtype)
  local beta = self.beta or ops.full({ self.channels }, 0, dtype)
  if r then gamma, beta = r * gamma, d * gamma + beta end
  local y = ops.batch_norm(x, moments, gamma, beta, { epsilon = self.epsilon })
  return self.from_last and ops.permute(y, { order = self.from_last }) or y
end

M.BatchNormalization = BatchNormalization

-- ---- LayerNormalization -------------------------------------------------------------------------

--- LayerNormalization {axis = -1, epsilon = 1e-3, center = true, scale = true, rms_scaling = false, ...}
-- x {batch, ...} -> the same shape: y = gamma (x - mean) / sqrt(variance + epsilon) + beta with mean and variance of
-- each sample over the axes (one, or a list; 2 = the first after the batch, -1 = last).
-- Weights gamma and beta have the sizes of these axes, sorted as they are given, negative ones first. They apply in the
-- order of the axes of x, as in Keras: with axis = {2, -1} they are {last, first}, and are read as {first, last}.
-- rms_scaling: y = gamma x / sqrt(variance + epsilon), whatever center and scale say. Keras computes this under that
-- name, although it is not a root mean square: the variance is taken about the mean, not about 0.
-- Options: beta_initializer = "zeros", gamma_initializer = "ones", beta_regularizer, gamma_regularizer,
-- beta_constraint, gamma_constraint. With float16 or bfloat16 x all but x and y is computed in float32. Errors: an
-- axis out of range or given twice. Source: Ba, Kiros & Hinton, Layer normalization, 2016; formulas of Keras.
-- Example:
--     local y = L.LayerNormalization {} (mgpu.tensor { { 1, 2, 3 }, { 10, 20, 30 } })
--     print((y * 10):round()) -- each row has mean 0 and variance 1
--     --> tensor {2, 3} float32 cpu:0
--     --> {{-12,   0,  12},
--     -->  {-12,   0,  12}}
local LayerNormalization = Layer:extend("LayerNormalization", kernels.weight_options({ positional = 0,
  { "axis", "integer|integers", default = -1 },
  { "epsilon", "number", default = 1e-3, min = 0 },
  { "center", "boolean", default = true },
  { "scale", "boolean", default = true },
  { "rms_scaling", "boolean", default = false },
}, { { "beta", "zeros" }, { "gamma", "ones" } }))

LayerNormalization.supports_masking = true
LayerNormalization.autocast = false -- as in Keras: weights are read as they are, and the result is cast

-- The option axis as positions from 1, in rising order; and in the order of the weights' sizes.
local function axes_of(self, shape)
  local axes, seen, given = {}, {}, type(self.axis) == "table" and { unpack(self.axis) } or { self.axis }
  table.sort(given)
  for _, axis in ipairs(given) do
    local at = axis < 0 and axis + #shape + 1 or axis
    if at < 2 or at > #shape then
      self:fail("axis %d is out of range for the input %s (the batch is 1)", axis, self.shape_text(shape))
    end
    if seen[at] then self:fail("axis %d is given twice", axis) end
    seen[at] = true
    axes[#axes + 1] = at
  end
  if #axes == 0 then self:fail "axis is an empty list" end
  local stored = { unpack(axes) }
  table.sort(axes)
  return axes, stored
end

function LayerNormalization:build(shape)
  local axes, stored = axes_of(self, shape)
  local sizes, stored_sizes = {}, {}
  for i, at in ipairs(axes) do sizes[i], stored_sizes[i] = shape[at], shape[stored[i]] end
  local function weight(name)
    return self:add_weight { name = name, shape = stored_sizes, initializer = self[name .. "_initializer"],
      regularizer = self[name .. "_regularizer"], constraint = self[name .. "_constraint"] }
  end
  if self.scale or self.rms_scaling then self.gamma = weight "gamma" end
  if self.center and not self.rms_scaling then self.beta = weight "beta" end
  self.axes, self.sizes, self.rank = axes, sizes, #shape
end

-- The shape in which gamma and beta broadcast against x.
local function broadcast_sizes(self)
  local wide = {}
  for i = 1, self.rank do wide[i] = 1 end
  for i, at in ipairs(self.axes) do wide[at] = self.sizes[i] end
  return wide
end

local function check_input(self, x)
  local shape = x:shape()
  local fits = #shape == self.rank
  for i, at in ipairs(self.axes) do
    fits = fits and (shape[at] == self.sizes[i] or self.sizes[i] == -1)
  end
  if not fits then
    self:fail("the input %s does not fit the layer, which was built for %s", self.shape_text(shape),
      self.shape_text(self.built_shape))
  end
  return shape
end

function LayerNormalization:output_shape(shape) return shape end -- luacheck: no self

-- Over the last axes, reshaped to one: a single op.
local function normalize_rows(self, x, shape, count)
  local rows, dtype = {}, x:dtype()
  for i = 1, self.rank - #self.axes do rows[i] = shape[i] end
  rows[#rows + 1] = count
  local function flat(v, instead)
    return v and ops.reshape(v, { shape = { count } }) or ops.full({ count }, instead, dtype)
  end
  local y = ops.layer_norm(ops.reshape(x, { shape = rows }), flat(self.gamma, 1), flat(self.beta, 0),
    { epsilon = self.epsilon })
  return ops.reshape(y, { shape = shape })
end

-- Over any axes, by several ops, in float32 at least.
local function normalize_axes(self, x, count)
  local over = { axis = self.axes, keepdims = true }
  if is_half(x) then x = ops.cast(x, { dtype = "float32" }) end
  local centered = x - ops.sum(x, over) / count
  local variance = ops.sum(ops.square(centered), over) / count
  local y = (self.rms_scaling and x or centered) * ops.rsqrt(variance + self.epsilon)
  local wide = broadcast_sizes(self)
  local function placed(v) return ops.reshape(v, { shape = wide }) end
  if self.gamma then y = y * placed(self.gamma) end
  return self.beta and y + placed(self.beta) or y
end

function LayerNormalization:call(x)
  local shape, count, dtype = check_input(self, x), 1, self.compute_dtype
  for _, axis in ipairs(self.axes) do count = count * shape[axis] end
  local last = self.axes[1] == self.rank - #self.axes + 1
  local y
  if last and not self.rms_scaling then
    y = normalize_rows(self, x, shape, count)
  else
    y = normalize_axes(self, x, count)
  end
  return y:dtype() == dtype and y or ops.cast(y, { dtype = dtype })
end

M.LayerNormalization = LayerNormalization

return M
