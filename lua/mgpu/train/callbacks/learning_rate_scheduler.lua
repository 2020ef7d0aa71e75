--- LearningRateScheduler {schedule, verbose = 0}: sets the learning rate at the beginning of each epoch.
--
--     mgpu.callbacks.LearningRateScheduler(function(epoch, rate) return epoch <= 10 and rate or rate * 0.9 end)
-- schedule(epoch, rate) -> the rate of this epoch. Epochs count from 1. The rate is in the logs as learning_rate.
-- Errors: an optimizer whose learning rate is a schedule; a result that is not a number of at least 0.
-- Source: Keras's LearningRateScheduler.
-- Example:
--     local halve = mgpu.callbacks.LearningRateScheduler(function(epoch, rate)
--       return epoch == 1 and rate or rate / 2
--     end)
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = 0.5 }, loss = "mse" }
--     local h = model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { epochs = 3, verbose = 0, callbacks = halve })
--     print(unpack(h.history.learning_rate))  --> 0.5 0.25 0.125
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local learning_rates = require "mgpu.train.callbacks.learning_rates"

local LearningRateScheduler = Callback:extend("LearningRateScheduler", { positional = 1,
  { "schedule", "function", required = true },
  { "verbose", "integer", default = 0, min = 0, max = 2 },
})

LearningRateScheduler.adds = { learning_rates.NAME }

--- Raises for an optimizer whose rate cannot be set.
function LearningRateScheduler:check_fit() learning_rates.check(self) end

--- Sets the rate.
function LearningRateScheduler:on_epoch_begin(epoch)
  local optimizer = self.model.optimizer
  local rate = self.schedule(epoch, optimizer.learning_rate)
  if type(rate) ~= "number" or not (rate >= 0 and rate < math.huge) then
    core.fail("usage", ("fit: LearningRateScheduler: schedule(%d, %.14g) must return a number of at least 0, got %s")
      :format(epoch, optimizer.learning_rate, tostring(rate)))
  end
  optimizer.learning_rate = rate
  if self.verbose > 0 then
    self.write("\nEpoch %d: LearningRateScheduler setting learning rate to %.14g.", epoch, rate)
  end
end

--- Adds the rate to the logs.
function LearningRateScheduler:on_epoch_end(_, logs) learning_rates.log(self, logs) end

return LearningRateScheduler
