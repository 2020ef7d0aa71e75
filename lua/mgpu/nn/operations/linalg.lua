--- Operations of keras.ops.linalg; see init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

-- What files hold for the orders of NumPy's inf and -inf.
local EXTREMES = { inf = ops.max, ["-inf"] = ops.min }

-- Of vectors: the norm of order 1, 2 or infinity; of matrices: the Frobenius norm.
M.Norm = { "x | ord:value? axis? keepdims?", function(x, ord, axis, keepdims)
  local how = { axis = axis, keepdims = keepdims or false }
  local matrices = type(axis) == "table" and #axis > 1 or axis == nil and x:rank() > 1
  if ord == nil or ord == "fro" or (ord == 2 and not matrices) then return composite.norm(x, how) end
  if EXTREMES[ord] and not matrices then return EXTREMES[ord](ops.abs(x), how) end
  if ord == 1 and not matrices then return ops.sum(ops.abs(x), how) end
  core.fail("unsupported", ("norm: the order %s is not supported"):format(tostring(ord)))
end }

return M
