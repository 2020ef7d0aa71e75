--- Products of matrices in ONNX; see ops/init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local values = require "mgpu.nn.onnx.values"

local ops, plain = core.ops, values.plain

local M = {}

-- Products of integers are int64 here and keep their type in ONNX.
M.MatMul = { "2", function(_, a, b)
  local y = ops.matmul(a:tensor(), b:tensor())
  return plain(y:dtype() == a:dtype() and y or ops.cast(y, a:dtype()))
end }

M.Gemm = { "2-3 | alpha:float=1 beta:float=1 transA:int=0 transB:int=0", function(c, a, b, bias)
  if a:rank() ~= 2 or b:rank() ~= 2 then core.fail("data", "the factors must be matrices") end
  local p = a:tensor()
  if c.transA ~= 0 then p = ops.permute(p, { order = { 2, 1 } }) end
  local y = ops.matmul(p, b:tensor(), { transpose_b = c.transB ~= 0 })
  if c.alpha ~= 1 then y = y * c.alpha end
  if bias then y = y + (c.beta == 1 and bias:tensor() or bias:tensor() * c.beta) end
  return plain(y:dtype() == a:dtype() and y or ops.cast(y, a:dtype()))
end }

M.Einsum = { "1+ | equation:text", function(c, ...)
  local tensors = {}
  for i, x in ipairs { ... } do tensors[i] = x:tensor() end
  return plain(composite.einsum((c.equation:gsub("%s", "")), unpack(tensors)))
end }

return M
