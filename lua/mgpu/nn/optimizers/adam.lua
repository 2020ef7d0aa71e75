--- Optimizers with running averages of the gradients and of their squares: Adam and its relatives.
-- RETURNS the optimizers by name.
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local M = {}

local LEARNING_RATE = { "learning_rate", "any", default = 0.001 }
local BETA_1 = { "beta_1", "number", default = 0.9, min = 0, below = 1 }
local BETA_2 = { "beta_2", "number", default = 0.999, min = 0, below = 1 }
local EPSILON = { "epsilon", "number", default = 1e-7, min = 0 }
local AMSGRAD = { "amsgrad", "boolean", default = false }

local function averages(self, g, slots)
  local m, square = slots.momentum:value(), slots.velocity:value()
  m = m + (g - m) * (1 - self.options.beta_1)
  square = square + (ops.square(g) - square) * (1 - self.options.beta_2)
  slots.momentum:assign(m)
  slots.velocity:assign(square)
  return m, square
end

-- ---- Adam ---------------------------------------------------------------------------------------

--- Adam {learning_rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7, amsgrad = false, ...}: running mean and
--- mean square of the gradient, corrected for their start at 0.
--
--     m <- m + (1 - beta_1) (g - m)
--     s <- s + (1 - beta_2) (g^2 - s)                amsgrad: the largest s so far takes its place
--     v <- v - rate sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(s) + epsilon)
-- Options of all optimizers: optimizer.lua. Source: Kingma & Ba, Adam, 2015; Reddi et al., 2018 (amsgrad); Keras.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.Adam { learning_rate = 0.1, clipnorm = 1 }, loss = "mse" }
--     local x = mgpu.rand { 256, 1 }
--     model:fit(x, x * 3 + 1, { epochs = 40, verbose = 0 })
--     -- it has learned y = 3 x + 1
--     print(model:predict(mgpu.tensor { { 2 } }):round():item())  --> 7
local Adam = Optimizer.define {
  class = "Adam",
  declared = { LEARNING_RATE, BETA_1, BETA_2, EPSILON, AMSGRAD },
}

function Adam:slot_names()
  local names = { "momentum", "velocity" }
  if self.options.amsgrad then names[#names + 1] = "velocity_hat" end
  return names
end

function Adam:scalars(now)
  local one = 1 - ops.pow(self.options.beta_1, now.step)
  local two = 1 - ops.pow(self.options.beta_2, now.step)
  now.alpha = now.rate * ops.sqrt(two) / one
end

function Adam:update(_, g, slots, now)
  local chosen = self.options
  local m, square = averages(self, g, slots)
  if chosen.amsgrad then
    square = ops.maximum(slots.velocity_hat:value(), square)
    slots.velocity_hat:assign(square)
  end
  return m * now.alpha / (ops.sqrt(square) + chosen.epsilon)
end

M.Adam = Adam

-- ---- AdamW --------------------------------------------------------------------------------------

--- AdamW {learning_rate = 0.001, weight_decay = 0.004, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7, ...}: Adam with
--- decoupled weight decay.
--
--     v <- v - rate * weight_decay * v, then Adam's step
-- Further options: amsgrad = false, and those of all optimizers (optimizer.lua).
-- Source: Loshchilov & Hutter, Decoupled weight decay regularization, 2019.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 8 })
--     local opt = mgpu.optimizers.AdamW { learning_rate = 0.5, weight_decay = 0.5 }
--     opt:apply({ mgpu.tensor { 0 } }, { v }) -- without a gradient the weight still decays
--     print(v:value():item())  --> 6
M.AdamW = Optimizer.define {
  class = "AdamW",
  base = Adam,
  declared = { LEARNING_RATE, { "weight_decay", "number", default = 0.004, min = 0 }, BETA_1, BETA_2, EPSILON,
    AMSGRAD },
}

-- ---- Adamax -------------------------------------------------------------------------------------

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
local Adamax = Optimizer.define {
  class = "Adamax",
  declared = { LEARNING_RATE, BETA_1, BETA_2, EPSILON },
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

M.Adamax = Adamax

-- ---- Nadam --------------------------------------------------------------------------------------

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
local Nadam = Optimizer.define {
  class = "Nadam",
  declared = { LEARNING_RATE, BETA_1, BETA_2, EPSILON, { "schedule_decay", "number", default = 1, min = 0 } },
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
  local m, square = averages(self, g, slots)
  local ahead = m * now.of_mean + g * now.of_gradient
  return ahead * now.rate / (ops.sqrt(square * now.of_square) + chosen.epsilon)
end

M.Nadam = Nadam

return M
