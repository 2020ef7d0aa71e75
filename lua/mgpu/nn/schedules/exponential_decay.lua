--- ExponentialDecay {initial_learning_rate, decay_steps, decay_rate, staircase = false}
--
--     rate = initial_learning_rate * decay_rate ^ (step / decay_steps)
-- staircase: rounds the exponent down.
-- Example:
--     local rate = mgpu.schedules.ExponentialDecay { 0.8, decay_steps = 1000, decay_rate = 0.5 }
--     print(rate(0), rate(1000), rate(2000))  --> 0.8 0.4 0.2
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = rate }, loss = "mse" }
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
