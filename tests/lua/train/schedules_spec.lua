-- Learning-rate schedules: their numbers compared with Keras (golden set schedules), options, errors, and
-- their use in optimizers.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local comparing = require "golden.comparing"
local load_golden = require "golden.load"
local golden = load_golden "schedules"

local test = check.test
local optimizers, schedules = mgpu.optimizers, mgpu.schedules

-- ---- alone --------------------------------------------------------------------------------------

for i, case in ipairs(golden.cases) do
  test(("schedule %d, %s, has Keras's rates"):format(i, comparing.described(case.schedule, case.args)), function()
    local schedule = schedules[case.schedule](case.args)
    local jitted = mgpu.jit(function(step) return schedule(step) end)
    for k, rate in ipairs(case.rates) do
      local step = mgpu.tensor(k - 1, { dtype = "int64" })
      check.near(schedule(k - 1), rate, 1e-12)
      check.near(schedule(step):item(), rate, 1e-12)
      check.equal(jitted(step):item(), schedule(step):item())
    end
  end)
end

test("every schedule has golden numbers", function()
  local seen = {}
  for _, case in ipairs(golden.cases) do seen[case.schedule] = true end
  for _, name in ipairs(schedules()) do check.truthy(seen[name], name) end
end)

test("a tensor or a variable as the step gives a float64 tensor of its shape", function()
  for _, case in ipairs(golden.cases) do
    local schedule = schedules[case.schedule](case.args)
    for _, dtype in ipairs { "int32", "int64", "float32", "float64" } do
      local rates = schedule(mgpu.tensor({ 0, 3, 25 }, { dtype = dtype }))
      check.equal(rates:dtype(), "float64")
      check.near(rates, { case.rates[1], case.rates[4], case.rates[26] }, 1e-12)
    end
    check.equal(schedule(mgpu.variable(mgpu.tensor(3), { name = "step" })):shape(), {})
  end
end)

test("a schedule made from its configuration, through JSON, is equal", function()
  for _, case in ipairs(golden.cases) do
    local schedule = schedules[case.schedule](case.args)
    local config = core.json_decode(core.json_encode(schedule:get_config()))
    local again = schedules[case.schedule](config)
    check.equal(again:get_config(), schedule:get_config())
    for step = 0, 25 do check.equal(again(step), schedule(step)) end
  end
end)

test("options can be given by position in Keras's order, and are fields of the schedule", function()
  local s = schedules.PolynomialDecay { 0.1, 10, 0.01, 2, true }
  check.equal({ s.initial_learning_rate, s.decay_steps, s.end_learning_rate, s.power, s.cycle, s.name },
    { 0.1, 10, 0.01, 2, true, "PolynomialDecay" })
  check.equal(schedules.CosineDecay { 0.1, 10, name = "mine" }.name, "mine")
  check.matches(tostring(s), "schedule PolynomialDecay")
end)

test("schedules have Keras's defaults", function()
  local polynomial = schedules.PolynomialDecay { 0.1, 10 }
  check.equal({ polynomial.end_learning_rate, polynomial.power, polynomial.cycle }, { 0.0001, 1, false })
  check.equal(schedules.ExponentialDecay { 0.1, 10, 0.5 }.staircase, false)
  check.equal(schedules.InverseTimeDecay { 0.1, 10, 0.5 }.staircase, false)
  local cosine = schedules.CosineDecay { 0.1, 10 }
  check.equal({ cosine.alpha, cosine.warmup_steps }, { 0, 0 })
  check.equal(cosine.warmup_target, nil)
  local restarts = schedules.CosineDecayRestarts { 0.1, 10 }
  check.equal({ restarts.t_mul, restarts.m_mul, restarts.alpha }, { 2, 1, 0 })
end)

test("CosineDecayRestarts restarts at the exact step in spite of rounding in its logarithm", function()
  for _, t in ipairs { 2, 3, 5, 7, 10 } do
    local schedule, start = schedules.CosineDecayRestarts { 1, 2, t_mul = t }, 0
    for i = 0, 8 do
      check.near(schedule(start), 1)
      check.near(schedule(mgpu.tensor(start, { dtype = "int64" })):item(), 1)
      start = start + 2 * t ^ i
    end
  end
end)

test("a schedule cannot be changed, not even through the lists it was made from", function()
  local values = { 1, 2 }
  local s = schedules.PiecewiseConstantDecay { { 5 }, values }
  values[1] = 7
  s:get_config().values[1] = 8
  check.equal(s(0), 1)
  check.raises(function() s.values = { 3, 4 } end, "cannot be changed", "usage")
end)

-- ---- a schedule as the learning rate ------------------------------------------------------------

local function halving() return schedules.ExponentialDecay { 1, 1, 0.5 } end

test("a schedule gives each compiled step its own rate without a retrace", function()
  local opt, v = optimizers.SGD { learning_rate = halving() }, mgpu.variable(mgpu.tensor { 10 }, { name = "v" })
  local traces = {}
  local step = mgpu.jit(function(g)
    traces[#traces + 1] = true
    opt:apply({ g }, { v })
  end)
  for i = 1, 3 do
    check.near(opt.learning_rate, 0.5 ^ (i - 1))
    step(mgpu.tensor { 1 })
  end
  check.near(v, { 10 - 1 - 0.5 - 0.25 })
  check.equal(#traces, 1)
end)

test("a schedule instead of options is the learning rate", function()
  check.near(optimizers.Adam(halving()).learning_rate, 1)
end)

test("learning_rate cannot be set over a schedule, nor to a schedule later", function()
  local opt = optimizers.SGD { learning_rate = halving() }
  check.raises(function() opt.learning_rate = 0.5 end, "its learning_rate is a schedule", "usage")
  opt = optimizers.SGD {}
  check.raises(function() opt.learning_rate = halving() end, "given when the optimizer is made", "usage")
end)

test("the optimizer's state has no learning rate if it is a schedule", function()
  local opt = optimizers.SGD { learning_rate = halving() }
  check.equal(#opt:variables(), 1)
  check.equal(opt:variables()[1], opt.iterations)
end)

-- ---- errors -------------------------------------------------------------------------------------

local BAD = {
  { "ExponentialDecay", { 0.1, 0, 0.5 }, 'option "decay_steps" must be above 0, got 0' },
  { "ExponentialDecay", { 0.1, -1, 0.5 }, 'option "decay_steps"' },
  { "ExponentialDecay", { 0.1, 10 }, 'option "decay_rate" is missing' },
  { "ExponentialDecay", { -0.1, 10, 0.5 }, "at least 0" },
  { "ExponentialDecay", { 0.1, 10, -0.5 }, "at least 0" },
  { "ExponentialDecay", { math.huge, 10, 0.5 }, "finite" },
  { "ExponentialDecay", { 0 / 0, 10, 0.5 }, "initial_learning_rate" },
  { "ExponentialDecay", { 0.1, 10, 0.5, 1 }, "true or false" },
  { "ExponentialDecay", { 0.1, decay_step = 10, decay_rate = 1 }, 'did you mean "decay_steps"' },
  { "ExponentialDecay", { 0.1, 10, 0.5, true, 5 },
    "5 has no name, but only initial_learning_rate, decay_steps, decay_rate, staircase may be given by position" },
  { "InverseTimeDecay", { 0.1, 0, 0.5 }, 'option "decay_steps" must be above 0' },
  { "InverseTimeDecay", { 0.1, "ten", 0.5 }, "a number" },
  { "PolynomialDecay", { 0.1, 0 }, 'option "decay_steps" must be above 0' },
  { "PolynomialDecay", { 0.1, 5, power = -1 }, "at least 0" },
  { "PolynomialDecay", { 0.1, 5, cycle = "yes" }, "true or false" },
  { "CosineDecay", { 0.1, 0 }, 'option "decay_steps" must be above 0' },
  { "CosineDecay", { 0.1, 5, warmup_steps = 3 }, "warmup_steps needs a warmup_target" },
  { "CosineDecay", { 0.1, 5, warmup_target = 1, warmup_steps = -3 }, "at least 0" },
  { "CosineDecayRestarts", { 0.1, 0 }, 'option "first_decay_steps" must be above 0' },
  { "CosineDecayRestarts", { 0.1, 5, t_mul = 0.5 }, "at least 1" },
  { "CosineDecayRestarts", { 0.1, 5, m_mul = -1 }, "at least 0" },
  { "PiecewiseConstantDecay", { {}, { 1 } }, "at least one step" },
  { "PiecewiseConstantDecay", { { 1, 2 }, { 1, 2 } }, "2 boundaries need 3 values, got 2" },
  { "PiecewiseConstantDecay", { { 2, 2 }, { 1, 2, 3 } }, "boundaries must rise: boundaries[2] = 2 follows 2" },
  { "PiecewiseConstantDecay", { { 2 }, { 1, "x" } }, "values[2] must be a finite number" },
  { "PiecewiseConstantDecay", { { -2 }, { 1, 2 } }, "boundaries[1] must be a finite number" },
  { "PiecewiseConstantDecay", { 5, { 1, 2 } }, "a table" },
}

test("bad options are errors that name the schedule", function()
  for _, bad in ipairs(BAD) do
    local message = check.raises(function() schedules[bad[1]](bad[2]) end, bad[3], "usage")
    check.matches(message, bad[1] .. ": ")
  end
  check.raises(function() return schedules.ExponentialDecai end, "ExponentialDecay", "usage")
end)

test("a bad step is an error", function()
  local s = halving()
  for _, step in ipairs { -1, 0 / 0, math.huge } do
    check.raises(function() s(step) end, "ExponentialDecay: the step must be a number of at least 0", "usage")
  end
  check.raises(function() s "five" end, "the step must be a number or a tensor, got string", "usage")
  check.raises(function() s() end, "the step must be a number or a tensor, got nil", "usage")
end)
