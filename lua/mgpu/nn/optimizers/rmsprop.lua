--- RMSprop {learning_rate = 0.001, rho = 0.9, momentum = 0, epsilon = 1e-7, centered = false, ...}: the gradient
--- divided by its running root mean square.
--
--     s <- rho s + (1 - rho) g^2
--     a <- rho a + (1 - rho) g                       centered: s - a^2 takes the place of s
--     v <- v - rate g / sqrt(s + epsilon)            momentum = 0
--     m <- momentum m + rate g / sqrt(s + epsilon);  v <- v - m
-- Options of all optimizers: optimizer.lua. Source: Tieleman & Hinton, lecture 6.5 of Neural networks, 2012; Keras.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 1, 1 })
--     local opt = mgpu.optimizers.RMSprop { learning_rate = 0.5, rho = 0.75 }
--     opt:apply({ mgpu.tensor { 0.01, 100 } }, { v }) -- rate g / sqrt(0.25 g^2)
--     print((v:value() * 10):round())
--     --> tensor {2} float32 cpu:0
--     --> {0, 0}
--     opt.learning_rate = 0.05 -- acts at the next step
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local RMSprop = Optimizer.define {
  class = "RMSprop",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "rho", "number", default = 0.9, min = 0, max = 1 },
    { "momentum", "number", default = 0, min = 0, max = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
    { "centered", "boolean", default = false },
  },
}

function RMSprop:slot_names()
  local names = { "velocity" }
  if self.options.momentum > 0 then names[#names + 1] = "momentum" end
  if self.options.centered then names[#names + 1] = "average_gradient" end
  return names
end

function RMSprop:update(_, g, slots, now)
  local rho, momentum = self.options.rho, self.options.momentum
  local square = slots.velocity:value() * rho + ops.square(g) * (1 - rho)
  slots.velocity:assign(square)
  if self.options.centered then
    local average = slots.average_gradient:value() * rho + g * (1 - rho)
    slots.average_gradient:assign(average)
    square = square - ops.square(average)
  end
  local step = g * now.rate / ops.sqrt(square + self.options.epsilon)
  if momentum == 0 then return step end
  local m = slots.momentum:value() * momentum + step
  slots.momentum:assign(m)
  return m
end

return RMSprop
