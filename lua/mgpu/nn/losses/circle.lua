--- Circle {gamma = 80, margin = 0.4, remove_diagonal = true, reduction =, name =}, also circle: rows of one label shall
--- point in one direction, rows of different labels in different ones.
-- y_true {rows} of labels, y_pred {rows, n} of vectors with length 1 (see UnitNormalization) -> {rows}. With the
-- distances d = max(1 - cosine, 0) of a row to the others: softplus(logsumexp over rows of the same label of
-- gamma (d + margin) (d - margin) + logsumexp over the others of gamma (1 + margin - d) (1 - margin - d)). A row is its
-- own partner too if remove_diagonal is false. Rows whose loss is 0, as those without a partner, do not count in a
-- mean, as in Keras. Errors: y_pred with another number of axes than 2.
-- Source: Sun et al., Circle loss: a unified perspective of pair similarity optimization, 2020.
-- Example:
--     local labels, near = mgpu.tensor { 0, 0, 1 }, mgpu.tensor { { 1, 0 }, { 1, 0 }, { 0, 1 } }
--     local far = mgpu.tensor { { 1, 0 }, { 0, 1 }, { 0, 1 } }
--     print(mgpu.losses.circle(labels, near):item() < mgpu.losses.circle(labels, far):item())  --> true
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"

local ops = core.ops

local NEVER = -1e30 -- the logarithm of nothing, finite for the sake of the gradient

local M = {}

M.Circle = Loss.define {
  name = "circle",
  class = "Circle",
  declared = {
    { "gamma", "number", default = 80 },
    { "margin", "number", default = 0.4 },
    { "remove_diagonal", "boolean", default = true },
  },
  target_shape = function(_, prediction) return { prediction[1] } end,
  prepare = function(self, y_true, y_pred) -- labels are compared as they are: floats would make large ones equal
    self:check_shape(y_true:shape(), y_pred:shape())
    return y_true
  end,
  values = function(y_true, y_pred, options)
    if y_pred:rank() ~= 2 then
      core.fail("usage", ("circle: the predictions must be vectors, {rows, n}, but have %d axes"):format(y_pred:rank()))
    end
    local n, gamma, margin = y_pred:shape()[1], options.gamma, options.margin
    local distance = ops.maximum(1 - ops.matmul(y_pred, y_pred, { transpose_b = true }), 0)
    local same = ops.eq(ops.reshape(y_true, { shape = { n, 1 } }), ops.reshape(y_true, { shape = { 1, n } }))
    local other = ops.logical_not(same)
    if options.remove_diagonal then
      same = ops.logical_and(same, ops.ne(ops.iota { shape = { n, 1 }, axis = 1, dtype = "int32" },
        ops.iota { shape = { 1, n }, axis = 2, dtype = "int32" }))
    end
    local near = ops.maximum(distance + margin, 0) * (distance - margin) * gamma
    local far = ops.maximum(1 + margin - distance, 0) * (1 - margin - distance) * gamma
    local values = ops.softplus(ops.where(same, near, NEVER):logsumexp(-1)
      + ops.where(other, far, NEVER):logsumexp(-1))
    return values, ops.gt(values, 0)
  end,
}

return M
