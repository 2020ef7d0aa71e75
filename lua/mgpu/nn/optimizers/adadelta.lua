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
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

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

return Adadelta
