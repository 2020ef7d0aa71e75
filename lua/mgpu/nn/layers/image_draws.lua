--- Random numbers of the gamma, beta and Dirichlet distributions, from a layer's stream.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local TRIES = 8 -- each is accepted with probability 0.95 or more

local function draw(layer, shape, kind)
  return ops.random { shape = shape, kind = kind, a = 0, b = 1, dtype = "float32", stream = layer.stream }
end

local function uniform(layer, shape) return 1 - draw(layer, shape, "uniform") end -- above 0

-- RETURNS the logarithms, {n}, of draws of the gamma distribution with the parameter alpha, a number or {1}: those of
-- alpha + 1, each the first accepted one of some tries, times a power of a uniform number, so that none underflows.
-- Source: Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
local function log_gamma(layer, n, alpha)
  local d = alpha + 2 / 3
  local x = draw(layer, { n, TRIES }, "normal")
  local v = (1 + x / (9 * d) ^ 0.5) ^ 3
  local log_v = v:maximum(1e-30):log()
  local bound = 0.5 * x:square() + d - d * v + d * log_v
  local accepted = ops.logical_and(ops.gt(v, 0), ops.lt(uniform(layer, { n, TRIES }):log(), bound))
  local first = ops.argmax(ops.cast(accepted, { dtype = "int32" }), { axis = 2 }):reshape { n, 1 }
  local chosen = ops.take_along_axis(log_v, first, { axis = 2 }):reshape { n }
  return chosen + (type(d) == "number" and math.log(d) or d:log()) + uniform(layer, { n }):log() / alpha
end

--- beta(layer, n, alpha) -> {n} draws of the beta distribution with both parameters alpha, a number or {1}.
function M.beta(layer, n, alpha) return (log_gamma(layer, n, alpha) - log_gamma(layer, n, alpha)):sigmoid() end

--- dirichlet(layer, n, alpha) -> one draw {n} of the Dirichlet distribution with all parameters alpha.
function M.dirichlet(layer, n, alpha) return ops.softmax(log_gamma(layer, n, alpha), { axis = 1 }) end

return M
