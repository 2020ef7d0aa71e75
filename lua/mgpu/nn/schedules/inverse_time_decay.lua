--- InverseTimeDecay {initial_learning_rate, decay_steps, decay_rate, staircase = false}
--
--     rate = initial_learning_rate / (1 + decay_rate * step / decay_steps)
-- staircase: rounds step / decay_steps down.
-- Example:
--     local rate = mgpu.schedules.InverseTimeDecay { 1, decay_steps = 100, decay_rate = 1 }
--     print(rate(0), rate(100), rate(300))  --> 1 0.5 0.25
local Schedule = require "mgpu.nn.schedules.schedule"

return Schedule.define {
  class = "InverseTimeDecay",
  declared = {
    { "initial_learning_rate", "number", required = true, min = 0 },
    { "decay_steps", "number", required = true, above = 0 },
    { "decay_rate", "number", required = true, min = 0 },
    { "staircase", "boolean", default = false },
  },
  rate = function(self, step, m)
    local p = step / self.decay_steps
    if self.staircase then p = m.floor(p) end
    return self.initial_learning_rate / (1 + self.decay_rate * p)
  end,
}
