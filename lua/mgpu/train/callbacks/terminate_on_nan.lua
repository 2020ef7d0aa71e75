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
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local train_step = require "mgpu.train.train_step"

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

return TerminateOnNaN
