--- Losses of margins: the right answer should score higher by 1.
-- RETURNS the losses by name.
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local M = {}

-- ---- Hinge --------------------------------------------------------------------------------------

local function signs(y_true)
  local binary = ops.all(ops.logical_or(ops.eq(y_true, 0), ops.eq(y_true, 1)))
  return ops.where(binary, y_true * 2 - 1, y_true)
end

--- Hinge {reduction =, name =}, also hinge: max(1 - y_true y_pred, 0), averaged over the last axis. Where the two are
-- equal, the gradient is that of 1 - y_true y_pred, as in Keras.
-- y_true {rows, ..., n} of -1 and 1, y_pred likewise -> {rows, ...}. If all targets are 0 or 1, they are read as
-- -1 and 1, as in Keras.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1 }, { 1 }, { -1 } }, mgpu.tensor { { 2 }, { 0.5 }, { 0.5 } }
--     print(mgpu.losses.hinge.per_sample(y_true, y_pred)) -- right with margin 1, right without it, wrong
--     --> tensor {3} float32 cpu:0
--     --> {0,   0.5, 1.5}
M.Hinge = Loss.define {
  name = "hinge",
  class = "Hinge",
  declared = {},
  values = function(y_true, y_pred)
    local margin = 1 - signs(y_true) * y_pred
    return Loss.last_mean(ops.where(ops.lt(margin, 0), 0, margin))
  end,
}

--- SquaredHinge {reduction =, name =}, also squared_hinge: max(1 - y_true y_pred, 0)^2, averaged over the last axis.
-- y_true {rows, ..., n} of -1 and 1 (or of 0 and 1, see Hinge), y_pred likewise -> {rows, ...}.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 1 }, { 1 }, { -1 } }, mgpu.tensor { { 2 }, { 0.5 }, { 0.5 } }
--     print(mgpu.losses.squared_hinge.per_sample(y_true, y_pred))
--     --> tensor {3} float32 cpu:0
--     --> {0,    0.25, 2.25}
M.SquaredHinge = Loss.define {
  name = "squared_hinge",
  class = "SquaredHinge",
  declared = {},
  values = function(y_true, y_pred)
    return Loss.last_mean(ops.square(ops.maximum(1 - signs(y_true) * y_pred, 0)))
  end,
}

--- CategoricalHinge {reduction =, name =}, also categorical_hinge: max(1 + wrong - right, 0), where right is the score
--- of the right class and wrong the largest other one.
-- y_true {rows, ..., classes} one-hot, y_pred likewise -> {rows, ...}. A wrong score below 0 counts as 0, as in Keras.
-- Example:
--     local y_true, y_pred = mgpu.tensor { { 0, 1 }, { 0, 1 } }, mgpu.tensor { { 0, 2 }, { 0.5, 1 } }
--     print(mgpu.losses.categorical_hinge.per_sample(y_true, y_pred))
--     --> tensor {2} float32 cpu:0
--     --> {0,   0.5}
M.CategoricalHinge = Loss.define {
  name = "categorical_hinge",
  class = "CategoricalHinge",
  declared = {},
  values = function(y_true, y_pred)
    local right = ops.sum(y_true * y_pred, { axis = -1 })
    local wrong = ops.max((1 - y_true) * y_pred, { axis = -1 })
    return ops.maximum(wrong - right + 1, 0)
  end,
}

return M
