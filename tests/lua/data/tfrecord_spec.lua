-- mgpu.data.tfrecord and write_tfrecord: schemas, rows given in each way, several files, damage, and every error.
-- tfrecord_golden_spec.lua compares with TensorFlow; tests/c/test_tfrecord_source.c damages every byte.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test

local LABEL = { { "label", "int64" } }

-- Writes n rows whose labels are first, first + 1, ...; returns the path.
local function write_labels(name, first, n, options)
  local path, rows = check.path(name), {}
  for i = 1, n do rows[i] = { first + i - 1 } end
  check.equal(mgpu.data.write_tfrecord(path, rows, LABEL, options), n)
  return path
end

local function labels(ds)
  local list = {}
  for y in ds:iter() do list[#list + 1] = y:item() end
  return list
end

-- The values of all rows, as plain Lua values.
local function rows_of(ds)
  local list = {}
  for a, b, c in ds:iter() do
    local row = {}
    for i, value in ipairs { a, b, c } do row[i] = type(value) == "string" and value or value:totable() end
    list[#list + 1] = row
  end
  return list
end

-- Calls fn with the log's lines put aside; returns them. A warning goes to stderr, so a program of its own is run.
local function run_program(text)
  local path = check.path "program.lua"
  check.write(path, text)
  return check.run(("%s %s 2>&1"):format(check.program, path))
end

-- ---- writing and reading ------------------------------------------------------------------------

test("every kind of number and string is read as it was written", function()
  local path = check.path "kinds.tfrecord"
  local kinds = { "float32", "int64", "int32", "uint8", "bool", "float16", "bfloat16", "float64" }
  local schema, row = {}, {}
  for i, kind in ipairs(kinds) do
    schema[i], row[i] = { kind, kind, shape = { 2, 2 } }, { { 0, 1 }, { 1, 0 } }
  end
  mgpu.data.write_tfrecord(path, { row, row }, schema)
  local n = 0
  for a, b, c, d, e, f, g, h in mgpu.data.tfrecord(path, schema):iter() do
    for i, value in ipairs { a, b, c, d, e, f, g, h } do
      check.equal(value:dtype(), kinds[i])
      check.equal(value:to("float32"):totable(), { { 0, 1 }, { 1, 0 } })
    end
    n = n + 1
  end
  check.equal(n, 2)
end)

test("numbers are exact: float32 to the bit, int64 beyond 2^53, raw ones of every kind", function()
  local path = check.path "exact.tfrecord"
  local big = mgpu.tensor({ 2 ^ 53 }, { dtype = "int64" }) + mgpu.tensor({ 1 }, { dtype = "int64" })
  local tiny = mgpu.tensor { 1e-45, -0.1 }
  local schema = { { "big", "int64", shape = { 1 } }, { "tiny", "float32", shape = { 2 } },
    { "raw", "int64", shape = { 1 }, raw = true } }
  mgpu.data.write_tfrecord(path, { { big, tiny, big } }, schema)
  local a, b, c = mgpu.data.tfrecord(path, schema):iter()()
  check.equal((a - big):totable(), { 0 })
  check.equal(b, tiny:totable())
  check.equal((c - big):totable(), { 0 })
end)

test("rows come from a list, a function or a dataset, by name or in order", function()
  local path = check.path "rows.tfrecord"
  local schema = { { "x", "float32", shape = { 2 } }, { "label", "int32" }, { "text", "string" } }
  local expected = { { { 1, 2 }, 3, "a" }, { { 4, 5 }, 6, "" } }
  local function same(rows)
    check.equal(mgpu.data.write_tfrecord(path, rows, schema), 2)
    check.equal(rows_of(mgpu.data.tfrecord(path, schema)), expected)
  end
  same(expected)
  same { { x = { 1, 2 }, label = 3, text = "a" }, { mgpu.tensor { 4, 5 }, mgpu.tensor(6), text = "" } }
  local i = 0
  same(function()
    i = i + 1
    return expected[i]
  end)
  i = 0
  same(function()
    i = i + 1
    if expected[i] then return unpack(expected[i]) end
  end)
  local copied = mgpu.data.tfrecord(path, schema):cycle(1)
  local again = check.path "again.tfrecord"
  mgpu.data.write_tfrecord(again, copied, schema)
  check.equal(check.read(again), check.read(path))
end)

test("sizes of -1 vary, and are empty where the feature is missing", function()
  local path = check.path "varying.tfrecord"
  local schema = { { "boxes", "float32", shape = { -1, 2 } }, { "raw", "uint8", shape = { -1 } }, { "n", "int64" } }
  local rows = { { { { 1, 2 }, { 3, 4 } }, { 7 }, 1 }, { {}, "\1\2", 2 } }
  mgpu.data.write_tfrecord(path, rows, schema)
  check.equal(rows_of(mgpu.data.tfrecord(path, schema)), { rows[1], { {}, { 1, 2 }, 2 } })
  local a, b = mgpu.data.tfrecord(path, { { "none", "float32", shape = { -1, 2 } },
    { "no", "uint8", shape = { 3, -1 } } }):iter()()
  check.equal(a:shape(), { 0, 2 })
  check.equal(b:shape(), { 3, 0 })
end)

test("a default stands for a missing feature, and lets the writer leave it out", function()
  local path = check.path "defaults.tfrecord"
  local schema = { { "a", "int32", default = -1 }, { "b", "float32", shape = { 2 }, default = { 5, 6 } },
    { "s", "string", default = "none" } }
  mgpu.data.write_tfrecord(path, { { 1, { 2, 3 }, "x" }, { b = { 7, 8 } }, {} }, schema)
  check.equal(rows_of(mgpu.data.tfrecord(path, schema)), { { 1, { 2, 3 }, "x" }, { -1, { 7, 8 }, "none" },
    { -1, { 5, 6 }, "none" } })
  local filled = mgpu.data.tfrecord(path, { { "b", "float32", shape = { 2 }, default = 9 } })
  check.equal(rows_of(filled), { { { 2, 3 } }, { { 7, 8 } }, { { 9, 9 } } })
end)

test("images are written from tensors and from the bytes of files", function()
  if not pcall(mgpu.image.load, "tests/golden/images/rgb.png") then check.skip "mgpu-image.so is not built" end
  local path = check.path "images.tfrecord"
  local x = mgpu.image.load "tests/golden/images/rgb.png"
  local gray = mgpu.image.load "tests/golden/images/gray.png"
  mgpu.data.write_tfrecord(path, { { x, x, gray:reshape { 11, 13 } },
    { check.read "tests/golden/images/rgb.png", x, gray } },
    { { "png", "image" }, { "jpeg", "jpeg" }, { "gray", "png", shape = { 11, 13 } } })
  for a, b, c in mgpu.data.tfrecord(path, { { "png", "png" }, { "jpeg", "image" }, { "gray", "png" } }):iter() do
    check.equal(a, x:totable())
    check.truthy((b:to "float32" - x:to "float32"):abs():max():item() < 20, "JPEG at quality 95 loses little")
    check.equal(c, gray:totable())
  end
end)

test("files are compressed and found out by their contents, whatever their name", function()
  local plain = write_labels("plain", 1, 300)
  for _, compression in ipairs { "gzip", "zlib" } do
    local path = write_labels(compression, 1, 300, { compression = compression })
    check.truthy(#check.read(path) < #check.read(plain) / 2, "compressed")
    check.equal(labels(mgpu.data.tfrecord(path, LABEL)), labels(mgpu.data.tfrecord(plain, LABEL)))
    check.equal(labels(mgpu.data.tfrecord({ path, plain }, LABEL):skip(299):take(2)), { 300, 1 })
    check.raises(function() mgpu.data.tfrecord(path, LABEL, { compression = "none" }) end,
      "this is not a TFRecord file", "data")
  end
  check.raises(function() mgpu.data.tfrecord(plain, LABEL, { compression = "gzip" }) end, "gzip data is damaged",
    "data")
  -- A record of 559,903 bytes begins with 1f 8b 08, like gzip data.
  local path = check.path "like_gzip"
  mgpu.data.write_tfrecord(path, { { ("x"):rep(559903 - 23) } }, { { "s", "string" } })
  check.equal(check.read(path):sub(1, 3), "\31\139\8")
  check.equal(#mgpu.data.tfrecord(path, { { "s", "string" } }):iter()(), 559903 - 23)
end)

test("shards get the rows in turn, and a pattern reads them", function()
  local path = write_labels("shards", 1, 7, { shards = 3 })
  check.equal(labels(mgpu.data.tfrecord(path .. "-00001-of-00003", LABEL)), { 2, 5 })
  check.equal(labels(mgpu.data.tfrecord(path .. "-*", LABEL)), { 1, 4, 7, 2, 5, 3, 6 })
  check.raises(function() mgpu.data.tfrecord(path .. "-*-of-4", LABEL) end, "no file matches", "io")
end)

test("hundreds of files are read in any order with few descriptors", function()
  local path = write_labels("many", 0, 150, { shards = 150 })
  local ds, seen = mgpu.data.tfrecord(path .. "-*", LABEL), 0
  for y in ds:shuffle(150, 7):prefetch(4):iter() do seen = seen + y:item() end
  check.equal(seen, 149 * 150 / 2)
  local _, files = check.run"ls /proc/$PPID/fd":gsub("\n", "")
  check.truthy(files < 100, files .. " files are open")
end)

-- ---- damage -------------------------------------------------------------------------------------

-- The file with one byte changed.
local function damaged(path, at)
  local bytes = check.read(path)
  check.write(path, bytes:sub(1, at) .. string.char((bytes:byte(at + 1) + 1) % 256) .. bytes:sub(at + 2))
  return #bytes / 10 -- bytes of a record
end

test("a damaged record is an error when it is read, with record and byte", function()
  local path = write_labels("damaged", 10, 10)
  local size = damaged(path, 3 * #check.read(path) / 10 + 20)
  local it = mgpu.data.tfrecord(path, LABEL):iter()
  for i = 1, 3 do check.equal(it():item(), 9 + i) end
  check.raises(it, ("damaged: record 4 at byte %d: its bytes do not match their checksum"):format(3 * size), "data")
end)

test("skip_bad leaves damaged records out, counts them and says so", function()
  local path = write_labels("skipped", 10, 10)
  local size = damaged(path, 3 * #check.read(path) / 10 + 20)
  damaged(path, 5 * size + 20)
  local text = run_program(([[
    local mgpu = require "mgpu"
    local ds = mgpu.data.tfrecord(%q, { { "label", "int64" } }, { skip_bad = true })
    local y = ds:batch(20):iter()()
    print(ds:take(3).skipped, ds.lost_bytes, table.concat(y:totable(), " "))
  ]]):format(path))
  check.matches(text, "skipped: left out 2 damaged records of 10")
  check.matches(text, "2\t0\t10 11 12 14 16 17 18 19")
  damaged(path, 7 * size + 2)
  text = run_program(([[
    local mgpu = require "mgpu"
    local ds = mgpu.data.tfrecord({ %q, %q }, { { "label", "int64" } }, { skip_bad = true })
    print(ds.skipped, ds.lost_bytes, ds:length())
  ]]):format(path, write_labels("whole", 1, 4)))
  check.matches(text, ("skipped: left out %d bytes from byte %d on"):format(3 * size, 7 * size))
  check.matches(text, ("2\t%d\t9"):format(3 * size))
  check.raises(function() mgpu.data.tfrecord(path, LABEL) end, ("record 8 at byte %d: its length does not match its "
    .. "checksum: the file is damaged (skip_bad = true leaves out the rest of the file)"):format(7 * size), "data")
  check.raises(function() mgpu.data.tfrecord("tests/golden/images/rgb.png", LABEL, { skip_bad = true }) end,
    "no intact record", "data")
end)

test("a file that changes while it is used is an error", function()
  local path = write_labels("changing", 0, 70, { shards = 70 })
  local it = mgpu.data.tfrecord(path .. "-*", LABEL):iter()
  check.equal(it():item(), 0)
  write_labels("changing-00069-of-00070", 0, 2)
  write_labels("changing-00001-of-00070", 0, 2)
  check.raises(function() for _ in it do end end, -- luacheck: ignore 542
    "tfrecord: " .. path .. "-00001-of-00070 has changed since the data set was opened", "io")
end)

test("files of another format are errors", function()
  local endless = mgpu.data.from_tensors { mgpu.arange(3) }:cycle()
  check.raises(function() mgpu.data.write_tfrecord(check.path "endless", endless, LABEL) end,
    "write_tfrecord: the dataset has no end: use :take%(n%)", "usage")
  check.raises(function() mgpu.data.tfrecord("/nowhere/file", LABEL) end, "cannot open /nowhere/file", "io")
  check.raises(function() mgpu.data.tfrecord("tests", LABEL) end, "tests is not a regular file", "io")
  check.raises(function() mgpu.data.tfrecord("tests/golden/images/rgb.png", LABEL) end, "this is not a TFRecord file",
    "data")
  check.raises(function() mgpu.data.tfrecord({}, LABEL) end, "a path, or a list of paths, is needed", "usage")
end)

-- ---- wrong calls --------------------------------------------------------------------------------

-- ---- several strings in a feature ----------------------------------------------------------------

local TAGS = { { "tags", "string", shape = { 3 } }, { "label", "int64" } }

-- Writes n rows of three tags, some of them empty or with a zero byte, and returns path and tags.
local function write_tags(n)
  local path, rows, tags = check.path "tags.tfrecord", {}, {}
  for i = 1, n do
    tags[i] = { "tag " .. i, i % 2 == 0 and "" or "\0" .. ("x"):rep(i), "end" }
    rows[i] = { tags = tags[i], label = i }
  end
  check.equal(mgpu.data.write_tfrecord(path, rows, TAGS), n)
  return path, tags
end

test("a feature of several strings is a list of strings, in rows, batches and after every step", function()
  local path, tags = write_tags(6)
  local ds = mgpu.data.tfrecord(path, TAGS)
  local i = 0
  for list, label in ds:iter() do
    i = i + 1
    check.equal({ list[1], list[2], list[3], #list, label:item() }, { tags[i][1], tags[i][2], tags[i][3], 3, i })
  end
  check.equal(i, 6)
  local function expect(batches)
    local row = 0
    for list in batches:iter() do
      for _, three in ipairs(list) do
        row = row + 1
        check.equal({ unpack(three) }, tags[row])
      end
    end
    check.equal(row, 6)
  end
  local function all(_, label) return label:gt(0) end
  expect(ds:batch(4))
  expect(ds:batch(4):prefetch(2, { threads = 2 }))
  expect(ds:cache():batch(4))
  expect(ds:cache(check.path "tags.cache"):batch(4))
  expect(ds:filter(all):batch(4))
  expect(ds:batch(3):filter(function(_, ids) return ids:sum():gt(0) end):unbatch():batch(4))
  expect(ds:filter(all):cache(check.path "tags.values"):batch(4))
  expect(ds:filter(all):batch(2):cache(check.path "tags.batches"):unbatch():batch(4))
  for list in ds:batch(2):batch(3):iter() do check.equal({ unpack(list[2][1]) }, tags[3]) end
  for list in ds:filter(all):batch(2):batch(3):iter() do check.equal({ unpack(list[2][1]) }, tags[3]) end
end)

test("lists of strings are written again from a dataset, and have defaults", function()
  local path, tags = write_tags(4)
  local again = check.path "again.tfrecord"
  check.equal(mgpu.data.write_tfrecord(again, mgpu.data.tfrecord(path, TAGS), TAGS), 4)
  check.equal(check.read(again), check.read(path))
  local more = { { "tags", "string", shape = { 3 } }, { "words", "string", shape = { 2 }, default = { "a", "b" } },
    { "word", "bytes", shape = { 1 }, default = "none" } }
  local list, words, word = mgpu.data.tfrecord(path, more):iter()()
  check.equal({ { unpack(list) }, { unpack(words) }, { unpack(word) } }, { tags[1], { "a", "b" }, { "none" } })
end)

test("wrong numbers of strings are refused", function()
  local path = write_tags(2)
  local function reads(field, message)
    check.raises(function() mgpu.data.tfrecord(path, { field }):iter()() end, message)
  end
  reads({ "tags", "string" }, 'record 1 at byte 0: feature "tags": expected one string, found 3 strings')
  reads({ "tags", "string", shape = { 2 } }, 'feature "tags": expected 2 strings, found 3 strings')
  reads({ "label", "string", shape = { 1 } }, 'feature "label": expected 1 string, found 1 integer')
  reads({ "none", "string", shape = { 2 } }, 'feature "none" is missing; expected 2 strings')
  reads({ "tags", "string", shape = { -1 } }, 'the shape of strings is {n}, n from 1 to 1000000, got {%-1}')
  reads({ "tags", "string", shape = { 1, 3 } }, "the shape of strings is {n}")
  reads({ "tags", "string", shape = { 2 }, default = { "a" } }, "the default of 2 strings is a list of them, or one")
  local function writes(value, message)
    check.raises(function() mgpu.data.write_tfrecord(check.path "x", { { value, 1 } }, TAGS) end,
      'write_tfrecord: row 1: feature "tags": ' .. message, "usage")
  end
  writes("one", "expected an array of 3 strings, got a string")
  writes({ "a", "b" }, "expected an array of 3 strings, got one of 2")
  writes({ "a", 2, "c" }, "string 2 is a number")
end)

test("wrong schemas are refused, with the field", function()
  local path = write_labels("schemas", 1, 1)
  local function raises(schema, expected)
    check.raises(function() mgpu.data.tfrecord(path, schema) end, expected, "usage")
  end
  raises(nil, "the schema is a list of fields, such as")
  raises({ label = "int64" }, "the schema is a list of fields in order, such as")
  raises({ "label", "int64" }, "the schema is a list of fields, such as")
  raises({}, "the schema has no fields")
  raises({ 1 }, 'field 1: a field is a table such as {"label", "int64"}, got a number')
  raises({ { "label" } }, 'field 1: option "kind" is missing')
  raises({ { "label", "int46" } }, 'tfrecord: field 1: option "kind": unknown value "int46" (did you mean "int64"?)')
  raises({ { "a", "int64" }, { "b", "string", shape = { 2, 2 } } },
    "field 2: the shape of strings is {n}, n from 1 to 1000000, got {2, 2}")
  raises({ { "a\0b", "int64" } }, "the name contains a zero byte")
  raises({ { "a", "int64", shape = { -1, -1 } } }, "at most one size may be -1, got shape {-1, -1}")
  raises({ { "a", "int64", shape = { 2 ^ 40, 2 ^ 40 } } }, "too many elements")
  raises({ { "a", "int64", shape = { 1, 1, 1, 1, 1, 1, 1, 1, 1 } } }, "a shape has at most 8 axes")
  raises({ { "a", "jpeg", shape = { 3 } } }, "the shape of images is {height, width, channels}")
  raises({ { "a", "jpeg", shape = { 3, 3, 2 } } }, "images have 1, 3 or 4 channels, not 2")
  raises({ { "a", "jpeg", shape = { 3, 3, 1 }, channels = 3 } }, "channels = 3, but the shape {3, 3, 1} has 1")
  raises({ { "a", "int64", channels = 3 } }, "only images have channels")
  raises({ { "a", "png", quality = 3 } }, 'only "jpeg" has a quality')
  raises({ { "a", "png", default = 3 } }, "an image has no default")
  raises({ { "a", "string", default = 3 } }, "the default of a string is a string, got a number")
  raises({ { "a", "int64", shape = { -1 }, default = 3 } }, "a field of shape {-1} has no default")
  raises({ { "a", "int64", shape = { 2 }, default = { 3 } } },
    'tfrecord: field "a": default: expected shape {2}, got {1}')
  raises({ { "a", "int64", default = 3.5 } }, 'field "a": default: element 1 is 3.5, which int64 cannot hold')
  raises({ { "a", "int64", default = "x" } }, 'field "a": default: expected numbers, got a string')
  raises({ { "a", "string", raw = true } }, "only numbers can be raw")
  raises({ { "a", "uint8", raw = false } }, "a feature has no list of uint8")
  check.raises(function() mgpu.data.tfrecord(path, LABEL, { compression = "zip" }) end, '"compression"', "usage")
end)

test("wrong rows are refused, with row and feature, and no file appears", function()
  local path = check.path "refused.tfrecord"
  local function raises(schema, rows, expected)
    check.raises(function() mgpu.data.write_tfrecord(path, rows, schema) end, expected, "usage")
    check.falsy(core.file_exists(path), "a file")
  end
  local x = { { "x", "float32", shape = { 2 } } }
  raises(x, { { { 1, 2 } }, { { 1 } } }, 'write_tfrecord: row 2: feature "x": expected shape {2}, got {1}')
  raises(x, { {} }, 'row 1: feature "x": there is no value (give the field a `default` if that may be)')
  raises(x, { { "text" } }, 'feature "x": expected numbers, got a string')
  raises(x, { { { 1, 2 }, 3 } }, "row 1: there is no field 2 in the schema")
  raises(x, { { y = 3 } }, 'row 1: there is no field "y"')
  raises(x, { { { 1, 2 }, x = { 1, 2 } } }, 'row 1: field "x" is given by name and by position')
  raises(x, { 5 }, "row 1 is a number, not a table")
  raises(x, { a = 5 }, "the rows are a list of tables")
  raises(x, 5, "the rows are a dataset, a list of tables or a function, got a number")
  raises(x, function() return mgpu.ones { 2 }, 3 end, "row 1 has 2 values, the schema 1 fields")
  raises(x, mgpu.data.from_tensors { mgpu.ones { 4, 2 }, mgpu.ones { 4 } }, "row 1 has 2 values")
  raises(x, mgpu.data.from_tensors(mgpu.ones { 4, 2 }):batch(3), "expected shape {2}, got {3, 2}")
  check.raises(function() mgpu.data.write_tfrecord(path, function() error("boom", 0) end, x) end, "boom")
  check.falsy(core.file_exists(path), "a file")
  raises({ { "n", "int32" } }, { { 2 ^ 31 } }, "element 1 is 2147483648, which int32 cannot hold")
  raises({ { "n", "int64" } }, { { 0.5 } }, "element 1 is 0.5, which int64 cannot hold")
  raises({ { "n", "int64" } }, { { 0 / 0 } }, "which int64 cannot hold")
  raises({ { "n", "uint8", shape = { 2 } } }, { { { 1, 256 } } }, "element 2 is 256, which uint8 cannot hold")
  raises({ { "n", "float64" } }, { { "1234567" } }, "a string of 7 bytes does not have shape {} of float64")
  raises({ { "s", "string" } }, { { 5 } }, 'feature "s": expected a string, got a number')
  raises({ { "i", "png" } }, { { "no image" } }, "the string is not a PNG or JPEG file")
  raises({ { "i", "png" } }, { { mgpu.ones { 2, 2 } } }, "an image is a uint8 tensor")
  local function bytes(...) return mgpu.ones({ ... }, { dtype = "uint8" }) end
  raises({ { "i", "png" } }, { { bytes(2, 2, 2) } }, "got uint8 of shape {2, 2, 2}")
  raises({ { "i", "png" } }, { { bytes(0, 2) } }, "got uint8 of shape {0, 2}")
  raises({ { "i", "jpeg" } }, { { bytes(2, 2, 4) } }, "a JPEG image has no alpha")
  raises({ { "i", "png", shape = { 2, 3 } } }, { { bytes(2, 2) } }, "expected shape {2, 3}, got {2, 2}")
  raises({ { "a", "int64" }, { "a", "int64" } }, {}, 'two fields of the schema are called "a"')
  check.raises(function() mgpu.data.write_tfrecord(5, {}, x) end, "the path comes first", "usage")
  check.raises(function() mgpu.data.write_tfrecord("/nowhere/a", {}, x) end, "/nowhere/a", "io")
  check.raises(function() mgpu.data.write_tfrecord(path, {}, x, { shards = 0 }) end, '"shards"', "usage")
end)

test("a full disk leaves the old files", function()
  local path = write_labels("full", 1, 3, { shards = 2 })
  for at = 1, 4 do
    core.file_fault { at = at, error = "ENOSPC" }
    local ok = pcall(write_labels, "full", 5, 3, { shards = 2 })
    check.truthy(core.file_fault(), "a call failed")
    check.falsy(ok)
    check.equal(labels(mgpu.data.tfrecord(path .. "-*", LABEL)), { 1, 3, 2 })
  end
end)
