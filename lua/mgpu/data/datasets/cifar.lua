--- CIFAR-10 and CIFAR-100: small colour photographs, from the published archive of binary files or its unpacked files.
--
-- The archive is read in place, not unpacked. Where the files come from: files.lua. Errors: files that are not found
-- and cannot be downloaded; damaged files; labels out of range.
local core = require "mgpu.core"
local files = require "mgpu.data.datasets.files"

local M = {}

local URL = "https://www.cs.toronto.edu/~kriz/"

-- The paths of the unpacked files of both parts, or nil unless all of them are there.
local function find_unpacked(set, data_dir)
  local paths = { train = {}, test = {} }
  for which, list in pairs(paths) do
    for i, name in ipairs(set[which]) do
      list[i] = files.find(set, { names = { name, name .. ".gz" } }, data_dir)
      if not list[i] then return nil end
    end
  end
  return paths
end

local function archive_file(set)
  return { names = { set.archive, (set.archive:gsub("%.gz$", "")) }, kept = set.archive, url = URL .. set.archive,
    sha256 = set.sha256, bytes = set.bytes }
end

-- A part: its images, and the labels of column `column`.
local function load_part(set, paths, members, column)
  local x, labels = core.cifar_load(paths, members, set.label_classes)
  local y = labels:slice { {}, column }:cast "int32"
  core.eval(y)
  return files.part({ name = set.name, classes = set.label_classes[column],
    class_names = set.class_names[column] }, x, y)
end

-- define(set) -> {load_data = function(options) -> train, test}, also as load.
-- ARGS
--   set.name                     copied into the loaded tables
--   set.folders                  see files.lua
--   set.archive, set.sha256, set.bytes   the published archive
--   set.train, set.test          the names of the files in it
--   set.label_classes            the number of classes of each label of a record
--   set.class_names              their names, an array for each label
--   set.modes                    the names of the labels, for the option label_mode; nil if there is one
local function define(set)
  local wanted = ("%s or its files %s ... %s"):format(set.archive, set.train[1], set.test[1])
  local more = set.modes and { { "label_mode", "string", default = set.modes[#set.modes], values = set.modes } }
  --- load_data {data_dir =, label_mode =} -> train, test: tables {x =, y =, classes =, class_names =, name =}, x uint8
  --- {rows, 32, 32, 3}, y int32 {rows}.
  -- data_dir: the only folder to search, instead of the usual ones. label_mode (CIFAR-100): "fine", 100 classes, or
  -- "coarse", 20 of them.
  local function load_data(given)
    local chosen = files.check(set.name, given, more)
    local column = 1
    for i, mode in ipairs(set.modes or {}) do
      if mode == chosen.label_mode then column = i end
    end
    local unpacked = find_unpacked(set, chosen.data_dir)
    if unpacked then
      return load_part(set, unpacked.train, nil, column), load_part(set, unpacked.test, nil, column)
    end
    local path = { files.obtain(set, archive_file(set), wanted, chosen.data_dir) }
    return load_part(set, path, set.train, column), load_part(set, path, set.test, column)
  end
  return { load_data = load_data, load = load_data }
end

-- ---- the sets -----------------------------------------------------------------------------------

--- cifar10.load_data {data_dir =} -> train, test: 60,000 photographs in ten classes, 32 x 32 in colour.
--
--     local train, test = mgpu.datasets.cifar10.load_data()
--     train.x    -- uint8 {50000, 32, 32, 3}
--     train.y    -- int32 {50000}, class ids 0..9; train.class_names[id + 1]: "airplane" ...
-- Errors: see cifar.lua. Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
-- Example:
--     mgpu.datasets.shapes.write_cifar("data", 50) -- images in the form of the published files
--     local train, test = mgpu.datasets.cifar10.load_data { data_dir = "data" } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.class_names[1])  --> 50 32 32 3 airplane
M.cifar10 = define {
  name = "cifar10",
  folders = { "cifar10", "cifar-10", "CIFAR10", "cifar-10-batches-bin" },
  archive = "cifar-10-binary.tar.gz",
  sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
  bytes = 170052171,
  train = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin" },
  test = { "test_batch.bin" },
  label_classes = { 10 },
  class_names = { { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" } },
}

--- cifar100.load_data {data_dir =, label_mode = "fine"} -> train, test: 60,000 photographs in 100 classes, or with
--- label_mode = "coarse" in 20, 32 x 32 in colour.
--
--     local train, test = mgpu.datasets.cifar100.load_data()
--     train.x    -- uint8 {50000, 32, 32, 3}
--     train.y    -- int32 {50000}, class ids 0..99; train.class_names[id + 1]: "apple" ...
-- Errors: see cifar.lua. Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
-- Example:
--     for _, part in ipairs { "train", "test" } do -- one blank image, in the form of the published files
--       local file = io.open(part .. ".bin", "wb")
--       file:write("\4\30", ("\0"):rep(32 * 32 * 3))
--       file:close()
--     end
--     local fine = mgpu.datasets.cifar100.load_data { data_dir = "." } -- without data_dir it is downloaded
--     local coarse = mgpu.datasets.cifar100.load_data { data_dir = ".", label_mode = "coarse" }
--     print(table.concat(fine.x:shape(), " "), fine.y[1]:item(), coarse.y[1]:item())  --> 1 32 32 3 30 4
--     print(fine.class_names[31], coarse.class_names[5])  --> dolphin fruit and vegetables
M.cifar100 = define {
  name = "cifar100",
  folders = { "cifar100", "cifar-100", "CIFAR100", "cifar-100-binary" },
  archive = "cifar-100-binary.tar.gz",
  sha256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
  bytes = 168513733,
  train = { "train.bin" },
  test = { "test.bin" },
  label_classes = { 20, 100 },
  class_names = {
    { "aquatic mammals", "fish", "flowers", "food containers", "fruit and vegetables", "household electrical devices",
    "household furniture", "insects", "large carnivores", "large man-made outdoor things",
    "large natural outdoor scenes", "large omnivores and herbivores", "medium mammals", "non-insect invertebrates",
    "people", "reptiles", "small mammals", "trees", "vehicles 1", "vehicles 2" },
    { "apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple tree", "motorcycle", "mountain", "mouse", "mushroom", "oak tree", "orange",
    "orchid", "otter", "palm tree", "pear", "pickup truck", "pine tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow tree", "wolf", "woman", "worm" },
  },
  modes = { "coarse", "fine" },
}

return M
