--- Dropout {rate, noise_shape =, seed =}: in training each element is zero with probability rate, the
-- others are scaled by 1 / (1 - rate). At inference it does nothing.
-- The mask is a function of seed, layer name, step and element: the same on any number of devices.
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local ops = core.ops

local Dropout = Layer:extend("Dropout", { positional = 1,
  { "rate", "number", min = 0, max = 1, required = true },
  { "noise_shape", "shape" },
  { "seed", "integer", min = 0 },
})

function Dropout:build()
  self.stream = self.stream_of(self.name .. (self.seed and ":" .. self.seed or ""))
end

function Dropout:call(x, training)
  if not training or self.rate == 0 then return x end
  local shape = x:shape()
  for i, size in ipairs(self.noise_shape or {}) do
    if size ~= -1 then shape[i] = size end
  end
  local keep = ops.random { shape = shape, kind = "bernoulli", a = 1 - self.rate, dtype = "bool",
    stream = self.stream }
  return ops.where(keep, self.rate < 1 and x * (1 / (1 - self.rate)) or x, 0)
end

return Dropout
