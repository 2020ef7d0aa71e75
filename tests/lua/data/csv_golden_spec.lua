-- mgpu.data.csv against pandas and Python's csv module: the files of tests/golden/csv.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local FOLDER = "tests/golden/csv/"

local function expected(name) return (core.store_load(FOLDER .. "expected.npz"))[name] end

-- All rows of a dataset at once: one batch.
local function whole(ds) return ds:batch(ds:length()):iter()() end

-- Texts as one, each ended by a zero byte, as the golden file has them.
local function joined(list)
  local bytes = {}
  for i, text in ipairs(list) do bytes[i] = text .. "\0" end
  return table.concat(bytes)
end

local function bytes_of(t)
  local list = t:totable()
  for i, byte in ipairs(list) do list[i] = string.char(byte) end
  return table.concat(list)
end

test("a table with a column of labels is read as pandas reads it", function()
  local ds = mgpu.data.csv(FOLDER .. "flowers.csv", { label = "species" })
  local x, y = whole(ds)
  check.equal(x:dtype() .. y:dtype(), "float32int32")
  check.equal(x, expected "flowers_x")
  check.equal(y, expected "flowers_y")
  check.equal(ds.classes, { "Versicolor", "setosa", "virginica", "été" })
  check.equal(ds.columns, { "length", "width", "height", "petals" })
end)

test("quoted texts are read as Python's csv module reads them", function()
  local texts = {}
  for a, b, c in mgpu.data.csv(FOLDER .. "quotes.csv", { header = true }):iter() do
    for _, text in ipairs { a, b, c } do texts[#texts + 1] = text end
  end
  check.equal(joined(texts), bytes_of(expected "quotes"))
end)

test("numbers are the nearest float64 and float32, as Python's", function()
  for _, dtype in ipairs { "float64", "float32" } do
    local ds = mgpu.data.csv(FOLDER .. "numbers.csv", { columns = { 2 }, matrix = true, dtypes = dtype })
    check.equal(whole(ds):reshape { -1 }, expected("numbers_" .. dtype))
  end
end)

test("semicolons, comments, skipped lines, spaces and missing values", function()
  local ds = mgpu.data.csv(FOLDER .. "european.csv", { delimiter = ";", quote = "'", comment = "#", skip = 2,
    trim = true, na = { "?" }, missing = { age = -1, income = 0.5 } })
  local age, town, income = whole(ds)
  check.equal(age:dtype() .. income:dtype(), "int32float32")
  check.equal(age, expected "european_age")
  check.equal(income, expected "european_income")
  check.equal(joined(town), bytes_of(expected "european_town"))
end)
