--- Adagrad {learning_rate = 0.001, initial_accumulator_value = 0.1, epsilon = 1e-7, ...}: the gradient divided by the
--- root of the sum of its squares so far.
--
--     a <- a + g^2                                a starts at initial_accumulator_value
--     v <- v - rate g / sqrt(a + epsilon)
-- Options of all optimizers: optimizer.lua. Source: Duchi, Hazan & Singer, Adaptive subgradient methods, 2011.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 0 })
--     local opt = mgpu.optimizers.Adagrad { learning_rate = 1, initial_accumulator_value = 0 }
--     for _ = 1, 4 do
--       opt:apply({ mgpu.tensor { 1 } }, { v }) -- steps of 1, 1 / sqrt(2), 1 / sqrt(3), 1 / 2
--       print(("%.2f"):format(v:value():item()))
--     end
--     --> -1.00
--     --> -1.71
--     --> -2.28
--     --> -2.78
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local Adagrad = Optimizer.define {
  class = "Adagrad",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "initial_accumulator_value", "number", default = 0.1, min = 0 },
    { "epsilon", "number", default = 1e-7, min = 0 },
  },
}

function Adagrad.slot_names() return { "accumulator" } end

function Adagrad:slot_start(name)
  return name == "accumulator" and self.options.initial_accumulator_value or 0
end

function Adagrad:update(_, g, slots, now)
  local sum = slots.accumulator:value() + ops.square(g)
  slots.accumulator:assign(sum)
  return g * now.rate / ops.sqrt(sum + self.options.epsilon)
end

return Adagrad
