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
local learning_rates = require "mgpu.train.callbacks.learning_rates"
local Monitor = require "mgpu.train.callbacks.monitor"

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

ReduceLROnPlateau.adds = { learning_rates.NAME }

--- Raises for a wrong monitor, and for an optimizer whose rate cannot be set.
function ReduceLROnPlateau:check_fit(names)
  Monitor.check_fit(self, names)
  learning_rates.check(self)
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
  learning_rates.log(self, logs)
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

return ReduceLROnPlateau
