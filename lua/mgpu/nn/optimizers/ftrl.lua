--- Ftrl {learning_rate = 0.001, learning_rate_power = -0.5, initial_accumulator_value = 0.1,
--- l1_regularization_strength = 0, l2_regularization_strength = 0, l2_shrinkage_regularization_strength = 0, beta = 0,
--- ...}: follow the regularized leader, whose weights become exactly 0 with L1.
--
--     a' = a + g^2;  p = -learning_rate_power
--     z <- z + g + 2 l2_shrinkage v - (a'^p - a^p) / rate v;  a <- a'
--     v <- (clip(z, -l1, l1) - z) / (a^p / rate + 2 (l2 + beta / (2 rate)))
-- Options of all optimizers: optimizer.lua. Source: McMahan et al., Ad click prediction, 2013; Keras.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 1 })
--     local opt = mgpu.optimizers.Ftrl { learning_rate = 1, l1_regularization_strength = 10 }
--     opt:apply({ mgpu.tensor { 0.5 } }, { v })
--     print(v:value():item())  --> 0
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local Ftrl = Optimizer.define {
  class = "Ftrl",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "learning_rate_power", "number", default = -0.5, max = 0 },
    { "initial_accumulator_value", "number", default = 0.1, min = 0 },
    { "l1_regularization_strength", "number", default = 0, min = 0 },
    { "l2_regularization_strength", "number", default = 0, min = 0 },
    { "l2_shrinkage_regularization_strength", "number", default = 0, min = 0 },
    { "beta", "number", default = 0 },
  },
}

function Ftrl.slot_names() return { "accumulator", "linear" } end

function Ftrl:slot_start(name) return name == "accumulator" and self.options.initial_accumulator_value or 0 end

function Ftrl:update(v, g, slots, now)
  local chosen = self.options
  local power, l1 = -chosen.learning_rate_power, chosen.l1_regularization_strength
  local before = slots.accumulator:value()
  local after = before + ops.square(g)
  local grown = ops.pow(after, power)
  local linear = slots.linear:value() + g + v * (2 * chosen.l2_shrinkage_regularization_strength)
    - (grown - ops.pow(before, power)) / now.rate * v
  slots.accumulator:assign(after)
  slots.linear:assign(linear)
  local quadratic = (grown + chosen.beta) / now.rate + 2 * chosen.l2_regularization_strength
  return v - (ops.minimum(ops.maximum(linear, -l1), l1) - linear) / quadratic
end

return Ftrl
