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
local checks = require "mgpu.data.checks"
local Flow = require "mgpu.data.flow.flow"
local joins = require "mgpu.data.flow.operators.joins"
local structure = require "mgpu.data.flow.structure"

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
  for _, key in ipairs(structure.keys(given)) do
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

--- zip {a, b, ...}: see the top.
return function(given)
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
