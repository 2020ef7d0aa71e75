--- LearningRateWarmup {initial_lr = optimizer's rate, warmup_epochs = 5, size = number of devices,
--- momentum_correction = true, steps_per_epoch =, verbose = 0}: raises the learning rate step by step at the start.
--
--     rate = initial_lr / size * ((epochs done) * (size - 1) / warmup_epochs + 1)
-- A large batch on `size` devices wants a rate `size` times as high, but not from the first step on. So initial_lr is
-- the scaled rate; the warm-up begins near initial_lr / size and arrives at initial_lr after warmup_epochs. The epochs
-- done include the present step: epoch e, step b of n gives e - 1 + b / n. For size = 1 the rate is initial_lr.
-- momentum_correction: the momentum of SGD and RMSprop, a sum of past rates times gradients, is scaled with the rate.
-- steps_per_epoch is needed only where the length of the dataset is not known.
-- Errors: an optimizer whose learning rate is a schedule. Source: Horovod's LearningRateWarmupCallback; Goyal et al.,
-- Accurate, large minibatch SGD, 2017.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = 0.8 }, loss = "mse" }
--     local warmup = mgpu.callbacks.LearningRateWarmup { warmup_epochs = 3, size = 4 } -- as on 4 devices
--     local show = { on_epoch_end = function() print(("%.1f"):format(model.optimizer.learning_rate)) end }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { epochs = 4, verbose = 0, callbacks = { warmup, show } })
--     --> 0.4
--     --> 0.6
--     --> 0.8
--     --> 0.8
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local learning_rates = require "mgpu.train.callbacks.learning_rates"

local LearningRateWarmup = Callback:extend("LearningRateWarmup", { positional = 1,
  { "initial_lr", "number", min = 0 },
  { "warmup_epochs", "number", default = 5, min = 0 },
  { "size", "integer", min = 1 },
  { "momentum_correction", "boolean", default = true },
  { "steps_per_epoch", "integer", min = 1 },
  { "verbose", "integer", default = 0, min = 0, max = 2 },
})

LearningRateWarmup.adds = { learning_rates.NAME }

--- Raises for an optimizer whose rate cannot be set, and for an unknown number of steps.
function LearningRateWarmup:check_fit()
  learning_rates.check(self)
  if not (self.steps_per_epoch or self.params.steps) then
    core.fail("usage", "fit: LearningRateWarmup: the length of the dataset is not known: give steps_per_epoch")
  end
end

-- How many devices, or groups of devices, share a batch.
local function device_count(model)
  local compiled = model.compiled
  return compiled.devices and #compiled.devices / (compiled.groups and #compiled.groups or 1) or 1
end

--- Reads the rate to arrive at, unless it was given.
function LearningRateWarmup:on_train_begin()
  self.target = self.initial_lr or self.model.optimizer.learning_rate
end

-- Scales the momentum by the ratio of the rates.
local function correct_momentum(optimizer, ratio)
  optimizer = optimizer.inner_optimizer or optimizer
  if (optimizer.options.momentum or 0) == 0 or ratio == 1 then return end
  for _, slots in pairs(optimizer.slots) do
    if slots.momentum then slots.momentum:assign(slots.momentum:value() * ratio) end
  end
end

--- Notes the epoch.
function LearningRateWarmup:on_epoch_begin(epoch) self.epoch = epoch end

--- Sets the rate of the step.
function LearningRateWarmup:on_train_batch_begin(batch)
  if self.epoch > self.warmup_epochs then return end
  local optimizer, size = self.model.optimizer, self.size or device_count(self.model)
  local done = self.epoch - 1 + batch / (self.steps_per_epoch or self.params.steps)
  local rate = self.target / size * (done * (size - 1) / self.warmup_epochs + 1)
  local before = self.rate or optimizer.learning_rate
  optimizer.learning_rate, self.rate = rate, rate
  if self.momentum_correction and before > 0 then correct_momentum(optimizer, rate / before) end
end

--- Adds the rate to the logs.
function LearningRateWarmup:on_epoch_end(epoch, logs)
  learning_rates.log(self, logs)
  self.rate = nil -- another callback may set it between two epochs
  if self.verbose > 0 and epoch == self.warmup_epochs then
    self.write("\nEpoch %d: finished gradual learning rate warmup to %g.", epoch, self.model.optimizer.learning_rate)
  end
end

--- The rate to arrive at.
function LearningRateWarmup:get_state() return { target = self.target } end

--- Continues from get_state's table.
function LearningRateWarmup:set_state(state) self.target = state.target end

return LearningRateWarmup
