--- mgpu.activations: element-wise functions (and softmax and the like), by Keras's names and formulas.
--
--     L.Dense { 10, activation = "gelu" }
--     L.Activation { function(x) return mgpu.activations.gelu(x, true) end }
-- Each takes a floating tensor x of any shape and RETURNS one of the same shape and dtype (glu: half the axis).
-- Arguments after x come in Keras's order and have its defaults; an axis counts from 1 (-1 = last).
local core = require "mgpu.core"
local methods = require "mgpu.methods"
local ops = core.ops

local named = {} -- what get finds

-- ---- around relu --------------------------------------------------------------------------------

--- linear(x): x.
-- Example:
--     local x = mgpu.tensor { -1, 2 }
--     print(mgpu.activations.linear(x) == x)  --> true
function named.linear(x) return x end

--- relu(x, negative_slope = 0, max_value = none, threshold = 0): max_value where x >= max_value; x where x > threshold;
--- negative_slope (x - threshold) elsewhere.
-- Example:
--     print(mgpu.activations.relu(mgpu.tensor { -2, 3, 9 }))
--     --> tensor {3} float32 cpu:0
--     --> {0, 3, 9}
--     print(mgpu.activations.relu(mgpu.tensor { -2, 3, 9 }, 0.5, 6)) -- a slope below 0, and at most 6
--     --> tensor {3} float32 cpu:0
--     --> {-1,  3,  6}
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
-- Example:
--     print(mgpu.activations.relu6(mgpu.tensor { -2, 3, 9 }))
--     --> tensor {3} float32 cpu:0
--     --> {0, 3, 6}
function named.relu6(x)
  local y = ops.relu(x)
  return ops.where(ops.ge(y, 6), 6, y)
end

--- leaky_relu(x, negative_slope = 0.2): x where x > 0, negative_slope x elsewhere.
-- Example:
--     print(mgpu.activations.leaky_relu(mgpu.tensor { -2, 3 }, 0.5))
--     --> tensor {2} float32 cpu:0
--     --> {-1,  3}
function named.leaky_relu(x, negative_slope)
  -- as a product, so that the gradient is multiplied by the same factor
  return x * ops.where(ops.gt(x, 0), ops.full({}, 1, x:dtype()), negative_slope or 0.2)
end

-- min(x, 0). e^x - 1 is computed of this, so that a large x cannot overflow in the branch that `where` drops. At 0 the
-- gradient is the slope of the negative side, as in Keras.
local function negative_part(x) return ops.where(ops.gt(x, 0), 0, x) end

--- elu(x, alpha = 1): x where x > 0, alpha (e^x - 1) elsewhere (Clevert et al., 2016).
-- Example:
--     print((mgpu.activations.elu(mgpu.tensor { -100, -1, 3 }) * 100):round()) -- never below -alpha
--     --> tensor {3} float32 cpu:0
--     --> {-100,  -63,  300}
function named.elu(x, alpha)
  return ops.where(ops.gt(x, 0), x, ops.expm1(negative_part(x)) * (alpha or 1))
end

--- selu(x): elu scaled so that layers keep mean 0 and variance 1 (Klambauer et al., 2017). At 0 the gradient is that
--- of the positive side, as in Keras.
-- Example:
--     print((mgpu.activations.selu(mgpu.tensor { -100, 0, 1 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-176,    0,  105}
function named.selu(x)
  return ops.where(ops.ge(x, 0), x, ops.expm1(negative_part(x)) * 1.6732632423543772) * 1.0507009873554805
end

--- celu(x, alpha = 1): max(x, 0) + alpha (e^(min(x, 0) / alpha) - 1) (Barron, 2017). Its slope at 0 is 1; Keras
--- counts both sides there and gives 2.
-- Example:
--     print((mgpu.activations.celu(mgpu.tensor { -100, 0, 3 }, 2) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-200,    0,  300}
function named.celu(x, alpha)
  alpha = alpha or 1
  return ops.relu(x) + ops.expm1(negative_part(x) / alpha) * alpha
end

--- threshold(x, threshold, value): x where x > threshold, `value` elsewhere.
-- Example:
--     print(mgpu.activations.threshold(mgpu.tensor { 0.2, 0.5, 0.9 }, 0.5, 0))
--     --> tensor {3} float32 cpu:0
--     --> {0,   0,   0.9}
--     local layer = L.Activation { function(x) return mgpu.activations.threshold(x, 0.5, 0) end }
--     print(layer(mgpu.tensor { { 0.4, 0.6 } }):gt(0))
--     --> tensor {1, 2} bool cpu:0
--     --> {{false,  true}}
function named.threshold(x, threshold, value)
  if type(threshold) ~= "number" or type(value) ~= "number" then
    core.fail("usage", "threshold(x, threshold, value) needs two numbers: as an activation write "
      .. "function(x) return mgpu.activations.threshold(x, 0.5, 0) end")
  end
  return ops.where(ops.gt(x, threshold), x, value)
end

-- ---- smooth -------------------------------------------------------------------------------------

--- sigmoid(x): 1 / (1 + e^-x).
-- Example:
--     print(mgpu.activations.sigmoid(mgpu.tensor { -1000, 0, 1000 }))
--     --> tensor {3} float32 cpu:0
--     --> {0,   0.5, 1}
function named.sigmoid(x) return ops.sigmoid(x) end

--- tanh(x): the hyperbolic tangent.
-- Example:
--     print((mgpu.activations.tanh(mgpu.tensor { -1, 0, 100 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-76,   0, 100}
function named.tanh(x) return ops.tanh(x) end

--- softplus(x): log(1 + e^x).
-- Example:
--     print((mgpu.activations.softplus(mgpu.tensor { -100, 0, 100 }) * 100):round()) -- log 2 at 0
--     --> tensor {3} float32 cpu:0
--     --> {    0,    69, 10000}
function named.softplus(x) return ops.softplus(x) end

--- exponential(x): e^x.
-- Example:
--     print(("%.3f"):format(mgpu.activations.exponential(mgpu.tensor { 1 }):item()))  --> 2.718
function named.exponential(x) return ops.exp(x) end

--- softsign(x): x / (|x| + 1).
-- Example:
--     print(mgpu.activations.softsign(mgpu.tensor { -1, 0, 3 }))
--     --> tensor {3} float32 cpu:0
--     --> {-0.5,   0,     0.75}
function named.softsign(x) return x / (ops.abs(x) + 1) end

--- silu(x), also swish: x sigmoid(x).
-- Example:
--     print((mgpu.activations.silu(mgpu.tensor { -1, 0, 1 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-27,   0,  73}
--     print(L.Activation { "swish" } (mgpu.tensor { { 0 } }):item())  --> 0
function named.silu(x) return x * ops.sigmoid(x) end
named.swish = named.silu

--- gelu(x, approximate = false): x times the normal distribution function at x, exactly or by tanh (Hendrycks &
--- Gimpel, 2016).
-- Example:
--     local x = mgpu.tensor { -1, 0, 1 }
--     print((mgpu.activations.gelu(x) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-16,   0,  84}
--     -- the approximation by tanh is close
--     print((mgpu.activations.gelu(x, true) - mgpu.activations.gelu(x)):abs():max():item() < 1e-3)  --> true
function named.gelu(x, approximate)
  if approximate then
    return x * 0.5 * (ops.tanh((x + ops.square(x) * x * 0.044715) * 0.7978845608028654) + 1)
  end
  return x * 0.5 * (ops.erf(x * 0.7071067811865476) + 1)
end

--- mish(x): x tanh(softplus(x)) (Misra, 2019).
-- Example:
--     print((mgpu.activations.mish(mgpu.tensor { -1, 0, 1 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-30,   0,  87}
function named.mish(x) return x * ops.tanh(ops.softplus(x)) end

--- squareplus(x, b = 4): (x + sqrt(x^2 + b)) / 2 (Barron, 2021).
-- Example:
--     print(mgpu.activations.squareplus(mgpu.tensor { -1.5, 0, 1.5 }))
--     --> tensor {3} float32 cpu:0
--     --> {0.5, 1,   2}
function named.squareplus(x, b) return (x + ops.sqrt(ops.square(x) + (b or 4))) / 2 end

--- tanh_shrink(x): x - tanh(x).
-- Example:
--     print((mgpu.activations.tanh_shrink(mgpu.tensor { -1, 0, 1 }) * 100):round())
--     --> tensor {3} float32 cpu:0
--     --> {-24,   0,  24}
function named.tanh_shrink(x) return x - ops.tanh(x) end

--- log_sigmoid(x): log(1 / (1 + e^-x)).
-- Example:
--     print((mgpu.activations.log_sigmoid(mgpu.tensor { -1000, 0 }) * 100):round()) -- not -inf at -1000
--     --> tensor {2} float32 cpu:0
--     --> {-100000,     -69}
function named.log_sigmoid(x)
  return -ops.softplus(-x)
end

-- ---- piecewise ----------------------------------------------------------------------------------

--- hard_sigmoid(x): max(0, min(1, x / 6 + 1/2)), Keras 3's formula.
-- Example:
--     print(mgpu.activations.hard_sigmoid(mgpu.tensor { -3, 0, 1.5, 3 }))
--     --> tensor {4} float32 cpu:0
--     --> {0,    0.5,  0.75, 1}
function named.hard_sigmoid(x)
  return named.relu6(x + 3) / 6
end

--- hard_sigmoid_keras2(x): max(0, min(1, x / 5 + 1/2)), the hard_sigmoid of Keras 1 and 2, in models from their files.
-- A Keras that loads a model with it asks for a function of this name: give it as custom_objects =
-- {"hard_sigmoid_keras2": lambda x: keras.ops.clip(0.2 * x + 0.5, 0, 1)}; Keras 3 finds it so for .keras files, Keras
-- 2 for .h5 files.
-- Example:
--     print(mgpu.activations.hard_sigmoid_keras2(mgpu.tensor { -3, 0, 1.5, 3 }))
--     --> tensor {4} float32 cpu:0
--     --> {0,   0.5, 0.8, 1}
function named.hard_sigmoid_keras2(x)
  return require "mgpu.tensor.composite_ops".clip(x * 0.2 + 0.5, 0, 1)
end

--- hard_swish(x), also hard_silu: x hard_sigmoid(x) (Howard et al., 2019).
-- Example:
--     print(mgpu.activations.hard_swish(mgpu.tensor { -3, 0, 1.5, 3 }))
--     --> tensor {4} float32 cpu:0
--     --> {0,     0,     1.125, 3}
--     print(L.Activation { "hard_silu" } (mgpu.tensor { { 3 } }):item())  --> 3
function named.hard_swish(x) return x * named.hard_sigmoid(x) end
named.hard_silu = named.hard_swish

--- hard_tanh(x): x within [-1, 1].
-- Example:
--     print(mgpu.activations.hard_tanh(mgpu.tensor { -2, 0.5, 2 }))
--     --> tensor {3} float32 cpu:0
--     --> {-1,    0.5,  1}
function named.hard_tanh(x) return require "mgpu.tensor.composite_ops".clip(x, -1, 1) end

--- hard_shrink(x, threshold = 0.5): x where |x| > threshold, 0 elsewhere.
-- Example:
--     print(mgpu.activations.hard_shrink(mgpu.tensor { -1, 0.25, 1 }))
--     --> tensor {3} float32 cpu:0
--     --> {-1,  0,  1}
function named.hard_shrink(x, threshold)
  return ops.where(ops.gt(ops.abs(x), threshold or 0.5), x, 0)
end

--- soft_shrink(x, threshold = 0.5): x moved towards 0 by threshold, 0 where |x| <= threshold.
-- Example:
--     print(mgpu.activations.soft_shrink(mgpu.tensor { -1, 0.25, 1 })) -- all by 0.5 closer to 0
--     --> tensor {3} float32 cpu:0
--     --> {-0.5,  0,    0.5}
function named.soft_shrink(x, threshold)
  threshold = threshold or 0.5
  if type(threshold) ~= "number" then
    core.fail("usage", "soft_shrink: threshold must be a number, got a " .. type(threshold))
  end
  return ops.where(ops.gt(x, threshold), x - threshold,
    ops.where(ops.lt(x, -threshold), x + threshold, 0))
end

--- sparse_plus(x): 0 where x <= -1, (x + 1)^2 / 4 up to 1, x above (Keras).
-- Example:
--     print(mgpu.activations.sparse_plus(mgpu.tensor { -2, 0, 2 }))
--     --> tensor {3} float32 cpu:0
--     --> {0,    0.25, 2}
function named.sparse_plus(x)
  return ops.where(ops.le(x, -1), 0, ops.where(ops.lt(x, 1), ops.square(x + 1) / 4, x))
end

--- sparse_sigmoid(x): 0 where x <= -1, (x + 1) / 2 up to 1, 1 above (Keras).
-- Example:
--     print(mgpu.activations.sparse_sigmoid(mgpu.tensor { -2, 0, 2 }))
--     --> tensor {3} float32 cpu:0
--     --> {0,   0.5, 1}
function named.sparse_sigmoid(x)
  return ops.where(ops.le(x, -1), 0, ops.where(ops.ge(x, 1), 1, (x + 1) * 0.5))
end

-- ---- along an axis ------------------------------------------------------------------------------

-- The axis as a position from 1, and the shape of x.
local function axis_of(who, x, axis)
  local shape = x:shape()
  axis = axis == nil and -1 or axis
  if type(axis) ~= "number" or axis % 1 ~= 0 then -- NaN is not an integer either
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
-- Example:
--     print(mgpu.activations.softmax(mgpu.tensor { { 0, 0 }, { 0, 1000 } }))
--     --> tensor {2, 2} float32 cpu:0
--     --> {{0.5, 0.5},
--     -->  {0,   1}}
function named.softmax(x, axis) return ops.softmax(x, { axis = axis or -1 }) end

--- log_softmax(x, axis = -1): log(softmax(x)), computed without rounding a probability to 0.
-- Example:
--     print(mgpu.activations.log_softmax(mgpu.tensor { { 0, 1000 } })) -- log(softmax(x)) would be -inf
--     --> tensor {1, 2} float32 cpu:0
--     --> {{-1000,     0}}
function named.log_softmax(x, axis) return ops.log_softmax(x, { axis = axis or -1 }) end

--- glu(x, axis = -1): a sigmoid(b) with a and b the halves of x along the axis, which has half the size in the result
--- (Dauphin et al., 2017). Errors: an axis of odd size.
-- Example:
--     print(mgpu.activations.glu(mgpu.tensor { { 3, 4, 100, -100 } })) -- the gates are 1 and 0
--     --> tensor {1, 2} float32 cpu:0
--     --> {{3, 0}}
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
-- Example:
--     print(mgpu.activations.sparsemax(mgpu.tensor { { 2, 1.5, 0 }, { 5, 1, 0 } }))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{0.75, 0.25, 0},
--     -->  {1,    0,    0}}
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
-- Example:
--     print(mgpu.activations.get "relu" == mgpu.activations.relu)  --> true
--     print(pcall(mgpu.activations.get, "rellu"))
--     --> false ...: unknown activation "rellu" (did you mean "relu"?)
function M.get(value, who)
  if value == nil then return named.linear end
  if type(value) == "function" then return value end
  local fn = named[value]
  if fn then return fn end
  core.fail("usage", ("%sunknown activation %q%s"):format(type(who) == "string" and who .. ": " or "", tostring(value),
    core.did_you_mean(value, names)))
end

return require "mgpu.strict_table" ("mgpu.activations", M)
