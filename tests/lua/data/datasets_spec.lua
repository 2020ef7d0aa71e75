-- Data sets: the folders that are searched, their contents, and the error when one is missing.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local datasets = mgpu.datasets

-- An IDX file's bytes.
local function idx(shape, bytes)
  local parts = { string.char(0, 0, 8, #shape) }
  for _, n in ipairs(shape) do
    parts[#parts + 1] = string.char(0, 0, math.floor(n / 256), n % 256)
  end
  return table.concat(parts) .. bytes
end

-- Makes a folder `name` with a tiny data set that has the given numbers of labels.
local function make_set(name, train_labels)
  local folder = check.path(name)
  os.execute("mkdir -p '" .. folder .. "/mnist'")
  local function write(file, bytes) check.write(folder .. "/mnist/" .. file, bytes) end
  write("train-images-idx3-ubyte", idx({ 2, 2, 2 }, "\0\1\2\3\4\5\6\255"))
  write("train-labels-idx1-ubyte", idx({ train_labels }, ("\7"):rep(train_labels)))
  write("t10k-images.idx3-ubyte", idx({ 1, 2, 2 }, "\9\9\9\9"))
  write("t10k-labels.idx1-ubyte", idx({ 1 }, "\3"))
  return folder
end

-- Runs code in a new process with MGPU_DATA and HOME set; returns its output and exit status.
local function run(data, code)
  local script = check.path "script.lua"
  check.write(script, code)
  return check.run(("MGPU_DATA='%s' HOME='%s' %s %s"):format(data, check.path "home", check.program,
    script))
end

local SHOW = [[
  local mgpu = require "mgpu"
  local train, test = mgpu.datasets.mnist.load_data()
  local x, y = unpack(train)
  print(x:dtype(), table.concat(x:shape(), "x"), x:totable()[2][2][2], y:dtype(), y:totable()[2])
  print(test.x:totable()[1][1][1], test.y:totable()[1], train.classes, train.name)
]]

test("MGPU_DATA is searched first, for both spellings of the file names", function()
  local out, status = run(make_set("data", 2), SHOW)
  check.matches(out, "uint8\t2x2x2\t255\tint32\t7\n9\t3\t10\tmnist")
  check.equal(status, 0)
end)

test("MGPU_DATA can be the folder of the data set itself", function()
  local out = run(make_set("own", 2) .. "/mnist", SHOW)
  check.matches(out, "uint8\t2x2x2")
end)

test("different numbers of images and labels are an error", function()
  local out, status = run(make_set("mixed", 3), SHOW)
  check.matches(out, "they do not belong together")
  check.equal(status, 1)
end)

test("the error about a missing data set names its files, and the folder for them", function()
  local out, status = run(check.path "nothing", [[
    local mgpu = require "mgpu"
    print(pcall(mgpu.datasets.mnist.load_data))
    print(mgpu.error_code())
  ]])
  check.equal(status, 0)
  if out:find "^true" then check.skip "MNIST is installed on this machine" end
  check.matches(out, "mnist: cannot download it %(.*%): put train%-images%-idx3%-ubyte, train%-labels%-idx1%-ubyte, ")
  check.matches(out, "into .*/nothing/mnist\nio\n")
end)

test("the Fashion-MNIST of the Debian package is found", function()
  check.needs "/usr/share/datasets/fashion-mnist"
  local train, held_out = datasets.fashion_mnist.load_data()
  check.equal(train.x:shape(), { 60000, 28, 28 })
  check.equal(held_out.y:shape(), { 10000 })
  check.equal(train.x:dtype(), "uint8")
  check.equal(train.y:dtype(), "int32")
  check.equal(train.y:slice({ { 1, 10 } }):totable(), { 9, 0, 0, 3, 0, 2, 7, 2, 5, 5 })
end)

test("drawn digits depend only on n and the seed", function()
  local train, held_out = datasets.digits(50)
  check.equal(train.x:shape(), { 50, 28, 28 })
  check.equal(held_out.x:shape(), { 10, 28, 28 })
  check.equal(train.x:dtype(), "uint8")
  check.equal(train.y:dtype(), "int32")
  check.equal(train.x:totable(), (datasets.digits(50)).x:totable())
  check.falsy(mgpu.all(mgpu.eq(train.x, (datasets.digits(50, 1)).x)):item(), "the same images")
  local x, y = unpack(train)
  check.truthy(x == train.x and y == train.y)
end)

test("a wrong number of digits is an error", function()
  check.raises(function() datasets.digits(0) end, "a whole number >= 1", "usage")
  check.raises(function() datasets.digits(10, -1) end, "the seed", "usage")
end)

test("an unknown data set is an error with the nearest name", function()
  check.raises(function() return datasets.mnits end, "mnist", "usage")
end)
