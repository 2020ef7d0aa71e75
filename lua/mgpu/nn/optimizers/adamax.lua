--- Adamax {learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7, ...}: Adam with a decaying maximum of
--- the gradient in place of the mean square.
--
--     m <- m + (1 - beta_1) (g - m)
--     u <- max(beta_2 u, |g|)
--     v <- v - rate / (1 - beta_1^t) * m / (u + epsilon)
-- Options of all optimizers: optimizer.lua. Source: Kingma & Ba, Adam, 2015, section 7.1.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 1, 1 })
--     mgpu.optimizers.Adamax { learning_rate = 0.25 }:apply({ mgpu.tensor { 0.01, 100 } }, { v })
--     print((v:value() * 100):round()) -- the first step has the same size for every gradient
--     --> tensor {2} float32 cpu:0
--     --> {75, 75}
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local Adamax = Optimizer.define {
  class = "Adamax",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "beta_1", "number", default = 0.9, min = 0, below = 1 },
    { "beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
  },
}

function Adamax.slot_names() return { "momentum", "norm" } end

function Adamax:scalars(now)
  now.alpha = now.rate / (1 - ops.pow(self.options.beta_1, now.step))
end

function Adamax:update(_, g, slots, now)
  local chosen, m = self.options, slots.momentum:value()
  m = m + (g - m) * (1 - chosen.beta_1)
  local norm = ops.maximum(slots.norm:value() * chosen.beta_2, ops.abs(g))
  slots.momentum:assign(m)
  slots.norm:assign(norm)
  return m * now.alpha / (norm + chosen.epsilon)
end

return Adamax
