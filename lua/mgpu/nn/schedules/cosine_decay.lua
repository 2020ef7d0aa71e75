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
local Schedule = require "mgpu.nn.schedules.schedule"

local function cosine(self, from, step, m)
  local wave = 0.5 * (1 + m.cos(math.pi * (step / self.decay_steps)))
  return from * ((1 - self.alpha) * wave + self.alpha)
end

return Schedule.define {
  class = "CosineDecay",
  declared = {
    { "initial_learning_rate", "number", required = true, min = 0 },
    { "decay_steps", "number", required = true, above = 0 },
    { "alpha", "number", default = 0, min = 0 },
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
    if not target then return cosine(self, start, m.minimum(step, self.decay_steps), m) end
    step = m.minimum(step, self.decay_steps + warm)
    local decayed = cosine(self, target, step - warm, m)
    if warm == 0 then return decayed end
    return m.where(m.lt(step, warm), (target - start) * (step / warm) + start, decayed)
  end,
}
