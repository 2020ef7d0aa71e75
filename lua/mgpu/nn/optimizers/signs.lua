--- Optimizers whose steps have a size that does not depend on the gradient's: Lion by its sign, Lamb by the norm of the
--- variable.
-- RETURNS the optimizers by name.
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local M = {}

-- ---- Lion ---------------------------------------------------------------------------------------

--- Lion {learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.99, ...}: steps of one size in the direction of the sign of a
--- momentum.
--
--     v <- v - rate sign(beta_1 m + (1 - beta_1) g)
--     m <- beta_2 m + (1 - beta_2) g
-- Options of all optimizers: optimizer.lua. Source: Chen et al., Symbolic discovery of optimization algorithms, 2023.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 1, 1 })
--     mgpu.optimizers.Lion { learning_rate = 0.25 }:apply({ mgpu.tensor { 0.01, -100 } }, { v })
--     print(v:value())
--     --> tensor {2} float32 cpu:0
--     --> {0.75, 1.25}
local Lion = Optimizer.define {
  class = "Lion",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "beta_1", "number", default = 0.9, above = 0, max = 1 },
    { "beta_2", "number", default = 0.99, min = 0, max = 1 },
  },
}

function Lion.slot_names() return { "momentum" } end

function Lion:update(_, g, slots, now)
  local beta_1, beta_2, m = self.options.beta_1, self.options.beta_2, slots.momentum:value()
  slots.momentum:assign(m * beta_2 + g * (1 - beta_2))
  return ops.sign(m * beta_1 + g * (1 - beta_1)) * now.rate
end

M.Lion = Lion

-- ---- Lamb ---------------------------------------------------------------------------------------

--- Lamb {learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7, ...}: Adam's direction with the length of
--- the variable, for large batches.
--
--     m, s as in Adam;  u = m / (1 - beta_1^t) / (sqrt(s / (1 - beta_2^t)) + epsilon)
--     v <- v - rate |v| / |u| u                      without the quotient where |v| or |u| is 0
-- Options of all optimizers: optimizer.lua. Source: You et al., Large batch optimization for deep learning, 2020.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 3, 4 })
--     mgpu.optimizers.Lamb { learning_rate = 0.5 }:apply({ mgpu.tensor { 1, 0 } }, { v }) -- a step of 0.5 |v|
--     print((v:value() * 100):round())
--     --> tensor {2} float32 cpu:0
--     --> { 50, 400}
local Lamb = Optimizer.define {
  class = "Lamb",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "beta_1", "number", default = 0.9, min = 0, below = 1 },
    { "beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
  },
}

function Lamb.slot_names() return { "momentum", "velocity" } end

function Lamb:scalars(now)
  now.of_mean = 1 - ops.pow(self.options.beta_1, now.step)
  now.of_square = 1 - ops.pow(self.options.beta_2, now.step)
end

local function norm(t) return ops.sqrt(ops.sum(ops.square(t))) end

function Lamb:update(v, g, slots, now)
  local chosen, m, square = self.options, slots.momentum:value(), slots.velocity:value()
  m = m + (g - m) * (1 - chosen.beta_1)
  square = square + (ops.square(g) - square) * (1 - chosen.beta_2)
  slots.momentum:assign(m)
  slots.velocity:assign(square)
  local step = m / now.of_mean / (ops.sqrt(square / now.of_square) + chosen.epsilon)
  local own, length = norm(v), norm(step)
  local known = ops.logical_and(ops.gt(own, 0), ops.gt(length, 0))
  return step * ops.where(known, own / ops.where(known, length, 1), 1) * now.rate
end

M.Lamb = Lamb

return M
