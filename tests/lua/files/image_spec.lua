-- PNG and JPEG images. golden/images was written by Pillow (golden/make_images.py).

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test
local image = mgpu.image

local BUILD = check.program:match "^(.*)/[^/]*$" -- the folder of the build that is tested
check.needs(BUILD .. "/mgpu-image.so")

local FOLDER = "tests/golden/images/"
local PNG = { "gray", "rgb", "rgba", "palette", "palette_alpha", "gray_alpha", "one_bit", "gray16", "interlaced" }
local JPEG = { "rgb", "progressive", "gray" }

-- The CRC-32 of a string as four bytes.
local function crc32(text)
  local crc = bit.bnot(0)
  for i = 1, #text do
    crc = bit.bxor(crc, text:byte(i))
    for _ = 1, 8 do crc = bit.bxor(bit.rshift(crc, 1), bit.band(crc, 1) * 0xedb88320) end
  end
  crc = bit.bnot(crc)
  return string.char(bit.rshift(crc, 24), bit.band(bit.rshift(crc, 16), 255), bit.band(bit.rshift(crc, 8), 255),
    bit.band(crc, 255))
end

local function bytes_of(name) return check.read(FOLDER .. name) end

test("PNG files of every kind have the pixels that Pillow reads", function()
  local expected = core.store_load(FOLDER .. "expected.npz")
  for _, name in ipairs(PNG) do
    local got = image.load(FOLDER .. name .. ".png")
    check.equal(got:dtype(), "uint8")
    check.equal(got:shape(), expected[name .. ".png"]:shape())
    check.equal(got, expected[name .. ".png"]:totable())
  end
end)

test("JPEG files have the pixels that Pillow reads, up to rounding", function()
  local expected = core.store_load(FOLDER .. "expected.npz")
  for _, name in ipairs(JPEG) do
    local got, wanted = image.load(FOLDER .. name .. ".jpg"), expected[name .. ".jpg"]
    check.equal(got:shape(), wanted:shape())
    -- two versions of libjpeg may round differently
    check.truthy((got:to "int32" - wanted:to "int32"):abs():max():item() <= 1, name)
  end
end)

test("channels converts between gray, color and alpha", function()
  local rgba = image.load(FOLDER .. "rgba.png")
  check.equal(image.load(FOLDER .. "rgba.png", { channels = 3 }), rgba:slice { {}, {}, { 1, 3 } }:totable())
  local gray = image.load(FOLDER .. "gray.png")
  local as_rgba = image.load(FOLDER .. "gray.png", { channels = 4 })
  for c = 1, 3 do check.equal(as_rgba:slice { {}, {}, { c, c } }, gray:totable()) end
  check.equal(as_rgba:slice { {}, {}, 4 }:min():item(), 255)
  local weights = mgpu.tensor { 0.299, 0.587, 0.114 }
  for _, name in ipairs { "rgb.png", "rgba.png", "rgb.jpg", "palette.png" } do
    local rgb = image.load(FOLDER .. name, { channels = 3 }):to "float32"
    local one = image.load(FOLDER .. name, { channels = 1 })
    check.equal(one:shape(), { 11, 13, 1 })
    local off = (one:reshape { 11, 13 }:to "float32" - (rgb * weights):sum(3)):abs():max():item()
    check.truthy(off <= (name:find "jpg" and 3 or 1.02), name .. " is off by " .. off) -- libpng rounds down
  end
  check.raises(function() image.load(FOLDER .. "rgb.png", { channels = 2 }) end, 'option "channels": unknown value 2')
end)

test("what was saved is loaded again, for each shape and dtype", function()
  mgpu.seed(1)
  for c, shape in pairs { [1] = { 5, 7, 1 }, [3] = { 5, 7, 3 }, [4] = { 5, 7, 4 } } do
    local x = (mgpu.rand(shape) * 255):to "uint8"
    local path = check.path("c" .. c .. ".png")
    image.save(path, x)
    check.equal(image.load(path), x:totable())
    check.equal(image.decode(image.encode_png(x)), x:totable())
    check.equal(image.decode(image.encode_png(x:to "float32" / 255)), x:totable())
    check.equal(image.decode(image.encode_png(x:to "float64" / 255)), x:totable())
  end
  local flat = (mgpu.rand { 5, 7 } * 255):to "uint8"
  check.equal(image.decode(image.encode_png(flat)):reshape { 5, 7 }, flat:totable())
  check.equal(image.decode(image.encode_png(mgpu.ones { 1, 2 })):reshape { 2 }, { 255, 255 })
end)

test("JPEG keeps a smooth image nearly, and better with more quality", function()
  local x = image.load(FOLDER .. "rgb.png")
  local function off(quality)
    local path = check.path "x.jpeg"
    image.save(path, x, { quality = quality })
    return (image.load(path):to "float32" - x:to "float32"):abs():mean():item()
  end
  check.truthy(off(95) < 1.5)
  check.truthy(off(10) > 2 * off(95))
  check.equal(image.decode(image.encode_jpeg(x)), image.decode(image.encode_jpeg(x, { quality = 95 })):totable())
  check.raises(function() image.save(check.path "a.jpg", mgpu.ones { 2, 2, 4 }) end, "no alpha", "usage")
end)

test("a batch is saved as a grid", function()
  local x = mgpu.tensor({ { { { 1 } } }, { { { 2 } } }, { { { 3 } } } }, { dtype = "uint8" })
  check.equal(image.decode(image.encode_png(x, { padding = 1 })):reshape { 5, 5 },
    { { 0, 0, 0, 0, 0 }, { 0, 1, 0, 2, 0 }, { 0, 0, 0, 0, 0 }, { 0, 3, 0, 0, 0 }, { 0, 0, 0, 0, 0 } })
  check.equal(image.decode(image.encode_png(x, { padding = 0, columns = 9 })):reshape { 3 }, { 1, 2, 3 })
  check.equal(image.decode(image.encode_png(mgpu.zeros { 6, 28, 28 })):shape(), { 2 * 30 + 2, 3 * 30 + 2, 1 })
  check.equal(image.decode(image.encode_png(mgpu.zeros { 2, 5, 6, 3 }, { columns = 1 })):shape(), { 16, 10, 3 })
end)

test("wrong calls are refused before any work", function()
  local x = mgpu.ones { 2, 2 }
  local function refused(expected, fn, ...)
    local given = { ... }
    check.raises(function() fn(unpack(given, 1, 3)) end, expected, "usage")
  end
  refused("the ending must be .png, .jpg or .jpeg", image.save, check.path "x.gif", x)
  refused("the path comes first", image.save, x, check.path "x.png")
  refused("must be a tensor, got a nil", image.save, check.path "x.png")
  refused('unknown option "qualty"', image.save, check.path "x.jpg", x, { qualty = 3 })
  refused('unknown option "quality"', image.save, check.path "x.png", x, { quality = 3 })
  refused("must be at most 100", image.encode_jpeg, x, { quality = 101 })
  refused("is not an image", image.encode_png, mgpu.ones { 2 })
  refused("is not an image", image.encode_png, mgpu.ones { 2, 2, 2, 2 })
  refused("has no pixels", image.encode_png, mgpu.ones { 0, 3 })
  refused("the pixels are int32", image.encode_png, x:to "int32")
  refused("from 0 to 1, got values from 255 to 255 (x / 255", image.encode_png, x * 255)
  refused("got values from -1", image.encode_png, x * -1)
  refused("got values from", image.encode_png, x * (0 / 0))
  refused("bytes must be a string", image.decode, x)
  check.raises(function() return image.laod end, 'mgpu.image has no "laod" (did you mean "load"?)', "usage")
  check.raises(function() image.load(check.path "none.png") end, "cannot open", "io")
  check.raises(function() image.save(check.path "none/x.png", x) end, "image.save: cannot write to the folder .*none",
    "io")
  check.falsy(core.file_exists(check.path "x.gif"))
end)

test("a file cut anywhere is refused", function()
  local path = check.path "cut"
  for _, name in ipairs { "rgb.png", "palette_alpha.png", "interlaced.png", "rgb.jpg", "progressive.jpg" } do
    local bytes = bytes_of(name)
    for n = 0, #bytes - 1 do
      check.raises(function() image.decode(bytes:sub(1, n)) end, ".", "data")
    end
    check.write(path, bytes:sub(1, -10))
    check.raises(function() image.load(path) end, path, "data")
  end
end)

test("a JPEG file that ends before its image has no size", function()
  local bytes = bytes_of "rgb.jpg"
  for _, n in ipairs { 3, 20, 100 } do
    check.raises(function() image.decode(bytes:sub(1, n)) end, "JPEG: the file is truncated, or has no image", "data")
  end
end)

test("a changed byte of a PNG file is an error or changes nothing", function()
  local bytes = bytes_of "palette_alpha.png"
  local pixels = image.decode(bytes):totable()
  for at = 1, #bytes do
    local changed = bytes:sub(1, at - 1) .. string.char((bytes:byte(at) + 129) % 256) .. bytes:sub(at + 1)
    local ok, got = pcall(image.decode, changed)
    if ok then check.equal(got, pixels) end -- in the name of an unused chunk, say
  end
end)

test("sizes that the file cannot hold, or beyond the limits, take no memory", function()
  local function big_endian(n) return string.char(0, 0, math.floor(n / 256), n % 256) end
  local bytes = bytes_of "rgb.png"
  local function claims(width, height)
    local header = "IHDR" .. big_endian(width) .. big_endian(height) .. bytes:sub(25, 29)
    return bytes:sub(1, 12) .. header .. crc32(header) .. bytes:sub(34)
  end
  -- the header of JPEG has no checksum
  local jpeg = bytes_of "rgb.jpg"
  local at = assert(jpeg:find("\255\192", 1, true)) + 5
  local function jpeg_claims(width, height)
    return jpeg:sub(1, at - 1) .. big_endian(height):sub(3) .. big_endian(width):sub(3) .. jpeg:sub(at + 4)
  end
  check.raises(function() image.decode(jpeg_claims(65000, 4000)) end, "65000 x 4000, beyond the limits", "unsupported")
  check.raises(function() image.decode(jpeg_claims(8000, 8000)) end, "too few for an image of 8000 x 8000", "data")
  check.raises(function() image.decode(jpeg_claims(100, 100)) end, "JPEG", "data")
  check.raises(function() image.decode(jpeg_claims(0, 100)) end, "JPEG", "data")
  check.equal(image.decode(claims(13, 11)), image.load(FOLDER .. "rgb.png"):totable())
  check.raises(function() image.decode(claims(40000, 40000)) end, "40000 x 40000, beyond the limits", "unsupported")
  check.raises(function() image.decode(claims(9000, 9000)) end, "too few for an image of 9000 x 9000", "data")
  check.raises(function() image.decode(claims(13, 12)) end, "PNG", "data")
  check.raises(function() image.decode(claims(0, 5)) end, "PNG", "data")
end)

test("a failing disk leaves the old file, or none, or the whole new one", function()
  local x, path = mgpu.ones { 4, 4 }, check.path "x.png"
  local whole, failures = image.encode_png(x), 0
  for _, old in ipairs { false, "old" } do
    for _, fault in ipairs { "EIO", "ENOSPC" } do
      for at = 1, 40 do
        os.remove(path)
        if old then check.write(path, old) end
        core.file_fault { at = at, error = fault }
        local ok, message = pcall(image.save, path, x)
        if not core.file_fault() then break end
        local now = core.file_exists(path) and check.read(path)
        if ok then check.truthy(now == whole, "a fault was not reported") end
        check.truthy(now == old or now == whole, "a part of a file")
        if not ok then
          failures = failures + 1
          check.matches(message, check.path "":gsub("/$", ""):gsub("%p", "%%%0")) -- names the file or its folder
        end
      end
    end
  end
  check.truthy(failures > 12, failures .. " failures")
  for at = 1, 40 do
    core.file_fault { at = at, error = "EIO" }
    local ok, message = pcall(image.load, FOLDER .. "rgb.png")
    if not core.file_fault() then break end
    check.falsy(ok)
    check.matches(message, "rgb.png")
  end
end)

test("without the plug-in the error names the packages", function()
  local bare = check.path "bare"
  local output, status = check.run(("mkdir '%s' && cp %s/libmgpu.so.0 %s/mgpulua '%s' && "
    .. "LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua' '%s/mgpulua' "
    .. "-e 'require [[mgpu]].image.encode_png(require [[mgpu]].ones{2,2})' 2>&1")
    :format(bare, BUILD, BUILD, bare, core.root, core.root, bare))
  check.truthy(status ~= 0, output)
  check.matches(output, "libpng%-dev and libjpeg%-dev")
end)
