-- Fixture of several specs: a linear data set, and a model of one Dense layer that can fit it exactly.

local mgpu = require "mgpu"

local L = mgpu.layers

-- n points x and the targets y = 2 x1 - x2 + 1.
local function line(n)
  local x, y = {}, {}
  for i = 1, n do
    local a, b = i % 5 / 5, i % 7 / 7
    x[i], y[i] = { a, b }, { 2 * a - b + 1 }
  end
  return mgpu.tensor(x), mgpu.tensor(y)
end

local function linear(options)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1, kernel_initializer = "zeros" } }
  options = options or {}
  options.optimizer = options.optimizer or mgpu.optimizers.SGD { learning_rate = 0.1 }
  options.loss = options.loss or "mse"
  model:compile(options)
  return model
end

return { line = line, linear = linear }
