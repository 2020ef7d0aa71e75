--- Operations of keras.ops.core; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

M.Cast = { "x | dtype", function(x, dtype) return ops.cast(x, dtype) end }
M.SaturateCast = M.Cast -- ours stops at the dtype's limits
M.ConvertToTensor = { "x | dtype? sparse? ragged:boolean?", function(x, dtype)
  return dtype and ops.cast(x, dtype) or x
end }
M.StopGradient = { "variable", ops.stop_gradient }

-- The sizes of x: the tf.shape of files of Keras 2. Keras 3 has no operation of this name, its sizes are no tensors.
M.Shape = { "x", function(x) return core.tensor(x:shape(), { dtype = "int32", device = x:device() }) end }

local MOST_PARTS = 4096

M.Unstack = { "x | num? axis?", function(x, num, axis)
  local at = arguments.axis_at("unstack", axis or 1, x:rank())
  local n, list, ranges = x:shape()[at], {}, {}
  if num and num ~= n then arguments.fail("unstack: num is %d, the axis has %d elements", num, n) end
  if n > MOST_PARTS then arguments.fail("unstack: %d parts are more than %d", n, MOST_PARTS) end
  for i = 1, x:rank() do ranges[i] = {} end
  for i = 1, n do
    ranges[at] = i
    list[i] = composite.slice(x, ranges)
  end
  return list
end }

-- Whole numbers from a list or a constant tensor.
M.Slice = { "inputs start_indices:value | shape", function(x, start, shape)
  local ranges = {}
  for i, first in ipairs(type(start) == "table" and start or { start }) do
    arguments.whole("slice", "a start", first, 0)
    ranges[i] = { first + 1, first + (shape[i] or 0) }
    if shape[i] == -1 then ranges[i] = { first + 1 } end
  end
  return composite.slice(x, ranges)
end }

-- The part that begins at `start` replaced.
M.SliceUpdate = { "inputs start_indices:value updates", function(x, start, updates)
  local before, after, s, u = {}, {}, x:shape(), updates:shape()
  for i, size in ipairs(s) do
    before[i] = arguments.whole("slice_update", "a start", type(start) == "table" and start[i] or start, 0)
    after[i] = arguments.whole("slice_update", "what is left behind the part", size - before[i] - (u[i] or 0), 0)
  end
  local inside = ops.pad(ops.full(u, 1, "uint8"), { before = before, after = after, value = 0 })
  return ops.where(ops.gt(inside, 0), ops.pad(updates, { before = before, after = after, value = 0 }), x)
end }

M.Scatter = { "indices values | shape", function(ids, values, shape)
  return composite.scatter(ids, values, { shape = shape })
end }

M.ScatterUpdate = { "inputs indices updates | reduction?", function(x, ids, updates, reduction)
  if reduction == "add" then return composite.scatter_add(x, ids, updates) end
  if reduction then
    core.fail("unsupported", ("scatter_update: the reduction %q is not supported"):format(reduction))
  end
  return composite.scatter_update(x, ids, updates)
end }

return M
