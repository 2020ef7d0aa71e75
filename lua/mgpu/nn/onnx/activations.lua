--- Activations as ops of ONNX: functions (graph, x, dtype) -> the name of the result; x is the name of a tensor.
--
-- Where ONNX has no op, they are made of others by the formulas of mgpu/nn/activations.lua.
local M = {}

local elementwise = {} -- by name; the order of the axes does not matter to them

-- One op with fixed attributes.
local function plain_op(op_type, attributes)
  return function(g, x) return g:op(op_type, { x }, attributes) end
end

local function binary(op_type)
  return function(g, a, b) return g:op(op_type, { a, b }) end
end
local add, sub, mul, div = binary "Add", binary "Sub", binary "Mul", binary "Div"

-- x limited to [low, high].
local function clip(low, high)
  return function(g, x, dtype) return g:op("Clip", { x, g:number(low, dtype), g:number(high, dtype) }) end
end

function elementwise.linear(_, x) return x end
elementwise.relu = plain_op "Relu"
elementwise.relu6 = clip(0, 6)
elementwise.leaky_relu = plain_op("LeakyRelu", { alpha = { float = 0.2 } })
elementwise.elu = plain_op "Elu"
elementwise.selu = plain_op "Selu"
elementwise.celu = plain_op "Celu"
elementwise.sigmoid = plain_op "Sigmoid"
elementwise.tanh = plain_op "Tanh"
elementwise.softplus = plain_op "Softplus"
elementwise.exponential = plain_op "Exp"
elementwise.softsign = plain_op "Softsign"
elementwise.hard_sigmoid_keras2 = plain_op("HardSigmoid", { alpha = { float = 0.2 }, beta = { float = 0.5 } })
elementwise.hard_sigmoid = plain_op("HardSigmoid", { alpha = { float = 1 / 6 }, beta = { float = 0.5 } })
elementwise.hard_swish = plain_op "HardSwish"
elementwise.hard_silu = elementwise.hard_swish
elementwise.hard_tanh = clip(-1, 1)
elementwise.hard_shrink = plain_op("Shrink", { lambd = { float = 0.5 }, bias = { float = 0 } })
elementwise.soft_shrink = plain_op("Shrink", { lambd = { float = 0.5 }, bias = { float = 0.5 } })

function elementwise.silu(g, x) return mul(g, x, g:op("Sigmoid", { x })) end
elementwise.swish = elementwise.silu

function elementwise.gelu(g, x, dtype)
  local erf = g:op("Erf", { mul(g, x, g:number(0.7071067811865476, dtype)) })
  return mul(g, mul(g, x, g:number(0.5, dtype)), add(g, erf, g:number(1, dtype)))
end

function elementwise.mish(g, x) return mul(g, x, g:op("Tanh", { g:op("Softplus", { x }) })) end

function elementwise.squareplus(g, x, dtype)
  local root = g:op("Sqrt", { add(g, mul(g, x, x), g:number(4, dtype)) })
  return mul(g, add(g, x, root), g:number(0.5, dtype))
end

function elementwise.tanh_shrink(g, x) return sub(g, x, g:op("Tanh", { x })) end

function elementwise.log_sigmoid(g, x)
  return g:op("Neg", { g:op("Softplus", { g:op("Neg", { x }) }) })
end

function elementwise.sparse_plus(g, x, dtype)
  local one, zero = g:number(1, dtype), g:number(0, dtype)
  local above = add(g, x, one)
  local middle = mul(g, mul(g, above, above), g:number(0.25, dtype))
  local upper = g:op("Where", { g:op("Less", { x, one }), middle, x })
  return g:op("Where", { g:op("LessOrEqual", { x, g:number(-1, dtype) }), zero, upper })
end

function elementwise.sparse_sigmoid(g, x, dtype)
  return clip(0, 1)(g, mul(g, add(g, x, g:number(1, dtype)), g:number(0.5, dtype)), dtype)
end

-- Along the last axis. The functions get a tensor in the layers' order of axes.
local along_axis = {
  softmax = plain_op("Softmax", { axis = -1 }),
  log_softmax = plain_op("LogSoftmax", { axis = -1 }),
  glu = function(g, x)
    local halves = g:ops("Split", { x }, { axis = -1 }, 2)
    return mul(g, halves[1], g:op("Sigmoid", { halves[2] }))
  end,
}

-- A number z is above tau if 1 + count * z > sum, over the numbers that are not below z.
function along_axis.sparsemax(g, x, dtype)
  local one, last = g:number(1, dtype), g:integers { -1 }
  local function to_dtype(name) return g:op("CastLike", { name, x }) end
  local z, others = g:op("Unsqueeze", { x, last }), g:op("Unsqueeze", { x, g:integers { -2 } })
  local not_below = to_dtype(g:op("GreaterOrEqual", { others, z }))
  local function sum(name, keep) return g:op("ReduceSum", { name, last }, { keepdims = keep }) end
  local above = add(g, mul(g, x, sum(not_below, 0)), one)
  local support = to_dtype(g:op("Greater", { above, sum(mul(g, not_below, others), 0) }))
  local tau = div(g, sub(g, sum(mul(g, support, x), 1), one), sum(support, 1))
  return g:op("Relu", { sub(g, x, tau) })
end

--- apply(graph, layer, v) -> the value v after the layer's activation. Errors: an activation that is a function.
function M.apply(g, layer, v)
  local name = layer.activation or "linear"
  if type(name) ~= "string" then
    layer:fail "its activation is a function, which cannot be saved as .onnx: use the name of an activation"
  end
  if elementwise[name] then return g:map(v, function(x) return elementwise[name](g, x, v.dtype) end) end
  if not along_axis[name] then layer:fail("ONNX has no activation %q", name) end
  local shape = { unpack(v.shape) }
  if name == "glu" then shape[#shape] = shape[#shape] / 2 end
  return g.value(along_axis[name](g, g:plain(v), v.dtype), shape, v.dtype)
end

return M
