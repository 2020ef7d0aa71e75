--- TerminateOnNaN {raise_error = false}: ends training, without an error, when loss or gradients are NaN or infinite.
--
-- Without this callback such a step is an error of fit, which raise_error = true keeps. The weights are those before
-- the step in both cases, and history and on_train_end come as after any other epoch. Source: Keras's TerminateOnNaN.
local Callback = require "mgpu.train.callbacks.callback"

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

return TerminateOnNaN
