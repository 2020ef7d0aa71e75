-- Crops of images that are decoded when rows are read: only what a crop reads is decoded, and the rows are those of
-- images that were decoded as a whole. tests/c/test_image_region.c compares every kind of file.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

check.needs(check.program:match "^(.*)/[^/]*$" .. "/mgpu-image.so")

local N, HEIGHT, WIDTH = 9, 70, 90

local function encoded(i)
  mgpu.seed(i)
  return mgpu.image.encode_jpeg(mgpu.randint(0, 256, { HEIGHT, WIDTH, 3 }, { dtype = "uint8" }))
end

-- A folder with N images in class a, and a TFRecord file of the same.
local function write_images()
  local folder, files = check.path "folder", {}
  core.make_folder(folder .. "/a")
  for i = 1, N do
    files[i] = { encoded(i), i }
    check.write(("%s/a/%d.jpg"):format(folder, i), files[i][1])
  end
  local path = check.path "images.tfrecord"
  mgpu.data.write_tfrecord(path, files, { { "image", "string" }, { "label", "int64" } })
  return folder, path
end

local STEPS = {
  { random_resized_crop = { 20, 30 } },
  { random_resized_crop = { 40, 40, area = { 0.05, 0.3 } }, horizontal_flip = true, brightness = 20 },
  { random_crop = { 17, 33 } },
  { random_crop = { 70, 90, padding = 5 } },
  { center_crop = { 31, 8 }, vertical_flip = true },
  { resize = 32, center_crop = { 24, 24 } },
}

local function with_seed(step)
  local options = { seed = 7 }
  for name, value in pairs(step) do options[name] = value end
  return options
end

-- The images of two passes, in batches.
local function images_of(ds, step, batch, prefetch)
  local chain, list = ds:augment(with_seed(step)):cycle(2):batch(batch), {}
  if prefetch then chain = chain:prefetch(2, prefetch) end
  for x in chain:iter() do list[#list + 1] = x:to "float32" end
  return mgpu.concat(list, { axis = 1 })
end

test("crops of folders and of TFRecord files equal crops of whole images", function()
  local folder, path = write_images()
  local whole = {}
  for i = 1, N do whole[i] = mgpu.image.decode(encoded(i)) end
  whole = mgpu.data.from_tensors(mgpu.stack(whole))
  local function records(shape)
    return mgpu.data.tfrecord(path, { { "image", "jpeg", channels = 3, shape = shape }, { "label", "int64" } })
  end
  for i, step in ipairs(STEPS) do
    local expected = images_of(whole, step, N)
    local function same(ds, ...)
      check.equal((images_of(ds, step, ...) - expected):abs():max():item(), 0, "step " .. i)
    end
    same(mgpu.data.image_folder(folder, { labels = "none" }), 4)
    same(records { -1, -1, 3 }, 1, { threads = 3 })
    same(records { HEIGHT, WIDTH, 3 }, 5, { threads = 2 })
    same(records(nil):cache(), 5)
  end
end)

test("the position in a stream of crops is found again", function()
  local _, path = write_images()
  local ds = mgpu.data.tfrecord(path, { { "image", "jpeg", channels = 3 } }):shuffle(N, 3)
    :augment { seed = 2, random_resized_crop = { 8, 8 } }:cycle(3):batch(4)
  local all = {}
  for x in ds:iter() do all[#all + 1] = x end
  local it = ds:iter { pass = 0, element = 4 }
  for i = 5, #all do check.equal(it(), all[i]:totable()) end
  check.equal(it(), nil)
end)

test("a damaged image is an error, also where the crop does not read the damage", function()
  local folder = check.path "damaged"
  core.make_folder(folder .. "/a")
  local bytes = encoded(1)
  check.write(folder .. "/a/1.jpg", bytes:sub(1, -200))
  local ds = mgpu.data.image_folder(folder, { labels = "none" })
  local function read(chain) return function() chain:iter()() end end
  local message = "image_folder: .*/a/1.jpg: JPEG: Premature end of JPEG file"
  check.raises(read(ds), message, "data")
  check.raises(read(ds:augment { center_crop = { 4, 4 } }), message, "data")
  check.raises(read(ds:augment { random_crop = { 4, 4 }, seed = 1 }:batch(1):prefetch(1)), message, "data")
end)
