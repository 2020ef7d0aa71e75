-- Error texts of datasets, images and the functions that prepare them.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local data = mgpu.data

local function rows() return data.from_tensors { mgpu.ones { 4, 2 } } end
local function images() return mgpu.zeros({ 2, 6, 6, 3 }, { dtype = "uint8" }) end
local function generator() return mgpu.ImageDataGenerator {} end

local function csv_file(text)
  local path = check.path "table.csv"
  check.write(path, text)
  return path
end

cases {
  -- ---- datasets
  { "a position that is a number", function() rows():iter(3) end, "a table {pass =, element =}; got 3" },
  { "a device that is a table", function() rows():iter(nil, {}) end, "iter: a device is given by its name" },
  { "a spread that is a number", function() rows():iter(nil, nil, 3) end, "{devices =, weights =}; got a number" },
  { "devices of a spread that are not a list", function() rows():iter(nil, nil, { devices = true }) end,
    "spread.devices is a list of strings; got a boolean" },
  { "a weight of a spread that is not a number", function() rows():iter(nil, nil, { weights = { {} } }) end,
    "spread.weights[1] is a number; got a table" },
  { "a position with another field", function() rows():iter { row = 1 } end, 'got a field "row"' },
  { "a chain of too many takes", function()
    local ds = rows()
    for _ = 1, 65 do ds = ds:take(4) end
  end, "take: the chain is too long: 65 steps that choose rows, at most 64" },
  { "a number in place of a tensor", function() data.from_tensors { mgpu.ones { 4 }, 5 } end,
    "from_tensors: entry 2 is a number, not a tensor: one column of numbers is {{1, 2, 3}}" },
  { "a tensor of one number", function() data.from_tensors { mgpu.tensor(3) } end,
    "from_tensors: entry 1 is a single number, but its first axis must be rows" },
  { "augment behind filter", function() rows():filter(function() return true end):augment { flip = true } end,
    "augment: it works on rows as they are read, so it must come before filter, zip, cache after a map" },
  { "concatenate of one dataset", function() data.concatenate(rows()) end,
    "concatenate: expected datasets, as in {a, b}, got one dataset" },
  { "interleave of a number", function() data.interleave(3) end,
    "interleave: expected datasets, as in {a, b}, got number" },
  { "batches with more axes than tensors have", function()
    data.from_tensors { mgpu.ones { 4, 1, 1, 1, 1, 1, 1, 1 } }:batch(2):batch(1):iter()()
  end, "batch: a batch of field 1 would have 9 axes, at most 8 are possible" },

  -- ---- CSV files
  { "a list of columns with a hole", function() data.csv(csv_file "a,b\n1,2\n", { columns = { 1, nil, 2 } }) end,
    'csv: option "columns": entry 2 is missing: an array has no holes' },
  { "a name in a file without header", function()
    data.csv(csv_file "1,2\n3,4\n", { label = "a" })
  end, 'there is no column "a": the file has no header, so columns are positions (or give `names`)' },
  { "missing values as a list with a hole", function()
    data.csv(csv_file "a,b\n1,2\n", { na = { "x", nil, "y" } })
  end, 'csv: option "na": entry 2 is missing: an array has no holes' },

  -- ---- images
  { "augment with a list of numbers that has a hole", function() rows():augment { mean = { 1, nil, 2 } } end,
    'augment: option "mean": entry 2 is missing: an array has no holes' },
  { "augment with three areas", function()
    data.from_tensors { images() }:augment { random_resized_crop = { 4, 4, area = { 0.1, 0.2, 0.3 } } }
  end, 'augment: random_resized_crop: option "area" must be {least, greatest}, got {0.1, 0.2, 0.3}' },
  { "a resize that cuts and pads", function()
    local resize = { 4, 4, crop_to_aspect_ratio = true, pad_to_aspect_ratio = true }
    data.from_tensors { images() }:augment { resize = resize }
  end, "augment: resize: only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be true" },
  { "a resize of the shorter side that cuts", function()
    data.from_tensors { images() }:augment { resize = { 4, crop_to_aspect_ratio = true } }
  end, "augment: resize: crop_to_aspect_ratio and pad_to_aspect_ratio need both sides of the size, as in" },
  { "a crop larger than the image with its padding", function()
    data.from_tensors { images() }:augment { random_crop = { 9, 6, padding = 1 } }
  end, "augment: random_crop wants 9 rows, but the image has 8 with its padding: give a smaller size, or `resize`",
    code = "data" },
  { "a crop wider than the image with its padding", function()
    data.from_tensors { images() }:augment { random_crop = { 6, 9, padding = 1 } }
  end, "augment: random_crop wants 9 columns, but the image has 8 with its padding: give a smaller size, or `resize`",
    code = "data" },
  { "options of an image that are not a table", function() mgpu.image.save(check.path "a.png", images(), 3) end,
    "options are a table, got a number" },
  { "a JPEG file with alpha", function() mgpu.image.save(check.path "a.jpg", mgpu.zeros { 4, 4, 4 }) end,
    "a JPEG image has no alpha: give 3 channels, or save a .png" },
  { "a generator fitted to a table of names", function() generator():fit(3) end, "expected a tensor of images" },
  { "a transform without parameters", function()
    generator():apply_transform(mgpu.zeros { 4, 4, 3 }, 3)
  end, "apply_transform: the parameters are a table, got a number" },
  { "a transform by infinity", function()
    generator():apply_transform(mgpu.zeros { 4, 4, 3 }, { theta = 1 / 0 })
  end, 'apply_transform: parameter "theta" must be finite, got inf' },
  { "classes of a folder of images with a hole", function()
    data.image_folder(".", { classes = { "a", nil, "b" } })
  end, 'image_folder: option "classes": entry 2 is missing: an array has no holes' },
  { "a decoded image of two channels", function() core.image_decode("\137PNG", 2, "uint8") end,
    "an image has 1, 3 or 4 channels, not 2" },
  { "arrays of a file without a name", function() data.npz("", { "x" }) end,
    "npz: expected the path of a file, got an empty one" },
  { "a cache of an endless dataset in the file of another", function()
    local function mapped() return rows():map(function(x) return x + 1 end) end
    for _ in mapped():cache(check.path "four.cache"):iter() do end -- writes the file
    mapped():cycle():cache(check.path "four.cache"):iter()()
  end, "four.cache has 4 elements, the dataset here has no end: it holds elements of another dataset",
    code = "data" },
  { "no shapes", function() mgpu.datasets.shapes.load_data(0) end,
    "shapes: the number of images must be a whole number from 1 to 699050, got 0" },
  { "shapes in no folder", function() mgpu.datasets.shapes.write_cifar("", 10) end,
    "shapes.write_cifar: the folder must be a path, got " },
  { "too few shapes for the files of CIFAR", function() mgpu.datasets.shapes.write_cifar(check.path "few", 3) end,
    "shapes.write_cifar: 5 files need at least 5 images, got 3" },
}
