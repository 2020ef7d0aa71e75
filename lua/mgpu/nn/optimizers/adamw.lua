-- AdamW: Adam with decoupled weight decay, 0.004 unless said otherwise (Loshchilov & Hutter, Decoupled
-- weight decay regularization, 2019).
--
--     v <- v - rate * weight_decay * v, then Adam's step

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
