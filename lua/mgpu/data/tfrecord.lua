--- TFRecord files: read as datasets, and written. The schema of both says which features are the fields of a row.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local options = require "mgpu.options"
local paths = require "mgpu.data.paths"

local M = {}

-- ---- schemas ------------------------------------------------------------------------------------

-- Schemas of TFRecord files, for mgpu.data.tfrecord and mgpu.data.write_tfrecord: which features of a record are the
-- fields of a row, and how.
--
--     { { "image/encoded", "jpeg", channels = 3 }, { "image/class/label", "int64" } }
-- A list in the order of the fields. Each is {name, kind, options}; the name is a feature's in tf.train.Example.
--   kind                         the feature holds                       the field is
--   "float32"                    a list of floats                        float32
--   "int64" "int32"              a list of integers                      that dtype
--   "string" "bytes"             one string, or with shape = {n} n       a string in Lua, or an array of strings
--   "jpeg" "png" "image"         one string: a JPEG or PNG file          uint8 {height, width, channels}
--   "uint8" "bool" "float16"     one string: the elements' bytes,        that dtype
--   "bfloat16" "float64"         as tf.io.decode_raw reads them
-- Options of a field:
--   shape      {} by default: one number. One size may be -1: as many as there are (VarLenFeature); such a feature may
--              be missing, and then is empty. Of images, {height, width, channels} or for gray ones {height, width};
--              by default {-1, -1, channels}: each has its own size. Of strings {n}, always as many
--   default    the value where a feature is missing: a number or string for all elements, or a table of the shape.
--              When writing, the value may then be nil, and the feature is left out
--   channels   of images: 1, 3 or 4, to which they are decoded; nil: as many as each image has
--   raw        true: numbers as the bytes of one string, also of kind float32, int64 and int32
--   quality    for writing "jpeg": 1 to 100, 95
-- When images are read, their contents tell the format; when tensors are written, "jpeg" means JPEG, the others PNG.

local KINDS = {
  float32 = "list", int64 = "list", int32 = "list", string = "text", bytes = "text", jpeg = "image", png = "image",
  image = "image", uint8 = "raw", bool = "raw", float16 = "raw", bfloat16 = "raw", float64 = "raw",
}
local NAMES = { "float32", "int64", "int32", "string", "bytes", "jpeg", "png", "image", "uint8", "bool", "float16",
  "bfloat16", "float64" }

local FIELD = options.declare { positional = 2,
  { "name", "string", required = true }, { "kind", "string", required = true, values = NAMES }, { "shape", "shape" },
  { "default", "any" }, { "channels", "integer", values = { 1, 3, 4 } }, { "raw", "boolean" },
  { "quality", "integer", min = 1, max = 100 },
}

local MOST_STRINGS = 1e6

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- ---- one field: each function checks an option and RETURNS what it stands for -------------------

local function unknown_sizes(shape)
  local n = 0
  for _, size in ipairs(shape) do n = n + (size < 0 and 1 or 0) end
  return n
end

local function shape_of(who, form, chosen)
  local shape = chosen.shape
  if form == "text" and shape and (#shape > 1 or shape[1] and (shape[1] < 1 or shape[1] > MOST_STRINGS)) then
    fail(who, "the shape of strings is {n}, n from 1 to %d, got %s", MOST_STRINGS, show(shape))
  end
  if form == "image" then
    shape = shape or { -1, -1, chosen.channels or -1 }
    if #shape < 2 or #shape > 3 then
      fail(who, "the shape of images is {height, width, channels} or {height, width}, got %s", show(shape))
    end
  elseif shape and unknown_sizes(shape) > 1 then
    fail(who, "at most one size may be -1, got shape %s", show(shape))
  end
  return shape or {}
end

local function channels_of(who, form, shape, chosen)
  if form ~= "image" then
    if chosen.channels then fail(who, "only images have channels") end
    return 0
  end
  local sized = #shape == 2 and 1 or shape[3]
  if sized ~= -1 and sized ~= 1 and sized ~= 3 and sized ~= 4 then
    fail(who, "images have 1, 3 or 4 channels, not %d as in shape %s", sized, show(shape))
  end
  if chosen.channels and sized ~= -1 and chosen.channels ~= sized then
    fail(who, "channels = %d, but the shape %s has %d", chosen.channels, show(shape), sized)
  end
  return sized ~= -1 and sized or chosen.channels or 0
end

-- The default of n strings: a list of them, or one that stands for all.
local function strings_of(who, default, n)
  local list = type(default) == "string" and {} or default
  for i = 1, type(default) == "string" and n or 0 do list[i] = default end
  local good = type(list) == "table" and getmetatable(list) == nil and not core.array_fault(list) and #list == n
  for i = 1, good and n or 0 do good = good and type(list[i]) == "string" end
  if not good then fail(who, "the default of %d strings is a list of them, or one for all", n) end
  return list
end

-- RETURNS the default as C takes it.
local function default_of(who, form, shape, default)
  if default == nil then return nil end
  if form == "image" then fail(who, "an image has no default") end
  if form == "text" and #shape == 1 then return strings_of(who, default, shape[1]) end
  if form == "text" and type(default) ~= "string" then
    fail(who, "the default of a string is a string, got a %s", type(default))
  end
  if unknown_sizes(shape) > 0 then
    fail(who, "a field of shape %s has no default: it is empty where the feature is missing", show(shape))
  end
  return default
end

local function quality_of(who, kind, chosen)
  if kind == "jpeg" then return chosen.quality or 95 end
  if chosen.quality then fail(who, "only \"jpeg\" has a quality") end
  return 0
end

local DTYPES = { text = "uint8", image = "uint8" }

local function field_of(who, given)
  if type(given) ~= "table" or getmetatable(given) then
    fail(who, 'a field is a table such as {"label", "int64"}, got a %s', type(given))
  end
  local chosen = options.check(who, FIELD, given)
  local form = KINDS[chosen.kind]
  if chosen.name:find "%z" then fail(who, "the name contains a zero byte") end
  if chosen.raw ~= nil and form ~= "list" and form ~= "raw" then fail(who, "only numbers can be raw") end
  if chosen.raw == false and form == "raw" then fail(who, "a feature has no list of %s: it is raw", chosen.kind) end
  if chosen.raw then form = "raw" end
  local shape = shape_of(who, form, chosen)
  local default = default_of(who, form, shape, chosen.default)
  local channels = channels_of(who, form, shape, chosen)
  if #shape == 3 and form == "image" and channels > 0 then shape = { shape[1], shape[2], channels } end
  return { name = chosen.name, form = form, dtype = DTYPES[form] or chosen.kind, shape = shape, channels = channels,
    default = default, quality = quality_of(who, chosen.kind, chosen) }
end

-- schema_of(who, schema) -> the checked fields.
local function schema_of(who, schema)
  local example = '{ {"image/encoded", "jpeg"}, {"image/class/label", "int64"} }'
  if type(schema) ~= "table" or getmetatable(schema) then
    fail(who, "the schema is a list of fields, such as %s; got %s", example, checks.kind(schema))
  end
  local fault, fields = core.array_fault(schema), {}
  if fault then fail(who, "the schema is a list of fields in order, such as %s: %s", example, fault) end
  if #schema == 0 then fail(who, "the schema has no fields") end
  if type(schema[1]) == "string" then fail(who, "the schema is a list of fields, such as %s", example) end
  for i, given in ipairs(schema) do fields[i] = field_of(("%s: field %d"):format(who, i), given) end
  return fields
end

-- ---- reading ------------------------------------------------------------------------------------

local OPTIONS = options.declare {
  { "compression", "string", values = { "gzip", "zlib", "none" } }, { "skip_bad", "boolean", default = false },
}

--- tfrecord(files, schema, {compression =, skip_bad = false}) -> a dataset of the records of TFRecord files, each a
--- tf.train.Example.
--
--     local ds = mgpu.data.tfrecord("train-*.tfrecord",
--       { { "image", "png", shape = { 28, 28, 1 } }, { "label", "int64" } })
--     for x, y in ds:shuffle(10000):batch(128):iter() do ... end    -- x uint8 {128, 28, 28, 1}, y int64 {128}
-- files: a path, a pattern (its files in the order of their names), or a list of both. schema: the comment on
-- schemas in tfrecord.lua says which features become fields, at most 1024, and how. Rows are read when they are
-- needed, in any order, by several threads. The call reads the lengths of all records, and 16 bytes for each record
-- stay in memory. Checksums are verified at each reading.
-- ARGS
--   compression  "gzip", "zlib" or "none"; nil: found by the contents of each file. Compressed files are unpacked at
--                the call into one temporary file, in the folder TMPDIR (/tmp)
--   skip_bad     true: reads all records at the call and leaves out those that do not match their checksum; what
--                follows a damaged length, up to the end of the file, is lost. dataset.skipped counts the records left
--                out, dataset.lost_bytes the bytes; the log says where. Damaged gzip or zlib data are still errors
-- Errors: no such file; a damaged or truncated file, with record (from 1) and byte; a feature that is missing, of
-- another kind or of another length, with file, record, and what was expected and found.
-- Example:
--     local schema = { { "image", "png", shape = { 4, 4, 1 } }, { "label", "int64" } }
--     local blank = mgpu.zeros({ 4, 4, 1 }, { dtype = "uint8" })
--     mgpu.data.write_tfrecord("train.tfrecord", { { blank, 7 }, { blank, 9 } }, schema)
--     local ds = mgpu.data.tfrecord("train.tfrecord", schema)
--     for x, y in ds:iter() do print(table.concat(x:shape(), " "), y:item()) end
--     --> 4 4 1 7
--     --> 4 4 1 9
function M.tfrecord(files, schema, given)
  local chosen = options.check("tfrecord", OPTIONS, given or {})
  local fields = schema_of("tfrecord", schema)
  local source, skipped, lost = core.tfrecord_source(paths("tfrecord", files), fields, chosen.compression or "auto",
    chosen.skip_bad)
  local ds = Dataset.of_source(source)
  ds.skipped, ds.lost_bytes = skipped, lost
  return ds
end

-- ---- writing ------------------------------------------------------------------------------------

local MOST_SHARDS = 512
local WRITE_OPTIONS = options.declare {
  { "compression", "string", values = { "gzip", "zlib", "none" } },
  { "shards", "integer", min = 1, max = MOST_SHARDS },
}

local function refuse(message, ...) core.fail("usage", "write_tfrecord: " .. message:format(...)) end

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
      refuse("row %d: there is no field %s%s in the schema", number, type(key) == "string" and ("%q"):format(key)
        or tostring(key), type(key) == "string" and core.did_you_mean(key, names) or "")
    end
    if values[k] ~= nil then refuse("row %d: field %q is given by name and by position", number, fields[k].name) end
    values[k] = value
  end
  return unpack(values, 1, #fields)
end

local function of_list(list, fields, places)
  local fault, i = core.array_fault(list), 0
  if fault then refuse("the rows are a list of tables: %s", fault) end
  return function()
    i = i + 1
    if list[i] == nil then return end
    if not is_table(list[i]) then refuse("row %d is a %s, not a table", i, type(list[i])) end
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
    if places[field.name] then refuse("two fields of the schema are called %q", field.name) end
    places[field.name] = k
  end
  if type(rows) == "function" then return of_function(rows, fields, places) end
  if type(rows) == "table" and getmetatable(rows) and rows.iter then return of_function(rows:iter(), fields, places) end
  if is_table(rows) then return of_list(rows, fields, places) end
  refuse("the rows are a dataset, a list of tables or a function, got %s", checks.kind(rows))
end

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
--   schema       as for tfrecord; see there
--   compression  "gzip" or "zlib"; nil: none
--   shards       files: rows go in turn to path-00000-of-00004 and so on; at most 512. nil: one file, at path itself
-- Errors: a dataset without end; a value that is missing, has another shape or cannot be held, with row (from 1) and
-- feature; the disk.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.rand { 100, 3 }, mgpu.arange(100) }
--     local schema = { { "x", "float32", shape = { 3 } }, { "y", "float32" } }
--     print(mgpu.data.write_tfrecord("train.tfrecord", ds, schema, { shards = 2 }))  --> 100
--     print(mgpu.data.tfrecord("train.tfrecord-*", schema):length())  --> 100
function M.write_tfrecord(path, rows, schema, given)
  if type(path) ~= "string" then refuse("the path comes first, got %s", checks.kind(path)) end
  local chosen = options.check("write_tfrecord", WRITE_OPTIONS, given or {})
  local fields = schema_of("write_tfrecord", schema)
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

return M
