-- CIFAR-10 and CIFAR-100: the archive and its files, where they are looked for, damaged ones; drawn shapes, also
-- written as files of CIFAR-10, and what networks learn from them.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local datasets = mgpu.datasets

-- Writes n shapes as files of CIFAR-10 into a new folder; returns it.
local function shape_files(name, n)
  local folder = check.path(name) .. "/cifar-10-batches-bin"
  datasets.shapes.write_cifar(folder, n, { seed = 4 })
  return folder
end

-- Packs the folder with tar as NAME beside it, and removes it; returns the folder that holds the archive.
local function pack(folder, name)
  local parent, inner = folder:match "^(.*)/([^/]*)$"
  check.equal(os.execute(("cd '%s' && tar czf %s %s && rm -r %s"):format(parent, name, inner, inner)), 0)
  return parent
end

local function shapes_are(train, held_out, n)
  local expected, expected_test = datasets.shapes(n, { seed = 4 })
  check.equal({ train.x:shape(), train.x:dtype(), train.y:dtype() }, { { n, 32, 32, 3 }, "uint8", "int32" })
  check.truthy(train.x:eq(expected.x):all():item(), "the training images")
  check.equal(train.y, expected.y)
  check.truthy(held_out.x:eq(expected_test.x):all():item(), "the test images")
  check.equal(held_out.y, expected_test.y)
end

test("cifar10 reads the unpacked files and the archive of a folder", function()
  local folder = shape_files("files", 23)
  local train, held_out = datasets.cifar10.load_data { data_dir = folder .. "/" }
  shapes_are(train, held_out, 23)
  check.equal({ train.classes, train.class_names[10], train.name, train[1] == train.x, train[2] == train.y },
    { 10, "truck", "cifar10", true, true })
  local parent = folder:match "^(.*)/"
  train, held_out = datasets.cifar10.load_data { data_dir = parent } -- in a sub-folder
  shapes_are(train, held_out, 23)
  pack(folder, "cifar-10-binary.tar.gz")
  train, held_out = datasets.cifar10.load { data_dir = parent }
  shapes_are(train, held_out, 23)
end)

-- Writes n records of CIFAR-100, record i with the coarse label i - 1 and the fine label 2 i, black but for its blue
-- plane.
local function write_cifar100(path, n)
  local records = {}
  for i = 1, n do
    records[i] = string.char(i - 1, 2 * i) .. ("\0"):rep(2048) .. string.char(i):rep(1024)
  end
  check.write(path, table.concat(records))
end

test("cifar100 has fine and coarse labels", function()
  local folder = check.path "hundred/cifar-100-binary"
  core.make_folder(folder)
  write_cifar100(folder .. "/train.bin", 3)
  write_cifar100(folder .. "/test.bin", 2)
  for round = 1, 2 do
    local place = round == 1 and folder or pack(folder, "cifar-100-binary.tar.gz")
    local train, held_out = datasets.cifar100.load_data { data_dir = place }
    check.equal({ train.y, held_out.y, train.classes }, { mgpu.tensor { 2, 4, 6 }, mgpu.tensor { 2, 4 }, 100 })
    check.equal(train.x:slice { 3, 1, 32, {} }, { 0, 0, 3 })
    local coarse = datasets.cifar100.load_data { data_dir = place, label_mode = "coarse" }
    check.equal({ coarse.y, coarse.classes }, { mgpu.tensor { 0, 1, 2 }, 20 })
    check.equal({ #train.class_names, train.class_names[31], #coarse.class_names, coarse.class_names[5] },
      { 100, "dolphin", 20, "fruit and vegetables" })
  end
  check.raises(function() datasets.cifar100.load_data { label_mode = "both" } end, 'unknown value "both"', "usage")
  check.raises(function() datasets.cifar10.load_data { label_mode = "fine" } end, 'unknown option "label_mode"',
    "usage")
end)

test("damaged files are refused with what is wrong", function()
  local folder = shape_files("damaged", 20)
  local function refused(expected)
    check.raises(function() datasets.cifar10.load_data { data_dir = folder } end, expected, "data")
  end
  local path = folder .. "/data_batch_3.bin"
  local bytes = check.read(path)
  check.write(path, bytes:sub(1, -2))
  refused "data_batch_3.bin: the file ends within record 4, of 3073 bytes each"
  check.write(path, "\10" .. bytes:sub(2))
  refused "data_batch_3.bin: record 1 has the label 10, but there are 10 classes"
  check.write(path, "")
  refused "data_batch_3.bin: the file is empty"
  os.remove(path)
  folder = pack(folder, "cifar-10-binary.tar.gz")
  refused "cifar%-10%-binary.tar.gz: the archive has no data_batch_3.bin"
  path = folder .. "/cifar-10-binary.tar.gz"
  bytes = check.read(path)
  check.write(path, bytes:sub(1, #bytes / 2))
  refused "cifar%-10%-binary.tar.gz"
  check.write(path, "no archive, but more than a block of text" .. (" "):rep(600))
  refused "cifar%-10%-binary.tar.gz: no header of a tar archive at byte 0"
end)

test("absent files are one sentence that names them and their folder", function()
  local folder = check.path "empty"
  core.make_folder(folder)
  check.raises(function() datasets.cifar10.load_data { data_dir = folder } end,
    "cifar10: .*/empty has no cifar%-10%-binary.tar.gz or its files data_batch_1.bin ... "
    .. "test_batch.bin", "io")
  check.raises(function() datasets.mnist.load_data { data_dir = folder .. "/none" } end,
    "mnist: .*/empty/none has no train%-images%-idx3%-ubyte, ", "io")
  check.raises(function() datasets.mnist.load_data { datadir = folder } end, 'did you mean "data_dir"', "usage")
  -- without a network, and without any cache
  local script = check.path "absent.lua"
  check.write(script, "require('mgpu').datasets[arg[1]].load_data() print 'work'")
  for name, expected in pairs {
    cifar10 = "cifar10: cannot download it %(.*%): put cifar%-10%-binary.tar.gz or its files data_batch_1.bin ... "
      .. "test_batch.bin into .*/empty/cifar10\n",
    cifar100 = "cifar100: cannot download it %(.*%): put cifar%-100%-binary.tar.gz or its files train.bin ... test.bin "
      .. "into .*/empty/cifar100\n",
    kmnist = "kmnist: cannot download it %(.*%): put train%-images%-idx3%-ubyte, .* into .*/empty/kmnist\n" } do
    local out, status = check.run(("http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 MGPU_DATA=%s HOME=%s "
      .. "%s %s %s"):format(folder, folder, check.program, script, name))
    check.equal(status, 74)
    check.matches(out, "absent.lua:1: " .. expected)
    check.falsy(out:find "work")
  end
end)

test("shapes depend only on n, size and seed, and every class is as frequent", function()
  local train, held_out = datasets.shapes(50)
  check.equal({ train.x:shape(), held_out.x:shape(), train.x:dtype(), train.y:dtype() },
    { { 50, 32, 32, 3 }, { 10, 32, 32, 3 }, "uint8", "int32" })
  check.equal(train.y:one_hot(10):sum(1), mgpu.full({ 10 }, 5))
  check.truthy(train.x:eq((datasets.shapes(50)).x):all():item())
  check.falsy(train.x:eq((datasets.shapes(50, { seed = 1 })).x):all():item())
  check.equal((datasets.shapes(10, { size = 17 })).x:shape(), { 10, 17, 17, 3 })
  -- the bytes of every machine: only operations that IEEE 754 rounds exactly are used
  check.equal(train.x:cast "float64":sum():item(), 19426660)
end)

test("wrong arguments of shapes are errors", function()
  local function refused(expected, fn, ...)
    local given = { ... }
    check.raises(function() fn(unpack(given)) end, expected, "usage")
  end
  local shapes = datasets.shapes
  refused("shapes: the number of images must be a whole number from 1 to 699050, got 0", shapes, 0)
  refused("whole number from 1 to 10922, got 20000", shapes, 20000, { size = 256 })
  refused('shapes: option "size" must be at least 16, got 8', shapes, 5, { size = 8 })
  refused('shapes: option "seed" must be a whole number, got 0.5', shapes, 5, { seed = 0.5 })
  refused("shapes.write_cifar: 5 files need at least 5 images, got 4", shapes.write_cifar, check.path "x", 4)
  refused("shapes.write_cifar: the folder must be a path, got nil", shapes.write_cifar)
end)

-- ---- learning -----------------------------------------------------------------------------------

local function scaled(set) return set.x:to "float32" / 127.5 - 1, set.y end

local function compiled(model, devices, optimizer)
  model:compile { optimizer = optimizer, loss = "sparse_categorical_crossentropy", metrics = "accuracy",
    devices = devices }
  return model
end

local FOUR = { "cpu:0", "cpu:1", "cpu:2", "cpu:3" }

test("the first steps of cifar10_cnn on shapes are the same on one and on four devices, dropout included", function()
  local set, losses = datasets.shapes(60), {}
  -- in float64: in float32 RMSprop turns the sign of a gradient that is almost 0 into a step of its full size
  mgpu.set_floatx "float64"
  local ok, message = pcall(function()
    for i, devices in ipairs { "cpu:0", FOUR } do
      mgpu.seed(5)
      losses[i] = compiled(mgpu.models.cifar10_cnn {}, devices, "rmsprop"):fit(set.x:to "float64" / 127.5 - 1, set.y,
        { batch_size = 20, epochs = 2, verbose = 0 }).history.loss
    end
  end)
  mgpu.set_floatx "float32"
  check.truthy(ok, message)
  check.near(losses[2], losses[1], 1e-10) -- gradients are summed in another order
end)

-- Small images and Adam, so that seconds of training are enough; other seeds give 0.94 to 0.97.
test("cifar10_cnn reaches 0.9 on shapes in five epochs, on one device and on four; linear models do not", function()
  check.slow()
  local size = 20
  local train, held_out = datasets.shapes(3000, { seed = 1, size = size })
  local x, y = scaled(train)
  local test_x, test_y = scaled(held_out)
  local function accuracy(model)
    model:fit(x, y, { batch_size = 32, epochs = 5, verbose = 0 })
    return model:evaluate(test_x, test_y, { verbose = 0 }).accuracy
  end
  for _, devices in ipairs { "cpu:0", FOUR } do
    mgpu.seed(1)
    local model = mgpu.models.cifar10_cnn { input_shape = { size, size, 3 } }
    local reached = accuracy(compiled(model, devices, "adam"))
    check.truthy(reached >= 0.9, "an accuracy of 0.9, not " .. reached)
  end
  local L = mgpu.layers
  local linear = mgpu.Sequential { L.Input { size, size, 3 }, L.Flatten {}, L.Dense { 10, activation = "softmax" } }
  check.truthy(accuracy(compiled(linear, nil, "adam")) < 0.3, "no linear problem")
end)
