--- SGD {learning_rate = 0.01, momentum = 0, nesterov = false, ...}: stochastic gradient descent.
--
--     v <- v - rate g                                              momentum = 0
--     m <- momentum m - rate g;  v <- v + m                        momentum > 0
--                                v <- v + momentum m - rate g      nesterov
-- Options of all optimizers: optimizer.lua.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 1, 2 })
--     local opt = mgpu.optimizers.SGD { learning_rate = 0.5, momentum = 0.5 }
--     opt:apply({ mgpu.tensor { 1, -1 } }, { v })
--     print(v:value())
--     --> tensor {2} float32 cpu:0
--     --> {0.5, 2.5}
--     opt:apply({ mgpu.tensor { 0, 0 } }, { v }) -- half of the last change once more
--     print(v:value())
--     --> tensor {2} float32 cpu:0
--     --> {0.25, 2.75}
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local SGD = Optimizer.define {
  class = "SGD",
  declared = {
    { "learning_rate", "any", default = 0.01 },
    { "momentum", "number", default = 0, min = 0, max = 1 },
    { "nesterov", "boolean", default = false },
  },
}

function SGD:slot_names() return self.options.momentum > 0 and { "momentum" } or {} end

function SGD:update(_, g, slots, now)
  local step, momentum = g * now.rate, self.options.momentum
  if momentum == 0 then return step end
  local m = slots.momentum:value() * momentum - step
  slots.momentum:assign(m)
  if self.options.nesterov then return step - m * momentum end
  return -m
end

return SGD
