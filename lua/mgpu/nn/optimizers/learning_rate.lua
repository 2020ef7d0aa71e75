--- The learning rate of an optimizer: a number in a variable, so that a jitted step sees it change, or a schedule.
local core = require "mgpu.core"
local Schedule = require "mgpu.nn.schedules.schedule"

local M = {}

local function check_rate(who, value)
  if type(value) ~= "number" or not (value >= 0) or value == math.huge then
    local shown = type(value) == "table" and "a table" or type(value) == "string" and ("%q"):format(value)
    core.fail("usage", ('%s: option "learning_rate" must be a number of at least 0 or one of '
      .. "mgpu.schedules, got %s"):format(who, shown or tostring(value)))
  end
end

--- schedule_of(who, value) -> the schedule that the option learning_rate is or describes; nil for a number.
-- Errors: anything else; `who` names the optimizer in the message.
function M.schedule_of(who, value)
  local described = type(value) == "table" and type(value.class_name) == "string"
  if described or Schedule.is(value) then return Schedule.get(value) end
  check_rate(who, value)
end

--- decayed(rate, decay) -> the saved form of the schedule that Keras 1 and 2 make of the option decay:
--- rate / (1 + decay * step).
function M.decayed(rate, decay)
  return { class_name = "InverseTimeDecay",
    config = { initial_learning_rate = rate, decay_steps = 1, decay_rate = decay } }
end

--- apply_decay(who, chosen): replaces the options learning_rate and decay by the schedule that they mean.
-- Errors: decay beside a schedule.
function M.apply_decay(who, chosen)
  local decay = chosen.decay or 0
  chosen.decay = nil
  if decay == 0 then return end
  if M.schedule_of(who, chosen.learning_rate) then
    core.fail("usage", ("%s: give only one of a schedule and decay, which makes learning_rate a schedule"):format(who))
  end
  chosen.learning_rate = Schedule.get(M.decayed(chosen.learning_rate, decay))
end

--- get(optimizer) -> the rate of the next step, as a number. Waits for the device.
function M.get(self)
  if not self.schedule then return rawget(self, "rate"):item() end
  return self.schedule(tonumber(self.iterations:item()))
end

--- set(optimizer, value): sets the rate to a number. Errors: an optimizer with a schedule; a schedule as value.
function M.set(self, value)
  if self.schedule then
    core.fail("usage", ("%s: its learning_rate is a schedule and cannot be set: make the optimizer with "
      .. "a number instead"):format(self.name))
  elseif type(value) == "table" then
    core.fail("usage", ("%s: a schedule is given when the optimizer is made; learning_rate can be set to "
      .. "a number only"):format(self.name))
  end
  check_rate(self.name, value)
  self.rate:assign(core.tensor(value, { dtype = "float64" }))
end

return M
