--- Nadam {learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7, ...}: Adam with Nesterov momentum.
--
--     u(t) = beta_1 (1 - 0.96^(t schedule_decay) / 2)    the momentum grows towards beta_1
--     p <- p u(t)                                 p starts at 1
--     m <- m + (1 - beta_1) (g - m)
--     s <- s + (1 - beta_2) (g^2 - s)
--     h =  u(t + 1) / (1 - p u(t + 1)) * m + (1 - u(t)) / (1 - p) * g
--     v <- v - rate h / (sqrt(s / (1 - beta_2^t)) + epsilon)
-- schedule_decay = 1: Keras 1 and 2 have it, with the default 0.004; Keras 3 has not.
-- Options of all optimizers: optimizer.lua. Source: Dozat, Incorporating Nesterov momentum into Adam, 2016; Keras.
-- Example:
--     local v, opt = mgpu.variable(mgpu.tensor { 4 }), mgpu.optimizers.Nadam { learning_rate = 0.1 }
--     local loss = mgpu.value_and_grad(function() return (v - 1):square():sum() end, { v })
--     for _ = 1, 200 do
--       local _, grads = loss()
--       opt:apply(grads, { v })
--     end
--     print(v:value():round():item())  --> 1
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local Nadam = Optimizer.define {
  class = "Nadam",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "beta_1", "number", default = 0.9, min = 0, below = 1 },
    { "beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
    { "schedule_decay", "number", default = 1, min = 0 },
  },
}

function Nadam.slot_names() return { "momentum", "velocity" } end

function Nadam:own_variables()
  rawset(self, "product", Optimizer.scalar(1, "float64", "u_product"))
  return { self.product }
end

function Nadam:scalars(now)
  local beta_1, beta_2 = self.options.beta_1, self.options.beta_2
  local base = 0.96 ^ self.options.schedule_decay
  local function momentum(step) return beta_1 * (1 - 0.5 * ops.pow(base, step)) end
  local this, next_one = momentum(now.step), momentum(now.step + 1)
  local product = self.product:value() * this
  self.product:assign(product)
  now.of_mean = next_one / (1 - product * next_one)
  now.of_gradient = (1 - this) / (1 - product)
  now.of_square = 1 / (1 - ops.pow(beta_2, now.step))
end

function Nadam:update(_, g, slots, now)
  local chosen = self.options
  local m, square = slots.momentum:value(), slots.velocity:value()
  m = m + (g - m) * (1 - chosen.beta_1)
  square = square + (ops.square(g) - square) * (1 - chosen.beta_2)
  slots.momentum:assign(m)
  slots.velocity:assign(square)
  local ahead = m * now.of_mean + g * now.of_gradient
  return ahead * now.rate / (ops.sqrt(square * now.of_square) + chosen.epsilon)
end

return Nadam
