-- model(x) again: the plan that later calls run gives what calling the layers gives, also for gradients that are taken
-- afterwards; what has changed is noticed; calls that may depend on more call the layers.

local check = require "check"
local check_close = require "fixtures".check_close
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

-- What calling the layers gives.
local function by_layers(model, x, how)
  rawset(model, "repeated_call", nil)
  local y = model(x, how)
  rawset(model, "repeated_call", nil)
  return y
end

local function value(t)
  core.eval(t)
  return t
end

-- Calls model(x) until a plan can be there. RETURNS a function that gives the number of calls that ran it since.
local function warm(model, x, how)
  for _ = 1, 3 do model(x, how) end
  local own, n = model.repeated_call, 0
  local step = own and own.step
  if not step then return function() return 0 end end
  own.step = {
    call_recorded = function(_, ...)
      local y = { step:call_recorded(...) }
      if #y > 0 then n = n + 1 end
      return unpack(y)
    end,
    plans = function() return step:plans() end,
    prepare = function(_, ...) return step:prepare(...) end,
  }
  return function() return n end
end

-- Raises unless a and b have the same bits; on a GPU, whose kernels depend on what else is computed, unless they are
-- close.
local function check_same(a, b, what)
  if a:device():find "^cuda" then return check_close(a, b, what) end
  check.equal(a:shape(), b:shape())
  if (a - b):abs():max():item() ~= 0 then check.fail(what .. ": another result") end
end

local function mlp()
  return mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 16, activation = "relu" },
    L.Dense { 3, activation = "softmax" } }
end

local function normalized()
  local model = mgpu.Sequential { mgpu.Input { 8, 8, 3 }, L.Conv2D { 6, 3, use_bias = false }, L.BatchNormalization {},
    L.ReLU {}, L.Dropout { 0.5 }, L.MaxPooling2D { 2 }, L.Flatten {}, L.Dense { 5 } }
  for _, v in ipairs(model.variables) do
    if v.name:find "moving" then v:assign(mgpu.rand(v:shape()) + 0.5) end
  end
  return model
end

local function two_in_two_out()
  local a, b = mgpu.Input { 4, name = "a" }, mgpu.Input { 3, name = "b" }
  local h = L.Concatenate {} { L.Dense { 5, activation = "tanh" } (a), b }
  return mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 2 } (h), L.Dense { 1, activation = "sigmoid" } (h) } }
end

-- ---- the same numbers ---------------------------------------------------------------------------

test("repeated calls run a plan and give the numbers of the layers", function()
  for name, make in pairs { mlp = mlp, normalized = normalized } do
    local model = make()
    for _, rows in ipairs { 1, 3, 16 } do
      local x = value(mgpu.rand { rows, unpack(model.built_shape, 2) })
      local wanted = value(by_layers(model, x))
      local runs = warm(model, x)
      for _ = 1, 3 do check_same(model(x), wanted, name) end
      check.equal(runs(), 3)
      check_same(model(x, false), wanted, name)
      check_same(model(x, { training = false }), wanted, name)
      check.equal(runs(), 5)
    end
  end
end)

test("several inputs and outputs, nested models, models that are given inputs by name", function()
  local model = two_in_two_out()
  local a, b = value(mgpu.rand { 2, 4 }), value(mgpu.rand { 2, 3 })
  local wanted = by_layers(model, { a, b })
  local runs = warm(model, { a, b })
  local y = model { a, b }
  check.equal(#y, 2)
  for i = 1, 2 do check_same(y[i], wanted[i], "output " .. i) end
  check.equal(runs(), 1)
  y = model { a = a, b = b }
  for i = 1, 2 do check_same(y[i], wanted[i], "by name " .. i) end
  local outer = mgpu.Sequential { mgpu.Input { 4 }, mlp(), L.Dense { 2 } }
  local inner_wanted = value(by_layers(outer, a))
  runs = warm(outer, a)
  check_same(outer(a), inner_wanted, "nested")
  check.equal(runs(), 1)
end)

test("integers, and rows of another dtype and shape, have plans of their own", function()
  local model = mgpu.Sequential { mgpu.Input { 3 }, L.Embedding { 10, 4 }, L.Flatten {}, L.Dense { 2 } }
  local ids = value(mgpu.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = "int32" }))
  local wanted = value(by_layers(model, ids))
  local runs = warm(model, ids)
  check_same(model(ids), wanted, "ids")
  check.equal(runs(), 1)
  local wrong = value(mgpu.tensor({ { 1, 2, 10 }, { 4, 5, 6 } }, { dtype = "int32" }))
  check.raises(function() core.eval(model(wrong)) end, "an id is not among 0 to 9")
  check.equal(runs(), 1)
  local one = value(mgpu.tensor({ { 7, 8, 9 } }, { dtype = "int32" }))
  check_same(model(one), by_layers(model, one), "one row")
end)

test("what has changed between calls is noticed", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  local function check_now(what)
    local wanted = value(by_layers(model, x))
    warm(model, x)
    check_same(model(x), wanted, what)
  end
  -- without making a new plan: the old one must be right, or given up
  local function check_after(what, change)
    local runs = warm(model, x)
    local before = value(model(x))
    check.equal(runs(), 1)
    change()
    local y = value(model(x))
    local wanted = value(by_layers(model, x))
    check_same(y, wanted, what)
    check.truthy((y - before):abs():max():item() > 1e-4, what .. " changed nothing")
    check_now(what)
  end
  local first, second = model.layers[1], model.layers[2]
  check_after("assign", function() first.kernel:assign(mgpu.rand { 4, 16 } - 0.5) end)
  check_after("a lazy assign", function() first.kernel:assign(first.kernel:value() * 2) end)
  check_after("an activation", function() first.activate = mgpu.activations.tanh end)
  check_after("another variable", function()
    first.kernel = mgpu.variable(mgpu.rand { 4, 16 })
  end)
  check_after("a method", function() function second:call(t) return L.Dense.call(self, t) * 2 end end)
  second.call = nil
  rawset(model, "repeated_call", nil)
  check_after("a function of the user", function() first.activate = function(t) return t * 3 end end)
  first.activate = mgpu.activations.relu
  rawset(model, "repeated_call", nil)
  check_after("a class's method", function()
    local call = L.Dense.call
    function L.Dense:call(...) return call(self, ...) * 2 end
    check_same(model(x), by_layers(model, x), "the method")
    model.layers[1].activate = mgpu.activations.sigmoid
    L.Dense.call = call
  end)
  check_after("a layer", function()
    model:pop()
    model:add(L.Dense { 3, name = "another" })
  end)
  check_after("trained", function()
    model:compile { optimizer = "sgd", loss = "mse" }
    model:fit(mgpu.rand { 8, 4 }, mgpu.rand { 8, 3 }, { epochs = 5, verbose = 0 })
  end)
  check_after("loaded weights", function()
    local list = model:get_weights()
    for i, w in ipairs(list) do list[i] = w * 0.5 end
    model:set_weights(list)
  end)
end)

test("a frozen normalization and a change of trainable give the numbers of the layers", function()
  local model = normalized()
  local x = value(mgpu.rand { 2, 8, 8, 3 })
  warm(model, x)
  model.trainable = false
  check_same(model(x), by_layers(model, x), "not trainable")
  model.trainable = true
  model:compile { optimizer = "sgd", loss = "mse" }
  warm(model, x)
  model:fit(mgpu.rand { 8, 8, 8, 3 }, mgpu.rand { 8, 5 }, { verbose = 0 })
  check_same(model(x), by_layers(model, x), "after fit")
end)

-- ---- what calls the layers ----------------------------------------------------------------------

test("training = true draws anew and updates statistics at each call", function()
  local model = mgpu.Sequential { mgpu.Input { 50 }, L.BatchNormalization {}, L.Dropout { 0.5 } }
  local x = value(mgpu.rand { 8, 50 })
  warm(model, x)
  local mean = model.variables[3]
  local before = value(mean:value() * 1)
  local a = model(x, true)
  local b = model(x, { training = true })
  check.truthy((a - b):abs():max():item() > 0.1)
  check.truthy((mean:value() - before):abs():max():item() > 0)
end)

test("layers of the user's own, and functions of the user, run at each call", function()
  local n = 0
  local Count = mgpu.Layer:extend "Count"
  function Count:call(x) -- luacheck: no self
    n = n + 1
    return x * n
  end
  local x = value(mgpu.ones { 1, 2 })
  local model = mgpu.Sequential { mgpu.Input { 2 }, Count {} }
  n = 0
  for i = 1, 6 do check.equal(model(x):max():item(), i) end
  local m = 0
  local function count(t)
    m = m + 1
    return t * m
  end
  for _, layer in ipairs { L.Activation { count }, L.Lambda { count }, L.Dense { 1, activation = count } } do
    model = mgpu.Sequential { mgpu.Input { 2 }, layer }
    model(x)
    for _ = 1, 5 do
      local now = m
      model(x)
      check.equal(m, now + 1)
    end
  end
end)

test("random numbers, states and losses of a call are those of each call", function()
  local x = value(mgpu.rand { 2, 4, 3 })
  local stateful = mgpu.Sequential { mgpu.Input { 4, 3, batch_size = 2 }, L.LSTM { 2, stateful = true } }
  local last = value(stateful(x))
  for _ = 1, 5 do
    local y = value(stateful(x))
    check.truthy((y - last):abs():max():item() > 1e-7)
    last = y
  end
  local noisy = mgpu.Sequential { mgpu.Input { 3 }, L.Dense { 2, activity_regularizer = "l2" } }
  local z = value(mgpu.rand { 2, 3 })
  for _ = 1, 5 do
    noisy(z)
    check.equal(#noisy:losses(), 1)
  end
end)

test("masks come with the results of each call", function()
  local model = mgpu.Sequential { mgpu.Input { 3 }, L.Embedding { 10, 4, mask_zero = true } }
  local ids = value(mgpu.tensor({ { 1, 2, 0 } }, { dtype = "int32" }))
  local rnn = L.SimpleRNN { 2 }
  local wanted = value(rnn(model(ids)))
  for _ = 1, 5 do check_same(rnn(model(ids)), wanted, "masked") end
end)

test("inside of jit and of gradients the layers are called", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  local wanted = value(by_layers(model, x))
  local runs = warm(model, x)
  local f = mgpu.jit(function(t) return model(t) * 2 end)
  for _ = 1, 3 do check_same(f(x), wanted * 2, "jit") end
  local g = mgpu.value_and_grad(function() return model(x):square():sum() end, model.trainable_variables)
  local _, grads = g()
  check.truthy(grads[1]:abs():max():item() > 0)
  check.equal(runs(), 0)
  check_same(model(x), wanted, "after")
  check.equal(runs(), 1)
end)

-- ---- gradients afterwards -----------------------------------------------------------------------

-- The gradients of sum(y^2) with respect to the model's weights, where y is what make() gave before.
local function gradients_of(model, make)
  local y = make()
  local _, grads = mgpu.value_and_grad(function()
    local t = type(y) == "table" and y[1] or y
    local sum = t:square():sum()
    if type(y) == "table" then sum = sum + y[2]:exp():sum() end
    return sum
  end, model.trainable_variables)()
  return grads
end

local function check_gradients(model, x, what)
  local wanted = gradients_of(model, function() return by_layers(model, x) end)
  for _, g in ipairs(wanted) do core.eval(g) end
  local runs = warm(model, x)
  local grads = gradients_of(model, function() return model(x) end)
  check.equal(runs(), 1)
  for i, g in ipairs(wanted) do check_close(grads[i], g, what .. " " .. i) end
end

test("a gradient that is taken after the call flows through its result", function()
  check_gradients(mlp(), value(mgpu.rand { 2, 4 }), "mlp")
  check_gradients(normalized(), value(mgpu.rand { 2, 8, 8, 3 }), "normalized")
  check_gradients(two_in_two_out(), { value(mgpu.rand { 2, 4 }), value(mgpu.rand { 2, 3 }) }, "two")
end)

test("a gradient with respect to the input flows through several calls", function()
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 4, activation = "tanh" } }
  local x = value(mgpu.rand { 2, 4 })
  local function chain(call)
    local y = call(call(call(x)))
    return mgpu.grad(function() return y:square():sum() end)(x)
  end
  local wanted = value(chain(function(t) return by_layers(model, t) end))
  warm(model, x)
  check_close(chain(function(t) return model(t) end), wanted, "chain")
  -- twice, and of the gradient of the result
  local y = model(x)
  local g = mgpu.grad(function() return y:sum() end)
  check_close(g(x), value(g(x)), "again")
  check_close(g(y), mgpu.ones { 2, 4 }, "of the result")
end)

test("a gradient is that of the weights at the time of the call", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  local bias = model.layers[2].bias
  local function grads(call)
    model.layers[1].kernel:assign(mgpu.full({ 4, 16 }, 0.3))
    core.eval(model.layers[1].kernel:value())
    local y = call()
    model.layers[1].kernel:assign(mgpu.full({ 4, 16 }, 0.9))
    local _, list = mgpu.value_and_grad(function() return y:square():sum() end, { bias, model.layers[1].kernel })()
    return list
  end
  local wanted = grads(function() return by_layers(model, x) end)
  core.eval(wanted[1])
  warm(model, x)
  local got = grads(function() return model(x) end)
  check_close(got[1], wanted[1], "bias")
  check.equal(got[2], false) -- the present kernel is another value
  check.equal(wanted[2], false)
end)

test("a result that was read is a plain value, and holds nothing else", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  warm(model, x)
  collectgarbage()
  local y = model(x)
  check.equal(core.producer(y) ~= nil, true)
  y:totable()
  check.equal(core.producer(y), nil)
  local z = model(x)
  core.eval(z * 2)
  check.equal(core.producer(z), nil)
  local v = mgpu.variable(mgpu.zeros { 2, 3 })
  core.eval(v:value()) -- else it waits to be evaluated
  v:assign(model(x))
  check.equal(core.producer(v:value()), nil)
end)

test("a result that is read inside of a gradient is a plain value after it", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  local w = mgpu.variable(mgpu.ones { 3 })
  warm(model, x)
  local y = model(x)
  local loss, grads = mgpu.value_and_grad(function()
    local sum = (y * w):sum()
    sum:item()
    return sum + y:square():sum()
  end, { w, model.layers[2].bias })()
  check.equal(core.producer(y), nil)
  check.truthy(loss:item() > 0)
  check_close(grads[1], y:sum(1), "w")
  check.truthy(grads[2]:abs():max():item() > 0)
end)

local kept_model, kept_x = mlp(), value(mgpu.ones { 1, 4 })
test("the plan of a model that outlives a test counts no tensors", function() warm(kept_model, kept_x) end)

test("calls that are fed with their own results do not pile up", function()
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 4, activation = "tanh" } }
  local x = value(mgpu.rand { 1, 4 })
  warm(model, x)
  local ffi = require "ffi"
  ffi.cdef "int64_t mg_tensor_live_count(void);"
  collectgarbage()
  for _ = 1, 1000 do x = model(x) end
  collectgarbage()
  collectgarbage()
  check.truthy(ffi.C.mg_tensor_live_count() < 500, "tensors are kept")
end)

test("a loss finds the logits behind a result", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  model.layers[2].kernel:assign(mgpu.rand { 16, 3 } * 300)
  local y = mgpu.tensor({ 0, 2 }, { dtype = "int32" })
  local loss = mgpu.losses.sparse_categorical_crossentropy
  local wanted = value(loss(y, by_layers(model, x)))
  local runs = warm(model, x)
  check_close(loss(y, model(x)), wanted, "loss")
  check.equal(runs(), 1)
end)

-- ---- devices ------------------------------------------------------------------------------------

test("a model on several devices, or without plans, calls its layers", function()
  check.needs "cpu"
  local model, x = mlp(), value(mgpu.rand { 6, 4 })
  local wanted = value(by_layers(model, x))
  local runs = warm(model, x)
  model:compile { loss = "mse", devices = { "cpu:0", "cpu:1" } }
  for _ = 1, 5 do check_same(model(x), wanted, "two devices") end
  model:compile { loss = "mse", run_eagerly = true }
  for _ = 1, 5 do check_same(model(x), wanted, "eager") end
  check.equal(runs(), 0)
  model:compile { optimizer = "sgd", loss = "mse" }
  check_same(model(x), wanted, "one device")
  check.equal(runs(), 1)
end)

test("the result lies where the model does", function()
  check.needs "cpu"
  local before = core.default_device()
  core.default_device "cpu:1"
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  local wanted = value(by_layers(model, x))
  local runs = warm(model, x)
  check.equal(model(x):device(), "cpu:1")
  check_same(model(x), wanted, "cpu:1")
  check.equal(runs(), 2)
  core.default_device(before)
  check_same(model(x), wanted, "another default")
  check.equal(model(x):device(), "cpu:1")
end)

-- ---- limits -------------------------------------------------------------------------------------

test("a program whose shapes keep changing has few plans", function()
  local model = mlp()
  for round = 1, 3 do
    for rows = 1, 20 do
      local x = value(mgpu.rand { rows, 4 })
      check_same(model(x), by_layers(model, x), "rows")
      for _ = 1, 2 do model(x) end
      local step = model.repeated_call.step
      check.truthy(not step or step:plans() <= 6, "too many plans in round " .. round)
    end
  end
end)

test("an x without a value stays lazy, and so does the result", function()
  local model, x = mlp(), value(mgpu.rand { 2, 4 })
  local runs = warm(model, x)
  local w = value(mgpu.ones { 4 })
  local y = model(x * w)
  check.equal(runs(), 0)
  check.truthy(mgpu.grad(function() return y:square():sum() end)(w):abs():max():item() > 0)
end)

test("a function that is given nothing has no recorded runs", function()
  local step = core.jit(function() return mgpu.ones { 2 } + 1 end, { recorded = true })
  check.equal(step:prepare(), false)
  check.equal(step:call_recorded(), nil)
end)
