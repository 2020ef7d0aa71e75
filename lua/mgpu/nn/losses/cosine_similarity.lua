--- CosineSimilarity {axis = -1, reduction =, name =}, also cosine_similarity: minus the cosine between y_true and
--- y_pred along an axis, -1 where they have the same direction, 1 where the opposite one.
-- y_true and y_pred {rows, ..., n} -> {rows, ...}. The axis cannot be 1, the batch. Formula of Keras.
-- Example:
--     local up, others = mgpu.tensor { { 0, 1 }, { 0, 1 }, { 0, 1 } }, mgpu.tensor { { 0, 5 }, { 2, 0 }, { 0, -1 } }
--     print(mgpu.losses.cosine_similarity.per_sample(up, others))
--     --> tensor {3} float32 cpu:0
--     --> {-1,  0,  1}
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

-- x / |x|, as Keras bounds it: x * min(1 / |x|, 1e7).
local function unit(x, axis)
  return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), { axis = axis, keepdims = true }), 1e-14))
end

return Loss.define {
  name = "cosine_similarity",
  class = "CosineSimilarity",
  declared = { { "axis", "integer", default = -1 } },
  values = function(y_true, y_pred, options)
    local axis = options.axis
    return -ops.sum(unit(y_true, axis) * unit(y_pred, axis), { axis = axis })
  end,
}
