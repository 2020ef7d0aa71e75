-- PNG files with 16 bits a sample. golden/images16 was written and read by golden/make_images16.py.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local image = mgpu.image

check.needs(check.program:match "^(.*)/[^/]*$" .. "/mgpu-image.so")

local FOLDERS = { ["16"] = "tests/golden/images16/", ["8"] = "tests/golden/images/" }
local GRAY = FOLDERS["16"] .. "gray.png"

-- A new folder with two classes, each of one file of golden/images16.
local function two_classes()
  local top = check.path "classes"
  for class, name in pairs { a = "gray", b = "rgb" } do
    core.make_folder(top .. "/" .. class)
    check.write(("%s/%s/1.png"):format(top, class), check.read(FOLDERS["16"] .. name .. ".png"))
  end
  return top
end

test("all 16 bits of every kind of PNG file are those that TensorFlow reads", function()
  local expected, n = core.store_load(FOLDERS["16"] .. "expected.npz"), 0
  for key, wanted in pairs(expected) do
    local bits, name, channels = key:match "^(%d+)/(.*)/(%d)$"
    channels = channels ~= "0" and tonumber(channels) or nil
    local path = FOLDERS[bits] .. name
    local got = image.load(path, { dtype = "int32", channels = channels })
    check.equal(got:dtype(), "int32")
    check.equal(got, wanted:totable(), key)
    -- one rounding of a division
    check.near(image.decode(check.read(path), { dtype = "float32", channels = channels }), wanted:to "float32" / 65535,
      1e-7)
    n = n + 1
  end
  check.equal(n, 41)
end)

test("without a dtype the pixels are rounded to 8 bits", function()
  local wide, got = image.load(GRAY, { dtype = "int32" }), image.load(GRAY)
  check.equal(got:dtype(), "uint8")
  check.equal(got, (wide:to "float32" / 257 + 0.5):floor():to "uint8":totable())
end)

test("a sample of 8 bits fills the range of 16 bits, in JPEG files too", function()
  for _, name in ipairs { "rgb.jpg", "gray.jpg", "rgb.png" } do
    local path = FOLDERS["8"] .. name
    check.equal(image.load(path, { dtype = "int32" }), (image.load(path):to "int32" * 257):totable())
  end
end)

test("PNG files of 16 bits are written from whole numbers and from floats", function()
  for _, c in ipairs { 1, 3, 4 } do
    local x = mgpu.randint(0, 65536, { 5, 7, c }, { dtype = "int32" })
    local path = check.path("wide" .. c .. ".png")
    image.save(path, x, { bits = 16 })
    check.equal(image.load(path, { dtype = "int32" }), x:totable())
    check.equal(image.decode(image.encode_png(x:to "float64" / 65535, { bits = 16 }), { dtype = "int32" }), x:totable())
  end
  local two = mgpu.tensor({ { { { 1000 } } }, { { { 65535 } } } }, { dtype = "int32" })
  check.equal(image.decode(image.encode_png(two, { bits = 16, padding = 1 }), { dtype = "int32" }):reshape { 3, 5 },
    { { 0, 0, 0, 0, 0 }, { 0, 1000, 0, 65535, 0 }, { 0, 0, 0, 0, 0 } })
  check.equal(image.grid(two, { bits = 16, padding = 0 }):dtype(), "int32")
end)

test("an image folder gives all 16 bits, resized and not", function()
  local top = two_classes()
  local wide = image.load(GRAY, { dtype = "int32", channels = 3 })
  local x = mgpu.data.image_folder(top, { bits = 16 }):iter()()
  check.equal(x:dtype(), "int32")
  check.equal(x, wide:totable())
  x = mgpu.data.image_folder(top, { bits = 16, size = { 10, 14 }, interpolation = "nearest" }):iter()()
  check.equal({ x:dtype(), x:shape() }, { "int32", { 10, 14, 3 } })
  check.equal(x:slice { { 1, 10, 2 }, { 1, 14, 2 } }, wide:totable())
  x = mgpu.data.image_folder(top, { bits = 16, size = { 10, 14 } }):batch(2):iter()()
  check.equal(x:dtype(), "float32")
  -- both interpolate in float32, and values up to 65535 have roundings of 0.004
  check.near(x[1], image.resize(wide, { 10, 14, dtype = "float32" }), 1e-6)
  x = mgpu.data.image_folder(top, { size = { 5, 7 } }):iter()()
  check.equal(x, image.load(GRAY, { channels = 3 }):to "float32":totable())
end)

test("a crop reads the same 16 bits as the whole image has", function()
  local top = check.path "crops"
  for name, size in pairs { ["rgb.jpg"] = { 6, 5 }, ["gray.png"] = { 4, 9 } } do
    core.make_folder(top .. "/a")
    check.write(top .. "/a/" .. name, check.read(FOLDERS["8"] .. name))
    local x = mgpu.data.image_folder(top, { bits = 16 }):augment { center_crop = size }:iter()()
    local whole = image.load(FOLDERS["8"] .. name, { dtype = "int32", channels = 3 })
    local row, column = math.floor((11 - size[1]) / 2), math.floor((13 - size[2]) / 2)
    check.equal(x, whole:slice { { row + 1, row + size[1] }, { column + 1, column + size[2] } }:totable())
    os.remove(top .. "/a/" .. name)
  end
end)

test("what cannot be done with 16 bits is refused", function()
  local x, top = mgpu.zeros({ 2, 2 }, { dtype = "int32" }), two_classes()
  local function refused(expected, fn, ...)
    local given = { ... }
    check.raises(function() fn(unpack(given, 1, 3)) end, expected, "usage")
  end
  refused('unknown option "bits"', image.save, check.path "x.jpg", x, { bits = 16 })
  refused('option "bits": unknown value 12', image.encode_png, x, { bits = 12 })
  refused("the pixels are int32: give uint8 (0 to 255) or floats (0 to 1), as with x:to \"uint8\"; bits = 16",
    image.encode_png, x)
  refused("the pixels are uint8: give int32 (0 to 65535)", image.encode_png, x:to "uint8", { bits = 16 })
  refused("from 0 to 65535, got values from 0 to 70000", image.encode_png,
    mgpu.tensor({ { 0, 70000 } }, { dtype = "int32" }), { bits = 16 })
  refused("floating pixels must be from 0 to 1, got values from 300 to 300", image.encode_png, mgpu.full({ 2, 2 }, 300),
    { bits = 16 })
  refused('option "dtype": unknown value "uint16"', image.load, GRAY, { dtype = "uint16" })
  refused('images of 16 bits are resized to "float32" or "int32", not "uint8"', mgpu.data.image_folder, top,
    { bits = 16, size = 8, dtype = "uint8" })
  refused('images of 8 bits are resized to "float32" or "uint8", not "int32"', mgpu.data.image_folder, top,
    { size = 8, dtype = "int32" })
  refused('int32 pixels are resized with interpolation = "nearest" only', mgpu.data.image_folder, top,
    { bits = 16, size = 8, dtype = "int32" })
end)

test("a file of 16 bits that is cut anywhere is refused, and the limit counts bytes", function()
  for _, name in ipairs { "rgba.png", "gray_interlaced.png" } do
    local bytes = check.read(FOLDERS["16"] .. name)
    for n = 0, #bytes - 1 do
      check.raises(function() image.decode(bytes:sub(1, n), { dtype = "int32" }) end, ".", "data")
    end
  end
  -- JPEG's header has no checksum: 16000 x 12000 gray pixels are below 256 MiB with 8 bits only
  local jpeg = check.read(FOLDERS["8"] .. "gray.jpg")
  local at = assert(jpeg:find("\255\192", 1, true)) + 5
  local claims = jpeg:sub(1, at - 1) .. string.char(62, 128, 46, 224) .. jpeg:sub(at + 4)
  check.raises(function() image.decode(claims) end, "too few for an image", "data")
  check.raises(function() image.decode(claims, { dtype = "int32" }) end, "beyond the limits", "unsupported")
end)
