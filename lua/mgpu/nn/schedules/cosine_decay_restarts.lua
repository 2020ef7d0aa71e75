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
local Schedule = require "mgpu.nn.schedules.schedule"

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

return Schedule.define {
  class = "CosineDecayRestarts",
  declared = {
    { "initial_learning_rate", "number", required = true, min = 0 },
    { "first_decay_steps", "number", required = true, above = 0 },
    { "t_mul", "number", default = 2, min = 1 },
    { "m_mul", "number", default = 1, min = 0 },
    { "alpha", "number", default = 0, min = 0 },
  },
  rate = function(self, step, m)
    local i, share = period(self.t_mul, step / self.first_decay_steps, m)
    local wave = 0.5 * m.pow(self.m_mul, i) * (1 + m.cos(math.pi * share))
    return self.initial_learning_rate * ((1 - self.alpha) * wave + self.alpha)
  end,
}
