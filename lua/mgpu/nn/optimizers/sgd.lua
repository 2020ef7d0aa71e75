--- SGD {learning_rate = 0.01, momentum = 0, nesterov = false, ...}: stochastic gradient descent.
--
--     v <- v - rate g                                              momentum = 0
--     m <- momentum m - rate g;  v <- v + m                        momentum > 0
--                                v <- v + momentum m - rate g      nesterov
-- Options of all optimizers: optimizer.lua.
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
