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
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local Adam = Optimizer.define {
  class = "Adam",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "beta_1", "number", default = 0.9, min = 0, below = 1 },
    { "beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
    { "amsgrad", "boolean", default = false },
  },
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
  local m, square = slots.momentum:value(), slots.velocity:value()
  m = m + (g - m) * (1 - chosen.beta_1)
  square = square + (ops.square(g) - square) * (1 - chosen.beta_2)
  slots.momentum:assign(m)
  slots.velocity:assign(square)
  if chosen.amsgrad then
    square = ops.maximum(slots.velocity_hat:value(), square)
    slots.velocity_hat:assign(square)
  end
  return m * now.alpha / (ops.sqrt(square) + chosen.epsilon)
end

return Adam
