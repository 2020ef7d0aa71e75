--- ScheduleFreeAdamW {learning_rate = 0.0025, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8, warmup_steps = 0, ...}:
--- AdamW whose weights are an average that needs no schedule of the learning rate.
--
--     s <- s + (1 - beta_2) (g^2 - s)
--     x = (v - (1 - beta_1) z) / beta_1             z, the slot momentum, starts as v
--     z <- z - rate g / (sqrt(s / (1 - beta_2^t)) + epsilon)
--     x <- (1 - 1 / t) x + z / t;  v <- (1 - beta_1) z + beta_1 x
-- The rate grows evenly over the first warmup_steps steps. Options of all optimizers: optimizer.lua.
-- Source: Defazio et al., The road less scheduled, 2024; Keras.
-- Example:
--     local v, opt = mgpu.variable(mgpu.tensor { 4 }), mgpu.optimizers.ScheduleFreeAdamW { learning_rate = 0.1 }
--     for _ = 1, 300 do opt:apply({ (v:value() - 1) * 2 }, { v }) end
--     print(v:value():round():item())  --> 1
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local ScheduleFreeAdamW = Optimizer.define {
  class = "ScheduleFreeAdamW",
  declared = {
    { "learning_rate", "any", default = 0.0025 },
    { "beta_1", "number", default = 0.9, above = 0, below = 1 },
    { "beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "epsilon", "number", default = 1e-8, min = 0 },
    { "warmup_steps", "integer", default = 0, min = 0 },
  },
}

function ScheduleFreeAdamW.slot_names() return { "momentum", "velocity" } end

function ScheduleFreeAdamW.slot_start(_, name) return name == "momentum" and "variable" or 0 end

function ScheduleFreeAdamW:scalars(now)
  local warmup = self.options.warmup_steps
  -- not now.rate itself, which scales the weight decay too
  now.warm_rate = warmup > 0 and now.rate * ops.minimum(now.step / warmup, 1) or now.rate
  now.of_square = 1 - ops.pow(self.options.beta_2, now.step)
  now.share = 1 / now.step
end

function ScheduleFreeAdamW:update(v, g, slots, now)
  local chosen, z, square = self.options, slots.momentum:value(), slots.velocity:value()
  square = square + (ops.square(g) - square) * (1 - chosen.beta_2)
  slots.velocity:assign(square)
  local average = (v - z * (1 - chosen.beta_1)) / chosen.beta_1
  z = z - g * now.warm_rate / (ops.sqrt(square / now.of_square) + chosen.epsilon)
  slots.momentum:assign(z)
  average = average * (1 - now.share) + z * now.share
  return v - (z * (1 - chosen.beta_1) + average * chosen.beta_1)
end

return ScheduleFreeAdamW
