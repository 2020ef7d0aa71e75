--- Metrics that are means of losses, with the names and options of Keras; and the root of one.
-- RETURNS the metrics by name.
local core = require "mgpu.core"
local losses = require "mgpu.nn.losses"
local Metric = require "mgpu.nn.metrics.metric"

local ops = core.ops

local M = {}

-- The metric `class`, called `name`: the mean of the loss of that class, or of `extra.loss`, with the options that
-- extra.declared lists. extra.sign -1: of minus the loss; extra.direction: default "min".
local function define(class, name, extra)
  extra = extra or {}
  local loss_class, own = extra.loss or class, {}
  for _, option in ipairs(extra.declared or {}) do own[#own + 1] = option[1] end
  return Metric.define {
    name = name,
    class = class,
    direction = extra.direction or "min",
    declared = extra.declared,
    init = function(self)
      local chosen = {}
      for _, option in ipairs(own) do chosen[option] = self.options[option] end
      self.loss = losses[loss_class](chosen)
    end,
    values = function(self, y_true, y_pred)
      local values, counted = self.loss:unreduced(y_true, y_pred)
      return extra.sign and values * extra.sign or values, counted
    end,
  }
end

local FROM_LOGITS = { "from_logits", "boolean", default = false }
local SMOOTHING = { "label_smoothing", "number", default = 0, min = 0, max = 1 }
local AXIS = { "axis", "integer", default = -1 }

-- ---- of numbers ---------------------------------------------------------------------------------

--- MeanAbsoluteError {name =}, also mean_absolute_error and mae: |y_pred - y_true|, averaged over all elements.
-- y_true and y_pred have one shape.
-- Example:
--     local mae = mgpu.metrics.MeanAbsoluteError {}
--     mae:update(mgpu.tensor { 1, 2 }, mgpu.tensor { 2, 2 }) -- one batch
--     mae:update(mgpu.tensor { 3, 4 }, mgpu.tensor { 3, 7 }) -- and another
--     print(mae:result())  --> 1
M.MeanAbsoluteError = define("MeanAbsoluteError", "mean_absolute_error")

--- MeanSquaredError {name =}, also mean_squared_error and mse: (y_pred - y_true)^2, averaged over all elements.
-- y_true and y_pred have one shape.
-- Example:
--     local mse = mgpu.metrics.MeanSquaredError {}
--     mse:update(mgpu.tensor { 1, 2, 3 }, mgpu.tensor { 1, 2, 6 })
--     print(mse:result())  --> 3
--     mse:reset()
M.MeanSquaredError = define("MeanSquaredError", "mean_squared_error")

--- RootMeanSquaredError {name =}, also root_mean_squared_error: the root of the mean of (y_pred - y_true)^2.
-- y_true and y_pred have one shape.
-- Example:
--     local rmse = mgpu.metrics.RootMeanSquaredError {}
--     rmse:update(mgpu.tensor { { 0 }, { 0 } }, mgpu.tensor { { 1 }, { 7 } })
--     print(rmse:result())  --> 5
M.RootMeanSquaredError = Metric.define {
  name = "root_mean_squared_error",
  class = "RootMeanSquaredError",
  direction = "min",
  values = function(self, y_true, y_pred)
    return ops.square(y_pred - ops.cast(self:fit(y_true, y_pred), { dtype = y_pred:dtype() }))
  end,
  result = function(self) return math.sqrt(Metric.result(self)) end,
}

--- MeanAbsolutePercentageError {name =}, also mean_absolute_percentage_error and mape: the mean of that loss.
-- Example:
--     local mape = mgpu.metrics.MeanAbsolutePercentageError {}
--     mape:update(mgpu.tensor { { 4 }, { 2 } }, mgpu.tensor { { 5 }, { 3 } })
--     print(mape:result())  --> 37.5
M.MeanAbsolutePercentageError = define("MeanAbsolutePercentageError", "mean_absolute_percentage_error")

--- MeanSquaredLogarithmicError {name =}, also mean_squared_logarithmic_error and msle: the mean of that loss.
-- Example:
--     local msle = mgpu.metrics.MeanSquaredLogarithmicError {}
--     msle:update(mgpu.tensor { { 9 } }, mgpu.tensor { { 4 } })
--     print(("%.3f"):format(msle:result()))  --> 0.480
M.MeanSquaredLogarithmicError = define("MeanSquaredLogarithmicError", "mean_squared_logarithmic_error")

--- LogCoshError {name =}, also log_cosh_error: the mean of the loss log_cosh, called "logcosh" as in Keras.
-- y_true and y_pred have one shape.
-- Example:
--     local metric = mgpu.metrics.LogCoshError {}
--     metric:update(mgpu.zeros { 2, 1 }, mgpu.tensor { { 0 }, { 100 } })
--     print(metric.name, ("%.2f"):format(metric:result()))  --> logcosh 49.65
M.LogCoshError = define("LogCoshError", "logcosh", { loss = "LogCosh" })

--- CosineSimilarity {axis = -1, name =}, also cosine_similarity: the mean cosine between y_true and y_pred along an
--- axis. The loss of that name has the other sign.
-- y_true and y_pred {rows, ..., n}. The axis cannot be 1, the batch.
-- Example:
--     local metric = mgpu.metrics.CosineSimilarity {}
--     metric:update(mgpu.tensor { { 0, 1 }, { 0, 1 } }, mgpu.tensor { { 0, 5 }, { 2, 0 } })
--     print(metric:result())  --> 0.5
M.CosineSimilarity = define("CosineSimilarity", "cosine_similarity", { sign = -1, direction = "max",
  declared = { AXIS } })

-- ---- of margins ---------------------------------------------------------------------------------

--- Hinge {name =}, also hinge: the mean of the loss hinge.
-- Example:
--     local metric = mgpu.metrics.Hinge {}
--     metric:update(mgpu.tensor { { 1 }, { -1 } }, mgpu.tensor { { 0.5 }, { 0.5 } })
--     print(metric:result())  --> 1
M.Hinge = define("Hinge", "hinge")

--- SquaredHinge {name =}, also squared_hinge: the mean of the loss squared_hinge.
-- Example:
--     local metric = mgpu.metrics.SquaredHinge {}
--     metric:update(mgpu.tensor { { 1 }, { -1 } }, mgpu.tensor { { 0.5 }, { 0.5 } })
--     print(metric:result())  --> 1.25
M.SquaredHinge = define("SquaredHinge", "squared_hinge")

--- CategoricalHinge {name =}, also categorical_hinge: the mean of the loss categorical_hinge.
-- Example:
--     local metric = mgpu.metrics.CategoricalHinge {}
--     metric:update(mgpu.tensor { { 0, 1 }, { 0, 1 } }, mgpu.tensor { { 0, 2 }, { 0.5, 1 } })
--     print(metric:result())  --> 0.25
M.CategoricalHinge = define("CategoricalHinge", "categorical_hinge")

-- ---- of probabilities ---------------------------------------------------------------------------

--- Poisson {name =}, also poisson: the mean of the loss poisson. As a name, "poisson" in compile means it too.
-- y_true and y_pred have one shape.
-- Example:
--     local metric = mgpu.metrics.Poisson {}
--     metric:update(mgpu.tensor { { 0 }, { 0 } }, mgpu.tensor { { 1 }, { 3 } })
--     print(metric:result())  --> 2
M.Poisson = define("Poisson", "poisson")

--- KLDivergence {name =}, also kl_divergence: the mean of the loss kl_divergence.
-- Example:
--     local metric = mgpu.metrics.KLDivergence {}
--     metric:update(mgpu.tensor { { 0.5, 0.5 } }, mgpu.tensor { { 0.25, 0.75 } })
--     print(("%.3f"):format(metric:result()))  --> 0.144
M.KLDivergence = define("KLDivergence", "kl_divergence")

--- BinaryCrossentropy {from_logits = false, label_smoothing = 0, name =}, also binary_crossentropy: the mean of the
--- loss of that name.
-- Example:
--     local metric = mgpu.metrics.BinaryCrossentropy { from_logits = true }
--     metric:update(mgpu.tensor { { 1 }, { 0 } }, mgpu.zeros { 2, 1 })
--     print(("%.3f"):format(metric:result()))  --> 0.693
M.BinaryCrossentropy = define("BinaryCrossentropy", "binary_crossentropy", { declared = { FROM_LOGITS, SMOOTHING } })

--- CategoricalCrossentropy {from_logits = false, label_smoothing = 0, axis = -1, name =}, also
--- categorical_crossentropy: the mean of the loss of that name.
-- Example:
--     local metric = mgpu.metrics.CategoricalCrossentropy {}
--     metric:update(mgpu.tensor { { 0, 1 } }, mgpu.tensor { { 0.5, 0.5 } })
--     print(("%.3f"):format(metric:result()))  --> 0.693
M.CategoricalCrossentropy = define("CategoricalCrossentropy", "categorical_crossentropy",
  { declared = { FROM_LOGITS, SMOOTHING, AXIS } })

--- SparseCategoricalCrossentropy {from_logits = false, ignore_class =, axis = -1, name =}, also
--- sparse_categorical_crossentropy: the mean of the loss of that name.
-- As in Keras's metric, a label that is ignored counts with the value 0 without weights, and not at all with weights.
-- Example:
--     local metric = mgpu.metrics.SparseCategoricalCrossentropy {}
--     metric:update(mgpu.tensor { 1 }, mgpu.tensor { { 0.5, 0.5 } })
--     print(("%.3f"):format(metric:result()))  --> 0.693
M.SparseCategoricalCrossentropy = define("SparseCategoricalCrossentropy", "sparse_categorical_crossentropy",
  { declared = { FROM_LOGITS, { "ignore_class", "integer" }, AXIS } })

return M
