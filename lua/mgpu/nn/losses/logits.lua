-- The logits behind probabilities: what a softmax or sigmoid at the end of a model was given.
--
-- log(softmax(x)) of a probability that was rounded to 0 is -inf; computed from x it is exact. So a
-- cross-entropy asks here first and falls back on clipped probabilities.

local core = require "mgpu.core"

-- The input of `activation` ("softmax" over the axis, or "sigmoid") if that op made `y_pred`, or made
-- what was cast to be `y_pred`, as the loss does with halves; then the input is cast instead.
return function(y_pred, activation, axis)
  local made = y_pred
  if core.producer(made) == "cast" then made = core.producer_input(made, 1) end
  local made_by, over = core.producer(made)
  if made_by ~= activation or (over and over ~= axis) then return nil end
  local logits = core.producer_input(made, 1)
  if logits:dtype() == y_pred:dtype() then return logits end
  return core.ops.cast(logits, { dtype = y_pred:dtype() })
end
