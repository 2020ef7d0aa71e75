--- Callbacks that end the training: EarlyStopping and TerminateOnNaN.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local Monitor = require "mgpu.train.callbacks.monitor"
local train_step = require "mgpu.train.train_step"

local M = {}

-- ---- EarlyStopping ------------------------------------------------------------------------------

--- EarlyStopping {monitor = "val_loss", min_delta = 0, patience = 0, mode = "auto", baseline =, start_from_epoch = 0,
--- restore_best_weights = false, verbose = 0}: ends training when a value has stopped improving.
--
--     model:fit(x, y, { validation_split = 0.1, epochs = 100,
--       callbacks = mgpu.callbacks.EarlyStopping { patience = 3, restore_best_weights = true } })
-- It stops after `patience` epochs in a row without an improvement of more than min_delta over the best value. With a
-- baseline, only improvements that are also better than the baseline count. The first start_from_epoch epochs do
-- not count. restore_best_weights: the weights at the end of training are those of the best epoch.
-- Fields: best, best_epoch, stopped_epoch (0: it did not stop). Source: Keras's EarlyStopping.
-- Example:
--     local x = mgpu.rand { 64, 1 }
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { optimizer = "adam", loss = "mse" }
--     -- an epoch counts as better only if the loss falls by 0.5
--     local stopping = mgpu.callbacks.EarlyStopping { patience = 3, min_delta = 0.5 }
--     model:fit(x, x, { epochs = 100, validation_split = 0.25, verbose = 0, callbacks = stopping })
--     print(stopping.best_epoch, stopping.stopped_epoch)  --> 1 4
local EarlyStopping = Monitor:extend("EarlyStopping", { positional = 1,
  { "monitor", "string", default = "val_loss" },
  { "min_delta", "number", default = 0 },
  { "patience", "integer", default = 0, min = 0 },
  Monitor.VERBOSE,
  Monitor.MODE,
  { "baseline", "number" },
  { "restore_best_weights", "boolean", default = false },
  { "start_from_epoch", "integer", default = 0, min = 0 },
})

--- Starts again, so that a callback can be used for several fits.
function EarlyStopping:on_train_begin()
  self.wait, self.stopped_epoch, self.best_epoch = 0, 0, 0
  self.best, self.best_weights = nil, nil
end

local function keep_weights(self, epoch)
  self.best_epoch = epoch
  if self.restore_best_weights then self.best_weights = self.model:get_weights() end
end

--- Decides after each epoch.
function EarlyStopping:on_epoch_end(epoch, logs)
  local current = self:current(logs)
  if current == nil or epoch <= self.start_from_epoch then return end
  if self.restore_best_weights and not self.best_weights then keep_weights(self, epoch) end
  self.wait = self.wait + 1
  if self:is_improvement(current, self.best) then
    self.best = current
    keep_weights(self, epoch)
    if self.baseline == nil or self:is_improvement(current, self.baseline) then self.wait = 0 end
  elseif self.wait >= self.patience and epoch > 1 then
    self.stopped_epoch, self.model.stop_training = epoch, true
  end
end

--- Restores the best weights.
function EarlyStopping:on_train_end()
  if self.stopped_epoch > 0 and self.verbose > 0 then
    self.write("Epoch %d: early stopping", self.stopped_epoch)
  end
  if not self.best_weights then return end
  if self.verbose > 0 then
    self.write("Restoring model weights from the end of the best epoch: %d.", self.best_epoch)
  end
  self.model:set_weights(self.best_weights)
  self.best_weights = nil
end

--- The best value and weights, and how long ago they were.
function EarlyStopping:get_state()
  return { wait = self.wait, stopped_epoch = self.stopped_epoch, best = self.best, best_epoch = self.best_epoch,
    best_weights = self.best_weights }
end

--- Continues from get_state's table.
function EarlyStopping:set_state(state)
  for _, key in ipairs { "wait", "stopped_epoch", "best", "best_epoch", "best_weights" } do self[key] = state[key] end
end

M.EarlyStopping = EarlyStopping

-- ---- TerminateOnNaN -----------------------------------------------------------------------------

--- TerminateOnNaN {raise_error = false}: ends training, without an error, when loss or gradients are NaN or infinite.
--
-- Without this callback such a step is an error of fit, which raise_error = true keeps. The weights are those before
-- the step in both cases, and history and on_train_end come as after any other epoch. Loss scaling skips such steps;
-- there the callback reads the loss after every step. Source: Keras's TerminateOnNaN.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { optimizer = mgpu.optimizers.SGD { learning_rate = 1e30 }, loss = "mse" } -- far too high
--     local x = mgpu.ones { 64, 1 }
--     model:fit(x, x, { epochs = 9, verbose = 0, callbacks = mgpu.callbacks.TerminateOnNaN {} })
--     --> Batch 2: Invalid loss, terminating training
local TerminateOnNaN = Callback:extend("TerminateOnNaN", { positional = 1,
  { "raise_error", "boolean", default = false } })

TerminateOnNaN.adds = {}

--- Called by fit in place of raising the error of a step.
function TerminateOnNaN:handle_nonfinite(batch)
  self.write("Batch %d: Invalid loss, terminating training", batch)
end

--- Lets fit raise, with raise_error.
function TerminateOnNaN:init()
  if self.raise_error then self.handle_nonfinite = false end
end

-- on_train_batch_end of optimizers with loss scaling.
local function check_loss(self, batch, logs)
  local loss = logs.loss
  if loss == loss and math.abs(loss) < math.huge then return end
  if self.raise_error then core.fail("nonfinite", train_step.BAD_LOSS) end -- fit adds the place
  self:handle_nonfinite(batch)
  self.model.stop_training = true
end

--- Sees whether steps that are not finite are skipped.
function TerminateOnNaN:check_fit()
  self.on_train_batch_end = self.model.optimizer.skips_steps and check_loss or nil
end

M.TerminateOnNaN = TerminateOnNaN

return M
