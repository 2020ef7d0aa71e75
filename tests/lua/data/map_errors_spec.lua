-- The errors of functions given to map and filter name the rows that the function was called with.

local check = require "check"
local mgpu = require "mgpu"

local test, data = check.test, mgpu.data

local function fails() error "broken" end

-- A function that fails where an entry of its text is `text`.
local function fails_at(text)
  return function(given)
    for _, line in ipairs(type(given) == "table" and given or { given }) do
      if line == text then error "broken" end
    end
    return given
  end
end

-- Goes through the dataset up to its error, whose end must match.
local function expect(ds, pattern)
  -- luacheck: push ignore 542
  check.raises(function() for _ in ds:iter() do end end,
    "broken %(%a+: the function at .*map_errors_spec.lua:%d+, " .. pattern .. "%)$")
  -- luacheck: pop
end

local function numbers(n) return data.from_tensors { mgpu.arange(n) } end

local function file(name, first, last)
  local lines = {}
  for i = first, last do lines[#lines + 1] = "line " .. i end
  local path = check.path(name)
  check.write(path, table.concat(lines, "\n"))
  return path
end

test("a map of rows and batches names the rows of the source", function()
  expect(numbers(9):map(fails), "element 1, row 1")
  expect(numbers(9):skip(4):map(fails), "element 1, row 5")
  expect(numbers(9):skip(4):prefetch(3):map(fails), "element 1, row 5")
  expect(numbers(9):skip(1):batch(3):map(fails), "element 1, row 2, row 3, row 4")
  expect(numbers(9):batch(6):map(fails), "element 1, row 1, row 2, row 3, row 4, %.%.%. %(6 rows%)")
  expect(numbers(9):map(fails):batch(4):skip(1), "element 1, row 5")
  check.raises(numbers(4):skip(2):map(function() end):iter(), "returns nothing; .*%(element 1, row 3%)$", "usage")
end)

test("rows of files are named by file and place", function()
  local paths = { file("a.txt", 1, 5), file("b.txt", 6, 9) }
  for _, ahead in ipairs { 0, 4 } do
    local lines = data.text_lines(paths, { skip = 1 })
    if ahead > 0 then lines = lines:prefetch(ahead) end
    expect(lines:map(fails_at "line 8"), "element 6, .*/b%.txt: line 3")
    expect(lines:shuffle(10, 3):map(fails_at "line 8"), "element %d, .*/b%.txt: line 3")
    expect(lines:batch(2):skip(2):map(fails_at "line 7"), "element 1, .*/b%.txt: line 2, .*/b%.txt: line 3")
    expect(lines:cache():map(fails_at "line 8"), "element 6, .*/b%.txt: line 3")
    expect(lines:filter(function(line) return line ~= "line 2" end):map(fails_at "line 8"),
      "element 5, .*/b%.txt: line 3")
  end
  local path, rows = check.path "r.tfrecord", {}
  for i = 1, 5 do rows[i] = { i } end
  data.write_tfrecord(path, rows, { { "x", "int64" } })
  local records = data.tfrecord(path, { { "x", "int64" } })
  expect(records:skip(2):map(fails), "element 1, .*/r%.tfrecord: record 3 at byte %d+")
  expect(data.concatenate { numbers(3):map(function(x) return x end), records }:skip(4):map(fails),
    "element 1, .*/r%.tfrecord: record 2 at byte %d+")
  expect(data.concatenate { records, records }:skip(6):map(fails), "element 1, .*/r%.tfrecord: record 2 at byte %d+")
  expect(data.concatenate { numbers(3), numbers(3) }:skip(4):map(fails), "element 1, row 5")
  expect(data.zip { records, numbers(5) }:skip(1):map(fails), "element 1, .*/r%.tfrecord: record 2 at byte %d+")
end)

test("images are named by their paths, augmented or resized", function()
  local folder = check.path "set"
  os.execute(("mkdir -p '%s/cat' '%s/dog'"):format(folder, folder))
  for _, name in ipairs { "cat/1", "cat/2", "dog/3" } do
    mgpu.image.save(("%s/%s.png"):format(folder, name), mgpu.zeros({ 4, 4, 3 }, { dtype = "uint8" }))
  end
  local ds = data.image_folder(folder, { size = 4 })
  expect(ds:skip(2):map(fails), "element 1, .*/set/dog/3%.png")
  expect(ds:augment { horizontal_flip = true }:batch(2):map(fails), "element 1, .*/set/cat/1%.png, .*/set/cat/2%.png")
end)

test("maps of values name the rows behind filters, cycles and other datasets", function()
  local odd = numbers(9):filter(function(x) return (x % 2):eq(1) end)
  expect(odd:skip(1):map(fails), "element 1, row 4")
  expect(odd:shard(2, 2):enumerate():map(fails), "element 1, row 4")
  expect(odd:cycle(2):map(fails), "element 1, row 2")
  expect(odd:batch(2):map(fails), "element 1") -- of several rows nothing is kept
  expect(odd:shuffle(9, 1):map(fails), "element 1")
  expect(data.zip { odd, numbers(9) }:map(fails), "element 1, row 2")
end)

test("an iterator names the rows of the element that it gave last", function()
  local it = numbers(5):batch(2):iter()
  check.equal(it:rows(), "")
  it()
  check.equal(it:rows(), "row 1, row 2")
  it:close()
  check.equal(it:rows(), "")
end)
