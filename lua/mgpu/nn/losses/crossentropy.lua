--- Losses of probabilities: cross-entropies and the Kullback-Leibler divergence.
-- RETURNS the losses by name.
local axis_last = require "mgpu.nn.losses.shapes".axis_last
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local M = {}

-- The logits behind probabilities: the input of `activation` ("softmax" over the axis, or "sigmoid") if that op made
-- y_pred; else nil. log(softmax(x)) is -inf for a probability that was rounded to 0, but exact if computed from x; so
-- the cross-entropies use clipped probabilities only if there are no logits. A cast after the op, as losses do for
-- float16, is applied to the input instead.
local function logits_of(y_pred, activation, axis)
  local made = y_pred
  if core.producer(made) == "cast" then made = core.producer_input(made, 1) end
  local made_by, over = core.producer(made)
  if made_by ~= activation or (over and over ~= axis) then return nil end
  local logits = core.producer_input(made, 1)
  if logits:dtype() == y_pred:dtype() then return logits end
  return ops.cast(logits, { dtype = y_pred:dtype() })
end

-- ---- BinaryCrossentropy -------------------------------------------------------------------------

local last_mean = Loss.last_mean

local function clipped_inside(p) return ops.minimum(ops.maximum(p, Loss.EPSILON), 1 - Loss.EPSILON) end

-- The cross-entropy of each element, and the probability that it is computed from.
local function binary_values(y_true, y_pred, from_logits)
  local logits = from_logits and y_pred or logits_of(y_pred, "sigmoid")
  -- -y log s(x) - (1-y) log(1 - s(x)) = softplus(x) - x y
  if logits then return ops.softplus(logits) - logits * y_true, from_logits and ops.sigmoid(logits) or y_pred end
  local p = clipped_inside(y_pred)
  return -(y_true * ops.log(p) + (1 - y_true) * ops.log(1 - p)), y_pred
end

-- Targets mixed with the even distribution over `classes`.
local function smoothed(y_true, smoothing, classes)
  return smoothing > 0 and y_true * (1 - smoothing) + smoothing / classes or y_true
end

--- BinaryCrossentropy {from_logits = false, label_smoothing = 0, axis = -1, reduction =, name =}, also
--- binary_crossentropy and bce: -y log p - (1 - y) log(1 - p), averaged over an axis.
-- y_true {rows, ..., n} in 0..1, y_pred likewise -> one value per row and further axis. The axis cannot be 1, the
-- batch. label_smoothing s: y (1 - s) + s / 2 takes the place of y.
-- If y_pred comes from a sigmoid, the loss is computed from its logits; otherwise y_pred is clipped to
-- [1e-7, 1 - 1e-7], as in Keras. Errors: y_true of another shape.
-- Example:
--     local bce = mgpu.losses.BinaryCrossentropy {}
--     local labels, sure = mgpu.tensor { { 1 }, { 0 } }, mgpu.tensor { { 0.99 }, { 0.01 } }
--     print(("%.2f"):format(bce(labels, sure):item()))  --> 0.01
--     -- log 2: no better than guessing
--     print(("%.2f"):format(bce(labels, mgpu.full({ 2, 1 }, 0.5)):item()))  --> 0.69
M.BinaryCrossentropy = Loss.define {
  name = "binary_crossentropy",
  class = "BinaryCrossentropy",
  declared = {
    { "from_logits", "boolean", default = false },
    { "label_smoothing", "number", default = 0, min = 0, max = 1 },
    { "axis", "integer", default = -1 },
  },
  values = function(y_true, y_pred, options)
    y_true = smoothed(y_true, options.label_smoothing, 2)
    return last_mean((binary_values(y_true, y_pred, options.from_logits)), options.axis)
  end,
}

-- ---- BinaryFocalCrossentropy --------------------------------------------------------------------

--- BinaryFocalCrossentropy {gamma = 2, apply_class_balancing = false, alpha = 0.25, from_logits = false,
--- label_smoothing = 0, axis = -1, reduction =, name =}, also binary_focal_crossentropy: the binary cross-entropy of
--- each element times (1 - p_t)^gamma, averaged over an axis.
-- p_t is the probability that y_pred gives to the right answer, so what is easy counts less. y_true {rows, ..., n} in
-- 0..1, y_pred likewise -> one value per row and further axis. apply_class_balancing multiplies by alpha where y_true
-- is 1, by 1 - alpha where it is 0. Source: Lin et al., Focal loss for dense object detection, 2017.
-- Example:
--     local focal = mgpu.losses.BinaryFocalCrossentropy { gamma = 2 }
--     local easy, hard = mgpu.tensor { { 0.9 } }, mgpu.tensor { { 0.1 } }
--     local y = mgpu.tensor { { 1 } }
--     print(("%.4f %.4f"):format(focal(y, easy):item(), focal(y, hard):item()))  --> 0.0011 1.8651
M.BinaryFocalCrossentropy = Loss.define {
  name = "binary_focal_crossentropy",
  class = "BinaryFocalCrossentropy",
  declared = {
    { "apply_class_balancing", "boolean", default = false },
    { "alpha", "number", default = 0.25, min = 0, max = 1 },
    { "gamma", "number", default = 2, min = 0 },
    { "from_logits", "boolean", default = false },
    { "label_smoothing", "number", default = 0, min = 0, max = 1 },
    { "axis", "integer", default = -1 },
  },
  values = function(y_true, y_pred, options)
    y_true = smoothed(y_true, options.label_smoothing, 2)
    local values, p = binary_values(y_true, y_pred, options.from_logits)
    local right = y_true * p + (1 - y_true) * (1 - p)
    values = ops.pow(1 - right, options.gamma) * values
    if options.apply_class_balancing then
      values = values * (y_true * options.alpha + (1 - y_true) * (1 - options.alpha))
    end
    return last_mean(values, options.axis)
  end,
}

-- ---- CategoricalCrossentropy --------------------------------------------------------------------

--- CategoricalCrossentropy {from_logits = false, label_smoothing = 0, axis = -1, reduction =, name =}, also
--- categorical_crossentropy: -sum of y log p over the classes.
-- y_true {rows, ..., classes} one-hot or probabilities, y_pred {rows, ..., classes} -> {rows, ...}.
-- label_smoothing s: y (1 - s) + s / classes takes the place of y.
-- If y_pred comes from a softmax, the loss is computed from its logits; otherwise y_pred is normalised and clipped
-- to [1e-7, 1 - 1e-7], as in Keras. Errors: y_true of another shape (for class ids the message names the remedy).
-- Example:
--     local y_true = mgpu.one_hot(mgpu.tensor { 2, 0 }, 3)
--     local y_pred = mgpu.tensor { { 0.1, 0.1, 0.8 }, { 0.5, 0.25, 0.25 } }
--     local loss = mgpu.losses.categorical_crossentropy
--     -- the mean of -log 0.8 and -log 0.5
--     print(("%.3f"):format(loss(y_true, y_pred):item()))  --> 0.458
M.CategoricalCrossentropy = Loss.define {
  name = "categorical_crossentropy",
  class = "CategoricalCrossentropy",
  declared = {
    { "from_logits", "boolean", default = false },
    { "label_smoothing", "number", default = 0, min = 0, max = 1 },
    { "axis", "integer", default = -1 },
  },
  values = function(y_true, y_pred, options)
    local axis = options.axis
    y_true = smoothed(y_true, options.label_smoothing, y_pred:shape()[axis])
    local logits = options.from_logits and y_pred or logits_of(y_pred, "softmax", axis)
    if logits then return ops.softmax_cross_entropy(axis_last(logits, axis), axis_last(y_true, axis)) end
    local p = y_pred / ops.sum(y_pred, { axis = axis, keepdims = true })
    return -ops.sum(y_true * ops.log(clipped_inside(p)), { axis = axis })
  end,
}

-- ---- CategoricalFocalCrossentropy ---------------------------------------------------------------

--- CategoricalFocalCrossentropy {alpha = 0.25, gamma = 2, from_logits = false, label_smoothing = 0, axis = -1,
--- reduction =, name =}, also categorical_focal_crossentropy: -sum of alpha (1 - p)^gamma y log p over the classes.
-- y_true {rows, ..., classes} one-hot or probabilities, y_pred {rows, ..., classes} -> {rows, ...}. alpha: a number,
-- or a list with one for each class. y_pred is normalised and clipped to [1e-7, 1 - 1e-7], as in Keras.
-- Errors: y_true of another shape; a list alpha of another length. Source: Lin et al., 2017.
-- Example:
--     local focal = mgpu.losses.CategoricalFocalCrossentropy { alpha = { 1, 0.5, 0.5 } }
--     local y, p = mgpu.tensor { { 1, 0, 0 } }, mgpu.tensor { { 0.5, 0.25, 0.25 } }
--     -- 0.5^2 log 2
--     print(("%.4f"):format(focal(y, p):item()))  --> 0.1733
M.CategoricalFocalCrossentropy = Loss.define {
  name = "categorical_focal_crossentropy",
  class = "CategoricalFocalCrossentropy",
  declared = {
    { "alpha", "number|table", default = 0.25 },
    { "gamma", "number", default = 2, min = 0 },
    { "from_logits", "boolean", default = false },
    { "label_smoothing", "number", default = 0, min = 0, max = 1 },
    { "axis", "integer", default = -1 },
  },
  values = function(y_true, y_pred, options)
    local axis, alpha = options.axis, options.alpha
    local classes = y_pred:shape()[axis]
    y_true = smoothed(y_true, options.label_smoothing, classes)
    local p = options.from_logits and ops.softmax(y_pred, { axis = axis })
      or y_pred / ops.sum(y_pred, { axis = axis, keepdims = true })
    p = clipped_inside(p)
    if type(alpha) == "table" then
      if #alpha ~= classes then
        core.fail("usage", ('categorical_focal_crossentropy: option "alpha" has %d numbers for %d classes'):format(
          #alpha, classes))
      end
      local wide = {}
      for i = 1, y_pred:rank() do wide[i] = i == axis and classes or 1 end
      alpha = core.tensor(alpha, { dtype = y_pred:dtype() }):to(y_pred:device()):reshape(wide)
    end
    return ops.sum(ops.pow(1 - p, options.gamma) * alpha * (-y_true * ops.log(p)), { axis = axis })
  end,
}

-- ---- SparseCategoricalCrossentropy --------------------------------------------------------------

local function logits_for(y_pred, from_logits, axis)
  local logits = from_logits and y_pred or logits_of(y_pred, "softmax", axis)
  return logits or ops.log(clipped_inside(y_pred))
end

-- Raises, when the step runs, unless all labels are class ids.
local function guard_labels(name, y_true, classes)
  local good = ops.logical_and(ops.ge(y_true, 0), ops.lt(y_true, classes))
  if y_true:dtype():find "float" then good = ops.logical_and(good, ops.eq(y_true, ops.floor(y_true))) end
  core.guard(ops.all(good), "data", ("%s: a label is not in 0 .. %d"):format(name, classes - 1))
end

--- SparseCategoricalCrossentropy {from_logits = false, ignore_class =, axis = -1, reduction =, name =}, also
--- sparse_categorical_crossentropy: -log p of the class that the label names.
-- y_true {rows, ...} of class ids 0 .. classes - 1, y_pred {rows, ..., classes} -> {rows, ...}. `axis` is the one of
-- the classes in y_pred. Samples labelled ignore_class (any id) have loss 0 and do not count in a mean.
-- If y_pred comes from a softmax, the loss is computed from its logits; otherwise it is clipped to
-- [1e-7, 1 - 1e-7], as in Keras. Errors: y_true of another shape; a label out of range, found when the step runs.
-- Example:
--     local labels, logits = mgpu.tensor { 2, 0 }, mgpu.tensor { { 0, 0, 9 }, { 0, 0, 0 } }
--     local loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true }
--     -- the mean of 0 and log 3
--     print(("%.3f"):format(loss(labels, logits):item()))  --> 0.549
M.SparseCategoricalCrossentropy = Loss.define {
  name = "sparse_categorical_crossentropy",
  class = "SparseCategoricalCrossentropy",
  declared = {
    { "from_logits", "boolean", default = false },
    { "ignore_class", "integer" },
    { "axis", "integer", default = -1 },
  },
  labels = true,
  values = function(y_true, y_pred, options)
    local axis, counted = options.axis, nil
    local classes = y_pred:shape()[axis]
    if options.ignore_class then
      counted = ops.ne(y_true, options.ignore_class)
      y_true = Loss.counted_labels({ options = options }, y_true)
    end
    guard_labels("sparse_categorical_crossentropy", y_true, classes)
    local logits = axis_last(logits_for(y_pred, options.from_logits, axis), axis)
    local values = ops.sparse_softmax_cross_entropy(logits, ops.cast(y_true, { dtype = "int32" }))
    return counted and ops.where(counted, values, 0) or values, counted
  end,
}

-- ---- CategoricalGeneralizedCrossEntropy ---------------------------------------------------------

--- CategoricalGeneralizedCrossEntropy {q = 0.5, reduction =, name =}, also categorical_generalized_cross_entropy:
--- (1 - p^q) / q, where p is the probability of the class that the label names. It bears wrong labels better than the
--- cross-entropy, to which it tends for q -> 0.
-- y_true {rows, ...} of class ids, y_pred {rows, ..., classes} probabilities -> {rows, ...}. 0 < q < 1.
-- Errors: y_true of another shape; a label out of range. Source: Zhang & Sabuncu, Generalized cross entropy loss, 2018.
-- Example:
--     local loss = mgpu.losses.CategoricalGeneralizedCrossEntropy { q = 0.5 }
--     print(loss(mgpu.tensor { 1 }, mgpu.tensor { { 0.75, 0.25 } }):item())  --> 1
M.CategoricalGeneralizedCrossEntropy = Loss.define {
  name = "categorical_generalized_cross_entropy",
  class = "CategoricalGeneralizedCrossEntropy",
  declared = { { "q", "number", default = 0.5, above = 0, below = 1 } },
  labels = true,
  values = function(y_true, y_pred, options)
    local shape = y_pred:shape()
    local classes = shape[#shape]
    guard_labels("categorical_generalized_cross_entropy", y_true, classes)
    shape[#shape] = 1
    local ids = ops.reshape(ops.cast(y_true, { dtype = "int32" }), { shape = shape })
    local p = ops.sum(ops.take_along_axis(y_pred, ids, { axis = -1 }), { axis = -1 })
    return (1 - ops.pow(p, options.q)) / options.q
  end,
}

-- ---- KLDivergence -------------------------------------------------------------------------------

local function clipped(p) return ops.minimum(ops.maximum(p, Loss.EPSILON), 1) end

--- KLDivergence {reduction =, name =}, also kl_divergence and kld: sum of y_true log(y_true / y_pred) over the last
--- axis, with both clipped to [1e-7, 1], as in Keras.
-- y_true and y_pred {rows, ..., n}, probabilities -> {rows, ...}.
-- Example:
--     local p, q = mgpu.tensor { { 0.5, 0.5 } }, mgpu.tensor { { 0.25, 0.75 } }
--     print(("%.3f %.3f"):format(mgpu.losses.kld(p, q):item(), mgpu.losses.kld(p, p):item()))  --> 0.144 0.000
M.KLDivergence = Loss.define {
  name = "kl_divergence",
  class = "KLDivergence",
  declared = {},
  values = function(y_true, y_pred)
    y_true, y_pred = clipped(y_true), clipped(y_pred)
    return ops.sum(y_true * ops.log(y_true / y_pred), { axis = -1 })
  end,
}

return M
