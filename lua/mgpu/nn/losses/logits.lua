--- The logits behind probabilities: the input of the softmax or sigmoid that made them.
--
-- log(softmax(x)) is -inf for a probability that was rounded to 0, but exact if computed from x. So the
-- cross-entropies look for the logits first and use clipped probabilities only if there are none.
local core = require "mgpu.core"

--- logits(y_pred, activation, axis) -> the input of `activation` ("softmax" over the axis, or "sigmoid") if that op
--- made y_pred; else nil. A cast after the op, as losses do for float16, is applied to the input instead.
return function(y_pred, activation, axis)
  local made = y_pred
  if core.producer(made) == "cast" then made = core.producer_input(made, 1) end
  local made_by, over = core.producer(made)
  if made_by ~= activation or (over and over ~= axis) then return nil end
  local logits = core.producer_input(made, 1)
  if logits:dtype() == y_pred:dtype() then return logits end
  return core.ops.cast(logits, { dtype = y_pred:dtype() })
end
