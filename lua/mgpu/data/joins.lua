--- Several datasets as one: zip, concatenate and interleave of mgpu.data.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local Flow = require "mgpu.data.flow.flow"
local joins = require "mgpu.data.flow.operators.joins"
local ordered_keys = require "mgpu.ordered_keys"
local structure = require "mgpu.data.flow.structure"

local M = {}

-- ---- lists of datasets --------------------------------------------------------------------------

-- datasets(who, given) -> the array of datasets. Errors: an empty list; an entry that is not a dataset.
local function datasets(who, given)
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

-- total(inputs) -> the number of all their elements; false if one is unknown.
local function total(inputs)
  local sum = 0
  for _, dataset in ipairs(inputs) do sum = sum and dataset.count and sum + dataset.count end
  return sum
end

-- least_level(inputs) -> the least level of the datasets: how often their elements have been batched.
local function least_level(inputs)
  local level = math.huge
  for _, dataset in ipairs(inputs) do level = math.min(level, dataset.level) end
  return level
end

-- ---- zip ----------------------------------------------------------------------------------------

-- An element whose leaves are numbers of the datasets, which are added to `inputs`.
local function numbered(given, inputs, path)
  if checks.is_dataset(given) then
    inputs[#inputs + 1] = given
    return #inputs
  end
  if type(given) ~= "table" or getmetatable(given) or next(given) == nil then
    checks.fail("zip", "entry %s is %s, not a dataset", path, structure.kind_of(given))
  end
  local made = {}
  for _, key in ipairs(ordered_keys(given)) do
    made[key] = numbered(given[key], inputs, path == "" and tostring(key) or path .. "." .. key)
  end
  return made
end

-- The least of the known counts, if none is unknown.
local function shortest(inputs)
  local least = math.huge
  for _, dataset in ipairs(inputs) do
    if dataset.count == 0 then return 0 end
    least = least and dataset.count and math.min(least, dataset.count)
  end
  return least
end

--- zip {a, b, ...}: elements of several datasets side by side.
--
--     for x, y in mgpu.data.zip { images, labels }:iter() do ... end
--     mgpu.data.zip { { image = images, mask = masks }, labels }       -- elements {image = x, mask = m}, y
-- Component i of an element comes from dataset i. As in tf.data, if the elements of a dataset have several components,
-- these become one, an array: fit takes zip {zip {a, b}, y} for a model with two inputs. Datasets by name, or in nested
-- tables, give components of the same structure. A pass ends with the shortest dataset. Also ds:zip(other, ...).
-- Errors: an empty list; an entry that is not a dataset.
-- Example:
--     local images = mgpu.data.from_tensors { mgpu.zeros { 3, 8, 8 } }
--     local labels = mgpu.data.from_tensors { mgpu.arange(3) }
--     for x, y in mgpu.data.zip({ images, labels }):iter() do print(table.concat(x:shape(), " "), y:item()) end
--     --> 8 8 0
--     --> 8 8 1
--     --> 8 8 2
function M.zip(given)
  if type(given) ~= "table" or checks.is_dataset(given) or next(given) == nil then
    checks.fail("zip", "expected datasets, as in {a, b}, got %s",
      checks.is_dataset(given) and "one dataset" or structure.kind_of(given))
  end
  local rows = require "mgpu.data.dataset".zipped(given)
  if rows then return rows end
  local inputs = {}
  local like = numbered(given, inputs, "")
  return Flow.new(joins.Zip, { inputs = inputs, like = #given > 0 and like or { like }, count = shortest(inputs),
    level = inputs[1].level })
end

-- ---- concatenate --------------------------------------------------------------------------------

--- concatenate {a, b, ...}: the elements of one dataset after those of another. Also ds:concatenate(other, ...).
--
-- Errors: an empty list; an entry that is not a dataset; elements with different components, raised as they are read.
-- Example:
--     local a, b = mgpu.data.from_tensors { mgpu.arange(2) }, mgpu.data.from_tensors { mgpu.arange(10, 13) }
--     for x in mgpu.data.concatenate({ a, b }):batch(5):iter() do print(x) end
--     --> tensor {5} float32 cpu:0
--     --> { 0,  1, 10, 11, 12}
function M.concatenate(given)
  local inputs = datasets("concatenate", given)
  local rows = require "mgpu.data.dataset".concatenated(inputs)
  if rows then return rows end
  return Flow.new(joins.Concatenate, { inputs = inputs, count = total(inputs), level = least_level(inputs) })
end

-- ---- interleave ---------------------------------------------------------------------------------

--- interleave({a, b, ...}, {cycle_length =, block_length = 1}): the elements of several datasets in turns.
--
-- As in tf.data: cycle_length datasets (all, unless given) are open at a time; each in turn gives block_length
-- elements. When one has ended, the next unopened dataset takes its place at its next turn. ds:interleave(fn, ...)
-- is the same for datasets that fn makes of elements.
-- Errors: an empty list; an entry that is not a dataset; elements with different components, raised as they are read.
-- Example:
--     local a, b = mgpu.data.from_tensors { mgpu.arange(3) }, mgpu.data.from_tensors { mgpu.arange(10, 13) }
--     for x in mgpu.data.interleave({ a, b }):batch(6):iter() do print(x) end
--     --> tensor {6} float32 cpu:0
--     --> { 0, 10,  1, 11,  2, 12}
function M.interleave(given, options)
  local inputs = datasets("interleave", given)
  local chosen = Flow.interleave_options(options)
  return Flow.new(joins.Interleave, { inputs = inputs, cycle_length = chosen.cycle_length or #inputs,
    block_length = chosen.block_length, count = total(inputs), level = least_level(inputs) })
end

return M
