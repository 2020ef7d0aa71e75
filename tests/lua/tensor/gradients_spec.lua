-- Gradients through jitted functions, models, copies and moves between devices.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test

-- The gradient of the scalar fn(...) with respect to the variable v.
local function gradient(fn, v, ...)
  local _, grads = mgpu.value_and_grad(fn, { v })(...)
  return grads[1]
end

test("a jitted function is traced through while a gradient is taken", function()
  local v = mgpu.variable { 1, 2 }
  local f = mgpu.jit(function(x) return v * x end)
  local x = mgpu.tensor { 3, 4 }
  check.equal(gradient(function(t) return (f(t) + v):sum() end, v, x), { 4, 5 })
  f(x) -- an existing plan must not change the gradient
  check.equal(gradient(function(t) return (f(t) + v):sum() end, v, x), { 4, 5 })
  check.equal(mgpu.grad(mgpu.jit(function(t) return (t * t):sum() end))(x), { 6, 8 })
  check.equal(f:plans(), 1)
end)

test("jit and gradients can be nested to any depth", function()
  local v, x = mgpu.variable { 1, 2 }, mgpu.tensor { 3, 4 }
  local f = mgpu.jit(function(t) return v * v * t end)
  local function slope(t) return gradient(function() return f(t):sum() end, v) end -- 2 v t
  local g = mgpu.jit(function(t) return f(slope(t)) end)                           -- 2 v^3 t
  check.equal(slope(x), { 6, 16 })
  check.equal(g(x), { 6, 64 })
  check.equal(gradient(function(t) return g(t):sum() end, v, x), { 18, 96 })
  check.equal(mgpu.jit(function(t) return gradient(function() return g(t):sum() end, v) end)(x), { 18, 96 })
  local cube = mgpu.grad(mgpu.jit(function(t) return (t * t * t):sum() end))
  check.equal(mgpu.grad(mgpu.jit(function(t) return cube(t):sum() end))(x), { 18, 24 })
end)

test("a jitted function inside a gradient assigns its variables once for each call", function()
  local v, count = mgpu.variable { 1, 2 }, mgpu.variable(0)
  local f = mgpu.jit(function(x)
    count:assign(count + 1)
    return x * count
  end)
  check.equal(gradient(function() return (f(v) + f(v)):sum() end, v), { 3, 3 })
  check.equal(count:value(), 2)
  f(v)
  check.equal(count:value(), 3)
end)

test("an error in a jitted function in a gradient is raised unchanged", function()
  local f = mgpu.jit(function(x) return x:reshape { 7 } end)
  check.raises(function() mgpu.grad(function(x) return f(x):sum() end)(mgpu.ones { 2 }) end,
    "gradients_spec.lua:%d+: reshape", "usage")
  check.equal(f(mgpu.ones { 7 }):shape(), { 7 })
end)

test("a model predicts, evaluates and trains on any devices inside a gradient", function()
  local L = mgpu.layers
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1" } } do
    local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1, use_bias = false, kernel_initializer = "ones" } }
    model:compile { optimizer = mgpu.optimizers.SGD { 0.5 }, loss = "mse", devices = devices }
    local v, x, y = mgpu.variable(3), mgpu.ones { 1, 2 }, mgpu.zeros { 1, 1 }
    check.equal(gradient(function() return model:predict(x * v):sum() end, v):item(), 2)
    check.equal(gradient(function() return model:evaluate(x, y, { verbose = 0 }).loss * v end, v):item(), 4)
    gradient(function() return model:train_on_batch(x, y).loss * v end, v) -- 1 - 0.5 * 2 * 2
    check.equal(model:get_weights()[1], { { -1 }, { -1 } })
  end
end)

test("clone and to pass the gradient back to the device of their input", function()
  local v = mgpu.variable(3)
  local function both(fn) return gradient(function() return v:square() + fn(v:square()) end, v):item() end
  check.equal(both(function(t) return t:clone() end), 12)
  check.equal(both(function(t) return t:to "ref:1":to(v:device()) end), 12)
  local grad = mgpu.grad(function(x) return (x * x):to "ref:1":sum() end)
  check.equal(grad(mgpu.tensor { 3, 4 }), { 6, 8 })
  check.equal(grad(mgpu.tensor { 3, 4 }):device(), v:device())
  check.equal(mgpu.grad(function(x) return grad(x):sum() end)(mgpu.tensor { 3, 4 }), { 2, 2 })
end)

test("tensors without a gradient can move between devices inside a gradient", function()
  local data, v = mgpu.tensor { 5, 6 }, mgpu.variable { 1, 2 }
  check.equal(gradient(function() return (v * data:to "ref:1":to(v:device()):clone()):sum() end, v), { 5, 6 })
end)

test("inside mgpu.jit clone returns its input, and a move is an error with the remedy", function()
  local v = mgpu.variable(3)
  local step = mgpu.jit(function() return gradient(function() return v:square():clone() end, v) end)
  check.equal(step():item(), 6)
  check.raises(function() mgpu.jit(function(x) return x:to "ref:1" end)(mgpu.ones { 2 }) end,
    'gradients_spec.lua:%d+: to: inside mgpu.jit .* device = "ref:1"', "usage")
end)

test("at a bound clip passes the gradient on, as in Keras", function()
  local slope = mgpu.grad(function(t) return t:clip(0, 1):sum() end)
  check.equal(slope(mgpu.tensor { -1, 0, 0.5, 1, 2 }), { 0, 1, 1, 1, 0 })
  check.equal(mgpu.tensor({ -5, 0, 5 }, { dtype = "int32" }):clip(-1, 1), { -1, 0, 1 })
  check.equal(tostring(mgpu.tensor { 0 / 0 }:clip(0, 1):item()), tostring(0 / 0))
end)
