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

test("ranks with weights read the rows that these give them, and no others", function()
  local names = { "tensors, shuffled ahead of need", "fewer rows than ranks", "rows with weights", "windows in batches",
    "images, changed at random", "predictions" }
  alone = alone or ranks.launch("alone", 1, "data_cases", "cpu:0")
  for n, devices in pairs { [2] = "cpu:0=3,cpu:1=1;cpu:0=1", [3] = "cpu:0=1;cpu:0=30" } do
    ranks.same_to_rounding(ranks.launch("np", n, "data_cases", devices, names), ranks.only(alone, names),
      ranks.bounds_of "data_cases")
  end
end)

test("the rows go to devices of another kind than the batch lies on", function()
  local names = { "tensors, shuffled ahead of need", "rows with weights", "classes with weights", "predictions" }
  alone = alone or ranks.launch("alone", 1, "data_cases", "cpu:0")
  ranks.same_to_rounding(ranks.launch("np", 2, "data_cases", "ref:0", names), ranks.only(alone, names), {})
end)

-- ---- ranks that differ ------------------------------------------------------------------------------

-- Output of a script on two processes. In it, fit(ds) trains on a dataset and writes the rank and its error, or "nil".
local function on_two(chunk)
  local path = check.path "two.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    mgpu.seed(1)
    local model = mgpu.Sequential { mgpu.layers.Flatten {}, mgpu.layers.Dense { 3, activation = "softmax" } }
    model:compile { loss = "sparse_categorical_crossentropy" }
    local function fit(ds)
      local ok, said = pcall(model.fit, model, ds, { epochs = 1, verbose = 0 })
      io.stderr:write(mgpu.world().rank .. " " .. tostring(not ok and said:gsub("^[^:]*:%d+: ", "") or nil) .. "\n")
    end
  ]] .. chunk)
  check.needs(check.program:match "^'?(.*)/" .. "/mgpu-ucx.so")
  return "\n" .. check.run(("timeout -k 5 100 %s --np 2 %s 2>&1 </dev/null"):format(check.program, path))
end

-- Asserts that this rank has written n lines that begin so (a pattern).
local function says(text, rank, said, n)
  local _, times = text:gsub("\n" .. rank .. " " .. said, "")
  if times ~= n then check.fail(("rank %d: %q %d times, expected %d, in %s"):format(rank, said, times, n, text)) end
end

-- Asserts that rank 1 raises an error, of which rank 0 is told, and that neither trains afterwards.
local function told(text, message)
  local line = "\n0 fit: epoch 1, step 1: rank 1 %(host %S+, pid %d+%) failed: " .. message
  if not text:find(line) then check.fail(("no %q in %s"):format(line, text)) end
  for rank = 0, 1 do says(text, rank, "[^\n]*" .. message, 2) end
end

test("a label that is wrong is found by the rank that has it, and all ranks learn of it", function()
  told(on_two [[
    local ds = mgpu.data.from_tensors { mgpu.rand { 6, 2 }, mgpu.tensor { 0, 1, 2, 0, 7, 1 } }
    for _ = 1, 2 do fit(ds:batch(6)) end]], "fit: the label in row 5 of y is 7, but the model has 3 classes")
end)

test("a file that one rank cannot read ends the training of all", function()
  local images = check.path "damaged"
  core.make_folder(images .. "/a")
  for i = 1, 6 do check.write(("%s/a/%d.bmp"):format(images, i), bmp(i):sub(1, i < 6 and -1 or 99)) end
  told(on_two(([[
    local ds = mgpu.data.image_folder(%q, { size = 4 })
    for _ = 1, 2 do fit(ds:batch(6):prefetch(2)) end]]):format(images)), "image_folder: [^\n]*/6.bmp: ")
end)

test("datasets whose rows differ are refused, whatever they are made of", function()
  core.make_folder(check.path "other/a")
  core.make_folder(check.path "same/a")
  for i = 1, 6 do
    check.write(check.path("same/a/" .. i .. ".bmp"), bmp(i))
    check.write(check.path("other/a/" .. i .. ".bmp"), bmp(i < 6 and i or 7))
  end
  local text = on_two(([[
    local rank = mgpu.world().rank
    mgpu.seed(1)
    local x, y = mgpu.rand { 6, 2 }, mgpu.zeros { 6 }
    fit(mgpu.data.from_tensors { rank == 1 and x + 1 or x, y }:batch(2))
    fit(mgpu.data.from_tensors { x, y }:take(5 + rank):batch(2))
    fit(mgpu.data.from_tensors { x, y }:filter(function(a) return a:sum():ge(0) end):batch(2 + rank))
    fit(mgpu.data.image_folder(rank == 1 and %q or %q, { size = 4 }):batch(3))
    fit(mgpu.data.from_tensors { x, y }:batch(2))]]):format(check.path "other", check.path "same"))
  for rank = 0, 1 do
    says(text, rank, "fit: the dataset of rank 1 is not that of rank 0: its rows differ: give all ranks the same", 2)
    says(text, rank, "fit: the dataset of rank 1 is not that of rank 0: they differ in :take: give", 1)
    says(text, rank, "fit: the dataset of rank 1 is not that of rank 0: they differ in the options of a step: give", 1)
    says(text, rank, "nil", 1)
  end
end)

test("ranks that take a shard of their own, or shuffle in their own way, are refused, and can go on", function()
  local text = on_two [[
    local ds, rank = mgpu.data.from_tensors { mgpu.rand { 6, 2 }, mgpu.zeros { 6 } }, mgpu.world().rank
    fit(ds:shard(rank + 1, 2):batch(2))
    fit(ds:filter(function(x) return x:sum():ge(0) end):shard(rank + 1, 2):batch(2))
    fit(ds:shuffle(6, rank):batch(2))
    fit(rank == 0 and ds:batch(2) or ds:shuffle(6, 1):batch(2))
    fit(ds:batch(2))]]
  for rank = 0, 1 do
    for how, n in pairs { ["they differ in :shard"] = 2, ["they differ in :shuffle"] = 1,
      ["it is made in other steps"] = 1 } do
      says(text, rank, ("fit: the dataset of rank 1 is not that of rank 0: %s: give all ranks the same dataset, as the "
        .. "ranks share the rows of each batch"):format(how), n)
    end
    says(text, rank, "nil", 1)
  end
end)
