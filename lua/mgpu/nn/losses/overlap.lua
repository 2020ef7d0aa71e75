--- Losses of regions: how far two sets of pixels are from covering each other.
-- RETURNS the losses by name.
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local M = {}

-- The sum over the axes of the option: a position, a list of them, or nil for all axes, the batch too.
local function total(x, options)
  local axis = options.axis
  if not axis then return ops.sum(x) end
  local axes = {}
  for i, at in ipairs(type(axis) == "table" and axis or { axis }) do
    if type(at) ~= "number" or at % 1 ~= 0 or at == 0 or math.abs(at) > x:rank() then
      core.fail("usage", ('a loss of regions: option "axis" names axis %s of predictions with %d axes'):format(
        tostring(at), x:rank()))
    end
    axes[i] = at
  end
  return ops.sum(x, { axis = axes })
end

local AXIS = { "axis", "integer|table" }

--- Dice {axis =, reduction =, name =}, also dice: 1 - 2 sum(y_true y_pred) / (sum(y_true) + sum(y_pred) + 1e-7).
-- y_true of 0 and 1 (or in 0..1), y_pred of the same shape. axis: the axes to add up, a number or a list; without it
-- all of them, so that the whole batch has one value, as in Keras. {2, 3, 4} gives one value a row of images.
-- Errors: y_true of another shape; an axis that the predictions do not have. Source: Milletari et al., V-Net, 2016.
-- Example:
--     local dice = mgpu.losses.Dice { axis = 2 }
--     local y_true, y_pred = mgpu.tensor { { 1, 1, 0 }, { 1, 0, 0 } }, mgpu.tensor { { 1, 1, 0 }, { 0, 1, 0 } }
--     print(dice.per_sample(y_true, y_pred):round())
--     --> tensor {2} float32 cpu:0
--     --> {0, 1}
M.Dice = Loss.define {
  name = "dice",
  class = "Dice",
  declared = { AXIS },
  free_axes = true,
  values = function(y_true, y_pred, options)
    local shared = total(y_true * y_pred, options)
    return 1 - shared * 2 / (total(y_true, options) + total(y_pred, options) + Loss.EPSILON)
  end,
}

--- Tversky {alpha = 0.5, beta = 0.5, axis =, reduction =, name =}, also tversky: 1 - s / (s + alpha a + beta b + 1e-7)
--- with s = sum(y_true y_pred), a = sum(y_true (1 - y_pred)), b = sum(y_pred (1 - y_true)), as in Keras.
-- y_true of 0 and 1 (or in 0..1), y_pred of the same shape. axis: see Dice.
-- Errors: y_true of another shape; an axis that the predictions do not have. Source: Salehi et al., 2017.
-- Example:
--     local tversky = mgpu.losses.Tversky { alpha = 1, beta = 0, axis = 2 } -- only what is missed counts
--     print(("%.2f"):format(tversky(mgpu.tensor { { 1, 1, 0 } }, mgpu.tensor { { 1, 0, 1 } }):item()))  --> 0.50
M.Tversky = Loss.define {
  name = "tversky",
  class = "Tversky",
  declared = { { "alpha", "number", default = 0.5 }, { "beta", "number", default = 0.5 }, AXIS },
  free_axes = true,
  values = function(y_true, y_pred, options)
    local shared = total(y_true * y_pred, options)
    local missed, extra = total((1 - y_pred) * y_true, options), total(y_pred * (1 - y_true), options)
    return 1 - shared / (shared + missed * options.alpha + extra * options.beta + Loss.EPSILON)
  end,
}

return M
