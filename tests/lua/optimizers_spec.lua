-- Optimizers: formulas, options, learning rate, slots. Keras's numbers are in golden_training_spec.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local optimizers = mgpu.optimizers

local function variable(values) return mgpu.variable(mgpu.tensor(values), { name = "v" }) end

-- The variable after the optimizer has applied each of the gradients.
local function after(opt, start, ...)
  local v = variable(start)
  for _, g in ipairs { ... } do opt:apply({ mgpu.tensor(g) }, { v }) end
  return v
end

test("SGD subtracts rate times gradient", function()
  check.near(after(optimizers.SGD { learning_rate = 0.5 }, { 1, 2 }, { 2, -2 }), { 0, 3 })
end)

test("SGD with momentum keeps going", function()
  local opt = optimizers.SGD { learning_rate = 0.1, momentum = 0.5 }
  check.near(after(opt, { 1 }, { 1 }, { 1 }), { 1 - 0.1 - 0.15 })
end)

test("SGD with Nesterov momentum looks ahead", function()
  local opt = optimizers.SGD { learning_rate = 0.1, momentum = 0.5, nesterov = true }
  check.near(after(opt, { 1 }, { 1 }), { 1 - 0.1 - 0.05 })
end)

test("RMSprop divides by the running root mean square", function()
  local v = after(optimizers.RMSprop { learning_rate = 0.1, rho = 0.9 }, { 1 }, { 2 })
  check.near(v, { 1 - 0.1 * 2 / math.sqrt(0.1 * 4 + 1e-7) })
end)

test("Adam's first step is the learning rate", function()
  check.near(after(optimizers.Adam { learning_rate = 0.01 }, { 1, 1 }, { 5, -0.2 }),
    { 0.99, 1.01 }, 1e-5)
end)

test("defaults are Keras's", function()
  check.near(optimizers.SGD {}.learning_rate, 0.01)
  check.near(optimizers.RMSprop {}.learning_rate, 0.001)
  check.near(optimizers.Adam {}.learning_rate, 0.001)
  check.equal(optimizers.RMSprop {}:get_config().rho, 0.9)
  check.equal(optimizers.Adam {}:get_config().beta_2, 0.999)
end)

test("a lone number is the learning rate", function()
  check.near(optimizers.Adam(0.25).learning_rate, 0.25)
end)

test("the learning rate can be set between steps", function()
  local opt = optimizers.SGD { learning_rate = 1 }
  local v = after(opt, { 1 }, { 0.5 })
  opt.learning_rate = 0.1
  opt:apply({ mgpu.tensor { 1 } }, { v })
  check.near(v, { 0.4 })
  check.near(opt.learning_rate, 0.1)
end)

test("a learning rate set between jitted steps acts without a retrace", function()
  local opt, v = optimizers.SGD { learning_rate = 1 }, variable { 10 }
  local traces = {}
  local step = mgpu.jit(function(g)
    traces[#traces + 1] = true
    opt:apply({ g }, { v })
  end)
  step(mgpu.tensor { 1 })
  opt.learning_rate = 0.5
  step(mgpu.tensor { 1 })
  check.near(v, { 8.5 })
  check.equal(#traces, 1)
end)

test("slots may be made inside a trace, and steps count", function()
  local opt, v = optimizers.Adam { learning_rate = 0.1 }, variable { { 1, 2 }, { 3, 4 } }
  local step = mgpu.jit(function(g) opt:apply({ g }, { v }) end)
  for _ = 1, 3 do step(mgpu.tensor { { 1, 1 }, { 1, 1 } }) end
  check.near(v, { { 0.7, 1.7 }, { 2.7, 3.7 } }, 1e-5)
  check.equal(tonumber(opt.iterations:item()), 3)
end)

test("a gradient of false leaves its variable alone", function()
  local a, b = variable { 1 }, variable { 2 }
  optimizers.SGD { learning_rate = 1 }:apply({ false, mgpu.tensor { 1 } }, { a, b })
  check.equal(a:totable(), { 1 })
  check.equal(b:totable(), { 1 })
end)

test("no gradient at all is an error", function()
  check.raises(function() optimizers.SGD {}:apply({ false }, { variable { 1 } }) end,
    "no variable has a gradient", "usage")
end)

test("clipnorm scales each gradient to its norm", function()
  local opt = optimizers.SGD { learning_rate = 1, clipnorm = 1 }
  check.near(after(opt, { 0, 0 }, { 3, 4 }), { -0.6, -0.8 })
  check.near(after(opt, { 0, 0 }, { 0.3, 0.4 }), { -0.3, -0.4 })
end)

test("global_clipnorm scales all gradients by their common norm", function()
  local a, b = variable { 0 }, variable { 0 }
  optimizers.SGD { learning_rate = 1, global_clipnorm = 1 }:apply(
    { mgpu.tensor { 3 }, mgpu.tensor { 4 } }, { a, b })
  check.near(a, { -0.6 })
  check.near(b, { -0.8 })
end)

test("clipvalue bounds every element", function()
  local opt = optimizers.SGD { learning_rate = 1, clipvalue = 0.5 }
  check.near(after(opt, { 0, 0 }, { 3, -0.25 }), { -0.5, 0.25 })
end)

test("weight decay shrinks the variable by rate times decay first", function()
  local opt = optimizers.SGD { learning_rate = 0.1, weight_decay = 0.5 }
  check.near(after(opt, { 2 }, { 1 }), { 2 - 2 * 0.05 - 0.1 })
end)

test("the state holds step count, rate and slots", function()
  local opt, v = optimizers.Adam {}, variable { 1 }
  check.equal(#opt:variables(), 2)
  opt:build { v }
  check.equal(#opt:variables(), 4)
end)

test("bad options are errors that name the optimizer", function()
  check.raises(function() optimizers.Adam { beta1 = 0.5 } end, "beta_1", "usage")
  check.raises(function() optimizers.Adam { learning_rate = -1 } end, "learning_rate", "usage")
  check.raises(function() optimizers.SGD { clipnorm = 1, clipvalue = 1 } end, "only one of",
    "usage")
  check.raises(function() optimizers.SGD {}.learning_rate = "fast" end, "learning_rate", "usage")
  check.raises(function() return optimizers.Adamm end, "Adam", "usage")
end)
