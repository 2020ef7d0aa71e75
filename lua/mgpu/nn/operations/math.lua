--- Operations of keras.ops.math; see init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

M.Erf, M.Rsqrt = { "x", ops.erf }, { "x", ops.rsqrt }
M.Erfc = { "x", function(x) return 1 - ops.erf(x) end }
M.Logsumexp = { "x | axis? keepdims?", function(x, axis, keepdims)
  return composite.logsumexp(x, { axis = axis, keepdims = keepdims or false })
end }

-- The values and their positions.
M.TopK = { "x | k sorted?", function(x, k)
  local values, positions = composite.top_k(x, { k = k, axis = -1 })
  return { values, positions }
end, written = { sorted = true } }

M.InTopK = { "targets predictions | k", function(targets, predictions, k)
  local rank = predictions:rank()
  local own = composite.take_along_axis(predictions, composite.expand_dims(targets, { axis = rank }), { axis = rank })
  return ops.lt(ops.sum(ops.gt(predictions, own), { axis = -1 }), k)
end }

return M
