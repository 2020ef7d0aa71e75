--- The rows of a batch that this rank reads where several processes share a step: those of its own devices.
--
-- Batches keep their global shape, but only the rows of this rank have values: the others are undefined. So what looks
-- at values on the host looks at a *window*, {first (from 0), count}, of the batch.
local core = require "mgpu.core"
local world = require "mgpu.parallel.world"

local M = {}

--- of(compiled) -> which devices of all ranks are this rank's, as core.stream's `share` says; nil where a step is not
--- shared by several ranks. The first call is made by all ranks together: they tell one another how many they have.
function M.of(compiled)
  local spread = compiled and compiled.spread
  if not (spread and spread.joint and world.is_joint()) then return nil end
  if not compiled.share then
    compiled.share = core.world_devices(#spread.devices / (spread.stages or 1), spread.weights)
  end
  return compiled.share
end

-- Raises on all ranks unless the number is the same on all.
local function check_same(what, method, number)
  local all = core.world_gather(number)
  for rank = 1, #all - 1 do
    if all[rank + 1] ~= all[1] then
      core.fail("usage", ("%s: the dataset of rank %d is not that of rank 0: they differ in :%s: give all ranks the "
        .. "same dataset, as the ranks share the rows of each batch"):format(what, rank, method))
    end
  end
end

-- Appends {method, number} for each step that shuffles or shards.
local function add_chosen(list, dataset)
  for _, stage in ipairs(rawget(dataset, "stages") or { dataset }) do
    local seed, index = rawget(stage, "seed"), rawget(stage, "index")
    if seed then list[#list + 1] = { "shuffle", seed } end
    if index then list[#list + 1] = { "shard", index } end
  end
  local input = rawget(dataset, "input")
  for _, before in ipairs(input and { input } or rawget(dataset, "inputs") or {}) do add_chosen(list, before) end
end

--- check_order(what, dataset): raises on all ranks if some of them shuffle or shard a dataset of mgpu.data otherwise
--- than rank 0, so that their rows would not make one batch. Called by all ranks together.
function M.check_order(what, dataset)
  local chosen = {}
  add_chosen(chosen, dataset)
  check_same(what, "shuffle or :shard", #chosen)
  for _, each in ipairs(chosen) do check_same(what, each[1], each[2]) end
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
