--- ExponentialDecay {initial_learning_rate, decay_steps, decay_rate, staircase = false}
--
--     rate = initial_learning_rate * decay_rate ^ (step / decay_steps)
-- staircase: rounds the exponent down.
local Schedule = require "mgpu.nn.schedules.schedule"

return Schedule.define {
  class = "ExponentialDecay",
  declared = {
    { "initial_learning_rate", "number", required = true, min = 0 },
    { "decay_steps", "number", required = true, above = 0 },
    { "decay_rate", "number", required = true, min = 0 },
    { "staircase", "boolean", default = false },
  },
  rate = function(self, step, m)
    local p = step / self.decay_steps
    if self.staircase then p = m.floor(p) end
    return self.initial_learning_rate * m.pow(self.decay_rate, p)
  end,
}
