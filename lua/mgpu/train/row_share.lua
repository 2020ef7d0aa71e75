--- The rows of a batch that this rank reads where several processes share a step: those of its own devices.
--
-- Batches keep their global shape, but only the rows of this rank have values: the others are undefined. So what looks
-- at values on the host looks at a *window*, {first (from 0), count}, of the batch.
local core = require "mgpu.core"
local strategies = require "mgpu.parallel.strategies"
local world = require "mgpu.parallel.world"

local M = {}

--- of(compiled) -> which devices of all ranks are this rank's, as core.stream's `share` says; nil where a step is not
--- shared by several ranks. The first call is made by all ranks together: they tell one another how many they have.
function M.of(compiled)
  local spread = compiled and compiled.spread
  if not (spread and spread.joint and world.is_joint()) then return nil end
  if strategies.get(compiled.strategy).whole_batches then return nil end
  if not compiled.share then
    compiled.share = core.world_devices(#spread.devices / (spread.stages or 1), spread.weights)
  end
  return compiled.share
end

--- window(share, rows) -> the window of this rank in a batch of so many rows; nil without a share.
function M.window(share, rows)
  if not share then return nil end
  local first, count = core.share_rows(share, rows)
  return { first = first, count = count }
end

--- cut(t, window) -> the rows of a window that has some; t without a window.
function M.cut(t, window)
  if not window then return t end
  return core.ops.gather(t, core.ops.add(core.ops.iota { shape = { window.count }, axis = 1, dtype = "int32" },
    window.first), { axis = 1 })
end

-- The results of a pcall; raises its error, once the other ranks know it.
local function told(ok, ...)
  if ok then return ... end
  core.world_fail((tostring((...)):gsub("^[^:]*:%d+: ", "")))
  error((...), 0)
end

--- only_here(fn, ...) -> what fn(...) returns. fn looks at rows that only this rank has, so it may raise on this rank
--- alone: the others wait for it in the step then, and are told why it does not come.
function M.only_here(fn, ...) return told(pcall(fn, ...)) end

return M
