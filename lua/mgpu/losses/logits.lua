-- The logits behind probabilities: what a softmax or sigmoid at the end of a model was given.
--
-- log(softmax(x)) of a probability that was rounded to 0 is -inf; computed from x it is exact. So a
-- cross-entropy asks here first and falls back on clipped probabilities.

local core = require "mgpu.core"

-- The input of `activation` ("softmax" over the axis, or "sigmoid") if that op made `y_pred`.
return function(y_pred, activation, axis)
  local made_by, over = core.producer(y_pred)
  if made_by ~= activation or (over and over ~= axis) then return nil end
  return core.producer_input(y_pred, 1)
end
