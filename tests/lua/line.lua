-- A model of one dense layer and the line that it finds: for the specs of fit.

local mgpu = require "mgpu"

local L = mgpu.layers

-- y = 2 x1 - x2 + 1, on a grid of n points.
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
