--- Gradient clipping: the options clipnorm, global_clipnorm and clipvalue of optimizers, with Keras's formulas.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local NAMES = { "clipnorm", "clipvalue", "global_clipnorm" }

local function square_sum(g) return ops.sum(ops.square(g)) end

-- g scaled down to a norm of at most `limit`.
local function clip_norm(g, norm, limit) return g * (limit / ops.maximum(norm, limit)) end

local function map(grads, fn)
  local list = {}
  for i, g in ipairs(grads) do list[i] = fn(g) end
  return list
end

-- All gradients scaled by one factor, so that the norm of all of them together is at most `limit`.
local function clip_global_norm(grads, limit)
  local total, home = nil, grads[1]:device()
  for _, g in ipairs(grads) do
    local sum = core.place(square_sum(g), home)
    total = total and total + sum or sum
  end
  local norm = ops.sqrt(total)
  -- norm - norm is 0, but NaN for an infinite norm, which would turn finite gradients into zeros.
  local scale = limit / ops.maximum(norm, limit) + (norm - norm)
  return map(grads, function(g)
    return g * core.place(ops.cast(scale, { dtype = g:dtype() }), g:device())
  end)
end

-- The option's value; nil if it is not given or 0, which is no bound.
local function limit_of(options, name)
  local limit = options[name]
  return limit and limit > 0 and limit or nil
end

--- clip(options, grads) -> the clipped gradients, an array.
function M.clip(options, grads)
  local limit = limit_of(options, "clipnorm")
  if limit then
    return map(grads, function(g) return clip_norm(g, ops.sqrt(square_sum(g)), limit) end)
  end
  limit = limit_of(options, "global_clipnorm")
  if limit then return clip_global_norm(grads, limit) end
  limit = limit_of(options, "clipvalue")
  if limit then
    return map(grads, function(g) return ops.minimum(ops.maximum(g, -limit), limit) end)
  end
  return grads
end

--- check(class, options): raises if more than one of the three options is given.
function M.check(class, options)
  local given
  for _, name in ipairs(NAMES) do
    if options[name] and given then
      core.fail("usage", ("%s: give only one of %s and %s"):format(class, given, name))
    end
    given = options[name] and name or given
  end
end

return M
