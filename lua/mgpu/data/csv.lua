--- csv(path, {label =, columns =, dtypes =, missing =, classes =, header =, ...}) -> a dataset of the rows of a CSV
--- file, or of several, given as a list.
--
--     local ds = mgpu.data.csv("iris.csv", { label = "species" })
--     for x, y in ds:batch(32):iter() do ... end    -- x float32 {32, 4}, y int32 {32}
--     print(ds.classes[y[1]:item() + 1], ds.columns[1])
-- With a label, a row is x, the other columns as one float32 {columns}, and y, the label. A label of whole numbers is
-- int32 (or int64, if need be), one of fractions float32; texts become class ids from 0, in the order of the sorted
-- texts, which are dataset.classes. Without a label, each column is a field, of the first dtype among int32, int64,
-- float32 and string that fits all its cells.
-- A column is named by its name in the header or by its position (1 is the first, -1 the last). Cells may be in quotes,
-- as in RFC 4180; blank lines do not count; gzip and a byte order mark are recognised. The files are read into memory.
-- ARGS
--   label      the column y; or a list of columns: y is then float32 {labels}
--   columns    a list of columns in the order of x, or of the fields; nil: all but the label. dataset.columns has their
--              names (positions without a header)
--   matrix     true: one x of all columns, even without a label; false: a field for each column, even with a label
--   dtypes     the dtype of x or of its columns, or a table of dtypes by column: float32 float64 int32 int64 uint8 bool
--              string
--   missing    the value of a cell that has none: a number (a text in columns of texts), or a table of them by column;
--              nil: such a cell is an error, but in a column of texts it keeps its text
--   na         texts of more cells without a value, such as {"?"}; "", "NA", "N/A", "NaN", "nan", "null", "NULL" and
--              "None" always are
--   classes    the label's texts in the order of their ids, so that several files agree; any other text is an error
--   header     whether the first record is a header; nil: it is one unless a cell of it is a number
--   names      the columns' names, in place of a header's
--   delimiter  between cells: "," ("\t" for a path that ends in .tsv)
--   quote      '"'; "" for none
--   comment    lines that begin with this character are left out, as with "#"; nil: none
--   skip       lines before the first record that are left out, 0
--   trim       true: spaces around cells do not count
-- Errors, with file, line and column: records of different lengths, a cell that does not fit its dtype or has no value,
-- a quote that is never closed, records of more than 16 MiB, zero bytes, UTF-16; more than 1024 fields.
-- Example:
--     local file = io.open("iris.csv", "w")
--     file:write "length,width,species\n5.1,3.5,setosa\n6.3,3.3,virginica\n"
--     file:close()
--     local ds = mgpu.data.csv("iris.csv", { label = "species" })
--     print(table.concat(ds.columns, " "), table.concat(ds.classes, " "))  --> length width setosa virginica
--     for x, y in ds:batch(32):iter() do print(x) end -- y is {0, 1}
--     --> tensor {2, 2} float32 cpu:0
--     --> {{5.1, 3.5},
--     -->  {6.3, 3.3}}
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local options = require "mgpu.options"
local paths = require "mgpu.data.paths"

local NO_VALUE = { "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None" }

local OPTIONS = options.declare {
  { "label", "any" }, { "columns", "table" }, { "matrix", "boolean" }, { "dtypes", "string|table" },
  { "missing", "any" }, { "na", "table", default = {} }, { "classes", "table" }, { "header", "boolean" },
  { "names", "table" }, { "delimiter", "string" }, { "quote", "string", default = '"' }, { "comment", "string" },
  { "skip", "integer", default = 0, min = 0 }, { "trim", "boolean", default = false },
}

local function fail(message, ...) core.fail("usage", "csv: " .. message:format(...)) end

local function show(value) return type(value) == "string" and ("%q"):format(value) or tostring(value) end

-- ---- options ------------------------------------------------------------------------------------

local function check_texts(name, list)
  if not list then return end
  local fault = core.array_fault(list)
  if fault then fail("option %q: %s", name, fault) end
  for i, text in ipairs(list) do
    if type(text) ~= "string" then fail("option %q: entry %d is a %s, not a text", name, i, type(text)) end
  end
end

local function check_character(name, text, empty)
  if #text > 1 or (#text == 0 and not empty) or text:find "[\r\n%z]" then
    fail("option %q must be one character%s, got %q", name, empty and ' (or "")' or "", text)
  end
end

local function check_format(chosen)
  check_character("delimiter", chosen.delimiter, false)
  check_character("quote", chosen.quote, true)
  check_character("comment", chosen.comment, true)
  if chosen.delimiter == chosen.quote or chosen.delimiter == chosen.comment then
    fail("the delimiter %q is also the quote or the comment", chosen.delimiter)
  end
  for _, name in ipairs { "na", "classes", "names" } do check_texts(name, chosen[name]) end
  if chosen.classes and #chosen.classes == 0 then fail 'option "classes" is empty' end
end

-- The cells that have no value.
local function no_values(more)
  local list = { unpack(NO_VALUE) }
  for _, text in ipairs(more) do list[#list + 1] = text end
  return list
end

-- ---- columns ------------------------------------------------------------------------------------

local MOST_NAMES = 10 -- of columns, in a message

-- RETURNS a function that finds the position of a column, given its name or position.
local function finder(columns)
  local at, twice, names = {}, {}, {}
  for i, column in ipairs(columns) do
    local name = column.name
    if name then
      twice[name] = at[name] ~= nil
      at[name], names[#names + 1] = at[name] or i, name
    end
  end
  return function(what, option)
    if type(what) == "number" then
      local i = what < 0 and #columns + 1 + what or what
      if not columns[i] then fail("option %q: there is no column %s: the file has %d", option, what, #columns) end
      return i
    elseif type(what) ~= "string" then
      fail("option %q: a column is a name or a position, got %s", option, show(what))
    elseif twice[what] then
      fail("option %q: two columns are called %q: give the position", option, what)
    elseif not at[what] then
      local nearest = core.did_you_mean(what, names)
      fail("option %q: there is no column %q%s", option, what, #names == 0
        and ": the file has no header, so columns are positions (or give `names`)"
        or #columns == 1 and (": the only column is %q: has it another `delimiter`?"):format(names[1])
        or nearest ~= "" and nearest
        or "; there are " .. table.concat(names, ", ", 1, math.min(#names, MOST_NAMES)))
    end
    return at[what]
  end
end

local function find_all(find, list, option)
  local fault = core.array_fault(list)
  if fault then fail("option %q: %s", option, fault) end
  if #list == 0 then fail("option %q is empty", option) end
  local found, seen = {}, {}
  for i, what in ipairs(list) do
    found[i] = find(what, option)
    if seen[found[i]] then fail("option %q: column %s is there twice", option, show(what)) end
    seen[found[i]] = true
  end
  return found
end

-- The positions of x's columns: the columns that the option names, or all columns that are not labels.
local function features(find, chosen, columns, labels)
  local is_label, rest = {}, {}
  for _, i in ipairs(labels) do is_label[i] = true end
  for i in ipairs(columns) do
    if not is_label[i] then rest[#rest + 1] = i end
  end
  local found = chosen.columns and find_all(find, chosen.columns, "columns") or rest
  for _, i in ipairs(found) do
    if is_label[i] then fail("column %s is a label, and is also in `columns`", columns[i].name or i) end
  end
  if #found == 0 then fail "there is no column besides the label" end
  return found
end

-- ---- dtypes -------------------------------------------------------------------------------------

-- RETURNS the option's table by position.
local function by_position(find, given, option)
  local found = {}
  for what, value in pairs(given) do found[find(what, option)] = value end
  return found
end

-- The replacements of missing values, by position.
local function missing_values(find, chosen, columns)
  local given, values = chosen.missing, {}
  if type(given) == "table" then
    values = by_position(find, given, "missing")
  elseif given ~= nil then
    for i in ipairs(columns) do values[i] = given end
  end
  for _, value in pairs(values) do
    if type(value) ~= "number" and type(value) ~= "string" then
      fail('option "missing" must be a number or a text, or a table of them by column, got a %s', type(value))
    end
  end
  return values
end

-- RETURNS dtypes by position; one name stands for all columns of x.
local function given_dtypes(find, dtypes, x)
  local given = {}
  if type(dtypes) == "table" then given = by_position(find, dtypes, "dtypes") end
  for _, i in ipairs(type(dtypes) == "string" and x or {}) do given[i] = dtypes end
  for _, dtype in pairs(given) do
    if type(dtype) ~= "string" then fail('option "dtypes": a dtype is a name such as "int32", got %s', show(dtype)) end
  end
  return given
end

-- The dtype of the matrix of these columns: the one given for any of them, or float32.
local function matrix_dtype(x, columns, given)
  local dtype
  for _, i in ipairs(x) do
    if given[i] and dtype and given[i] ~= dtype then
      fail("columns of one x have one dtype, but %s is %s and another one is %s (matrix = false makes fields of them)",
        columns[i].name or i, given[i], dtype)
    end
    dtype = dtype or given[i]
  end
  if dtype == "string" then fail "texts cannot be columns of one x (matrix = false makes fields of them)" end
  return dtype or "float32"
end

-- The dtype of a column that is a field: the one given, or the one that fits its cells. If a whole number stands for
-- missing cells, a column of whole numbers keeps its integer dtype.
local function dtype_of(i, columns, given, missing)
  if given[i] then return given[i] end
  local kind, instead = columns[i].kind, missing[i]
  if kind ~= "string" and columns[i].missing > 0 and type(instead) == "number" and instead % 1 ~= 0 then
    return "float32"
  end
  return kind
end

local function field_of(i, columns, given, missing)
  return { columns = { i }, dtype = dtype_of(i, columns, given, missing) }
end

local function label_field(labels, chosen, columns, given, missing)
  if chosen.classes and (#labels > 1 or given[labels[1]]) then
    fail(#labels > 1 and "classes are for a single label" or "a label with classes has no other dtype")
  end
  if #labels > 1 then return { columns = labels, dtype = matrix_dtype(labels, columns, given), matrix = true } end
  local field = field_of(labels[1], columns, given, missing)
  if chosen.classes or (field.dtype == "string" and not given[labels[1]]) then
    field.dtype, field.classes = "classes", chosen.classes
  end
  return field
end

-- ---- the dataset --------------------------------------------------------------------------------

local function set_names(columns, names)
  if not names then return end
  if #names ~= #columns then
    fail('option "names" has %d names, but the file has %d columns', #names, #columns)
  end
  for i, name in ipairs(names) do columns[i].name = name end
end

-- RETURNS the fields, the replacements of missing values, and the names of x's columns.
local function choose(chosen, columns)
  set_names(columns, chosen.names)
  local find, labels, fields, names = finder(columns), {}, {}, {}
  if chosen.classes and chosen.label == nil then fail "`classes` belongs to a label: give `label` too" end
  if chosen.label ~= nil then
    local list = type(chosen.label) == "table" and chosen.label or { chosen.label }
    labels = find_all(find, list, "label")
  end
  local x = features(find, chosen, columns, labels)
  local matrix = chosen.matrix
  if matrix == nil then matrix = #labels > 0 end
  local missing, given = missing_values(find, chosen, columns), given_dtypes(find, chosen.dtypes, x)
  if matrix then
    fields[1] = { columns = x, matrix = true, dtype = matrix_dtype(x, columns, given) }
  else
    for k, i in ipairs(x) do fields[k] = field_of(i, columns, given, missing) end
  end
  if #labels > 0 then fields[#fields + 1] = label_field(labels, chosen, columns, given, missing) end
  for k, i in ipairs(x) do names[k] = columns[i].name or i end
  return fields, missing, names
end

--- csv(path, options): see the top.
return function(path, given)
  local files = paths("csv", path)
  local chosen = options.check("csv", OPTIONS, given == nil and {} or given)
  chosen.delimiter = chosen.delimiter or (files[1]:find "%.tsv$" or files[1]:find "%.tsv%.gz$") and "\t" or ","
  chosen.comment = chosen.comment or ""
  check_format(chosen)
  local format, names = { delimiter = chosen.delimiter, quote = chosen.quote, comment = chosen.comment,
    skip = chosen.skip, trim = chosen.trim, header = chosen.header, no_value = no_values(chosen.na) }, nil
  local source, classes = core.csv_source(files, format, function(columns)
    local fields, missing
    fields, missing, names = choose(chosen, columns)
    return fields, missing
  end)
  local ds = Dataset.of_source(source)
  ds.classes, ds.columns = classes, names
  return ds
end
