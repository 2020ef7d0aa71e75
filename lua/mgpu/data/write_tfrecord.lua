--- write_tfrecord(path, rows, schema, {compression =, shards = 1}) -> the number of rows: writes a TFRecord file that
--- mgpu.data.tfrecord and TensorFlow read.
--
--     mgpu.data.write_tfrecord("train.tfrecord", mgpu.data.from_tensors { x, y },
--       { { "image", "png", shape = { 28, 28 } }, { "label", "int64" } })
-- rows: a dataset without batches, whose elements are the values of a row in the order of the schema; or a list of
-- rows; or a function that returns one row a call and nil at the end. A row from a list or a function is a table, of
-- values by the names of the schema or in its order; a function may also return the values themselves, unless there is
-- only one and it is a table. Values are numbers, nested tables, tensors and strings. An image is a uint8 tensor,
-- which is encoded, or a string, the contents of an image file. Raw numbers may be a string of their bytes.
-- The file appears whole or not at all.
-- ARGS
--   schema       as for tfrecord; see record_schema.lua
--   compression  "gzip" or "zlib"; nil: none
--   shards       files: rows go in turn to path-00000-of-00004 and so on; at most 512. nil: one file, at path itself
-- Errors: a dataset without end; a value that is missing, has another shape or cannot be held, with row (from 1) and
-- feature; the disk.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.rand { 100, 3 }, mgpu.arange(100) }
--     local schema = { { "x", "float32", shape = { 3 } }, { "y", "float32" } }
--     print(mgpu.data.write_tfrecord("train.tfrecord", ds, schema, { shards = 2 }))  --> 100
--     print(mgpu.data.tfrecord("train.tfrecord-*", schema):length())  --> 100
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local options = require "mgpu.options"
local record_schema = require "mgpu.data.record_schema"

local MOST_SHARDS = 512
local OPTIONS = options.declare {
  { "compression", "string", values = { "gzip", "zlib", "none" } },
  { "shards", "integer", min = 1, max = MOST_SHARDS },
}

local function fail(message, ...) core.fail("usage", "write_tfrecord: " .. message:format(...)) end

local function is_table(value) return type(value) == "table" and getmetatable(value) == nil end

local function shard_paths(path, shards)
  if not shards then return { path } end
  local list = {}
  for i = 1, shards do list[i] = ("%s-%05d-of-%05d"):format(path, i - 1, shards) end
  return list
end

-- ---- rows: each function RETURNS a function that returns the next row's values, or nothing -------

-- The values of a row that is a table, in the order of the fields; `places` has the position of each name.
local function values_of(row, number, fields, places)
  local values = {}
  for key, value in pairs(row) do
    local k = places[key] or key
    if type(k) ~= "number" or not fields[k] then
      local names = {}
      for i, field in ipairs(fields) do names[i] = field.name end
      fail("row %d: there is no field %s%s in the schema", number, type(key) == "string" and ("%q"):format(key)
        or tostring(key), type(key) == "string" and core.did_you_mean(key, names) or "")
    end
    if values[k] ~= nil then fail("row %d: field %q is given by name and by position", number, fields[k].name) end
    values[k] = value
  end
  return unpack(values, 1, #fields)
end

local function of_list(list, fields, places)
  local fault, i = core.array_fault(list), 0
  if fault then fail("the rows are a list of tables: %s", fault) end
  return function()
    i = i + 1
    if list[i] == nil then return end
    if not is_table(list[i]) then fail("row %d is a %s, not a table", i, type(list[i])) end
    return values_of(list[i], i, fields, places)
  end
end

-- fn: a function, or an iterator of a dataset.
local function of_function(fn, fields, places)
  local number = 0
  local function row(...)
    if (...) == nil then return end
    number = number + 1
    if select("#", ...) == 1 and is_table((...)) then return values_of(..., number, fields, places) end
    return ...
  end
  return function() return row(fn()) end
end

-- The rows that were given, as such a function.
local function reader(rows, fields)
  local places = {}
  for k, field in ipairs(fields) do
    if places[field.name] then fail("two fields of the schema are called %q", field.name) end
    places[field.name] = k
  end
  if type(rows) == "function" then return of_function(rows, fields, places) end
  if type(rows) == "table" and getmetatable(rows) and rows.iter then return of_function(rows:iter(), fields, places) end
  if is_table(rows) then return of_list(rows, fields, places) end
  fail("the rows are a dataset, a list of tables or a function, got %s", checks.kind(rows))
end

--- write_tfrecord(path, rows, schema, options): see the top.
return function(path, rows, schema, given)
  if type(path) ~= "string" then fail("the path comes first, got %s", checks.kind(path)) end
  local chosen = options.check("write_tfrecord", OPTIONS, given or {})
  local fields = record_schema("write_tfrecord", schema)
  checks.ends("write_tfrecord", rows)
  local next_row = reader(rows, fields)
  local writer = core.tfrecord_writer(shard_paths(path, chosen.shards), fields, chosen.compression or "none")
  local function write(...)
    if select("#", ...) == 0 then return false end
    core.tfrecord_write(writer, ...)
    return true
  end
  local ok, message = pcall(function()
    while write(next_row()) do end -- luacheck: ignore 542
    return core.tfrecord_commit(writer)
  end)
  if not ok then
    core.tfrecord_close(writer)
    error(message, 0)
  end
  return message
end
