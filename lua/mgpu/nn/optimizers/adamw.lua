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
local Adam = require "mgpu.nn.optimizers.adam"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

return Optimizer.define {
  class = "AdamW",
  base = Adam,
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "weight_decay", "number", default = 0.004, min = 0 },
    { "beta_1", "number", default = 0.9, min = 0, below = 1 },
    { "beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "epsilon", "number", default = 1e-7, min = 0 },
    { "amsgrad", "boolean", default = false },
  },
}
