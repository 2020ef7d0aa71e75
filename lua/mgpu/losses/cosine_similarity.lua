-- Minus the cosine between y_true and y_pred along an axis: -1 where they point the same way, 1 where the
-- opposite. Option: axis = -1 (1 = batch, which it cannot be).

local core = require "mgpu.core"
local Loss = require "mgpu.losses.loss"

local ops = core.ops

-- x / |x|, as Keras bounds it: x * rsqrt(max(sum x^2, 1e-12)).
local function unit(x, axis)
  return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), { axis = axis, keepdims = true }), 1e-12))
end

return Loss.define {
  name = "cosine_similarity",
  class = "CosineSimilarity",
  declared = { { "axis", "integer", default = -1 } },
  values = function(y_true, y_pred, options)
    local axis, rank = options.axis, y_pred:rank()
    local at = axis < 0 and axis + rank + 1 or axis
    if at < 2 or at > rank then
      core.fail("usage", ("cosine_similarity: axis %d is out of range for predictions with %d axes (the "
        .. "batch is 1)"):format(axis, rank))
    end
    return -ops.sum(unit(y_true, at) * unit(y_pred, at), { axis = at })
  end,
}
