--- Callbacks that set the learning rate.
-- RETURNS the callbacks by name.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local Monitor = require "mgpu.train.callbacks.monitor"
local rate_scale = require "mgpu.train.rate_scale"

local M = {}

local NAME = "learning_rate" -- in the logs

-- Raises if the rate of the model's optimizer cannot be set.
local function check_rate(callback)
  local optimizer = callback.model.optimizer
  if (optimizer.inner_optimizer or optimizer).schedule then
    core.fail("usage", ("fit: %s: the learning_rate of %s is a schedule and cannot be set: make the optimizer with a "
      .. "number"):format(callback.class, optimizer.name))
  end
end

-- Adds the rate to the logs of an epoch.
local function log_rate(callback, logs) logs[NAME] = callback.model.optimizer.learning_rate end

-- ---- LearningRateScheduler ----------------------------------------------------------------------

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
local LearningRateScheduler = Callback:extend("LearningRateScheduler", { positional = 1,
  { "schedule", "function", required = true },
  { "verbose", "integer", default = 0, min = 0, max = 2 },
})

LearningRateScheduler.adds = { NAME }

--- Raises for an optimizer whose rate cannot be set.
function LearningRateScheduler:check_fit() check_rate(self) end

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
function LearningRateScheduler:on_epoch_end(_, logs) log_rate(self, logs) end

M.LearningRateScheduler = LearningRateScheduler

-- ---- LearningRateWarmup -------------------------------------------------------------------------

--- LearningRateWarmup {initial_lr = optimizer's rate, warmup_epochs = 5, size = number of devices of all processes,
--- momentum_correction = true, steps_per_epoch =, verbose = 0}: raises the learning rate step by step at the start.
--
--     rate = initial_lr / size * ((epochs done) * (size - 1) / warmup_epochs + 1)
-- A large batch on `size` devices wants a rate `size` times as high, but not from the first step on. So initial_lr is
-- the scaled rate; the warm-up begins near initial_lr / size and arrives at initial_lr after warmup_epochs. The epochs
-- done include the present step: epoch e, step b of n gives e - 1 + b / n. For size = 1 the rate is initial_lr. With
-- compile's lr_scale, `size` is its factor: the warm-up begins near the rate of one device and ends at the scaled one.
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
local LearningRateWarmup = Callback:extend("LearningRateWarmup", { positional = 1,
  { "initial_lr", "number", min = 0 },
  { "warmup_epochs", "number", default = 5, min = 0 },
  { "size", "integer", min = 1 },
  { "momentum_correction", "boolean", default = true },
  { "steps_per_epoch", "integer", min = 1 },
  { "verbose", "integer", default = 0, min = 0, max = 2 },
})

LearningRateWarmup.adds = { NAME }

--- Raises for an optimizer whose rate cannot be set, and for an unknown number of steps.
function LearningRateWarmup:check_fit()
  check_rate(self)
  if not (self.steps_per_epoch or self.params.steps) then
    core.fail("usage", "fit: LearningRateWarmup: the length of the dataset is not known: give steps_per_epoch")
  end
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
  local optimizer = self.model.optimizer
  local size = self.size or rate_scale.factor(self.model.compiled) or rate_scale.replicas(self.model.compiled)
  local done = self.epoch - 1 + batch / (self.steps_per_epoch or self.params.steps)
  local rate = self.target / size * (done * (size - 1) / self.warmup_epochs + 1)
  local before = self.rate or optimizer.learning_rate
  optimizer.learning_rate, self.rate = rate, rate
  if self.momentum_correction and before > 0 then correct_momentum(optimizer, rate / before) end
end

--- Adds the rate to the logs.
function LearningRateWarmup:on_epoch_end(epoch, logs)
  log_rate(self, logs)
  self.rate = nil -- another callback may set it between two epochs
  if self.verbose > 0 and epoch == self.warmup_epochs then
    self.write("\nEpoch %d: finished gradual learning rate warmup to %g.", epoch, self.model.optimizer.learning_rate)
  end
end

--- The rate to arrive at.
function LearningRateWarmup:get_state() return { target = self.target } end

--- Continues from get_state's table.
function LearningRateWarmup:set_state(state) self.target = state.target end

M.LearningRateWarmup = LearningRateWarmup

-- ---- ReduceLROnPlateau --------------------------------------------------------------------------

--- ReduceLROnPlateau {monitor = "val_loss", factor = 0.1, patience = 10, mode = "auto", min_delta = 1e-4, cooldown = 0,
--- min_lr = 0, verbose = 0}: lowers the learning rate when a value has stopped improving.
--
-- After `patience` epochs in a row without an improvement of more than min_delta, the rate is multiplied by factor, but
-- not below min_lr; then it waits `cooldown` epochs before it counts again. The rate of the epoch is in the logs as
-- learning_rate. Errors: an optimizer whose learning rate is a schedule. Source: Keras's ReduceLROnPlateau.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = 0.08 }, loss = "mse" }
--     -- an improvement counts only if it is larger than 10
--     local plateau = mgpu.callbacks.ReduceLROnPlateau { monitor = "loss", factor = 0.5, patience = 2, min_delta = 10 }
--     local x, y = mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }
--     local h = model:fit(x, y, { epochs = 5, verbose = 0, callbacks = plateau })
--     print(unpack(h.history.learning_rate))  --> 0.08 0.08 0.08 0.04 0.04
local ReduceLROnPlateau = Monitor:extend("ReduceLROnPlateau", { positional = 1,
  { "monitor", "string", default = "val_loss" },
  { "factor", "number", default = 0.1, min = 0, below = 1 },
  { "patience", "integer", default = 10, min = 0 },
  Monitor.VERBOSE,
  Monitor.MODE,
  { "min_delta", "number", default = 1e-4 },
  { "cooldown", "integer", default = 0, min = 0 },
  { "min_lr", "number", default = 0, min = 0 },
})

ReduceLROnPlateau.adds = { NAME }

--- Raises for a wrong monitor, and for an optimizer whose rate cannot be set.
function ReduceLROnPlateau:check_fit(names)
  Monitor.check_fit(self, names)
  check_rate(self)
end

--- Starts again, so that a callback can be used for several fits.
function ReduceLROnPlateau:on_train_begin()
  self.wait, self.cooldown_counter, self.best = 0, 0, nil
end

-- RETURNS whether the rate was lowered.
local function reduce(self, epoch)
  local optimizer = self.model.optimizer
  local old = optimizer.learning_rate
  if old <= self.min_lr then return false end
  optimizer.learning_rate = math.max(old * self.factor, self.min_lr)
  if self.verbose > 0 then
    self.write("\nEpoch %d: ReduceLROnPlateau reducing learning rate to %.14g.", epoch, optimizer.learning_rate)
  end
  return true
end

--- Decides after each epoch.
function ReduceLROnPlateau:on_epoch_end(epoch, logs)
  log_rate(self, logs)
  local current = self:current(logs)
  if current == nil then return end
  if self.cooldown_counter > 0 then
    self.cooldown_counter, self.wait = self.cooldown_counter - 1, 0
  end
  if self:is_improvement(current, self.best) then
    self.best, self.wait = current, 0
  elseif self.cooldown_counter == 0 then
    self.wait = self.wait + 1
    if self.wait >= self.patience and reduce(self, epoch) then
      self.cooldown_counter, self.wait = self.cooldown, 0
    end
  end
end

--- The best value and the counters.
function ReduceLROnPlateau:get_state()
  return { wait = self.wait, cooldown_counter = self.cooldown_counter, best = self.best }
end

--- Continues from get_state's table.
function ReduceLROnPlateau:set_state(state)
  self.wait, self.cooldown_counter, self.best = state.wait, state.cooldown_counter, state.best
end

M.ReduceLROnPlateau = ReduceLROnPlateau

return M
