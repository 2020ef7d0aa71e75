--- Learning rates that fall with the steps.
-- RETURNS the schedules by name.
local Schedule = require "mgpu.nn.schedules.schedule"

local M = {}

local RATE = { "initial_learning_rate", "number", required = true, min = 0 }
local STEPS = { "decay_steps", "number", required = true, above = 0 }
local ALPHA = { "alpha", "number", default = 0, min = 0 }
local DECAY = { RATE, STEPS, { "decay_rate", "number", required = true, min = 0 },
  { "staircase", "boolean", default = false } }

-- How many times decay_steps have passed, rounded down with staircase.
local function decays(self, step, m)
  local p = step / self.decay_steps
  return self.staircase and m.floor(p) or p
end

-- ---- ExponentialDecay ---------------------------------------------------------------------------

--- ExponentialDecay {initial_learning_rate, decay_steps, decay_rate, staircase = false}
--
--     rate = initial_learning_rate * decay_rate ^ (step / decay_steps)
-- staircase: rounds the exponent down.
-- Example:
--     local rate = mgpu.schedules.ExponentialDecay { 0.8, decay_steps = 1000, decay_rate = 0.5 }
--     print(rate(0), rate(1000), rate(2000))  --> 0.8 0.4 0.2
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = rate }, loss = "mse" }
M.ExponentialDecay = Schedule.define {
  class = "ExponentialDecay",
  declared = DECAY,
  rate = function(self, step, m)
    return self.initial_learning_rate * m.pow(self.decay_rate, decays(self, step, m))
  end,
}

-- ---- InverseTimeDecay ---------------------------------------------------------------------------

--- InverseTimeDecay {initial_learning_rate, decay_steps, decay_rate, staircase = false}
--
--     rate = initial_learning_rate / (1 + decay_rate * step / decay_steps)
-- staircase: rounds step / decay_steps down.
-- Example:
--     local rate = mgpu.schedules.InverseTimeDecay { 1, decay_steps = 100, decay_rate = 1 }
--     print(rate(0), rate(100), rate(300))  --> 1 0.5 0.25
M.InverseTimeDecay = Schedule.define {
  class = "InverseTimeDecay",
  declared = DECAY,
  rate = function(self, step, m)
    return self.initial_learning_rate / (1 + self.decay_rate * decays(self, step, m))
  end,
}

-- ---- PolynomialDecay ----------------------------------------------------------------------------

--- PolynomialDecay {initial_learning_rate, decay_steps, end_learning_rate = 0.0001, power = 1,
--- cycle = false}
--
--     step = min(step, decay_steps)
--     rate = (initial_learning_rate - end_learning_rate) * (1 - step / decay_steps) ^ power
--       + end_learning_rate
-- cycle: decay_steps is replaced by its first multiple that is not below step, so that the rate rises again after
-- each period.
-- Example:
--     local rate = mgpu.schedules.PolynomialDecay { 1, decay_steps = 100, end_learning_rate = 0, power = 2 }
--     print(rate(0), rate(50), rate(100))  --> 1 0.25 0
M.PolynomialDecay = Schedule.define {
  class = "PolynomialDecay",
  declared = {
    RATE,
    STEPS,
    { "end_learning_rate", "number", default = 0.0001, min = 0 },
    { "power", "number", default = 1, min = 0 },
    { "cycle", "boolean", default = false },
  },
  rate = function(self, step, m)
    local steps = self.decay_steps
    if self.cycle then
      steps = steps * m.where(m.le(step, 0), 1, m.ceil(step / steps))
    else
      step = m.minimum(step, steps)
    end
    local span = self.initial_learning_rate - self.end_learning_rate
    return span * m.pow(1 - step / steps, self.power) + self.end_learning_rate
  end,
}

-- ---- PiecewiseConstantDecay ---------------------------------------------------------------------

local function numbers_only(list, name, fail)
  for i, v in ipairs(list) do
    if type(v) ~= "number" or v ~= v or v < 0 or v == math.huge then
      fail("%s[%d] must be a finite number of at least 0, got %s", name, i, tostring(v))
    end
  end
end

--- PiecewiseConstantDecay {boundaries, values}
--
--     rate = values[1]      while step <= boundaries[1],
--            values[i + 1]  while boundaries[i] < step <= boundaries[i + 1],
--            the last       after the last boundary
-- Errors: boundaries that do not rise; #values other than #boundaries + 1.
-- Example:
--     local rate = mgpu.schedules.PiecewiseConstantDecay { { 1000, 2000 }, { 0.5, 0.25, 0.125 } }
--     print(rate(1000), rate(1001), rate(5000))  --> 0.5 0.25 0.125
M.PiecewiseConstantDecay = Schedule.define {
  class = "PiecewiseConstantDecay",
  declared = {
    { "boundaries", "table", required = true },
    { "values", "table", required = true },
  },
  validate = function(chosen, fail)
    local boundaries, values = chosen.boundaries, chosen.values
    if #boundaries == 0 then fail("boundaries must be a list of at least one step") end
    if #values ~= #boundaries + 1 then
      fail("%d boundaries need %d values, got %d", #boundaries, #boundaries + 1, #values)
    end
    numbers_only(boundaries, "boundaries", fail)
    numbers_only(values, "values", fail)
    for i = 2, #boundaries do
      if boundaries[i] <= boundaries[i - 1] then
        fail("boundaries must rise: boundaries[%d] = %g follows %g", i, boundaries[i], boundaries[i - 1])
      end
    end
  end,
  rate = function(self, step, m)
    local boundaries, values = self.boundaries, self.values
    local rate = values[#values] + 0 * step
    for i = #boundaries, 1, -1 do rate = m.where(m.le(step, boundaries[i]), values[i], rate) end
    return rate
  end,
}

-- ---- CosineDecay --------------------------------------------------------------------------------

-- `from`, after a share of half a cosine's period, whose peak is `high`.
local function cosine(self, from, share, high, m)
  local wave = 0.5 * high * (1 + m.cos(math.pi * share))
  return from * ((1 - self.alpha) * wave + self.alpha)
end

--- CosineDecay {initial_learning_rate, decay_steps, alpha = 0, warmup_target =, warmup_steps = 0}
--
-- Half a cosine from the initial rate to alpha times it:
--     step = min(step, decay_steps)
--     rate = initial_learning_rate * ((1 - alpha) * (1 + cos(pi step / decay_steps)) / 2 + alpha)
-- With warmup_target the rate first rises linearly from initial_learning_rate to warmup_target during warmup_steps
-- steps; then the cosine starts from there. Errors: warmup_steps without warmup_target.
-- Source: Loshchilov & Hutter, SGDR, 2016; Goyal et al., Accurate, large minibatch SGD, 2017 (warm-up).
-- Example:
--     local rate = mgpu.schedules.CosineDecay { 0, decay_steps = 100, warmup_target = 1, warmup_steps = 10 }
--     print(rate(0), rate(5), rate(10), ("%.1f"):format(rate(60)), rate(110))  --> 0 0.5 1 0.5 0
M.CosineDecay = Schedule.define {
  class = "CosineDecay",
  declared = {
    RATE,
    STEPS,
    ALPHA,
    { "warmup_target", "number", min = 0 },
    { "warmup_steps", "number", default = 0, min = 0 },
  },
  validate = function(chosen, fail)
    if chosen.warmup_steps > 0 and not chosen.warmup_target then
      fail("warmup_steps needs a warmup_target, the rate after them")
    end
  end,
  rate = function(self, step, m)
    local start, warm, target = self.initial_learning_rate, self.warmup_steps, self.warmup_target
    if not target then return cosine(self, start, m.minimum(step, self.decay_steps) / self.decay_steps, 1, m) end
    step = m.minimum(step, self.decay_steps + warm)
    local decayed = cosine(self, target, (step - warm) / self.decay_steps, 1, m)
    if warm == 0 then return decayed end
    return m.where(m.lt(step, warm), (target - start) * (step / warm) + start, decayed)
  end,
}

-- ---- CosineDecayRestarts ------------------------------------------------------------------------

-- A logarithm may fall short of the whole number by its rounding; a restart would then come a step
-- late.
local ROUNDING = 1e-9

-- The period's number and the share of it that is over; `done` counts first periods.
local function period(t, done, m)
  if t == 1 then
    local i = m.floor(done)
    return i, done - i
  end
  local i = m.floor(m.log(1 - done * (1 - t)) / math.log(t) + ROUNDING)
  local length = m.pow(t, i)
  return i, (done - (1 - length) / (1 - t)) / length
end

--- CosineDecayRestarts {initial_learning_rate, first_decay_steps, t_mul = 2, m_mul = 1, alpha = 0}
--
-- Cosine decay in periods: period i (from 0) lasts first_decay_steps * t_mul^i steps and starts at m_mul^i times the
-- initial rate. With p the share of the period that has passed:
--     rate = initial_learning_rate * ((1 - alpha) * m_mul^i * (1 + cos(pi p)) / 2 + alpha)
-- Source: Loshchilov & Hutter, SGDR, 2016.
-- Example:
--     local rate = mgpu.schedules.CosineDecayRestarts { 1, first_decay_steps = 100, m_mul = 0.5 }
--     print(("%.2f %.2f %.2f"):format(rate(0), rate(50), rate(99.9)))  --> 1.00 0.50 0.00
--     print(("%.2f %.2f"):format(rate(100), rate(200))) -- the second period: half the rate, 200 steps
--     --> 0.50 0.25
M.CosineDecayRestarts = Schedule.define {
  class = "CosineDecayRestarts",
  declared = {
    RATE,
    { "first_decay_steps", "number", required = true, above = 0 },
    { "t_mul", "number", default = 2, min = 1 },
    { "m_mul", "number", default = 1, min = 0 },
    ALPHA,
  },
  rate = function(self, step, m)
    local i, share = period(self.t_mul, step / self.first_decay_steps, m)
    return cosine(self, self.initial_learning_rate, share, m.pow(self.m_mul, i), m)
  end,
}

return M
