--- Data sets drawn by code: digits as in MNIST, and coloured shapes of the size of CIFAR.
local core = require "mgpu.core"
local options = require "mgpu.options"

local M = {}

-- ---- digits -------------------------------------------------------------------------------------

local function digits_part(n, seed)
  local x, y = core.digits(n, seed)
  return { x = x, y = y, x, y, classes = 10, name = "digits" }
end

--- digits.load_data(n = 1000, seed = 0) -> train, test.
local function load_digits(n, seed)
  n, seed = n or 1000, seed or 0
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
    core.fail("usage", ("digits: the number of images must be a whole number >= 1, got %s"):format(
      tostring(n)))
  end
  if type(seed) ~= "number" or seed < 0 or seed % 1 ~= 0 then
    core.fail("usage", ("digits: the seed must be a whole number >= 0, got %s"):format(
      tostring(seed)))
  end
  return digits_part(n, 2 * seed), digits_part(math.ceil(n / 5), 2 * seed + 1)
end

--- digits(n = 1000, seed = 0) -> train, test: images of digits drawn by code, for tests and for trying things offline.
--
--     local train, test = mgpu.datasets.digits(1000)   -- 1000 and 200 images
--     train.x    -- uint8 {1000, 28, 28}
--     train.y    -- int32 {1000}, class ids 0..9
-- The images are a function of n and seed alone. Errors: n or seed that are not whole numbers.
-- Example:
--     local train, test = mgpu.datasets.digits(100)
--     print(table.concat(train.x:shape(), " "), train.y:dtype(), test.y:count())  --> 100 28 28 int32 20
M.digits = setmetatable({ load_data = load_digits, load = load_digits },
  { __call = function(_, ...) return load_digits(...) end })

-- ---- shapes -------------------------------------------------------------------------------------

local CLASSES = { "disc", "square", "triangle", "ring", "cross", "frame", "rows", "columns", "checkerboard",
  "crescent" }
local MOST, MOST_BYTES, MOST_SEED = 1e6, 2 ^ 31, 2 ^ 52

local OPTIONS = options.declare {
  { "seed", "integer", default = 0, min = 0, max = MOST_SEED },
  { "size", "integer", default = 32, min = 16, max = 256 },
}
local WRITE = options.declare { OPTIONS[1] }

local function check_number(who, n, most)
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 or n > most then
    core.fail("usage", ("%s: the number of images must be a whole number from 1 to %d, got %s"):format(who, most,
      tostring(n)))
  end
end

local function shapes_part(n, size, seed)
  local x, y = core.shapes(n, size, seed)
  return { x = x, y = y, x, y, classes = #CLASSES, class_names = CLASSES, name = "shapes" }
end

--- shapes.load_data(n = 1000, {seed = 0, size = 32}) -> train, test.
local function load_shapes(n, given)
  local chosen = options.check("shapes", OPTIONS, given or {})
  n = n == nil and 1000 or n
  check_number("shapes", n, math.min(MOST, math.floor(MOST_BYTES / (3 * chosen.size ^ 2))))
  return shapes_part(n, chosen.size, 2 * chosen.seed), shapes_part(math.ceil(n / 5), chosen.size, 2 * chosen.seed + 1)
end

-- The bytes of the set's rows first to last in CIFAR's format: a label, then the red, green and blue planes.
local function cifar_bytes(set, first, last)
  local n = last - first + 1
  local planes = set.x:slice { { first, last } }:permute { 1, 4, 2, 3 }:reshape { n, -1 }
  local labels = set.y:slice { { first, last } }:cast "uint8":reshape { n, 1 }
  local records = core.ops.concat({ labels, planes }, { axis = 2 }):to "cpu:0"
  return require "ffi".string(records:pointer(), records:count())
end

--- write_cifar(folder, n = 1000, {seed = 0}): writes train and test images as the files of CIFAR-10 into the folder,
--- which is made: data_batch_1.bin to data_batch_5.bin and test_batch.bin. Errors: n below 5; the disk.
-- Example:
--     mgpu.datasets.shapes.write_cifar("data", 10)
--     local train = mgpu.datasets.cifar10.load_data { data_dir = "data" }
--     print(table.concat(train.x:shape(), " "))  --> 10 32 32 3
local function write_cifar(folder, n, given)
  local chosen = options.check("shapes.write_cifar", WRITE, given or {})
  if type(folder) ~= "string" or folder == "" then
    core.fail("usage", "shapes.write_cifar: the folder must be a path, got " .. tostring(folder))
  end
  n = n == nil and 1000 or n
  check_number("shapes.write_cifar", n, MOST)
  if n < 5 then core.fail("usage", ("shapes.write_cifar: 5 files need at least 5 images, got %d"):format(n)) end
  local train, test = load_shapes(n, { seed = chosen.seed })
  core.make_folder(folder)
  for i = 1, 5 do
    local first, last = math.floor((i - 1) * n / 5) + 1, math.floor(i * n / 5)
    core.write_file(("%s/data_batch_%d.bin"):format(folder, i), { cifar_bytes(train, first, last) })
  end
  core.write_file(folder .. "/test_batch.bin", { cifar_bytes(test, 1, test.x:shape()[1]) })
end

--- shapes(n = 1000, {seed = 0, size = 32}) -> train, test: images of coloured shapes drawn by code, for tests and for
--- trying networks for CIFAR offline.
--
--     local train, test = mgpu.datasets.shapes(6000)   -- 6000 and 1200 images
--     train.x    -- uint8 {6000, 32, 32, 3}
--     train.y    -- int32 {6000}, class ids 0..9; train.class_names[id + 1]: "disc" ...
--     mgpu.datasets.shapes.write_cifar("data", 5000)   -- as the files of CIFAR-10, for
--     mgpu.datasets.cifar10.load_data { data_dir = "data" }
-- Colours, place, size and tilt say nothing about the class: a linear model learns nothing, models.cifar10_cnn reaches
-- an accuracy of 0.95 in three epochs over 6000 images. The images are a function of n, size and seed alone.
-- Errors: n or seed that are not whole numbers; a size that is not from 16 to 256; more than a million images or 2^31
-- bytes.
-- Example:
--     local train, test = mgpu.datasets.shapes(60)
--     print(table.concat(train.x:shape(), " "), test.x:shape()[1], train.class_names[train.y[1]:item() + 1])
--     --> 60 32 32 3 12 square
M.shapes = setmetatable({ load_data = load_shapes, load = load_shapes, write_cifar = write_cifar },
  { __call = function(_, ...) return load_shapes(...) end })

return M
