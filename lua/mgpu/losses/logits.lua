-- The logits behind probabilities: what a softmax or sigmoid at the end of a model was given.
--
-- log(softmax(x)) of a probability that was rounded to 0 is -inf; computed from x it is exact. So a
-- cross-entropy asks here first and falls back on clipped probabilities.

local core = require "mgpu.core"

-- The input of `activation` ("softmax" over the last axis, or "sigmoid") if that op made `y_pred`.
return function(y_pred, activation)
  local made_by, axis = core.producer(y_pred)
  if made_by ~= activation or (axis and axis ~= y_pred:rank()) then return nil end
  return core.producer_input(y_pred, 1)
end
