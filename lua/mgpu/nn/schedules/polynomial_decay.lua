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
local Schedule = require "mgpu.nn.schedules.schedule"

return Schedule.define {
  class = "PolynomialDecay",
  declared = {
    { "initial_learning_rate", "number", required = true, min = 0 },
    { "decay_steps", "number", required = true, above = 0 },
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
