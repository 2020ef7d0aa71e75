--- Losses of numbers: distances between y_true and y_pred.
-- RETURNS the losses by name.
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local M = {}

-- ---- MeanSquaredError ---------------------------------------------------------------------------

--- MeanSquaredError {reduction =, name =}, also mean_squared_error and mse: (y_pred - y_true)^2, averaged over the
--- last axis. y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1 }, { 3 } }, mgpu.tensor { { 2 }, { 0 } }
--     print(mgpu.losses.mse(y_true, y_pred):item())  --> 5
--     print(mgpu.losses.MeanSquaredError { reduction = "sum" } (y_true, y_pred):item())  --> 10
M.MeanSquaredError = Loss.define {
  name = "mean_squared_error",
  class = "MeanSquaredError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.square(y_pred - y_true)) end,
}

-- ---- MeanAbsoluteError --------------------------------------------------------------------------

--- MeanAbsoluteError {reduction =, name =}, also mean_absolute_error and mae: |y_pred - y_true|, averaged over the
--- last axis. y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 2, 2 }, { 3, 0 } }
--     print(mgpu.losses.mae(y_true, y_pred):item())  --> 1.25
--     print(mgpu.losses.mae.per_sample(y_true, y_pred)) -- one value a row
--     --> tensor {2} float32 cpu:0
--     --> {0.5, 2}
M.MeanAbsoluteError = Loss.define {
  name = "mean_absolute_error",
  class = "MeanAbsoluteError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.abs(y_pred - y_true)) end,
}

-- ---- MeanAbsolutePercentageError ----------------------------------------------------------------

--- MeanAbsolutePercentageError {reduction =, name =}, also mean_absolute_percentage_error and mape:
--- 100 |y_true - y_pred| / max(|y_true|, 1e-7), averaged over the last axis.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     print(mgpu.losses.mape(mgpu.tensor { { 4 }, { 2 } }, mgpu.tensor { { 5 }, { 3 } }):item())  --> 37.5
M.MeanAbsolutePercentageError = Loss.define {
  name = "mean_absolute_percentage_error",
  class = "MeanAbsolutePercentageError",
  declared = {},
  values = function(y_true, y_pred)
    return Loss.last_mean(ops.abs((y_true - y_pred) / ops.maximum(ops.abs(y_true), Loss.EPSILON))) * 100
  end,
}

-- ---- MeanSquaredLogarithmicError ----------------------------------------------------------------

-- log(1 + x) of what is above 1e-7.
local function log_of(x) return ops.log(ops.maximum(x, Loss.EPSILON) + 1) end

--- MeanSquaredLogarithmicError {reduction =, name =}, also mean_squared_logarithmic_error and msle:
--- (log(1 + y_pred) - log(1 + y_true))^2, averaged over the last axis; what is below 1e-7 counts as 1e-7.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     -- log 2 squared
--     print(("%.3f"):format(mgpu.losses.msle(mgpu.tensor { { 9 } }, mgpu.tensor { { 4 } }):item()))  --> 0.480
M.MeanSquaredLogarithmicError = Loss.define {
  name = "mean_squared_logarithmic_error",
  class = "MeanSquaredLogarithmicError",
  declared = {},
  values = function(y_true, y_pred) return Loss.last_mean(ops.square(log_of(y_pred) - log_of(y_true))) end,
}

-- ---- Huber --------------------------------------------------------------------------------------

--- Huber {delta = 1, reduction =, name =}, also huber: averaged over the last axis, with e = y_pred - y_true,
--- e^2 / 2 where |e| <= delta, delta |e| - delta^2 / 2 elsewhere.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}. Source: Huber, Robust estimation of a location parameter, 1964.
-- Example:
--     local huber = mgpu.losses.Huber { delta = 1 }
--     print(huber.per_sample(mgpu.zeros { 3, 1 }, mgpu.tensor { { 0.5 }, { 1 }, { 10 } })) -- quadratic, then linear
--     --> tensor {3} float32 cpu:0
--     --> {0.125, 0.5,   9.5}
M.Huber = Loss.define {
  name = "huber",
  class = "Huber",
  declared = { { "delta", "number", default = 1, min = 0 } },
  values = function(y_true, y_pred, options)
    local delta, size = options.delta, ops.abs(y_pred - y_true)
    local small = ops.square(size) * 0.5
    return Loss.last_mean(ops.where(ops.le(size, delta), small, size * delta - 0.5 * delta * delta))
  end,
}

-- ---- LogCosh ------------------------------------------------------------------------------------

--- LogCosh {reduction =, name =}, also log_cosh and logcosh: log(cosh(y_pred - y_true)), averaged over the last axis.
--- It is e^2 / 2 for a small difference e, and |e| - log 2 for a large one.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}.
-- Example:
--     local y_pred = mgpu.tensor { { 0 }, { 1000 } } -- cosh(1000) would be infinite
--     print(mgpu.losses.log_cosh.per_sample(mgpu.zeros { 2, 1 }, y_pred):round())
--     --> tensor {2} float32 cpu:0
--     --> {  0, 999}
M.LogCosh = Loss.define {
  name = "log_cosh",
  class = "LogCosh",
  declared = {},
  values = function(y_true, y_pred)
    local e = y_pred - y_true
    return Loss.last_mean(e + ops.softplus(e * -2) - math.log(2))
  end,
}

-- ---- Poisson ------------------------------------------------------------------------------------

--- Poisson {reduction =, name =}, also poisson: y_pred - y_true log(y_pred + 1e-7), averaged over the last axis.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}; y_pred is the mean of a count, at least 0.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 0 }, { 2 } }, mgpu.tensor { { 1 }, { 1 } }
--     print(mgpu.losses.poisson.per_sample(y_true, y_pred):round())
--     --> tensor {2} float32 cpu:0
--     --> {1, 1}
M.Poisson = Loss.define {
  name = "poisson",
  class = "Poisson",
  declared = {},
  values = function(y_true, y_pred)
    return Loss.last_mean(y_pred - y_true * ops.log(y_pred + Loss.EPSILON))
  end,
}

-- ---- CosineSimilarity ---------------------------------------------------------------------------

-- x / |x|, as Keras bounds it: x * min(1 / |x|, 1e7).
local function unit(x, axis)
  return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), { axis = axis, keepdims = true }), 1e-14))
end

--- CosineSimilarity {axis = -1, reduction =, name =}, also cosine_similarity: minus the cosine between y_true and
--- y_pred along an axis, -1 where they have the same direction, 1 where the opposite one.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}. The axis cannot be 1, the batch. Formula of Keras.
-- Example:
--     local up, others = mgpu.tensor { { 0, 1 }, { 0, 1 }, { 0, 1 } }, mgpu.tensor { { 0, 5 }, { 2, 0 }, { 0, -1 } }
--     print(mgpu.losses.cosine_similarity.per_sample(up, others))
--     --> tensor {3} float32 cpu:0
--     --> {-1,  0,  1}
M.CosineSimilarity = Loss.define {
  name = "cosine_similarity",
  class = "CosineSimilarity",
  declared = { { "axis", "integer", default = -1 } },
  values = function(y_true, y_pred, options)
    local axis = options.axis
    return -ops.sum(unit(y_true, axis) * unit(y_pred, axis), { axis = axis })
  end,
}

return M
