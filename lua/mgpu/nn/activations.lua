--- mgpu.activations: element-wise functions (and softmax and the like), by Keras's names and formulas.
--
--     L.Dense { 10, activation = "gelu" }
--     L.Activation { function(x) return mgpu.activations.gelu(x, true) end }
-- Each takes a floating tensor x of any shape and RETURNS one of the same shape and dtype (glu: half the axis).
-- Arguments after x come in Keras's order and have its defaults; an axis counts from 1 (-1 = last).
-- sigmoid, tanh, softplus and exponential (e^x) are the ops of these names.
local core = require "mgpu.core"
local methods = require "mgpu.methods"
local ops = core.ops

local named = {} -- what get finds

-- ---- around relu --------------------------------------------------------------------------------

--- linear(x): x.
function named.linear(x) return x end

--- relu(x, negative_slope = 0, max_value = none, threshold = 0): max_value where x >= max_value; x where x > threshold;
--- negative_slope (x - threshold) elsewhere.
function named.relu(x, negative_slope, max_value, threshold)
  local slope, from = negative_slope or 0, threshold or 0
  local y
  if slope == 0 and from == 0 then
    y = ops.relu(x)
  else
    y = ops.where(ops.gt(x, from), x, slope == 0 and 0 or (x - from) * slope)
  end
  return max_value and ops.where(ops.ge(y, max_value), max_value, y) or y
end

--- relu6(x): max(x, 0), at most 6; the gradient is 0 at both bounds, as in Keras.
function named.relu6(x)
  local y = ops.relu(x)
  return ops.where(ops.ge(y, 6), 6, y)
end

--- leaky_relu(x, negative_slope = 0.2): x where x > 0, negative_slope x elsewhere.
function named.leaky_relu(x, negative_slope)
  -- as a product, so that the gradient is multiplied by the same factor
  return x * ops.where(ops.gt(x, 0), ops.full({}, 1, x:dtype()), negative_slope or 0.2)
end

-- min(x, 0). e^x - 1 is computed of this, so that a large x cannot overflow in the branch that `where` drops. At 0 the
-- gradient is that of the negative side, as in Keras.
local function negative_part(x) return ops.where(ops.gt(x, 0), 0, x) end

--- elu(x, alpha = 1): x where x > 0, alpha (e^x - 1) elsewhere (Clevert et al., 2016).
function named.elu(x, alpha)
  return ops.where(ops.gt(x, 0), x, ops.expm1(negative_part(x)) * (alpha or 1))
end

--- selu(x): elu scaled so that layers keep mean 0 and variance 1 (Klambauer et al., 2017). At 0 the gradient is that
--- of the positive side, as in Keras.
function named.selu(x)
  return ops.where(ops.ge(x, 0), x, ops.expm1(negative_part(x)) * 1.6732632423543772) * 1.0507009873554805
end

--- celu(x, alpha = 1): max(x, 0) + alpha (e^(min(x, 0) / alpha) - 1) (Barron, 2017). Its slope at 0 is 1; Keras
--- counts both sides there and gives 2.
function named.celu(x, alpha)
  alpha = alpha or 1
  return ops.relu(x) + ops.expm1(negative_part(x) / alpha) * alpha
end

--- threshold(x, threshold, value): x where x > threshold, `value` elsewhere.
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

--- softsign(x): x / (|x| + 1).
function named.softsign(x) return x / (ops.abs(x) + 1) end

--- silu(x), also swish: x sigmoid(x).
function named.silu(x) return x * ops.sigmoid(x) end
named.swish = named.silu

--- gelu(x, approximate = false): x times the normal distribution function at x, exactly or by tanh (Hendrycks &
--- Gimpel, 2016).
function named.gelu(x, approximate)
  if approximate then
    return x * 0.5 * (ops.tanh((x + ops.pow(x, 3) * 0.044715) * 0.7978845608028654) + 1)
  end
  return x * 0.5 * (ops.erf(x * 0.7071067811865476) + 1)
end

--- mish(x): x tanh(softplus(x)) (Misra, 2019).
function named.mish(x) return x * ops.tanh(ops.softplus(x)) end

--- squareplus(x, b = 4): (x + sqrt(x^2 + b)) / 2 (Barron, 2021).
function named.squareplus(x, b) return (x + ops.sqrt(ops.square(x) + (b or 4))) / 2 end

--- tanh_shrink(x): x - tanh(x).
function named.tanh_shrink(x) return x - ops.tanh(x) end

--- log_sigmoid(x): log(1 / (1 + e^-x)).
function named.log_sigmoid(x)
  return -ops.softplus(-x)
end

-- ---- piecewise ----------------------------------------------------------------------------------

--- hard_sigmoid(x): max(0, min(1, x / 6 + 1/2)), Keras 3's formula.
function named.hard_sigmoid(x)
  return named.relu6(x + 3) / 6
end

--- hard_swish(x), also hard_silu: x hard_sigmoid(x) (Howard et al., 2019).
function named.hard_swish(x) return x * named.hard_sigmoid(x) end
named.hard_silu = named.hard_swish

--- hard_tanh(x): x within [-1, 1].
function named.hard_tanh(x) return require "mgpu.tensor.composite_ops".clip(x, -1, 1) end

--- hard_shrink(x, threshold = 0.5): x where |x| > threshold, 0 elsewhere.
function named.hard_shrink(x, threshold)
  return ops.where(ops.gt(ops.abs(x), threshold or 0.5), x, 0)
end

--- soft_shrink(x, threshold = 0.5): x moved towards 0 by threshold, 0 where |x| <= threshold.
function named.soft_shrink(x, threshold)
  threshold = threshold or 0.5
  if type(threshold) ~= "number" then
    core.fail("usage", "soft_shrink: threshold must be a number, got a " .. type(threshold))
  end
  return ops.where(ops.gt(x, threshold), x - threshold,
    ops.where(ops.lt(x, -threshold), x + threshold, 0))
end

--- sparse_plus(x): 0 where x <= -1, (x + 1)^2 / 4 up to 1, x above (Keras).
function named.sparse_plus(x)
  return ops.where(ops.le(x, -1), 0, ops.where(ops.lt(x, 1), ops.square(x + 1) / 4, x))
end

--- sparse_sigmoid(x): 0 where x <= -1, (x + 1) / 2 up to 1, 1 above (Keras).
function named.sparse_sigmoid(x)
  return ops.where(ops.le(x, -1), 0, ops.where(ops.ge(x, 1), 1, (x + 1) * 0.5))
end

-- ---- along an axis ------------------------------------------------------------------------------

-- The axis as a position from 1, and the shape of x.
local function axis_of(who, x, axis)
  local shape = x:shape()
  axis = axis == nil and -1 or axis
  if type(axis) ~= "number" or axis % 1 ~= 0 then -- NaN is no integer either
    core.fail("usage", ("%s: axis must be an integer, got %s"):format(who, tostring(axis)))
  end
  local at = axis < 0 and axis + #shape + 1 or axis
  if at < 1 or at > #shape then
    core.fail("usage", ("%s: axis %d is out of range: there are %d axes, counted from 1 (or -1 from the end)")
      :format(who, axis, #shape))
  end
  return at, shape
end

--- softmax(x, axis = -1): e^x / sum(e^x) along the axis.
function named.softmax(x, axis) return ops.softmax(x, { axis = axis or -1 }) end

--- log_softmax(x, axis = -1): log(softmax(x)), computed without rounding a probability to 0.
function named.log_softmax(x, axis) return ops.log_softmax(x, { axis = axis or -1 }) end

--- glu(x, axis = -1): a sigmoid(b) with a and b the halves of x along the axis, which has half the size in the result
--- (Dauphin et al., 2017). Errors: an axis of odd size.
function named.glu(x, axis)
  local at, shape = axis_of("glu", x, axis)
  if shape[at] % 2 ~= 0 then
    core.fail("usage", ("glu: axis %d of size %d cannot be cut into halves"):format(at, shape[at]))
  end
  local a, b = unpack(require "mgpu.tensor.composite_ops".split(x, 2, at))
  return a * ops.sigmoid(b)
end

--- sparsemax(x, axis = -1): max(x - tau, 0) with the tau for which it sums to 1 along the axis (Martins & Astudillo,
--- 2016). They sort; here all pairs are compared, so cost and memory grow with the square of the axis's size. Keras 3
--- has another tau, with which the sum is not 1.
function named.sparsemax(x, axis)
  local at, shape = axis_of("sparsemax", x, axis)
  local down, across = { unpack(shape) }, { unpack(shape) }
  table.insert(down, at + 1, 1) -- z_i
  table.insert(across, at, 1) -- z_j
  local fixed = ops.stop_gradient(x)
  local z, others = ops.reshape(fixed, { shape = down }), ops.reshape(fixed, { shape = across })
  local not_below = ops.cast(ops.ge(others, z), { dtype = x:dtype() })
  -- a number z is above tau if 1 + count * z > sum, over the numbers that are not below z
  local over = { axis = at + 1 }
  local support = ops.gt(fixed * ops.sum(not_below, over) + 1, ops.sum(not_below * others, over))
  local all = { axis = at, keepdims = true }
  local count = ops.sum(ops.cast(support, { dtype = x:dtype() }), all)
  local tau = (ops.sum(ops.where(support, x, 0), all) - 1) / count
  return ops.relu(x - tau)
end

-- ---- by name ------------------------------------------------------------------------------------

local names = {}
for name in pairs(named) do names[#names + 1] = name end
table.sort(names)

-- Raises unless x is what ops take.
local function check_operand(who, x)
  if core.is_tensor(x) or core.is_variable(x) then return end
  core.fail("usage", ("%s: x must be a tensor, got %s"):format(who, x == nil and "nothing" or "a " .. type(x)))
end

local M = {}
for name, fn in pairs(named) do
  named[name] = methods.checked(fn, function(x) check_operand(name, x) end)
  M[name] = named[name]
end

--- get(value, who) -> the activation function: value is a name, a function, or nil for linear. `who` begins the error
--- message for an unknown name.
function M.get(value, who)
  if value == nil then return named.linear end
  if type(value) == "function" then return value end
  local fn = named[value]
  if fn then return fn end
  core.fail("usage", ("%sunknown activation %q%s"):format(type(who) == "string" and who .. ": " or "", tostring(value),
    core.did_you_mean(value, names)))
end

return require "mgpu.strict_table" ("mgpu.activations", M)
