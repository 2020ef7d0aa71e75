-- TFRecord files of TensorFlow, and what TensorFlow reads from them: golden/make_tfrecord.py wrote both.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test

local FOLDER = "tests/golden/tfrecord/"
local COUNT = 7
local SCHEMA = {
  { "image/encoded", "jpeg", channels = 3 },
  { "image/png", "png", shape = { 5, 6, 1 } },
  { "image/raw", "uint8", shape = { 4, 3 } },
  { "image/class/label", "int64" },
  { "image/object/bbox/xmin", "float32", shape = { -1 } },
  { "weight", "float32", default = -1 },
  { "point", "float32", shape = { 2 } },
  { "big", "int64", shape = { 2, 3 } },
}

-- Compares the rows with what TensorFlow read.
local function check_rows(ds)
  local expected, row = core.store_load(FOLDER .. "expected.npz"), 0
  for a, b, c, d, e, f, g, h in ds:iter() do
    for k, value in ipairs { a, b, c, d, e, f, g, h } do
      local want = expected[("%d/%s"):format(row, SCHEMA[k][1])]
      local what = ("row %d, %s"):format(row, SCHEMA[k][1])
      check.equal(value:dtype(), want:dtype(), what)
      check.equal(value:shape(), want:shape(), what)
      -- As text: numbers of more than 53 bits do not survive totable.
      check.truthy(tostring(value:reshape { -1 }) == tostring(want:reshape { -1 }), what)
      check.equal(value:totable(), want:totable(), what)
    end
    row = row + 1
  end
  check.equal(row, COUNT)
end

local function needs_images()
  if not pcall(mgpu.image.load, "tests/golden/images/rgb.png") then check.skip "mgpu-image.so is not built" end
end

test("plain, gzip and zlib files are read as TensorFlow reads them", function()
  needs_images()
  for _, name in ipairs { "plain", "gzip", "zlib" } do
    local ds = mgpu.data.tfrecord(FOLDER .. name .. ".tfrecord", SCHEMA)
    check.equal(ds:length(), COUNT)
    check_rows(ds)
  end
  check_rows(mgpu.data.tfrecord(FOLDER .. "zlib.tfrecord", SCHEMA, { compression = "zlib", skip_bad = true }))
  check_rows(mgpu.data.tfrecord(FOLDER .. "plain.tfrecord", SCHEMA, { compression = "none" }))
end)

test("several files are read in the order of their names, an empty one among them", function()
  needs_images()
  check_rows(mgpu.data.tfrecord(FOLDER .. "shard-*", SCHEMA))
  check_rows(mgpu.data.tfrecord({ FOLDER .. "empty.tfrecord", FOLDER .. "shard-0000?-of-00002" }, SCHEMA))
  check.equal(mgpu.data.tfrecord(FOLDER .. "empty.tfrecord", SCHEMA):length(), 0)
end)

test("strings come as strings, zero bytes and all", function()
  local ds, row = mgpu.data.tfrecord(FOLDER .. "plain.tfrecord", { { "image/class/text", "string" } }), 0
  for text in ds:iter() do
    check.equal(text, row == 0 and "" or ("class\0%d \255"):format(row))
    row = row + 1
  end
  check.equal(row, COUNT)
end)

test("what TensorFlow wrote and the schema misnames is an error with record, expected and found", function()
  local function raises(field, expected)
    local ds = mgpu.data.tfrecord(FOLDER .. "plain.tfrecord", { field }):skip(3)
    check.raises(function() ds:iter()() end, expected, "data")
  end
  local place = "tfrecord: tests/golden/tfrecord/plain.tfrecord: record 4 at byte %d+: feature "
  raises({ "weight", "float32" },
    place .. '"weight" is missing; expected a list of floats %(give the field a `default`')
  raises({ "point", "int64", shape = { 2 } }, place .. '"point": expected a list of integers, found 2 floats')
  raises({ "point", "float32" }, place .. '"point": expected 1 float, found 2 floats')
  raises({ "big", "int64", shape = { 5 } }, place .. '"big": expected 5 integers for shape {5}, found 6 integers')
  raises({ "big", "int64", shape = { -1, 4 } },
    place .. '"big": expected integers for shape {%-1, 4}, found 6 integers')
  raises({ "big", "int32", shape = { 6 } }, place .. '"big": value 1 is 9223372036854775804, which int32 cannot hold')
  raises({ "image/class/label", "string" }, place .. '"image/class/label": expected one string, found 1 integer')
  raises({ "no", "string" }, place .. '"no" is missing; expected one string')
  raises({ "image/raw", "uint8", shape = { 4, 4 } },
    place .. '"image/raw": expected 16 uint8 elements for shape {4, 4}, found 12')
  raises({ "image/raw", "float64", shape = { -1 } }, place .. '"image/raw": 12 bytes are not a whole number of float64')
end)

test("images of another shape, and strings that are not images, are errors", function()
  needs_images()
  local function raises(field, expected)
    local ds = mgpu.data.tfrecord(FOLDER .. "plain.tfrecord", { field })
    check.raises(function() for _ in ds:iter() do end end, expected, "data") -- luacheck: ignore 542
  end
  raises({ "image/png", "png", shape = { 5, 5 } }, 'feature "image/png": expected an image of shape {5, 5}, found one '
    .. "of shape {5, 6, 1} (a shape of {-1, -1, 1} lets sizes vary)")
  raises({ "image/encoded", "image", shape = { 8, 10, 3 } }, "record 2 at byte")
  raises({ "image/raw", "png" }, 'feature "image/raw": not a PNG, JPEG, BMP, GIF or WebP image')
end)

test("images of the same size make batches, others an error that says what to do", function()
  needs_images()
  local file = FOLDER .. "plain.tfrecord"
  local x, y = mgpu.data.tfrecord(file, { { "image/png", "png", shape = { 5, 6 } }, { "image/class/label", "int32" } })
    :shuffle(100, 1):batch(COUNT):iter()()
  check.equal(x:shape(), { COUNT, 5, 6 })
  check.equal(y:dtype(), "int32")
  local varying = mgpu.data.tfrecord(file, { { "image/encoded", "image" } }):batch(2)
  check.raises(function() varying:iter()() end, "{8, 10, 3} and {9, 10, 3}", "usage")
end)
