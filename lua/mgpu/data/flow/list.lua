--- Lists of datasets, as concatenate and interleave take them.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"

local M = {}

--- datasets(who, given) -> the array of datasets. Errors: an empty list; an entry that is not a dataset.
function M.datasets(who, given)
  if type(given) ~= "table" or checks.is_dataset(given) then
    checks.fail(who, "expected datasets, as in {a, b}, got %s",
      checks.is_dataset(given) and "one dataset" or type(given))
  end
  local fault = core.array_fault(given)
  if fault then checks.fail(who, "%s", fault) end
  if #given == 0 then checks.fail(who, "at least one dataset is needed") end
  for i, dataset in ipairs(given) do
    if not checks.is_dataset(dataset) then checks.fail(who, "entry %d is a %s, not a dataset", i, type(dataset)) end
  end
  return { unpack(given) }
end

--- total(inputs) -> the number of all their elements; false if one is unknown.
function M.total(inputs)
  local sum = 0
  for _, dataset in ipairs(inputs) do sum = sum and dataset.count and sum + dataset.count end
  return sum
end

--- least_level(inputs) -> the least level of the datasets: how often their elements have been batched.
function M.least_level(inputs)
  local level = math.huge
  for _, dataset in ipairs(inputs) do level = math.min(level, dataset.level) end
  return level
end

return M
