--- Image data sets of four IDX files, plain or gzipped: MNIST, and Fashion-MNIST and KMNIST in the same form.
--
-- Where the files come from: files.lua. Errors: files that are not found and cannot be downloaded, damaged files,
-- images and labels that do not belong together.
local core = require "mgpu.core"
local files = require "mgpu.data.datasets.files"

local M = {}

local PARTS = {
  train = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
  test = { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
}

-- All files, for the error about missing ones.
local WANTED = ("%s, %s, %s, %s (or these with .gz)"):format(PARTS.train[1], PARTS.train[2], PARTS.test[1],
  PARTS.test[2])

-- "t10k-labels-idx1-ubyte" -> "t10k_labels"
local function key_of(name) return (name:match("^%w+%-%w+"):gsub("%-", "_")) end

-- The file as files.lua takes it.
local function file_of(set, name)
  local dotted = name:gsub("%-idx", ".idx")
  return { names = { name, name .. ".gz", dotted, dotted .. ".gz" }, kept = name .. ".gz",
    url = set.url .. name .. ".gz", sha256 = set.sha256[key_of(name)], bytes = set.bytes[key_of(name)] }
end

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

-- The images and labels of a part. paths: of the two files.
local function load_part(set, paths)
  local x, y = core.idx_load(paths[1]), core.idx_load(paths[2])
  if x:rank() ~= 3 or y:rank() ~= 1 or x:shape()[1] ~= y:shape()[1] then
    core.fail("data", ("%s: %s has shape %s and %s has shape %s: they do not belong together")
      :format(set.name, paths[1], show(x:shape()), paths[2], show(y:shape())))
  end
  y = core.ops.cast(y, { dtype = "int32" })
  core.eval(y)
  return files.part(set, x, y)
end

--- define(set) -> {load_data = function(options) -> train, test}, also as load.
-- ARGS
--   set.name, set.classes, set.class_names   copied into the loaded tables
--   set.folders, set.hint   see files.lua
--   set.url                 the folder of the gzipped files on the web
--   set.sha256, set.bytes   their checksums and sizes
function M.define(set)
  --- load_data {data_dir =} -> train, test: tables {x =, y =, classes =, name =}, x uint8 {rows, 28, 28}, y int32
  --- {rows}.
  -- data_dir: the only folder to search, instead of the usual ones.
  local function load_data(given)
    local chosen, paths = files.check(set.name, given), {}
    for which, names in pairs(PARTS) do
      paths[which] = {}
      for i, name in ipairs(names) do
        paths[which][i] = files.obtain(set, file_of(set, name), WANTED, chosen.data_dir)
      end
    end
    return load_part(set, paths.train), load_part(set, paths.test)
  end
  return { load_data = load_data, load = load_data }
end

-- ---- the sets -----------------------------------------------------------------------------------

--- mnist.load_data {data_dir =} -> train, test: 70,000 handwritten digits, 28 x 28 grey.
--
--     local train, test = mgpu.datasets.mnist.load_data()
--     train.x    -- uint8 {60000, 28, 28}
--     train.y    -- int32 {60000}, class ids 0..9
-- Errors: see mnist.lua. Source: LeCun, Cortes & Burges, The MNIST database, 1998.
-- Example:
--     for _, part in ipairs { "train", "t10k" } do -- one blank image, in the form of the published files
--       local x, y = io.open(part .. "-images-idx3-ubyte", "wb"), io.open(part .. "-labels-idx1-ubyte", "wb")
--       x:write("\0\0\8\3\0\0\0\1\0\0\0\28\0\0\0\28", ("\0"):rep(28 * 28))
--       y:write "\0\0\8\1\0\0\0\1\7"
--       x:close()
--       y:close()
--     end
--     local train, test = mgpu.datasets.mnist.load_data { data_dir = "." } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.y[1]:item())  --> 1 28 28 7
M.mnist = M.define {
  name = "mnist",
  classes = 10,
  folders = { "mnist", "MNIST" },
  url = "https://storage.googleapis.com/cvdf-datasets/mnist/",
  sha256 = {
    train_images = "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    train_labels = "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    t10k_images = "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    t10k_labels = "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
  },
  bytes = { train_images = 9912422, train_labels = 28881, t10k_images = 1648877, t10k_labels = 4542 },
}

--- fashion_mnist.load_data {data_dir =} -> train, test: 70,000 pictures of clothes in ten classes, 28 x 28 grey.
--
--     local train, test = mgpu.datasets.fashion_mnist.load_data()
--     train.x    -- uint8 {60000, 28, 28}
--     train.y    -- int32 {60000}, class ids 0..9
-- Debian's package dataset-fashion-mnist contains the files. Errors: see mnist.lua.
-- Source: Xiao, Rasul & Vollgraf, Fashion-MNIST, 2017.
-- Example:
--     for _, part in ipairs { "train", "t10k" } do -- one blank image, in the form of the published files
--       local x, y = io.open(part .. "-images-idx3-ubyte", "wb"), io.open(part .. "-labels-idx1-ubyte", "wb")
--       x:write("\0\0\8\3\0\0\0\1\0\0\0\28\0\0\0\28", ("\0"):rep(28 * 28))
--       y:write "\0\0\8\1\0\0\0\1\7"
--       x:close()
--       y:close()
--     end
--     local train, test = mgpu.datasets.fashion_mnist.load_data { data_dir = "." } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.class_names[8])  --> 1 28 28 Sneaker
M.fashion_mnist = M.define {
  name = "fashion_mnist",
  classes = 10,
  class_names = { "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot" },
  folders = { "fashion-mnist", "fashion_mnist", "FashionMNIST" },
  hint = ", or: apt-get install dataset-fashion-mnist",
  url = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
  sha256 = {
    train_images = "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    train_labels = "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    t10k_images = "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    t10k_labels = "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
  },
  bytes = { train_images = 26421880, train_labels = 29515, t10k_images = 4422102, t10k_labels = 5148 },
}

--- kmnist.load_data {data_dir =} -> train, test: 70,000 cursive Japanese characters in ten classes, 28 x 28 grey.
--
--     local train, test = mgpu.datasets.kmnist.load_data()
--     train.x    -- uint8 {60000, 28, 28}
--     train.y    -- int32 {60000}, class ids 0..9
-- Errors: see mnist.lua. Source: Clanuwat et al., Deep learning for classical Japanese literature, 2018.
-- Example:
--     for _, part in ipairs { "train", "t10k" } do -- one blank image, in the form of the published files
--       local x, y = io.open(part .. "-images-idx3-ubyte", "wb"), io.open(part .. "-labels-idx1-ubyte", "wb")
--       x:write("\0\0\8\3\0\0\0\1\0\0\0\28\0\0\0\28", ("\0"):rep(28 * 28))
--       y:write "\0\0\8\1\0\0\0\1\7"
--       x:close()
--       y:close()
--     end
--     local train, test = mgpu.datasets.kmnist.load_data { data_dir = "." } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.class_names[8])  --> 1 28 28 ya
M.kmnist = M.define {
  name = "kmnist",
  classes = 10,
  class_names = { "o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo" },
  folders = { "kmnist", "KMNIST" },
  url = "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
  sha256 = {
    train_images = "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
    train_labels = "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
    t10k_images = "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
    t10k_labels = "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
  },
  bytes = { train_images = 18165135, train_labels = 29497, t10k_images = 3041136, t10k_labels = 5120 },
}

return M
