-- Optimizers: formulas, options, learning rate, slots, averages, and saving. golden_optimizers_spec compares
-- their steps with Keras; schedules_spec tests learning-rate schedules.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local optimizers, schedules = mgpu.optimizers, mgpu.schedules

local function variable(values) return mgpu.variable(mgpu.tensor(values), { name = "v" }) end

-- The value of a variable after the optimizer has applied each of the gradients.
local function after(opt, start, ...)
  local v = variable(start)
  for _, g in ipairs { ... } do opt:apply({ mgpu.tensor(g) }, { v }) end
  return v
end

-- ---- formulas -----------------------------------------------------------------------------------

test("SGD subtracts learning rate times gradient", function()
  check.near(after(optimizers.SGD { learning_rate = 0.5 }, { 1, 2 }, { 2, -2 }), { 0, 3 })
end)

test("SGD with momentum adds a share of the previous step", function()
  local opt = optimizers.SGD { learning_rate = 0.1, momentum = 0.5 }
  check.near(after(opt, { 1 }, { 1 }, { 1 }), { 1 - 0.1 - 0.15 })
end)

test("SGD with Nesterov momentum applies the next velocity at once", function()
  local opt = optimizers.SGD { learning_rate = 0.1, momentum = 0.5, nesterov = true }
  check.near(after(opt, { 1 }, { 1 }), { 1 - 0.1 - 0.05 })
end)

test("RMSprop divides by the running root mean square", function()
  local v = after(optimizers.RMSprop { learning_rate = 0.1, rho = 0.9 }, { 1 }, { 2 })
  check.near(v, { 1 - 0.1 * 2 / math.sqrt(0.1 * 4 + 1e-7) })
end)

test("Adam's first step has the size of the learning rate", function()
  check.near(after(optimizers.Adam { learning_rate = 0.01 }, { 1, 1 }, { 5, -0.2 }),
    { 0.99, 1.01 }, 1e-5)
end)

test("optimizers have Keras's defaults", function()
  check.near(optimizers.SGD {}.learning_rate, 0.01)
  check.near(optimizers.RMSprop {}.learning_rate, 0.001)
  check.near(optimizers.Adam {}.learning_rate, 0.001)
  check.equal(optimizers.RMSprop {}:get_config().rho, 0.9)
  check.equal(optimizers.Adam {}:get_config().beta_2, 0.999)
end)

test("a number instead of options is the learning rate", function()
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

test("a learning rate set between jitted steps takes effect without a retrace", function()
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

test("slots can be made inside a trace, and iterations counts the steps", function()
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

test("apply without any gradient is an error", function()
  check.raises(function() optimizers.SGD {}:apply({ false }, { variable { 1 } }) end,
    "no variable has a gradient", "usage")
end)

test("clipnorm scales each gradient down to that norm", function()
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

test("the state holds the step count, the learning rate and the slots", function()
  local opt, v = optimizers.Adam {}, variable { 1 }
  check.equal(#opt:variables(), 2)
  opt:build { v }
  check.equal(#opt:variables(), 4)
end)

test("a clip of 0 does not clip, and an infinite norm does not turn gradients into zeros", function()
  for _, name in ipairs { "clipnorm", "clipvalue", "global_clipnorm" } do
    check.near(after(optimizers.SGD { learning_rate = 1, [name] = 0 }, { 0, 0 }, { 3, 4 }), { -3, -4 })
  end
  local v = after(optimizers.SGD { global_clipnorm = 1 }, { 0, 0 }, { math.huge, 1 }):totable()
  check.truthy(v[2] ~= v[2], "the change by the finite gradient must be NaN, it")
end)

test("loss_scale_factor scales the loss up and the gradients down", function()
  local opt = optimizers.SGD { learning_rate = 1, loss_scale_factor = 4 }
  check.near(opt:scale_loss(mgpu.tensor(3)):item(), 12)
  check.near(after(opt, { 1 }, { 2 }), { 0.5 })
  check.near(optimizers.SGD {}:scale_loss(mgpu.tensor(3)):item(), 3)
end)

-- ---- what weight decay leaves alone -------------------------------------------------------------

local function decayed(opt, names)
  local variables, grads, values = {}, {}, {}
  for i, name in ipairs(names) do
    variables[i] = type(name) == "string" and mgpu.variable(mgpu.tensor { 1 }, { name = name }) or name
    grads[i] = mgpu.tensor { 0 }
  end
  opt:apply(grads, variables)
  for i, v in ipairs(variables) do values[i] = v:totable()[1] end
  return values
end

local function decaying(more)
  more.learning_rate, more.weight_decay = 1, 0.5
  return optimizers.SGD(more)
end

test("exclude_from_weight_decay takes parts of names, whole names, variables and Keras's lists", function()
  local names = { "dense/kernel", "dense/bias", "norm/gamma" }
  local opt = decaying {}
  check.near(decayed(opt, names), { 0.5, 0.5, 0.5 })
  opt = decaying {}
  opt:exclude_from_weight_decay { "bias", "gam" }
  check.near(decayed(opt, names), { 0.5, 1, 1 })
  opt = decaying { exclude_from_weight_decay = { { name = "dense/kernel" }, { name = "bias" } } }
  check.near(decayed(opt, names), { 1, 0.5, 0.5 })
  local v = mgpu.variable(mgpu.tensor { 1 }, { name = "w" })
  opt = decaying {}
  opt:exclude_from_weight_decay { v }
  check.near(decayed(opt, { v, "w" }), { 1, 0.5 })
  v:assign(mgpu.tensor { 1 })
  opt = decaying {}
  opt:exclude_from_weight_decay { var_list = { v }, var_names = { "bias" } }
  check.near(decayed(opt, { v, unpack(names) }), { 1, 0.5, 1, 0.5 })
end)

test("the names excluded from weight decay are part of the configuration", function()
  local v = mgpu.variable(mgpu.tensor { 1 }, { name = "dense/kernel" })
  local opt = decaying { exclude_from_weight_decay = { "bias", v } }
  local config = core.json_decode(core.json_encode(opt:get_config()))
  check.equal(config.exclude_from_weight_decay, { "bias", { name = "dense/kernel" } })
  check.near(decayed(optimizers.SGD(config), { "dense/kernel", "dense/bias", "dense/kernel2" }), { 1, 1, 0.5 })
  check.equal(optimizers.SGD {}:get_config().exclude_from_weight_decay, nil)
end)

-- ---- averages -----------------------------------------------------------------------------------

test("use_ema keeps averages, also of variables without a gradient", function()
  local opt = optimizers.SGD { learning_rate = 1, use_ema = true, ema_momentum = 0.5 }
  local a, b = variable { 4 }, variable { 7 }
  for _ = 1, 2 do opt:apply({ mgpu.tensor { 1 }, false }, { a, b }) end
  check.near(a, { 2 })
  opt:finalize_variable_values { a, b }
  check.near(a, { 2.5 }) -- the mean of the values after the two steps, 3 and 2
  check.near(b, { 7 })
end)

test("ema_overwrite_frequency sets the variables to their averages every so many steps", function()
  local opt = optimizers.SGD { learning_rate = 1, use_ema = true, ema_momentum = 0.5,
    ema_overwrite_frequency = 2 }
  local v = after(opt, { 4 }, { 1 })
  check.near(v, { 3 })
  opt:apply({ mgpu.tensor { 1 } }, { v })
  check.near(v, { 2.5 })
  opt:apply({ mgpu.tensor { 1 } }, { v })
  check.near(v, { 1.5 })
end)

test("finalize_variable_values without averages or before a step changes nothing", function()
  local v = variable { 4 }
  optimizers.SGD {}:finalize_variable_values { v }
  check.equal(v:totable(), { 4 })
  local opt = optimizers.SGD { use_ema = true }
  check.raises(function() opt:finalize_variable_values { v } end, "never been given the variable", "usage")
  opt:build { v }
  opt:finalize_variable_values { v }
  check.equal(v:totable(), { 4 })
end)

test("with use_ema apply refuses a variable that comes after the first step", function()
  local opt = optimizers.SGD { learning_rate = 1, use_ema = true }
  check.near(after(opt, { 1 }, { 1 }), { 0 })
  check.raises(function() after(opt, { 1 }, { 1 }) end, "with use_ema all variables must be given", "usage")
end)

-- ---- state and configuration --------------------------------------------------------------------

test("a saved model keeps schedule, averages and excluded names", function()
  local L = mgpu.layers
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1, name = "only" } }
  model:compile { loss = "mean_squared_error", optimizer = optimizers.Nadam {
    learning_rate = schedules.PiecewiseConstantDecay { { 2, 5 }, { 0.3, 0.2, 0.1 } }, use_ema = true,
    weight_decay = 0.1, exclude_from_weight_decay = { "bias" } } }
  local x, y = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 1 }, { 2 } }
  for _ = 1, 3 do model:train_on_batch(x, y) end
  local path = check.path "model.safetensors"
  model:save(path)
  local again = mgpu.load_model(path)
  local opt = again.optimizer
  check.near(opt.learning_rate, 0.2)
  check.equal(#opt:variables(), 1 + 1 + 2 * 3) -- step count, product of momentums, three slots a variable
  for _ = 1, 3 do
    model:train_on_batch(x, y)
    again:train_on_batch(x, y)
  end
  check.near(opt.learning_rate, 0.1)
  for k, w in ipairs(model:get_weights()) do check.equal(again:get_weights()[k], w:totable()) end
  for k, v in ipairs(model.optimizer:variables()) do check.equal(opt:variables()[k], v:value():totable()) end
end)

test("fit ends with the averaged weights, and loss_scale_factor does not change its numbers", function()
  local L = mgpu.layers
  local function fitted(opt)
    local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
    model:set_weights { mgpu.tensor { { 0.5 }, { -0.5 } }, mgpu.tensor { 0 } }
    model:compile { loss = "mean_squared_error", optimizer = opt }
    local history = model:fit(mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 1 }, { 2 } },
      { epochs = 3, batch_size = 1, shuffle = false, verbose = 0 })
    return model:get_weights()[1]:totable(), history.history.loss, opt, model
  end
  local plain, losses = fitted(optimizers.SGD { learning_rate = 0.01 })
  local scaled, scaled_losses = fitted(optimizers.SGD { learning_rate = 0.01, loss_scale_factor = 1024 })
  check.near(scaled, plain)
  check.near(scaled_losses, losses)
  local averaged, _, opt, model = fitted(optimizers.SGD { learning_rate = 0.01, use_ema = true,
    ema_momentum = 0.5 })
  check.truthy(math.abs(averaged[1][1] - plain[1][1]) > 1e-4, "the average differs, it")
  check.equal(averaged, opt.slots[model.trainable_variables[1]].average:value():totable())
end)

-- ---- errors -------------------------------------------------------------------------------------

-- Bad values of each option; "?" in a message stands for the option's name. every_option_spec tests wrong
-- types and bounds from the declarations, too.
local BAD = {
  { "learning_rate", -1, "at least 0" }, { "learning_rate", "fast", 'option "?" must be' },
  { "learning_rate", 0 / 0, 'option "?" must be' }, { "learning_rate", math.huge, 'option "?" must be' },
  { "learning_rate", {}, "got a table" }, { "learning_rate", { class_name = "ExponentialDecai", config = {} },
    "ExponentialDecay" },
  { "learning_rate", { class_name = "ExponentialDecay" }, "{class_name =, config =}" },
  { "learning_rate", { class_name = "ExponentialDecay", config = { initial_learning_rate = 1,
    decay_rate = 1 } }, 'option "decay_steps" is missing' },
  { "learning_rate", schedules.ExponentialDecay, "got a table" },
  { "learning_rate", function() return 1 end, 'option "?" must be' },
  { "clipnorm", -1, "at least 0" }, { "clipnorm", "big", "a number" }, { "clipvalue", -1, "at least 0" },
  { "global_clipnorm", -0.5, "at least 0" }, { "clipvalue", math.huge, "finite" },
  { "gradient_accumulation_steps", 1, "at least 2" }, { "decay", -1, "at least 0" }, { "decay", "x", "a number" },
  { "weight_decay", -0.1, "at least 0" }, { "weight_decay", true, "a number" },
  { "use_ema", 1, "true or false" }, { "ema_momentum", 1.5, "at most 1" }, { "ema_momentum", -0.1, "at least 0" },
  { "ema_overwrite_frequency", 0, "at least 1" }, { "ema_overwrite_frequency", 1.5, "a whole number" },
  { "loss_scale_factor", 0, "above 0" }, { "loss_scale_factor", -2, "above 0" },
  { "loss_scale_factor", "x", "a number" }, { "exclude_from_weight_decay", "bias", "a table" },
  { "exclude_from_weight_decay", { 5 }, "got number" }, { "exclude_from_weight_decay", { "" }, "empty name" },
  { "exclude_from_weight_decay", { names = {} }, "does not know" },
  { "exclude_from_weight_decay", { var_list = 5 }, "var_list must be a list" }, { "name", 5, "a name" },
  { "use_emaa", true, 'did you mean "use_ema"' },
}

test("bad values of the shared options are errors that name optimizer and option", function()
  for _, name in ipairs(fixtures.optimizer_classes()) do
    for _, bad in ipairs(BAD) do
      local message = check.raises(function() optimizers[name] { [bad[1]] = bad[2] } end,
        (bad[3]:gsub("?", bad[1])), "usage")
      if not (bad[1] == "learning_rate" and type(bad[2]) == "table") then
        check.matches(message, name .. ": ")
        check.matches(message, bad[1])
      end
    end
  end
end)

-- ---- Keras 1's and 2's options, and gradient accumulation --------------------------------------------

-- The value of a variable that starts at 0 after each of n steps with the gradient 1.
local function path_of(opt, n)
  local v, values = variable { 0 }, {}
  for i = 1, n do
    opt:apply({ mgpu.tensor { 1 } }, { v })
    values[i] = v:value():item()
  end
  return values
end

test("decay divides the rate of step t, from 0, by 1 + decay t, in every optimizer", function()
  check.near(path_of(optimizers.SGD { 1, decay = 1 }, 4), { -1, -1 - 1 / 2, -1 - 1 / 2 - 1 / 3, -1 - 13 / 12 }, 1e-6)
  for _, name in ipairs(fixtures.optimizer_classes()) do
    local schedule = mgpu.schedules.InverseTimeDecay { 0.1, decay_steps = 1, decay_rate = 0.5 }
    local opt = optimizers[name] { 0.1, decay = 0.5 }
    check.equal(path_of(opt, 5), path_of(optimizers[name] { schedule }, 5))
    check.equal(opt:get_config().learning_rate.class_name, "InverseTimeDecay")
    check.equal(path_of(optimizers[name](opt:get_config()), 5), path_of(optimizers[name] { schedule }, 5))
  end
  check.equal(optimizers.SGD { 0.25, decay = 0 }.learning_rate, 0.25)
  check.raises(function() optimizers.SGD { mgpu.schedules.CosineDecay { 0.1, decay_steps = 5 }, decay = 0.1 } end,
    "SGD: give only one of a schedule and decay", "usage")
end)

test("a schedule counts the calls of apply with gradient_accumulation_steps, the changes with accumulate", function()
  local function rate() return mgpu.schedules.PiecewiseConstantDecay { { 2 }, { 1, 0.1 } } end
  -- Keras 3.15.1's values
  check.near(path_of(optimizers.SGD { rate(), gradient_accumulation_steps = 2 }, 8),
    { 0, -1, -1, -1.1, -1.1, -1.2, -1.2, -1.3 }, 1e-6)
  local function fitted(optimizer, accumulate)
    local model = mgpu.Sequential { mgpu.Input { 1 }, mgpu.layers.Dense { 1, use_bias = false } }
    model:set_weights { mgpu.tensor { { 0 } } }
    model:compile { optimizer = optimizer, loss = function(_, p) return p:sum(-1) end, accumulate = accumulate }
    model:fit(mgpu.ones { 8, 1 }, mgpu.ones { 8, 1 }, { batch_size = 1, verbose = 0 })
    return model.layers[1].kernel:value():item()
  end
  check.near(fitted(optimizers.SGD { rate(), gradient_accumulation_steps = 2 }), -1.3, 1e-6)
  check.near(fitted(optimizers.SGD { rate() }, 2), -3.1, 1e-6)
  for _, opt in ipairs { optimizers.SGD { gradient_accumulation_steps = 2 },
    optimizers.LossScaleOptimizer { optimizers.Adam { gradient_accumulation_steps = 2 } } } do
    check.raises(function() fitted(opt, 2) end,
      "only one of accumulate and the optimizer's gradient_accumulation_steps", "usage")
  end
end)

test("a step that a loss scale skips is not among the accumulated ones", function()
  local opt, v = optimizers.LossScaleOptimizer { optimizers.SGD { 1, gradient_accumulation_steps = 2 },
    initial_scale = 1 }, variable { 0 }
  local step = mgpu.jit(function(g) opt:apply({ g }, { v }) end)
  for _, g in ipairs { 1, math.huge, 3 } do step(mgpu.tensor { g }) end
  check.near(v:value(), { -(1 + 3 * 2) / 2 }, 1e-6) -- the scale was halved after the second
end)

test("schedule_decay slows the growth of Nadam's momentum", function()
  -- one step: v - rate (u2 / (1 - u1 u2) m + (1 - u1) / (1 - u1) g) / (sqrt(s / (1 - beta_2)) + epsilon), with g = 1
  local function step(decay)
    local u1, u2 = 0.9 * (1 - 0.5 * 0.96 ^ decay), 0.9 * (1 - 0.5 * 0.96 ^ (2 * decay))
    return -0.1 * (u2 / (1 - u1 * u2) * 0.1 + 1)
  end
  for _, decay in ipairs { 1, 0.004 } do
    check.near(path_of(optimizers.Nadam { 0.1, schedule_decay = decay }, 1), { step(decay) }, 1e-6)
  end
end)

local OWN_BAD = {
  SGD = { momentum = { -0.1, 1.1 }, nesterov = { 1 } },
  RMSprop = { rho = { -0.1, 1.1 }, momentum = { -1, 2 }, epsilon = { -1, math.huge }, centered = { "yes" } },
  Adam = { beta_1 = { -0.1, 1 }, beta_2 = { -0.1, 1 }, epsilon = { -1 }, amsgrad = { 0 } },
  AdamW = { beta_1 = { -0.1, 1 }, beta_2 = { -0.1, 1 }, epsilon = { -1 }, amsgrad = { 0 } },
  Adagrad = { initial_accumulator_value = { -0.1, "x" }, epsilon = { -1 } },
  Adadelta = { rho = { -0.1, 1.1 }, epsilon = { -1 } },
  Adamax = { beta_1 = { -0.1, 1 }, beta_2 = { -0.1, 1 }, epsilon = { -1 } },
  Nadam = { beta_1 = { -0.1, 1 }, beta_2 = { -0.1, 1 }, epsilon = { -1 } },
}

test("bad values of an optimizer's own options are errors that name both", function()
  for name, fields in pairs(OWN_BAD) do
    for option, values in pairs(fields) do
      for _, value in ipairs(values) do
        check.raises(function() optimizers[name] { [option] = value } end,
          ("%s: option %q must be"):format(name, option), "usage")
      end
    end
  end
end)

test("two clipping options at once are an error", function()
  for _, pair in ipairs { { "clipnorm", "clipvalue" }, { "clipnorm", "global_clipnorm" },
    { "clipvalue", "global_clipnorm" } } do
    check.raises(function() optimizers.Adam { [pair[1]] = 1, [pair[2]] = 0 } end,
      ("Adam: give only one of %s and %s"):format(pair[1], pair[2]), "usage")
  end
end)

test("exclude_from_weight_decay after build, and other misuse, are errors", function()
  local opt = optimizers.AdamW {}
  check.raises(function() opt:exclude_from_weight_decay "bias" end, "takes a list", "usage")
  opt:build { variable { 1 } }
  check.raises(function() opt:exclude_from_weight_decay { "bias" } end, "before the optimizer is built",
    "usage")
  check.raises(function() opt:apply({}, { variable { 1 } }) end, "0 gradients for 1 variables", "usage")
end)

test("bad options are errors that name the optimizer", function()
  check.raises(function() optimizers.Adam { beta1 = 0.5 } end, "beta_1", "usage")
  check.raises(function() optimizers.Adam { learning_rate = -1 } end, "learning_rate", "usage")
  check.raises(function() optimizers.SGD { clipnorm = 1, clipvalue = 1 } end, "only one of",
    "usage")
  check.raises(function() optimizers.SGD {}.learning_rate = "fast" end, "learning_rate", "usage")
  check.raises(function() return optimizers.Adamm end, "Adam", "usage")
end)

test("wrong arguments of apply are errors at the user's line", function()
  local v, g = mgpu.variable(mgpu.tensor { 1, 1 }), mgpu.ones { 2 }
  for _, opt in ipairs { mgpu.optimizers.SGD {}, mgpu.optimizers.LossScaleOptimizer { "sgd" } } do
    for _, row in ipairs { { nil, { v }, "the gradients must be an array of tensors, got nil" },
      { { g }, nil, "the variables must be an array, got nil" }, { { g }, v, "the variables must be an array, got" },
      { { g }, { g }, "entry 1 of the variables is a tensor, not a variable" },
      { { 1 }, { v }, "the gradient 1 must be a tensor or false, got a number" } } do
      check.raises(function() opt:apply(row[1], row[2]) end, "optimizers_spec.lua:%d+: apply: " .. row[3], "usage")
    end
  end
end)

test("a slot that starts as its variable cannot be made in a jitted step", function()
  local v, opt = mgpu.variable(mgpu.tensor { 1 }, { name = "w" }), mgpu.optimizers.ScheduleFreeAdamW {}
  local step = mgpu.jit(function(g) opt:apply({ g }, { v }) end)
  check.raises(function() step(mgpu.tensor { 1 }) end,
    'the slot "momentum" of w starts as the variable: call opt:build(variables) before the first jitted step', "usage")
end)

for _, name in ipairs { "Lion", "Lamb", "Ftrl", "ScheduleFreeAdamW" } do
  test(name .. " goes on from a saved model as without saving, also on two devices", function()
    mgpu.seed(1)
    local x, y = mgpu.rand { 6, 4 }, mgpu.rand { 6, 2 }
    local function fit(model)
      return model:fit(x, y, { epochs = 3, batch_size = 6, shuffle = false, verbose = 0 }).history.loss
    end
    for _, ending in ipairs { "keras", "h5" } do
      local model = mgpu.Sequential { mgpu.Input { 4 }, mgpu.layers.Dense { 5, activation = "tanh" },
        mgpu.layers.Dense { 2 } }
      model:compile { optimizer = mgpu.optimizers[name] { learning_rate = 0.01 }, loss = "mse",
        devices = ending == "h5" and #mgpu.devices "cpu" > 0 and { "cpu:0", "cpu:1" } or nil }
      fit(model)
      local path = check.path("m." .. ending)
      model:save(path)
      check.near(fit(mgpu.load_model(path)), fit(model), 1e-6)
    end
  end)
end
