--- mgpu.activations: element-wise functions (and softmax and its kin), by Keras's names and formulas.
--
--     L.Dense { 10, activation = "gelu" }
--     L.Activation { function(x) return mgpu.activations.gelu(x, true) end }
-- Arguments after x come in Keras's order and have its defaults; an axis counts from 1 (-1 = last).
-- get(value) takes a name or a function.
local core = require "mgpu.core"
local ops = core.ops

local named = {} -- what get finds

-- ---- around relu --------------------------------------------------------------------------------

function named.linear(x) return x end

--- max_value where x >= max_value; x where x > threshold; negative_slope (x - threshold) elsewhere.
function named.relu(x, negative_slope, max_value, threshold)
  local slope, from = negative_slope or 0, threshold or 0
  local y
  if slope == 0 and from == 0 then
    y = ops.relu(x)
  else
    y = ops.where(ops.gt(x, from), x, slope == 0 and 0 or (x - from) * slope)
  end
  return max_value and ops.minimum(y, max_value) or y
end

function named.relu6(x) return ops.minimum(ops.relu(x), 6) end
function named.leaky_relu(x, negative_slope)
  -- The gradient has the same factor.
  return x * ops.where(ops.gt(x, 0), ops.full({}, 1, x:dtype()), negative_slope or 0.2)
end

-- x where it is not above 0: e^x - 1 is taken of that only, so that large x cannot overflow in the branch
-- not taken. At 0 the gradient is this side's, as in Keras.
local function negative_part(x) return ops.where(ops.gt(x, 0), 0, x) end

function named.elu(x, alpha)
  return ops.where(ops.gt(x, 0), x, ops.expm1(negative_part(x)) * (alpha or 1))
end
function named.selu(x) return named.elu(x, 1.6732632423543772) * 1.0507009873554805 end
function named.celu(x, alpha)
  alpha = alpha or 1
  return ops.relu(x) + ops.expm1(negative_part(x) / alpha) * alpha
end

--- x where x > threshold, `value` elsewhere.
function named.threshold(x, threshold, value)
  if type(threshold) ~= "number" or type(value) ~= "number" then
    core.fail("usage", "threshold(x, threshold, value) needs two numbers: as an activation write "
      .. "function(x) return mgpu.activations.threshold(x, 0.5, 0) end")
  end
  return ops.where(ops.gt(x, threshold), x, value)
end

-- ---- smooth -------------------------------------------------------------------------------------

named.sigmoid = ops.sigmoid
named.tanh = ops.tanh
named.softplus = ops.softplus
named.exponential = ops.exp
function named.softsign(x) return x / (ops.abs(x) + 1) end
function named.silu(x) return x * ops.sigmoid(x) end
named.swish = named.silu
function named.gelu(x, approximate)
  if approximate then
    return x * 0.5 * (ops.tanh((x + ops.pow(x, 3) * 0.044715) * 0.7978845608028654) + 1)
  end
  return x * 0.5 * (ops.erf(x * 0.7071067811865476) + 1)
end
function named.mish(x) return x * ops.tanh(ops.softplus(x)) end
function named.squareplus(x, b) return (x + ops.sqrt(ops.square(x) + (b or 4))) / 2 end
function named.tanh_shrink(x) return x - ops.tanh(x) end
function named.log_sigmoid(x) return -ops.softplus(-x) end

-- ---- in pieces ----------------------------------------------------------------------------------

function named.hard_sigmoid(x) return ops.minimum(ops.relu(x + 3), 6) / 6 end
function named.hard_swish(x) return x * named.hard_sigmoid(x) end
named.hard_silu = named.hard_swish
function named.hard_tanh(x) return ops.minimum(ops.maximum(x, -1), 1) end
function named.hard_shrink(x, threshold)
  return ops.where(ops.gt(ops.abs(x), threshold or 0.5), x, 0)
end
function named.soft_shrink(x, threshold)
  threshold = threshold or 0.5
  return ops.where(ops.gt(x, threshold), x - threshold,
    ops.where(ops.lt(x, -threshold), x + threshold, 0))
end
function named.sparse_plus(x)
  return ops.where(ops.le(x, -1), 0, ops.where(ops.lt(x, 1), ops.square(x + 1) / 4, x))
end
function named.sparse_sigmoid(x)
  return ops.where(ops.le(x, -1), 0, ops.where(ops.ge(x, 1), 1, (x + 1) * 0.5))
end

-- ---- along an axis ------------------------------------------------------------------------------

-- The axis from 1, and the shape.
local function axis_of(who, x, axis)
  local shape = x:shape()
  axis = axis or -1
  local at = axis < 0 and axis + #shape + 1 or axis
  if at < 1 or at > #shape then
    core.fail("usage", ("%s: axis %d is out of range: there are %d axes, counted from 1 (or -1 from the end)")
      :format(who, axis, #shape))
  end
  return at, shape
end

function named.softmax(x, axis) return ops.softmax(x, { axis = axis or -1 }) end
function named.log_softmax(x, axis) return ops.log_softmax(x, { axis = axis or -1 }) end

--- a * sigmoid(b), a and b being the halves of x along the axis: the result has half its size.
function named.glu(x, axis)
  local at, shape = axis_of("glu", x, axis)
  if shape[at] % 2 ~= 0 then
    core.fail("usage", ("glu: axis %d of size %d cannot be cut into halves"):format(at, shape[at]))
  end
  local a, b = unpack(require "mgpu.tensor.composite_ops".split(x, 2, at))
  return a * ops.sigmoid(b)
end

--- max(x - tau, 0), tau such that it sums to 1 (Martins & Astudillo 2016, there by sorting; here every
--- number is compared with every other, n^2 of them). Keras 3 has another tau, with which it does not.
function named.sparsemax(x, axis)
  local at, shape = axis_of("sparsemax", x, axis)
  local down, across = { unpack(shape) }, { unpack(shape) }
  table.insert(down, at + 1, 1) -- z_i
  table.insert(across, at, 1) -- z_j
  local fixed = ops.stop_gradient(x)
  local z, others = ops.reshape(fixed, { shape = down }), ops.reshape(fixed, { shape = across })
  local larger = ops.cast(ops.ge(others, z), { dtype = x:dtype() })
  -- those with 1 + count * z > sum of the numbers not below z are above tau
  local over = { axis = at + 1 }
  local support = ops.gt(fixed * ops.sum(larger, over) + 1, ops.sum(larger * others, over))
  local all = { axis = at, keepdims = true }
  local count = ops.sum(ops.cast(support, { dtype = x:dtype() }), all)
  local tau = (ops.sum(ops.where(support, x, 0), all) - 1) / count
  return ops.relu(x - tau)
end

-- ---- by name ------------------------------------------------------------------------------------

local names = {}
for name in pairs(named) do names[#names + 1] = name end
table.sort(names)

local M = {}
for name, fn in pairs(named) do M[name] = fn end

--- get(name | function) -> function; nil stands for linear. `who` speaks in the error.
function M.get(value, who)
  if value == nil then return named.linear end
  if type(value) == "function" then return value end
  local fn = named[value]
  if fn then return fn end
  local near = core.nearest(value, names)
  core.fail("usage", ("%sunknown activation %q%s"):format(who and who .. ": " or "", tostring(value),
    near and (" (did you mean %q?)"):format(near) or ""))
end

return require "mgpu.strict_table" ("mgpu.activations", M)
