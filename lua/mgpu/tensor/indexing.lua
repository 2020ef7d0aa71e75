--- Elements picked by tensors of ids, which count from 0. Ids that are out of range are found when they are computed.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, axis_at, read_options = arguments.as_tensor, arguments.axis_at, arguments.read_options

--- gather(t, ids, axis = 1) -> the slices of t along the axis that the whole numbers ids {...}, from 0, pick: the axis
--- is replaced by those of ids. Errors: an id outside, found when the ids are computed.
function M.gather(t, ids, ...)
  local axis = read_options("gather", { "axis" }, ...)
  t, ids = as_tensor("gather", t), as_tensor("gather", ids)
  local at = axis_at("gather", axis or 1, #t:shape())
  local picked, size = ops.gather(t, ids, { axis = at }), t:shape()[at]
  core.guard(ops.all(ops.logical_and(ops.ge(ids, 0), ops.lt(ids, size))), "data",
    ("gather: an id is not among 0 to %d, the places of axis %d from 0"):format(size - 1, at))
  return picked
end

return M
