-- mgpu.testing: what it accepts, and what each function says about what is wrong.

local check = require "check"
local mgpu = require "mgpu"

local L, testing = mgpu.layers, mgpu.testing
local test = check.test

-- ---- assert_close -------------------------------------------------------------------------------

test("values are close within the tolerances of the narrower dtype, or those given", function()
  local function t(value, dtype) return mgpu.tensor({ value }, { dtype = dtype }) end
  -- one, a difference that passes and one that fails
  for _, case in ipairs { { "float32", 1.1e-5, 1.3e-5 }, { "float64", 1.9e-7, 2.1e-7 }, { "float16", 0.98e-3, 1.96e-3 },
    { "bfloat16", 2 ^ -6, 2 ^ -5 } } do
    local dtype, passes, fails = case[1], case[2], case[3]
    testing.assert_close(t(1 + passes, dtype), t(1, dtype))
    testing.assert_close(t(1 + passes, dtype), t(1, "float64"))
    check.raises(function() testing.assert_close(t(1 + fails, dtype), t(1, dtype)) end, "1 of 1 numbers differ")
    testing.assert_close(t(1 + fails, dtype), t(1, dtype), { rtol = 0.1 })
    testing.assert_close(t(1 + fails, dtype), { 1 }, { atol = 0.1 })
  end
  check.raises(function() testing.assert_close(mgpu.tensor({ 3 }, { dtype = "int32" }), { 4 }) end, "is 3, expected 4")
end)

test("numbers, infinities, variables, nested tables and other values may be compared", function()
  testing.assert_close(1 / 0, 1 / 0)
  testing.assert_close(0 / 0, 0 / 0, { equal_nan = true })
  testing.assert_close(mgpu.variable(mgpu.ones { 2 }), { 1, 1 })
  testing.assert_close({ { 1, 2 }, { 3 }, {} }, { { 1, 2 }, { 3 }, {} }) -- rows of several lengths
  testing.assert_close({ loss = { 0.1 + 0.2 }, name = "a", { mgpu.ones { 1, 2 } } }, { loss = { 0.3 }, name = "a",
    { { { 1, 1 } } } })
end)

test("an error of assert_close names the field, the element and the numbers", function()
  for _, case in ipairs {
    { { a = { { 1, 2 }, { 3, 4 } } }, { a = { { 1, 2 }, { 5, 9 } } },
      "actual.a: 2 of 4 numbers differ; the worst at [2, 2] is 4, expected 9 (allowed: 1e-07 + 1e-07 times that)" },
    { mgpu.tensor { 1, 0 / 0 }, { 9, 2 }, "2 of 2 numbers differ; the worst at [2] is nan, expected 2" },
    { 1 / 0, -1 / 0, "actual: 1 of 1 numbers differ; the worst is inf, expected -inf" },
    { 0 / 0, 0 / 0, "the worst is nan, expected nan" },
    { { a = 1 }, { a = 1, b = 2 }, "actual.b: is missing" },
    { { a = 1, b = 2 }, { a = 1 }, "actual: has the field b, which is not expected" },
    { { "x", { 1 } }, { "x", { "y" } }, "actual[2][1]: is a number, expected a string" },
    { { { 1, 2 }, { 3 } }, { { 1, 2 }, { 4 } }, "actual[2]: 1 of 1 numbers differ; the worst at [1] is 3, expected 4" },
    { { { 1, 2 }, { 3 } }, { { 1, 2 }, { 3, 4 } }, "actual[2]: the shape is {1}, expected {2}" },
    { "x", "y", "actual: is x, expected y" },
    { mgpu.ones { 2, 3 }, mgpu.ones { 3, 2 }, "the shape is {2, 3}, expected {3, 2}" },
  } do check.raises(function() testing.assert_close(case[1], case[2]) end, case[3]) end
  check.raises(function() testing.assert_close(1, 1, { tol = 1 }) end, 'unknown option "tol"')
end)

-- ---- gradients ----------------------------------------------------------------------------------

test("check_gradients passes right gradients and finds wrong ones, by inputs and by variables", function()
  mgpu.seed(1)
  local x, n = mgpu.rand { 3, 4 }, mgpu.arange(3, { dtype = "int32" })
  testing.check_gradients(function(t, i) return t:log():gather(i, 1) * t end, { x + 1, n })
  testing.check_gradients(function(t) return t * mgpu.rand { 3, 4 } end, { x }) -- the same numbers in each call
  check.raises(function()
    testing.check_gradients(function(t) return t * t:stop_gradient() end, { x })
  end, "check_gradients: element 1 of the gradient by input 1 is")
  local w = mgpu.variable(mgpu.ones({ 4 }, { dtype = "float64" }), { name = "w" })
  testing.check_gradients(function(t) return t * w:value():exp() end, { x }, { variables = { w } })
  check.raises(function()
    testing.check_gradients(function(t) return t * (w:value() + w:value():stop_gradient()) end, { x },
      { variables = { w } })
  end, "element 1 of the gradient by w is")
  check.equal(w:value():totable(), { 1, 1, 1, 1 })
end)

test("check_layer passes the layers of mgpulua, and leaves floatx and its faults behind", function()
  mgpu.seed(2)
  local images, steps = mgpu.rand { 2, 5, 5, 2 }, mgpu.rand { 2, 4, 3 }
  testing.check_layer(function() return L.Conv2D { 3, 3, activation = "tanh" } end, images)
  testing.check_layer(function() return L.BatchNormalization {} end, images, { training = true })
  testing.check_layer(function() return L.LSTM { 3, dropout = 0.4 } end, steps, { training = true })
  testing.check_layer(function() return L.Attention { use_scale = true } end, { steps, steps })
  local Wrong = mgpu.Layer:extend("Wrong", {})
  function Wrong:build(shape) self.scale = self:add_weight { name = "scale", shape = { shape[#shape] } } end
  function Wrong:call(x) return x * self.scale * self.scale:stop_gradient() end
  check.raises(function() testing.check_layer(function() return Wrong {} end, steps) end, "/scale is")
  mgpu.mixed_precision.with_policy("mixed_bfloat16", function() -- gives way, and comes back
    testing.check_layer(function() return L.Dense { 3, activation = "tanh" } end, steps)
    check.equal(mgpu.policy().name, "mixed_bfloat16")
  end)
  check.equal({ mgpu.ones({ 1 }):dtype(), mgpu.policy().name }, { "float32", "float32" })
end)

test("check_gradients and check_layer refuse what they cannot check, with the reason", function()
  local x = mgpu.ones { 2 }
  for message, fn in pairs {
    ["expected a function, got a number"] = function() testing.check_gradients(3, x) end,
    ["inputs are a list of tensors, got a string"] = function() testing.check_gradients(mgpu.exp, "x") end,
    ["input 2 must be a tensor, got a number"] = function() testing.check_gradients(mgpu.add, { x, 3 }) end,
    ["must return a tensor, got a nil"] = function() testing.check_gradients(function() end, x) end,
    ["variable 1 is float32: differences need float64"] = function()
      local w = mgpu.variable(mgpu.ones { 2 })
      mgpu.eval(w) -- one that waits for its value would live until then
      testing.check_gradients(mgpu.exp, x, { variables = { w } })
    end,
    ["variable 1 must be a variable, got a userdata"] = function()
      testing.check_gradients(mgpu.exp, x, { variables = { x } })
    end,
    ["check_gradients: there is nothing to differentiate by: no floating point input, and no variable"] = function()
      testing.check_gradients(mgpu.abs, mgpu.tensor({ 1, 2 }, { dtype = "int32" }))
    end,
    ["check_layer: there is nothing to differentiate by"] = function()
      testing.check_layer(function() return L.CategoryEncoding { 3 } end, mgpu.tensor({ 1, 2 }, { dtype = "int32" }))
    end,
    ["check_layer: inputs are a list of tensors, got a number"] = function()
      testing.check_layer(function() return L.Dense { 3 } end, 3)
    end,
    ["check_layer: input 1 must be a tensor, got a number"] = function()
      testing.check_layer(function() return L.Dense { 3 } end, { 3 })
    end,
    ["check_layer: the function must return a layer, got a number"] = function()
      testing.check_layer(function() return 3 end, x)
    end,
    ["expected a function that makes the layer"] = function() testing.check_layer(L.Dense { 3 }, x) end,
  } do check.raises(fn, message) end
end)

-- ---- devices and golden files -------------------------------------------------------------------

local function make(options)
  return function(devices)
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
      L.Dropout { 0.5 }, L.Dense { 1 } }
    model:compile { optimizer = "adam", loss = "mse", devices = not options.alone and devices or nil,
      bn = options.bn and #devices > 1 and options.bn or nil }
    return model
  end
end

test("same_on_devices passes what is the same, and names the weight that is not", function()
  mgpu.seed(3)
  local x = mgpu.rand { 11, 4 }
  local y = x:sum(2):reshape { 11, 1 }
  local given = { kind = "ref", batch_size = 5, steps = 2 }
  testing.same_on_devices(make {}, { 1, 2, 3 }, x, y, given)
  check.raises(function() testing.same_on_devices(make { bn = "local" }, { 1, 2 }, x, y, given) end,
    "same_on_devices: 2 devices against 1: 1 (dense/kernel): ")
  check.raises(function() testing.same_on_devices(make { alone = true }, { 1, 2 }, x, y, given) end,
    "the model for 2 devices was compiled for")
  check.raises(function() testing.same_on_devices(function() return L.Dense { 1 } end, { 1, 2 }, x, y, given) end,
    "must return a compiled model")
  check.raises(function() testing.same_on_devices(make {}, { 2 }, x, y) end, "at least two numbers of devices")
  check.raises(function() testing.same_on_devices(3, { 1, 2 }, x, y) end, "expected a function")
  check.equal(mgpu.ones({ 1 }):dtype(), "float32")
end)

test("golden compares with the file that MGPU_GOLDEN = write makes", function()
  local path, script = check.path "y.npz", check.path "golden.lua"
  check.write(script, ([[local mgpu = require "mgpu"
    mgpu.testing.golden(%q, { y = mgpu.tensor { 1, tonumber(arg[1]) } })]]):format(path))
  local function run(value, variable)
    return check.run(("env MGPU_GOLDEN=%s %s %s %d"):format(variable, check.program, script, value))
  end
  check.matches(run(2, ""), "y.npz: run the test once with MGPU_GOLDEN=write")
  check.equal(run(2, "write"), "")
  check.equal(run(2, ""), "")
  check.matches(run(3, ""), "y.npz: y: 1 of 2 numbers differ; the worst at [2] is 3, expected 2")
  check.matches(run(3, "yes"), 'MGPU_GOLDEN must be write or empty, got "yes"')
  check.raises(function() testing.golden(path, {}) end, "a table of tensors by name")
end)

test("mgpu.testing has no other names", function()
  check.raises(function() return testing.assert_clos end, "assert_clos")
end)
