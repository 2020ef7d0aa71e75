-- mgpu.data.image_folder: images of two classes that this file draws, and the folder that Keras's
-- image_dataset_from_directory has read for tests/golden/images/folder.npz.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local folder = mgpu.data.image_folder
if not pcall(mgpu.image.encode_png, mgpu.zeros({ 1, 1 }, { dtype = "uint8" })) then
  check.skip "images need libpng and libjpeg-turbo"
end

-- A new folder with these files, {["cat/1.png"] = bytes}. RETURNS its path.
local count = 0
local function make(files)
  count = count + 1
  local top = check.path("set" .. count)
  core.make_folder(top)
  for name, bytes in pairs(files) do
    core.make_folder(top .. "/" .. (name:match "^(.*)/" or ""))
    check.write(top .. "/" .. name, bytes)
  end
  return top
end

-- A PNG file of size x size pixels: class 0 has vertical stripes, class 1 horizontal ones, from pixel `shift` on.
local function stripes(class, shift, size)
  local rows = {}
  for i = 1, size or 8 do
    rows[i] = {}
    for j = 1, size or 8 do rows[i][j] = ((class == 0 and j or i) + shift) % 4 < 2 and 255 or 0 end
  end
  return mgpu.image.encode_png(mgpu.tensor(rows, { dtype = "uint8" }))
end

local function two_classes()
  return make { ["cat/1.png"] = stripes(0, 0), ["cat/2.png"] = stripes(0, 1, 6), ["dog/1.png"] = stripes(1, 0),
    ["dog/notes.txt"] = "", ["dog/.hidden.png"] = "", [".git/1.png"] = "" }
end

test("images have their own size, and labels are ids of sorted names", function()
  local sizes, labels = {}, {}
  local ds = folder(two_classes())
  for x, y in ds:iter() do
    check.equal(x:dtype() .. y:dtype(), "uint8int32")
    sizes[#sizes + 1], labels[#labels + 1] = table.concat(x:shape(), "x"), y:item()
  end
  check.equal(sizes, { "8x8x3", "6x6x3", "8x8x3" })
  check.equal(labels, { 0, 0, 1 })
  check.equal(ds.classes, { "cat", "dog" })
  check.equal(ds:length(), 3)
  check.raises(function() ds:batch(3):iter()() end, "shape")
end)

test("labels are categorical, binary or none, and classes and channels chosen", function()
  local top = two_classes()
  local _, y = folder(top, { labels = "categorical", classes = { "dog", "cat" } }):iter()()
  check.equal(y, { 1, 0 })
  local x
  x, y = folder(top, { labels = "binary", channels = 1 }):skip(2):iter()()
  check.equal({ x:shape(), y:totable(), y:dtype() }, { { 8, 8, 1 }, { 1 }, "float32" })
  local ds = folder(top, { labels = "none", channels = 4 })
  check.equal({ ds:length(), select("#", ds:iter()()) }, { 3, 1 })
  ds = folder(top, { classes = { "dog" } })
  check.equal({ ds:length(), ds.classes }, { 1, { "dog" } })
end)

test("a folder is read as Keras's image_dataset_from_directory reads it", function()
  local files = {}
  for name, image in pairs { ["b/z.png"] = "rgb", ["b/a/2.png"] = "gray", ["b/a.b/1.png"] = "palette",
    ["B/1.png"] = "interlaced", ["c/10.PNG"] = "rgba", ["c/9.png"] = "gray" } do
    files[name] = check.read("tests/golden/images/" .. image .. ".png")
  end
  local top, expected = make(files), core.store_load "tests/golden/images/folder.npz"
  local x, y = folder(top, { size = { 5, 8 } }):batch(6):iter()()
  -- A pixel is a sum of four products in float32 and at most 255: a few roundings of 1e-5.
  check.near(x, expected.smaller, 1e-6)
  check.equal({ x:dtype(), x:shape() }, { "float32", { 6, 5, 8, 3 } })
  check.equal(y, expected.int)
  x, y = folder(top, { size = { 12, 20 }, channels = 1, labels = "categorical" }):batch(6):iter()()
  check.near(x, expected.larger, 1e-6)
  check.equal(y, expected.categorical)
  x = folder(top, { size = { 6, 9 }, interpolation = "nearest" }):batch(6):iter()()
  check.equal(x, expected.nearest)
  check.equal(x:dtype(), "uint8")
end)

test("images keep their proportions as in Keras, cut or padded", function()
  local files = {}
  for name, image in pairs { ["b/z.png"] = "rgb", ["b/a/2.png"] = "gray", ["b/a.b/1.png"] = "palette",
    ["B/1.png"] = "interlaced", ["c/10.PNG"] = "rgba", ["c/9.png"] = "gray" } do
    files[name] = check.read("tests/golden/images/" .. image .. ".png")
  end
  local top, expected = make(files), core.store_load "tests/golden/images/folder.npz"
  for name, size in pairs { wide = { 6, 15 }, tall = { 9, 4 }, square = { 8, 8 } } do
    local cut = folder(top, { size = size, crop_to_aspect_ratio = true }):batch(6):iter()()
    check.near(cut, expected["crop/" .. name], 1e-6) -- float32, as above
    local padded = folder(top, { size = size, pad_to_aspect_ratio = true }):batch(6):iter()()
    check.near(padded, expected["pad/" .. name], 1e-6)
  end
  -- one row of pixels, which would shrink to none
  mgpu.image.save(top .. "/B/1.png", mgpu.ones({ 1, 40 }))
  local x = folder(top, { size = { 4, 4 }, pad_to_aspect_ratio = true, channels = 1, classes = { "B" } }):iter()()
  check.equal(x:reshape { 4, 4 }:sum(2), { 0, 1020, 0, 0 })
  x = folder(top, { size = { 40, 1 }, crop_to_aspect_ratio = true, channels = 1, classes = { "B" } }):iter()()
  check.equal(x:reshape { 40 }:min():item(), 255)
end)

test("a cut to proportions reads the same of a JPEG file as of the whole image", function()
  local jpeg = mgpu.image.encode_jpeg(mgpu.rand { 40, 90, 3 })
  local x = folder(make { ["a/1.jpg"] = jpeg }, { size = { 20, 20 }, crop_to_aspect_ratio = true }):iter()()
  local ds = mgpu.data.from_tensors(mgpu.image.decode(jpeg):reshape { 1, 40, 90, 3 })
  local whole = ds:augment { resize = { 20, 20, crop_to_aspect_ratio = true }, dtype = "float32" }:iter()()
  check.equal(x, whole:totable())
end)

test("damaged images are errors that name the file, or are skipped", function()
  local top = two_classes()
  check.write(top .. "/cat/3.jpg", "GIF88a")
  check.write(top .. "/cat/4.png", "")
  local it = folder(top):iter()
  it()
  it()
  check.raises(it, "image_folder: .*/cat/3%.jpg: not a PNG, JPEG, BMP, GIF or WebP image", "data")
  local ds = folder(top, { skip_bad = true })
  check.equal(ds:length(), 3)
  check.equal(ds.skipped, { top .. "/cat/3.jpg", top .. "/cat/4.png" })
  local whole = stripes(0, 0, 64)
  check.write(top .. "/cat/5.png", whole:sub(1, #whole - 30))
  check.raises(function()
    for _ in folder(top, { skip_bad = true }):iter() do end -- luacheck: ignore 542
  end, "/cat/5%.png: PNG: ", "data")
end)

test("what is wrong with an image stands behind a long path, too", function()
  local deep = ("d"):rep(250)
  local top = make { [("cat/%s/%s/1.png"):format(deep, deep)] = "GIF88a" }
  local ds = folder(top)
  for _, rows in ipairs { ds, ds:prefetch(2) } do
    check.raises(rows:iter(), "not a PNG, JPEG, BMP, GIF or WebP image", "data")
  end
end)

test("a part for validation is drawn with a seed", function()
  local files = {}
  for i = 1, 30 do files[("c%02d/x.png"):format(i)] = stripes(0, 0, 1) end
  local top = make(files)
  local function labels(ds)
    local list = {}
    for _, y in ds:iter() do list[#list + 1] = y:item() end
    return list
  end
  local train, val = folder(top, { validation_split = 0.2, subset = "both", seed = 7 })
  check.equal({ train:length(), val:length(), #val.classes }, { 24, 6, 30 })
  check.equal(labels(val), labels(folder(top, { validation_split = 0.2, subset = "validation", seed = 7 })))
  check.equal(labels(train), labels(folder(top, { validation_split = 0.2, subset = "training", seed = 7 })))
  local all, other = labels(train), labels(folder(top, { validation_split = 0.2, subset = "validation", seed = 8 }))
  for _, y in ipairs(labels(val)) do all[#all + 1] = y end
  table.sort(all)
  for i, y in ipairs(all) do check.equal(y, i - 1) end
  check.truthy(table.concat(other, " ") ~= table.concat(labels(val), " "))
end)

test("wrong options and folders are refused", function()
  local top = two_classes()
  local function refused(message, options, code, path)
    check.raises(function() folder(path or top, options) end, message, code or "usage")
  end
  refused('image_folder: unknown option "sise" %(did you mean "size"%?%)', { sise = 3 })
  refused('image_folder: option "channels": unknown value 2', { channels = 2 })
  refused('image_folder: option "labels": unknown value "ints" %(did you mean "int"', { labels = "ints" })
  refused('option "size" must be a whole number of at least 1, or two of them', { size = { 8, 0 } })
  refused('option "classes": "cat" is there twice', { classes = { "cat", "cat" } })
  refused('option "classes": entry 1 must be a name, got "%.%."', { classes = { ".." } })
  refused('option "extensions" is empty', { extensions = {} })
  refused('option "pad_to_aspect_ratio" is for resized images', { pad_to_aspect_ratio = true })
  refused("only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be true",
    { size = 8, crop_to_aspect_ratio = true, pad_to_aspect_ratio = true })
  refused("validation_split and subset .* are given together", { validation_split = 0.5 })
  refused("validation_split needs a seed", { validation_split = 0.5, subset = "both" })
  refused("`seed` needs validation_split", { seed = 1 })
  refused('classes have no use with labels = "none"', { labels = "none", classes = { "cat" } })
  refused('option "dtype" is for resized images', { dtype = "uint8" })
  refused("leaves none for validation", { validation_split = 0.1, subset = "both", seed = 1 })
  refused("there is no folder .*/bird", { classes = { "bird" } }, "data")
  refused("there are no images in the folders of", { extensions = { ".webp" } }, "data")
  refused("binary labels need two classes, but .* has 1", { labels = "binary", classes = { "cat" } })
  refused("cannot look into .*none", nil, "io", check.path "none")
  refused("has no folders: each class is one", nil, "data", top .. "/cat")
  check.raises(function() folder { top } end, "expected the path of a folder, got table", "usage")
end)

test("fit trains on a folder of images", function()
  mgpu.seed(5)
  local files = {}
  for i = 0, 23 do files[("%s/%02d.png"):format(i % 2 == 0 and "v" or "h", i)] = stripes(i % 2, i, 8 + i % 5) end
  local ds = folder(make(files), { size = 8, channels = 1, interpolation = "nearest", dtype = "float32" })
  local L = mgpu.layers
  local model = mgpu.Sequential { L.Input { 8, 8, 1 }, L.Conv2D { 8, 3, activation = "relu" },
    L.GlobalMaxPooling2D {}, L.Dense { 2, activation = "softmax" } }
  model:compile { optimizer = mgpu.optimizers.Adam { 0.02 }, loss = "sparse_categorical_crossentropy",
    metrics = "accuracy" }
  local h = model:fit(ds:shuffle(24, 1):batch(8):prefetch(2), { epochs = 25, verbose = 0 })
  check.truthy(h.history.accuracy[25] > 0.9, "accuracy after training: " .. h.history.accuracy[25])
end)
