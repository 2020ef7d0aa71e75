-- Initializers: mean, deviation and bounds as in Keras (golden set initializers), and seeds.

local check = require "check"
local load_golden = require "golden.load"
local mgpu = require "mgpu"


local test = check.test

local function make(case)
  return mgpu.initializers[case.initializer](case.args)(case.shape, "float32", 1)
end

local function moments(t)
  local mean = t:mean():item()
  return mean, math.sqrt(math.max(0, (t * t):mean():item() - mean * mean))
end

-- Mean and deviation of n draws must be within 6 standard errors of the expected ones.
local function compare(case)
  local t = make(case)
  check.equal(t:shape(), case.shape)
  local mean, std = moments(t)
  local slack = 6 * case.std / math.sqrt(t:count())
  check.truthy(math.abs(mean - case.mean) <= slack + 1e-6, "mean " .. mean)
  check.truthy(math.abs(std - case.std) <= slack + 1e-3 * case.std + 1e-6, "deviation " .. std)
  if case.min then check.truthy(t:min():item() >= case.min - 1e-6, "minimum") end
  if case.max then check.truthy(t:max():item() <= case.max + 1e-6, "maximum") end
end

for i, case in ipairs(load_golden("initializers").cases) do
  if case.initializer ~= "orthogonal" and case.initializer ~= "identity" then
    test(("case %d: %s has Keras's mean, deviation and bounds"):format(i, case.initializer),
      function() compare(case) end)
  end
end

test("orthogonal makes orthogonal columns of length gain", function()
  local q = mgpu.initializers.orthogonal { gain = 2 } ({ 20, 6 }, "float64", 1)
  check.near(q:transpose():matmul(q), (mgpu.eye(6) * 4):cast "float64", 1e-6)
end)

test("identity is gain times the unit matrix", function()
  check.equal(mgpu.initializers.identity { 3 } ({ 2, 3 }, "float32"), { { 3, 0, 0 }, { 0, 3, 0 } })
end)

test("an initializer with a seed always draws the same and does not use the program's generator",
  function()
    mgpu.seed(5)
    local before = mgpu.rng_state()
    local make_normal = mgpu.initializers.he_normal { seed = 7 }
    local a, b = make_normal({ 4, 5 }), make_normal({ 4, 5 })
    check.equal(a, b:totable())
    check.equal(mgpu.rng_state(), before)
  end)

test("the same mgpu.seed gives the same weights, another seed different ones", function()
  local function kernel(seed)
    mgpu.seed(seed)
    local layer = mgpu.layers.Dense { 3, name = "same" }
    layer:ensure_built { -1, 4 }
    return layer.kernel:totable()
  end
  local first = kernel(1)
  check.equal(kernel(1), first)
  check.truthy(kernel(2)[1][1] ~= first[1][1])
end)

test("an initializer can be a class name, a function or a configuration", function()
  check.equal(mgpu.initializers.Ones {} ({ 2 }), { 1, 1 })
  local layer = mgpu.layers.Dense { 2, kernel_initializer = function(shape, dtype)
    return mgpu.full(shape, 7, { dtype = dtype })
  end }
  layer:ensure_built { -1, 1 }
  check.equal(layer.kernel, { { 7, 7 } })
end)

test("the numbers of a constant are broadcast to the shape, from Keras's files too", function()
  local objects = require "mgpu.nn.keras.objects"
  check.equal(mgpu.initializers.constant { { 1, 2 } } { 2, 2 }:totable(), { { 1, 2 }, { 1, 2 } })
  local entry = { class_name = "Constant", config = { value = { class_name = "__numpy__",
    config = { value = { { 3, 4 } }, dtype = "float64" } } } }
  local config = objects.from_initializer(entry, { path = "m.keras" }, "kernel")
  check.equal(mgpu.initializers.get(config) { 2, 2 }:totable(), { { 3, 4 }, { 3, 4 } })
  check.equal(objects.to_initializer(config).config.value, { { 3, 4 } })
end)
