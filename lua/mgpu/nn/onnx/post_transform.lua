--- transformed(name, t) -> the scores t after a post_transform of ai.onnx.ml.
local core = require "mgpu.core"

local ops = core.ops

return function(name, t)
  if name == "NONE" then return t end
  if name == "LOGISTIC" then return ops.sigmoid(t) end
  if name == "SOFTMAX" then return ops.softmax(t, { axis = -1 }) end
  if name == "SOFTMAX_ZERO" then -- scores of 0 stay 0
    local kept = ops.ne(t, 0)
    local e = ops.where(kept, ops.exp(t - ops.max(t, { axis = -1, keepdims = true })), 0)
    return e / ops.sum(e, { axis = -1, keepdims = true })
  end
  core.fail("unsupported", ("post_transform = %q"):format(name))
end
