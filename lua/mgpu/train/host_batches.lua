--- Data for models with a part on the host (nn/host_part.lua): it runs in the data path, so that fit, evaluate and
--- predict go through batches of what the model's body takes.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local data_checks = require "mgpu.train.data_checks"
local host = require "mgpu.data.host"
local host_part = require "mgpu.nn.host_part"

local rows_of = data_checks.rows_of
local M = {}

-- What the part makes of columns. Raises for a batch without any word, with which no layer can compute.
local function results(what, part, columns)
  local list = host_part.results(part, columns)
  for i, t in ipairs(list) do
    if t:count() == 0 and t:shape()[1] > 0 then
      core.fail("data", ("%s: %s finds nothing in a batch of %d rows: if its texts may all be empty, give the layer an "
        .. "output_sequence_length"):format(what, tostring(part.results[i].node.layer), t:shape()[1]))
    end
  end
  return list
end

--- inputs(what, model, x) -> what the body takes for x: a tensor or an array of tensors, on the host.
function M.inputs(what, model, x)
  local list = results(what, host_part.of(model), data_checks.inputs(what, model, x, host()))
  return #list > 1 and list or list[1]
end

-- fn as an object that map calls untraced, since it sees values.
local function untraced(fn)
  return setmetatable({ reads_values = true }, { __call = function(_, ...) return fn(...) end })
end

--- changed(what, model, x, ...) -> the parts of a batch with x as the body takes it; nil for no batch.
function M.changed(what, model, x, ...)
  if x == nil then return nil end
  return M.inputs(what, model, x), ...
end

--- dataset(what, model, dataset) -> the dataset with the x of each batch as the body takes it.
function M.dataset(what, model, dataset)
  if checks.is_dataset(dataset) then
    return dataset:map(untraced(function(...) return M.changed(what, model, ...) end))
  end
  return setmetatable({ iter = function(...)
    local it = dataset.iter(...)
    return function() return M.changed(what, model, it()) end
  end }, { __index = dataset })
end

-- ---- arrays -------------------------------------------------------------------------------------

-- Some rows of a column: of a tensor, or of an array of texts. numbers: the rows from 0, an array and a tensor.
local function pick(column, numbers, index)
  if type(column) ~= "table" then return core.ops.gather(column, index, { axis = 1 }) end
  local list = {}
  for i, row in ipairs(numbers) do list[i] = column[row + 1] end
  return list
end

-- The columns of y or sample_weight, which is one tensor a name (an array or a table by name; for one name the tensor
-- itself), and the numbers of the names that have one.
local function columns_of(what, value, names, rows, label)
  local list, present = {}, {}
  if value == nil then return list, present end
  for i, item in pairs(data_checks.arrange(value, names, what, label)) do
    if item ~= nil and item ~= false then
      local column = data_checks.tensor(item, what, data_checks.label_of(label, names, i), host())
      if rows_of(column) ~= rows then
        core.fail("usage", ("%s: x has %d rows but %s has %d"):format(what, rows, label, rows_of(column)))
      end
      list[#list + 1], present[#present + 1] = column, i
    end
  end
  return list, present
end

-- The tensors as the value that columns_of has read.
local function value_of(tensors, present, names)
  if #names == 1 then return tensors[1] end
  local value = {}
  for i, at in ipairs(present) do value[names[at]] = tensors[i] end
  return next(value) ~= nil and value or nil
end

--- arrays(what, model, x, y, weight, batch_size) -> make(first, count, shuffle), a function that returns a dataset of
--- those rows, from 0, in batches; and the number of rows. y and weight may be nil.
function M.arrays(what, model, x, y, weight, batch_size)
  local columns, part = data_checks.inputs(what, model, x, host()), host_part.of(model)
  local rows, names = rows_of(columns[1]), model.output_names or { "output" }
  local targets, of_target = columns_of(what, y, names, rows, "y")
  if core.is_tensor(weight) or type(weight) == "table" and type(weight[1]) == "number" then -- for all outputs
    local each = {}
    for i = 1, #names do each[i] = weight end
    weight = #names > 1 and each or weight
  end
  local weights, of_weight = columns_of(what, weight, names, rows, "sample_weight")
  local function batch(index, ...)
    local given, numbers, some = { ... }, index:totable(), {}
    for i, column in ipairs(columns) do some[i] = pick(column, numbers, index) end
    local list = results(what, part, some)
    local parts = { #list > 1 and list or list[1], value_of({ unpack(given, 1, #targets) }, of_target, names),
      value_of({ unpack(given, #targets + 1) }, of_weight, names) }
    return unpack(parts)
  end
  return function(first, count, shuffle)
    local fields = { core.ops.iota({ rows }, 1, "int32"):to(host()), unpack(targets) }
    for _, t in ipairs(weights) do fields[#fields + 1] = t end
    local ds = require "mgpu.data".from_tensors(fields):skip(first):take(count)
    if shuffle then ds = ds:shuffle(count) end
    return ds:batch(batch_size):map(untraced(batch))
  end, rows
end

return M
