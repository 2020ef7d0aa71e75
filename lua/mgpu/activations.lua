--- Activations, by Keras's names and formulas. get(value) takes a name or a function.
local core = require "mgpu.core"
local ops = core.ops

local M = {}

function M.linear(x) return x end
M.relu = ops.relu
M.sigmoid = ops.sigmoid
M.tanh = ops.tanh
M.softplus = ops.softplus
M.exponential = ops.exp
function M.softmax(x) return ops.softmax(x) end
function M.log_softmax(x) return ops.log_softmax(x) end
function M.relu6(x) return ops.minimum(ops.relu(x), 6) end
-- A factor chosen by x's sign: its gradient is the same factor, half the work of two branches'.
function M.leaky_relu(x, slope)
  local dtype = x:dtype()
  return x * ops.where(ops.gt(x, 0), ops.full({}, 1, dtype), ops.full({}, slope or 0.2, dtype))
end
-- e^x - 1 is taken of min(x, 0) only, so that large x cannot overflow in the branch not taken.
function M.elu(x, alpha)
  return ops.where(ops.gt(x, 0), x, ops.expm1(ops.minimum(x, 0)) * (alpha or 1))
end
function M.selu(x) return M.elu(x, 1.6732632423543772) * 1.0507009873554805 end
function M.softsign(x) return x / (ops.abs(x) + 1) end
function M.silu(x) return x * ops.sigmoid(x) end
M.swish = M.silu
function M.gelu(x, approximate)
  if approximate then
    return x * 0.5 * (ops.tanh((x + ops.pow(x, 3) * 0.044715) * 0.7978845608028654) + 1)
  end
  return x * 0.5 * (ops.erf(x * 0.7071067811865476) + 1)
end
function M.hard_sigmoid(x) return ops.minimum(ops.relu(x + 3), 6) / 6 end
function M.hard_swish(x) return x * M.hard_sigmoid(x) end
M.hard_silu = M.hard_swish
function M.mish(x) return x * ops.tanh(ops.softplus(x)) end
function M.hard_tanh(x) return ops.minimum(ops.maximum(x, -1), 1) end
function M.squareplus(x, b) return (x + ops.sqrt(ops.square(x) + (b or 4))) / 2 end
function M.celu(x, alpha)
  alpha = alpha or 1
  return ops.maximum(x, 0) + ops.expm1(ops.minimum(x, 0) / alpha) * alpha
end
function M.tanh_shrink(x) return x - ops.tanh(x) end
function M.hard_shrink(x, threshold)
  return ops.where(ops.gt(ops.abs(x), threshold or 0.5), x, ops.mul(x, 0))
end
function M.soft_shrink(x, threshold)
  threshold = threshold or 0.5
  return ops.relu(x - threshold) - ops.relu(-x - threshold)
end
function M.sparse_plus(x)
  return ops.where(ops.le(x, -1), ops.mul(x, 0), ops.where(ops.ge(x, 1), x, ops.square(x + 1) / 4))
end
function M.log_sigmoid(x) return -ops.softplus(-x) end
function M.threshold(x, threshold, default)
  return ops.where(ops.gt(x, threshold), x, ops.mul(x, 0) + default)
end

local names = {}
for name in pairs(M) do names[#names + 1] = name end
table.sort(names)

--- get(name | function) -> function; nil stands for linear. `who` speaks in the error.
function M.get(value, who)
  if value == nil then return M.linear end
  if type(value) == "function" then return value end
  local fn = M[value]
  if fn then return fn end
  local near = core.nearest(value, names)
  core.fail("usage", ("%sunknown activation %q%s"):format(who and who .. ": " or "", value,
    near and (" (did you mean %q?)"):format(near) or ""))
end

return M
