-- Second derivatives in float64 on ref, compared with central differences of first derivatives; and training
-- with a loss that contains a gradient.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers
local ops = core.ops

-- Central differences with a step of 1e-5 of values near 1: truncation error 1e-10, rounding error 1e-11.
local TOLERANCE = 1e-8

local function on_ref(fn)
  local before = core.default_device()
  mgpu.set_floatx "float64"
  core.default_device "ref:0"
  local ok, message = pcall(fn)
  core.default_device(before)
  mgpu.set_floatx "float32"
  if not ok then error(message, 0) end
end

-- Compares d/dx <grad <fn(x), u>, v> with (grad(x + h v) - grad(x - h v)) / 2h for random u and v.
local function second(fn, shape, low, high)
  on_ref(function()
    mgpu.seed(2)
    local x = mgpu.rand(shape) * (high - low) + low
    mgpu.eval(x)
    local u, v = mgpu.rand(fn(x):shape()) + 0.5, mgpu.rand(shape) - 0.5
    mgpu.eval(u, v)
    local function first(at)
      return mgpu.grad(function(t) return (fn(t) * u):sum() end)(at)
    end
    local exact = mgpu.grad(function(t) return (first(t) * v):sum() end)(x)
    local h = 1e-5
    local estimate = (first(x + v * h) - first(x - v * h)) / (2 * h)
    check.near(exact or x * 0, estimate, TOLERANCE) -- false: the first derivative does not depend on x
  end)
end

local UNARY = { exp = { -1, 1 }, expm1 = { -1, 1 }, log = { 0.5, 2 }, log1p = { -0.5, 1 }, sqrt = { 0.5, 2 },
  rsqrt = { 0.5, 2 }, square = { -1, 1 }, reciprocal = { 0.5, 2 }, neg = { -1, 1 }, abs = { 0.1, 1 },
  sin = { -1, 1 }, cos = { -1, 1 }, tan = { -1, 1 }, asin = { -0.8, 0.8 }, acos = { -0.8, 0.8 },
  atan = { -1, 1 }, sinh = { -1, 1 }, cosh = { -1, 1 }, tanh = { -1, 1 }, sigmoid = { -2, 2 },
  softplus = { -2, 2 }, erf = { -1, 1 }, relu = { 0.1, 1 }, softmax = { -1, 1 }, log_softmax = { -1, 1 } }

for name, range in pairs(UNARY) do
  test(name .. " has a second derivative", function()
    second(function(t) return ops[name](ops.square(t)) * t end, { 2, 3 }, math.max(range[1], 0.3), 0.7)
    second(function(t) return ops[name](t) end, { 2, 3 }, range[1], range[2])
  end)
end

for _, name in ipairs { "add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum" } do
  test(name .. " has second derivatives in both operands", function()
    second(function(t) return ops[name](t, ops.square(t) + 0.5) end, { 2, 3 }, 0.3, 1)
    second(function(t) return ops[name](ops.square(t) + 0.5, ops.exp(t)) end, { 2, 3 }, 0.3, 1)
    second(function(t) return ops[name](t, ops.reshape(t, { shape = { 3, 1 } })) end, { 3 }, 0.3, 1)
  end)
end

test("cross-entropies of softmax have second derivatives in logits and targets", function()
  local labels = mgpu.tensor({ 2, 0, -1 }, { dtype = "int32", device = "ref:0" }) -- -1 is none of the classes
  for _, fn in ipairs {
    function(t) return ops.softmax_cross_entropy(t, ops.square(t)) end,
    function(t) return ops.square(ops.softmax_cross_entropy(ops.exp(t), t)) end,
    function(t) return ops.square(ops.sparse_softmax_cross_entropy(ops.square(t), labels)) end,
    function(t) return ops.sparse_softmax_cross_entropy(t, labels) * ops.sum(t, { axis = { 2 } }) end,
  } do
    second(fn, { 3, 4 }, 0.2, 1)
  end
end)

for _, name in ipairs { "sum", "prod", "max", "min" } do
  test(name .. " over one axis and over all has a second derivative", function()
    second(function(t) return ops[name](ops.square(t), { axis = { 2 } }) end, { 3, 4 }, 0.2, 1)
    second(function(t) return ops[name](ops.square(t), { axis = { 1, 3 } }) end, { 2, 3, 2 }, 0.2, 1)
    second(function(t) return ops.square(ops[name](t)) end, { 2, 3 }, 0.2, 1)
  end)
end

test("prod's derivatives are exact with zeros among the factors", function()
  on_ref(function()
    local x = mgpu.tensor { { 2, 0, 3 } }
    local function first(at) return mgpu.grad(function(t) return ops.prod(t) end)(at) end
    check.equal(first(x), { { 0, 6, 0 } })
    check.equal(mgpu.grad(function(t) return first(t):slice { 1, { 1, 1 } }:sum() end)(x), { { 0, 3, 0 } })
  end)
end)

for what, fn in pairs {
  ["cumsum"] = function(t) return ops.cumsum(ops.square(t), { axis = 2 }) end,
  ["matmul, each transpose"] = function(t)
    local a = ops.matmul(t, t, { transpose_b = true })
    return ops.matmul(a, ops.matmul(t, t, { transpose_a = true, transpose_b = false }):slice { { 1, 3 }, { 1, 3 } },
      { transpose_a = true })
  end,
  ["reshape, permute, slice, concat"] = function(t)
    local p = ops.permute(ops.reshape(ops.square(t), { shape = { 2, 6 } }), { order = { 2, 1 } })
    return ops.concat(p:slice { { 1, 3 }, {} }, p:slice { { 4, 6 }, {} } * p:slice { { 2, 4 }, {} }, { axis = 2 })
  end,
  ["pad, reverse, broadcast_to"] = function(t)
    local p = ops.pad(ops.square(t), { before = { 1, 0 }, after = { 0, 2 }, interior = { 1, 0 } })
    return ops.reverse(p, { axis = 2 }) * ops.broadcast_to(ops.sum(t, { axis = { 2 }, keepdims = true }):slice
      { { 1, 1 }, {} }, { shape = p:shape() })
  end,
  ["gather"] = function(t)
    return ops.square(ops.gather(t, mgpu.tensor({ 0, 2, 0 }, { dtype = "int32" }), { axis = 1 }))
  end,
  ["where"] = function(t) return ops.where(ops.gt(t, 0.5), ops.square(t), ops.exp(t)) end,
} do
  test(what .. " has a second derivative", function() second(fn, { 3, 4 }, 0.2, 1) end)
end

test("batched matmul has a second derivative", function()
  second(function(t) return ops.matmul(ops.square(t), ops.permute(t, { order = { 1, 3, 2 } })) end, { 2, 3, 2 },
    0.2, 1)
end)

for i, attrs in ipairs { { strides = { 1, 1 } }, { strides = { 2, 1 }, pads = { 1, 0, 0, 1 } },
  { strides = { 1, 1 }, dilations = { 2, 1 } }, { strides = { 1, 2 }, pads = { 1, 1, 1, 1 }, groups = 2 } } do
  test(("conv2d %d has second derivatives in image and kernels"):format(i), function()
    local groups = attrs.groups or 1
    local function fixed(shape)
      return ops.reshape(ops.sin(ops.iota({ shape[1] * shape[2] * shape[3] * shape[4] }, 1, "float64")),
        { shape = shape })
    end
    second(function(t)
      return ops.square(ops.conv2d(ops.square(t), fixed { 2, 2, 2 / groups, 2 }, attrs))
    end, { 1, 4, 5, 2 }, 0.2, 1)
    second(function(t)
      return ops.square(ops.conv2d(fixed { 1, 4, 5, 2 }, t, attrs))
    end, { 2, 2, 2 / groups, 2 }, 0.2, 1)
  end)
end

test("pools and normalization have second derivatives", function()
  second(function(t) return ops.square(ops.avg_pool2d(ops.square(t), { size = { 2, 2 } })) end, { 1, 4, 4, 1 },
    0.2, 1)
  second(function(t) return ops.square(ops.max_pool2d(ops.square(t), { size = { 2, 2 } })) end, { 1, 4, 4, 1 },
    0.2, 1)
  on_ref(function()
    local gamma, beta = mgpu.ones { 3 }, mgpu.zeros { 3 }
    second(function(t) return ops.square(ops.batch_norm(t, ops.moments(t), gamma, beta)) end, { 4, 3 }, 0.2, 1)
  end)
end)

-- ---- a gradient penalty -------------------------------------------------------------------------

-- Trains with the loss mean squared error + mean of (|d out / d x| - 1)^2; returns the losses and the weights.
local function train(jitted, list)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 8, activation = "tanh", name = "h" },
    L.Dense { 1, name = "o" } }
  local opt = mgpu.optimizers.Adam { 0.02 }
  local function penalty(x)
    local slope = mgpu.grad(function(t) return model(t):sum() end)(x)
    local norm = ops.sqrt(ops.sum(ops.square(slope), { axis = { 2 } }) + 1e-12)
    return mgpu.mean((norm - 1) ^ 2)
  end
  local function step(x, y)
    local loss, grads = mgpu.value_and_grad(function()
      return mgpu.mean((model(x) - y) ^ 2) + penalty(x)
    end, model.trainable_variables)()
    opt:apply(grads, model.trainable_variables)
    return loss
  end
  local run = jitted and core.jit(step, list and { devices = list }) or step
  mgpu.seed(2)
  local x = mgpu.rand { 16, 2 }
  local y = x:sum { axis = 2, keepdims = true } * 0.7
  mgpu.eval(x, y)
  local losses = {}
  for i = 1, 40 do losses[i] = run(x, y):item() end
  return losses, model:get_weights()
end

test("a loss with a gradient penalty trains and has the same numbers with and without jit", function()
  on_ref(function()
    local eager, a = train(false)
    local jitted, b = train(true)
    check.truthy(eager[40] < eager[1] / 3, "the loss falls")
    check.near(jitted, eager, 1e-12)
    for i = 1, #a do check.near(b[i], a[i], 1e-12) end
  end)
end)
