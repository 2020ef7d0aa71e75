--- What a model takes and gives: names, dtypes and shapes, and checks of what a request gives.
local values = require "mgpu.serve.values"

local M = {}

-- The name of the layer that makes it; a second one of that name gets a number.
local function unique_name(s, taken)
  local name, n = s.node.layer.name, 1
  while taken[name] do
    n = n + 1
    name = s.node.layer.name .. "_" .. n
  end
  taken[name] = true
  return name
end

local function describe(symbols, names)
  local list, taken = {}, {}
  for i, s in ipairs(symbols) do
    local name = names and names[i]
    if not name or taken[name] then name = unique_name(s, taken) end
    taken[name] = true
    list[i] = { name = name, dtype = s:dtype(), shape = s:shape() }
  end
  return list
end

local function all_open(list)
  for _, v in ipairs(list) do
    if v.shape[1] ~= -1 then return false end
  end
  return true
end

--- of(model, name) -> {name =, inputs =, outputs = arrays of {name =, dtype =, shape =}, joins = whether rows of
--- several requests may be put into one batch}. Sizes that are open are -1. The input of a
--- Sequential is called "input", as in ONNX files. model: of a file, and so built.
function M.of(model, name)
  local s = { name = name, inputs = describe(model.inputs, rawget(model, "input_names") or { "input" }),
    outputs = describe(model.outputs, rawget(model, "output_names")) }
  s.joins = all_open(s.inputs) and all_open(s.outputs)
  return s
end

--- find(list, name) -> its position in inputs or outputs, or nil.
function M.find(list, name)
  for i, v in ipairs(list) do
    if v.name == name then return i end
  end
end

--- names(list) -> "a, b".
function M.names(list)
  local names = {}
  for i, v in ipairs(list) do names[i] = v.name end
  return table.concat(names, ", "), names
end

-- A last axis of size 1 is added or dropped where that makes the shape fit, as model(x) does.
local function with_rank(shape, wanted)
  local n = #shape
  if n == #wanted - 1 and wanted[#wanted] == 1 then
    shape[n + 1] = 1
  elseif n == #wanted + 1 and shape[n] == 1 then
    shape[n] = nil
  end
  return shape
end

local function fits(shape, wanted)
  if #shape ~= #wanted then return false end
  for i, size in ipairs(wanted) do
    if size ~= -1 and size ~= shape[i] then return false end
  end
  return true
end

--- check(input, column, fail): raises unless the column has the shape of the input and at least one row.
function M.check(input, column, fail)
  column.shape = with_rank(column.shape, input.shape)
  if not fits(column.shape, input.shape) then
    fail("its shape is %s, expected %s (-1: any size)", values.shape_text(column.shape), values.shape_text(input.shape))
  end
  for i, size in ipairs(column.shape) do
    if size < 1 then fail("its shape %s has the size %d for axis %d", values.shape_text(column.shape), size, i) end
  end
end

--- rows_of(s, columns, fail) -> the rows that all columns have, an array in the order of the inputs. Raises if their
--- numbers differ.
function M.rows_of(s, columns, fail)
  local rows
  for i, input in ipairs(s.inputs) do
    local n = columns[i].shape[1] or 1
    if s.joins and rows and n ~= rows then
      fail("input \"%s\" has %d rows, but input \"%s\" has %d", input.name, n, s.inputs[1].name, rows)
    end
    rows = rows or n
  end
  return rows
end

--- key_of(columns) -> a text that is equal for requests that can be put into one batch.
function M.key_of(columns)
  local parts = {}
  for i, c in ipairs(columns) do parts[i] = table.concat(c.shape, ",", 2) end
  return table.concat(parts, ";")
end

return M
