-- Datasets in several processes: each rank reads only the rows of its own devices, and the numbers are those of one
-- process: data_cases.lua.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local ranks = require "world.ranks"
local test = check.test

check.needs "cpu"

-- ---- files --------------------------------------------------------------------------------------

local folder = check.path "data"
mgpu.seed(1)

-- 13 rows as arrays of NumPy, as text and as records of two files.
local function write_rows()
  local x = mgpu.rand { 13, 5 }
  local y = x:sum { axis = 2, keepdims = true }
  core.store_save(folder .. "/rows.npz", { x = x, y = y }, {}, "npz")
  local lines = { "a,b,c,d,e,sum" }
  for i, row in ipairs(x:totable()) do lines[i + 1] = table.concat(row, ",") .. "," .. y[i]:item() end
  check.write(folder .. "/rows.csv", table.concat(lines, "\n"))
  mgpu.data.write_tfrecord(folder .. "/rows.tfrecord", mgpu.data.from_tensors { x, y },
    { { "x", "float32", shape = { 5 } }, { "y", "float32", shape = { 1 } } }, { shards = 2 })
end

-- The lowest `bytes` bytes of a number, the lowest first.
local function little(n, bytes)
  local list = {}
  for i = 1, bytes do list[i], n = n % 256, math.floor(n / 256) end
  return string.char(unpack(list))
end

-- A BMP file of 8 x 8 pixels; pixel values follow from the number.
local function bmp(number)
  local pixels = {}
  for i = 1, 8 * 8 * 3 do pixels[i] = (number * 37 + i * i * 5) % 256 end
  return "BM" .. little(54 + #pixels, 4) .. little(0, 4) .. little(54, 4) .. little(40, 4) .. little(8, 4)
    .. little(8, 4) .. little(1, 2) .. little(24, 2) .. little(0, 24) .. string.char(unpack(pixels))
end

-- 11 images of two classes.
local function write_images()
  for i = 1, 11 do
    local class = folder .. (i % 3 == 0 and "/images/cat" or "/images/dog")
    core.make_folder(class)
    check.write(("%s/%d.bmp"):format(class, i), bmp(i))
  end
end

core.make_folder(folder)
write_rows()
write_images()

-- ---- the same numbers, each row read once -------------------------------------------------------------

local alone

for _, n in ipairs { 2, 3 } do
  test(("%d processes train the numbers of one, and read as many rows together"):format(n), function()
    alone = alone or ranks.launch("alone", 1, "data_cases", "cpu:0")
    ranks.same_to_rounding(ranks.launch("np", n, "data_cases", "cpu:0"), alone, ranks.bounds_of "data_cases")
  end)
end

test("ranks with several devices read the rows of all of them", function()
  alone = alone or ranks.launch("alone", 1, "data_cases", "cpu:0")
  for _, devices in ipairs { "cpu:0-1;cpu:0", "cpu:0;cpu:0-2" } do
    ranks.same_to_rounding(ranks.launch("np", 2, "data_cases", devices), alone, ranks.bounds_of "data_cases")
  end
end)
