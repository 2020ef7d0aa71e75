-- BMP, GIF and WebP files, and JPEG files in CMYK colors. golden/image_formats was written and read by Pillow
-- (golden/make_image_formats.py).

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local image = mgpu.image

local BUILD = check.program:match "^(.*)/[^/]*$" -- the folder of the build that is tested
local FOLDER = "tests/golden/image_formats/"
local BMP = { "rgb", "gray", "palette", "one_bit", "rgba", "four_bits", "core", "top_down", "five", "six",
  "unused_byte", "alpha", "rle8", "rle4" }
local GIF = { "palette", "own_palette", "interlaced", "transparent", "gray", "animated", "part" }
local WEBP = { "lossy", "lossless", "alpha", "lossy_alpha" }
local CMYK = { "cmyk", "progressive_cmyk", "ycck" }
-- Libraries of other versions may round differently: libjpeg by 1, which CMYK doubles, and lossy WebP.
local MAY_DIFFER = { ["lossy.webp"] = 2, ["lossy_alpha.webp"] = 2, ["cmyk.jpg"] = 2, ["progressive_cmyk.jpg"] = 2,
  ["ycck.jpg"] = 4 }

local function bytes_of(name) return check.read(FOLDER .. name) end

-- Whether the decoder of an ending was built; BMP needs none.
local function has(ending)
  local plugin = ({ gif = "gif", webp = "webp", jpg = "image", png = "image" })[ending]
  return not plugin or core.file_exists(("%s/mgpu-%s.so"):format(BUILD, plugin))
end

-- fn(name) for each file of the list.
local function each(list, ending, fn)
  local plugin = ({ gif = "/mgpu-gif.so", webp = "/mgpu-webp.so", jpg = "/mgpu-image.so" })[ending]
  if plugin then check.needs(BUILD .. plugin) end
  for _, name in ipairs(list) do fn(("%s.%s"):format(name, ending)) end
end

-- The file has the pixels that Pillow reads.
local function same_as_pillow(name)
  local expected, n = core.store_load(FOLDER .. "expected.npz"), 0
  for _, channels in ipairs { 3, 4 } do
    local wanted = expected[("%s/%d"):format(name, channels)]
    if wanted then
      local got = image.load(FOLDER .. name, { channels = channels })
      check.equal({ got:dtype(), got:shape() }, { "uint8", { 7, 9, channels } })
      local off = (got:to "int32" - wanted:to "int32"):abs():max():item()
      check.truthy(off <= (MAY_DIFFER[name] or 0), ("%s, %d channels: off by %d"):format(name, channels, off))
      n = n + 1
    end
  end
  check.truthy(n > 0, name)
  local alpha = expected[name .. "/4"] ~= nil
  check.equal(image.load(FOLDER .. name):shape(), { 7, 9, alpha and 4 or 3 })
end

test("BMP files of every kind have the pixels that Pillow reads", function() each(BMP, "bmp", same_as_pillow) end)
test("GIF files have the first image that Pillow reads", function() each(GIF, "gif", same_as_pillow) end)
test("WebP files, lossy and lossless, are read as by Pillow", function() each(WEBP, "webp", same_as_pillow) end)
test("CMYK colors of JPEG files become RGB as in Pillow", function() each(CMYK, "jpg", same_as_pillow) end)

test("channels and bits are converted as for other formats", function()
  for _, name in ipairs { "rgb.bmp", "palette.gif", "lossless.webp", "cmyk.jpg" } do
    if has(name:match "%a+$") then
      local rgb = image.load(FOLDER .. name, { channels = 3 })
      local gray = (rgb:to "float32" * mgpu.tensor { 0.299, 0.587, 0.114 }):sum(3)
      local off = (image.load(FOLDER .. name, { channels = 1 }):reshape { 7, 9 }:to "float32" - gray):abs():max():item()
      check.truthy(off <= 0.51, name .. ": gray is off by " .. off) -- rounded
      local rgba = image.load(FOLDER .. name, { channels = 4 })
      check.equal(rgba:slice { {}, {}, { 1, 3 } }, rgb:totable())
      check.equal(rgba:slice { {}, {}, 4 }:min():item(), 255)
      check.equal(image.load(FOLDER .. name, { dtype = "int32" }), (rgb:to "int32" * 257):totable())
    end
  end
end)

test("a crop of a CMYK file reads the pixels of the whole image", function()
  each(CMYK, "jpg", function(name)
    local top = check.path(name)
    core.make_folder(top .. "/a")
    check.write(top .. "/a/1.jpg", bytes_of(name))
    local x = mgpu.data.image_folder(top):augment { center_crop = { 3, 5 } }:iter()()
    check.equal(x, image.load(FOLDER .. name):slice { { 3, 5 }, { 3, 7 } }:totable())
  end)
end)

-- The number of bytes up to the end of the first image of a GIF file: its blocks end with an empty one.
local function first_image_end(bytes)
  local function skip_blocks(at)
    while bytes:byte(at) > 0 do at = at + 1 + bytes:byte(at) end
    return at + 1
  end
  local flags = bytes:byte(11)
  local at = 14 + (flags >= 128 and 3 * 2 ^ (flags % 8 + 1) or 0)
  while bytes:byte(at) == 0x21 do at = skip_blocks(at + 2) end
  local own = bytes:byte(at + 9)
  return skip_blocks(at + 10 + (own >= 128 and 3 * 2 ^ (own % 8 + 1) or 0) + 1) - 1
end

test("a file cut anywhere is refused", function()
  local path = check.path "cut"
  for ending, list in pairs { bmp = BMP, gif = GIF, webp = WEBP, jpg = { "cmyk", "ycck" } } do
    for _, name in ipairs(has(ending) and list or {}) do
      local bytes = bytes_of(name .. "." .. ending)
      -- giflib needs not the bytes behind the last pixel
      local last = ending == "gif" and first_image_end(bytes) - 3 or #bytes - 1
      for n = 0, last do
        local ok = pcall(image.decode, bytes:sub(1, n))
        check.truthy(not ok, ("%s.%s: %d of %d bytes"):format(name, ending, n, #bytes))
        check.equal(core.error_code(), "data")
      end
      check.write(path, bytes:sub(1, math.floor(last / 2)))
      check.raises(function() image.load(path) end, path, "data")
    end
  end
end)

test("a changed byte gives an error or an image of the same size", function()
  for _, name in ipairs { "alpha.bmp", "rle8.bmp", "rle4.bmp", "core.bmp", "transparent.gif", "interlaced.gif",
    "lossy_alpha.webp", "lossless.webp", "ycck.jpg" } do
    local bytes = has(name:match "%a+$") and bytes_of(name) or ""
    for at = 1, #bytes do
      for _, by in ipairs { 1, 128, 255 } do
        local changed = bytes:sub(1, at - 1) .. string.char((bytes:byte(at) + by) % 256) .. bytes:sub(at + 1)
        local ok, got = pcall(image.decode, changed)
        if not ok then
          check.truthy(core.error_code() == "data" or core.error_code() == "unsupported", got)
        else
          check.truthy(got:count() < 2 ^ 24, name)
        end
      end
    end
  end
end)

-- ---- sizes and other numbers in headers ---------------------------------------------------------

local function little_endian(n, size)
  local text = ""
  for _ = 1, size do
    text, n = text .. string.char(n % 256), math.floor(n / 256)
  end
  return text
end

-- The bytes with a number of `size` bytes in place of those at the offset.
local function with(bytes, offset, size, n)
  return bytes:sub(1, offset) .. little_endian(n % 256 ^ size, size) .. bytes:sub(offset + size + 1)
end

local function refused(bytes, expected, code)
  check.raises(function() image.decode(bytes) end, expected, code or "data")
end

test("what a BMP header says is checked before memory is taken", function()
  local rgb, rle, alpha = bytes_of "rgb.bmp", bytes_of "rle8.bmp", bytes_of "alpha.bmp"
  refused(with(with(rgb, 18, 4, 40000), 22, 4, 40000), "40000 x 40000, beyond the limits", "unsupported")
  refused(with(with(rgb, 18, 4, 9000), 22, 4, 9000), "too few for an image of 9000 x 9000")
  refused(with(rgb, 18, 4, -9), "the image has no pixels: its size is %-9 x 7")
  refused(with(rgb, 18, 4, 0), "the image has no pixels")
  refused(with(rgb, 22, 4, 0), "the image has no pixels")
  refused(with(rgb, 22, 4, -2 ^ 31), "beyond the limits", "unsupported")
  refused(with(rgb, 22, 4, 8), "BMP: the file is truncated")
  refused(with(rgb, 10, 4, 2 ^ 32 - 1), "BMP: the file is truncated")
  refused(with(rgb, 28, 2, 5), "pixels of 5 bits with compression 0 are not known", "unsupported")
  refused(with(rgb, 30, 4, 4), "pixels of 24 bits with compression 4 are not known", "unsupported")
  refused(with(rgb, 30, 4, 1), "pixels of 24 bits with compression 1 are not known", "unsupported")
  refused(with(rle, 22, 4, -7), "pixels of 8 bits with compression 1 are not known", "unsupported")
  refused(with(rle, 46, 4, 3), "BMP: a pixel has color %d+ of a palette of 3")
  refused(with(bytes_of "four_bits.bmp", 46, 4, 3), "BMP: a pixel has color %d+ of a palette of 3")
  refused(with(with(rle, 18, 4, 16000), 22, 4, 5000), "too few for an image of 16000 x 5000")
  refused(with(alpha, 54, 4, 0xf0f00000), "the bits of a color are not side by side", "unsupported")
  refused(with(bytes_of "six.bmp", 54, 4, 0xff0000), "the bits of a color are not side by side", "unsupported")
  -- masks of four colors behind a short header
  check.equal(image.decode(with(with(alpha, 14, 4, 40), 30, 4, 6)), image.decode(alpha):totable())
  -- two bits a pixel, in rows of 4 bytes: 0 1 2 3, 3 2 1 0, 1
  local two = with(bytes_of "four_bits.bmp", 28, 2, 2):sub(1, 106) .. ("\27\228\64\0"):rep(7)
  local colors = image.decode(with(bytes_of "four_bits.bmp", 28, 2, 4):sub(1, 106) .. ("\1\35\50\16\16\0\0\0"):rep(7))
  check.equal(image.decode(two), colors:totable())
  -- a palette of more colors than pixels can have is as large as they can
  check.equal(image.decode(with(bytes_of "core.bmp", 14, 4, 12)):shape(), { 7, 9, 3 })
  refused(bytes_of "core.bmp":sub(1, 100), "BMP: the file is truncated")
  refused(alpha:sub(1, 60), "BMP: the file is truncated")
  refused(alpha:sub(1, 20), "BMP: the file is truncated")
  refused(bytes_of "six.bmp":sub(1, 60), "BMP: the file is truncated")
  refused("BM" .. ("x"):rep(100), "not a PNG, JPEG, BMP, GIF or WebP image, by its first bytes")
end)

test("run-length encoded pixels that are left out have color 0", function()
  local rle = bytes_of "rle8.bmp"
  local head, color0 = rle:sub(1, 106), image.decode(rle)[5][5]:totable() -- the jump skips this one
  local function decoded(...) return image.decode(head .. string.char(...)) end
  check.equal(decoded(0, 1), image.decode(head .. ("\9\0\0\0"):rep(7) .. "\0\1"):totable())
  check.equal(decoded(0, 1)[3][4], color0)
  -- the ends of rows without pixels, and of more rows than there are; a run that is longer than the row
  check.equal(decoded(0, 0, 0, 0, 9, 3, 0, 1)[5], decoded(20, 3, 0, 1)[7]:totable())
  check.equal(decoded(unpack({ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 })), decoded(0, 1):totable())
  check.equal(decoded(0, 2, 0, 200, 0, 1), decoded(0, 1):totable())
  check.equal(decoded(0, 2, 8, 6, 1, 3, 0, 1)[1][9], decoded(1, 3, 0, 1)[7][1]:totable())
  refused(head .. string.char(0, 2, 0, 7, 1, 3, 0, 1), "BMP: there are more pixels than rows")
  for _, cut in ipairs { "", "\9", "\0\2\1", "\0\5\1\2\3", "\9\1" } do
    refused(head .. cut, "BMP: the file is truncated")
  end
end)

test("what a GIF header says is checked before memory is taken", function()
  check.needs(BUILD .. "/mgpu-gif.so")
  local gif = bytes_of "palette.gif"
  local at = assert(gif:find(",", 13 + 3 * 16, true)) -- the descriptor of the image, at offset at - 1
  refused(with(with(gif, 6, 2, 65535), 8, 2, 65535), "beyond the limits", "unsupported")
  refused(with(with(gif, 6, 2, 9000), 8, 2, 9000), "too few for an image of 9000 x 9000")
  refused(with(gif, 6, 2, 8), "GIF: the first image is empty, or not within the screen")
  refused(with(gif, 8, 2, 6), "GIF: the first image is empty, or not within the screen")
  refused(with(gif, at, 2, 1), "GIF: the first image is empty, or not within the screen")
  refused(with(gif, at + 4, 2, 0), "GIF: the first image is empty, or not within the screen")
  refused(gif:sub(1, at - 1) .. ";", "GIF: there is no image")
  refused(gif:sub(1, at - 1) .. "x", "GIF: Wrong record type")
  -- without a palette: of the screen, and then of the image
  refused(with(gif, 10, 1, 0):sub(1, 13) .. gif:sub(at), "GIF: the image has no palette")
  refused(gif:sub(1, at + 9) .. "\1", "GIF: ")
  -- a palette of 2 colors only
  local few = gif:sub(1, 10) .. string.char(0xf0) .. gif:sub(12, 13 + 6) .. gif:sub(at)
  refused(few, "GIF: a pixel has color %d+ of a palette of 2")
  -- an extension before the image, which is skipped, and one without an end
  check.equal(image.decode(gif:sub(1, at - 1) .. "!\254\3abc\2de\0" .. gif:sub(at)), image.decode(gif):totable())
  refused(gif:sub(1, at - 1) .. "!\254\3abc\200de", "GIF: the file is truncated: it ends after")
  refused(gif:sub(1, at - 1) .. "!", "GIF: the file is truncated: it ends after")
  refused("GIF89a", "GIF: the file is truncated: it ends after 6 bytes")
end)

test("animations and damaged headers of WebP are refused", function()
  check.needs(BUILD .. "/mgpu-webp.so")
  check.raises(function() image.load(FOLDER .. "animated.webp") end,
    "animated.webp: WebP: the file is an animation: save one image of it", "unsupported")
  local webp = bytes_of "lossless.webp"
  refused("RIFF\20\0\0\0WEBPVP8 ", "WebP: the file is truncated")
  refused("RIFF\12\0\0\0WEBPVP8L\4\0\0\0xxxx", "WebP: the file is ")
  refused(webp:sub(1, 12) .. "ABCD" .. webp:sub(17), "WebP: the file is ")
  refused(with(webp, 4, 4, 2 ^ 32 - 1), "WebP: the file is truncated: it ends after")
  -- 16384 x 16384 pixels of four bytes, in lossless.webp's header
  refused(with(webp, 21, 4, 2 ^ 28 - 1), "beyond the limits", "unsupported")
end)

-- ---- folders and other readers ------------------------------------------------------------------

test("an image folder reads the formats that Keras's does, and WebP if it is asked", function()
  local top = check.path "formats"
  local files = { a = { "rgb.bmp", "palette.gif", "rgba.bmp" }, b = { "transparent.gif", "lossless.webp" } }
  for class, names in pairs(files) do
    core.make_folder(top .. "/" .. class)
    for _, name in ipairs(names) do
      if has(name:match "%a+$") then check.write(("%s/%s/%s"):format(top, class, name), bytes_of(name)) end
    end
  end
  check.write(top .. "/a/x.tif", "")
  local function names_of(ds)
    local list = {}
    for x, y in ds:iter() do list[#list + 1] = y:item() .. ":" .. x:sum():item() end
    return list
  end
  local wanted = {}
  for _, file in ipairs { "0 palette.gif", "0 rgb.bmp", "0 rgba.bmp", "1 transparent.gif", "1 lossless.webp" } do
    local class, name = file:match "(%d) (.*)"
    if has(name:match "%a+$") then
      wanted[#wanted + 1] = class .. ":" .. image.load(FOLDER .. name, { channels = 3 }):sum():item()
    end
  end
  local all = has "webp" and #wanted - 1 or #wanted
  check.equal(names_of(mgpu.data.image_folder(top)), { unpack(wanted, 1, all) })
  check.equal(#names_of(mgpu.data.image_folder(top, { extensions = { "bmp", "GIF", ".webp" } })), #wanted)
  check.equal(mgpu.data.image_folder(top, { extensions = { "bmp", "gif", "tif" }, skip_bad = true }).skipped,
    { top .. "/a/x.tif" })
end)

test("images of other formats are read from TFRecord files", function()
  local path = check.path "x.tfrecord"
  mgpu.data.write_tfrecord(path, { { bytes_of "rgb.bmp" } }, { { "image", "string" } })
  local x = mgpu.data.tfrecord(path, { { "image", "png" } }):iter()()
  check.equal(x, image.load(FOLDER .. "rgb.bmp"):totable())
end)

test("without a plug-in the error names its package, and BMP files are read", function()
  local bare = check.path "bare"
  check.run(("mkdir '%s' && cp %s/libmgpu.so.0 %s/mgpulua '%s'"):format(bare, BUILD, BUILD, bare))
  local function load(name)
    return (check.run(("LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua' '%s/mgpulua' "
      .. "-e 'print(require [[mgpu]].image.load([[%s]]):shape()[1])' 2>&1")
      :format(core.root, core.root, bare, FOLDER .. name)))
  end
  check.matches(load "palette.gif", "GIF images: mgpu%-gif.so: .*; install libgif%-dev and build again")
  check.matches(load "lossy.webp", "WebP images: mgpu%-webp.so: .*; install libwebp%-dev and build again")
  check.equal(load "rgb.bmp", "7\n")
end)
