--- Optimizers whose rate for each weight follows from sums or averages of squared gradients.
-- RETURNS the optimizers by name.
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local M = {}

-- ---- Adagrad ------------------------------------------------------------------------------------

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

M.Adagrad = Adagrad

-- ---- Adadelta -----------------------------------------------------------------------------------

--- Adadelta {learning_rate = 0.001, rho = 0.95, epsilon = 1e-7, ...}: the gradient times the ratio of the running
--- root mean squares of changes and of gradients.
--
--     a <- rho a + (1 - rho) g^2
--     d =  sqrt(b + epsilon) / sqrt(a + epsilon) * g
--     b <- rho b + (1 - rho) d^2
--     v <- v - rate d                             the paper's rate is 1
-- Options of all optimizers: optimizer.lua. Source: Zeiler, ADADELTA: an adaptive learning rate method, 2012.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 5 })
--     local opt = mgpu.optimizers.Adadelta { learning_rate = 1, epsilon = 1e-2 }
--     for _ = 1, 200 do opt:apply({ v * 2 }, { v }) end -- 2 v is the gradient of v^2
--     print(math.abs(v:value():item()) < 0.1)  --> true
local Adadelta = Optimizer.define {
  class = "Adadelta",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "rho", "number", default = 0.95, min = 0, max = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
  },
}

function Adadelta.slot_names() return { "accumulated_grad", "accumulated_delta_var" } end

function Adadelta:update(_, g, slots, now)
  local rho, epsilon = self.options.rho, self.options.epsilon
  local squares, changes = slots.accumulated_grad:value(), slots.accumulated_delta_var:value()
  squares = squares * rho + ops.square(g) * (1 - rho)
  local delta = ops.sqrt(changes + epsilon) * g / ops.sqrt(squares + epsilon)
  slots.accumulated_grad:assign(squares)
  slots.accumulated_delta_var:assign(changes * rho + ops.square(delta) * (1 - rho))
  return delta * now.rate
end

M.Adadelta = Adadelta

-- ---- RMSprop ------------------------------------------------------------------------------------

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

M.RMSprop = RMSprop

return M
