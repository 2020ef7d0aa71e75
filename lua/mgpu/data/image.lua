--- mgpu.image: images as tensors of pixels: PNG, JPEG, BMP, GIF and WebP files are read, PNG and JPEG files written.
--
--     local x = mgpu.image.load("cat.jpg", { channels = 3 })          -- uint8 {rows, columns, 3}
--     mgpu.image.save("digits.png", digits.x:slice { { 1, 25 } })     -- 25 gray images as a grid
-- A tensor to be written is uint8, or floating with values from 0 to 1, and {rows, columns}, {rows, columns, c} or
-- {n, rows, columns, c} with 1 (gray), 3 (red, green, blue) or 4 (with alpha) channels; {n, rows, columns} is a batch
-- of gray images unless its last size is 1, 3 or 4. With bits = 16, a PNG file gets 16 bits: of int32 from 0 to 65535,
-- or floats. Needs libpng and libjpeg-turbo (mgpu-image.so), GIF giflib and WebP libwebp.
local core = require "mgpu.core"
local options = require "mgpu.options"

local M = {}

local CHANNELS = { "channels", "integer", values = { 1, 3, 4 } }
local GRID = { { "columns", "integer", min = 1 }, { "padding", "integer", default = 2, min = 0, max = 1000 } }
local QUALITY = { "quality", "integer", default = 95, min = 1, max = 100 }
local READ = options.declare { CHANNELS,
  { "dtype", "string", default = "uint8", values = { "uint8", "int32", "float32" } } }
local PNG = options.declare { GRID[1], GRID[2], { "bits", "integer", default = 8, values = { 8, 16 } } }
local JPEG = options.declare { GRID[1], GRID[2], QUALITY }

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

local function chosen_options(who, declared, given)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    fail(who, "options are a table, got a %s", type(given))
  end
  return options.check(who, declared, given or {})
end

-- ---- tensors to images --------------------------------------------------------------------------

-- RETURNS the tensor as a batch {n, rows, columns, channels}.
local function as_batch(who, x)
  if type(x) ~= "userdata" or not x.shape then fail(who, "the image must be a tensor, got a %s", type(x)) end
  local shape = x:shape()
  local last = shape[#shape]
  local has_channels = last == 1 or last == 3 or last == 4
  if #shape == 2 then
    shape = { 1, shape[1], shape[2], 1 }
  elseif #shape == 3 then
    shape = has_channels and { 1, unpack(shape) } or { shape[1], shape[2], shape[3], 1 }
  elseif #shape ~= 4 or not has_channels then
    fail(who, "a tensor of shape {%s} is not an image: {rows, columns}, {rows, columns, 1, 3 or 4}, or a batch of such",
      table.concat(shape, ", "))
  end
  for _, size in ipairs(shape) do
    if size == 0 then fail(who, "a tensor of shape {%s} has no pixels", table.concat(x:shape(), ", ")) end
  end
  return core.ops.reshape(x, { shape = shape })
end

-- The whole numbers of pixels of 8 and 16 bits, and the largest one.
local SAMPLES = { [8] = { dtype = "uint8", most = 255 }, [16] = { dtype = "int32", most = 65535 } }

-- RETURNS the batch as the whole numbers of so many bits. Floats that would round to a number beyond them are errors.
local function as_samples(who, x, bits)
  local dtype, sample = x:dtype(), SAMPLES[bits]
  if dtype == sample.dtype then
    if bits == 8 or x:min():item() >= 0 and x:max():item() <= sample.most then return x end
    fail(who, "pixels of 16 bits must be from 0 to 65535, got values from %d to %d", x:min():item(), x:max():item())
  elseif not dtype:find "float" then
    fail(who, "the pixels are %s: give %s (0 to %d) or floats (0 to 1), as with x:to %q%s", dtype, sample.dtype,
      sample.most, sample.dtype, dtype == "int32" and "; bits = 16 writes int32 to a PNG file" or "")
  end
  local scaled = (x:to "float32" * sample.most + 0.5):floor()
  local least, most = scaled:min():item(), scaled:max():item()
  if not (least >= 0 and most <= sample.most) then
    fail(who, "floating pixels must be from 0 to 1, got values from %.4g to %.4g%s", x:min():item(), x:max():item(),
      bits == 8 and most > 255 and most < 66000 and ' (x / 255, or x:to "uint8", if they are from 0 to 255)' or "")
  end
  return scaled:to(sample.dtype)
end

-- RETURNS the images of the batch as one {rows, columns, channels}, in a grid with black lines of `padding` pixels
-- between and around them. One image is returned without lines.
local function grid(x, chosen)
  local n, h, w, c = unpack(x:shape())
  if n == 1 then return core.ops.reshape(x, { shape = { h, w, c } }) end
  local mgpu, p = require "mgpu", chosen.padding
  local columns = math.min(n, chosen.columns or math.ceil(math.sqrt(n)))
  local rows = math.ceil(n / columns)
  local function black(...) return mgpu.zeros({ ... }, { dtype = x:dtype(), device = x:device() }) end
  local function join(axis, ...) return mgpu.concat({ ... }, { axis = axis }) end
  if rows * columns > n then x = join(1, x, black(rows * columns - n, h, w, c)) end
  if p > 0 then
    x = join(2, black(rows * columns, p, w, c), x)
    x = join(3, black(rows * columns, h + p, p, c), x)
  end
  x = core.ops.reshape(x, { shape = { rows, columns, h + p, w + p, c } }):transpose { 1, 3, 2, 4, 5 }
  x = core.ops.reshape(x, { shape = { rows * (h + p), columns * (w + p), c } })
  if p > 0 then
    x = join(1, x, black(p, columns * (w + p), c))
    x = join(2, x, black(rows * (h + p) + p, p, c))
  end
  return x
end

-- RETURNS the bytes of the file: JPEG with that quality, or PNG if quality is nil.
local function encode(who, x, chosen)
  local image = grid(as_samples(who, as_batch(who, x), chosen.bits or 8), chosen)
  if chosen.quality and image:shape()[3] == 4 then
    fail(who, "a JPEG image has no alpha: give 3 channels, or save a .png")
  end
  return core.image_encode(image, chosen.quality or 0)
end

--- grid(tensor, {columns =, padding = 2, bits = 8}) -> {rows, columns, channels}: an image as it is, or a batch of
--- images as one picture, as save writes it: uint8, or int32 if bits is 16.
-- A third argument is the name of the function that an error names, in place of "image.grid".
-- Example:
--     local digits = mgpu.datasets.digits(6)
--     local picture = mgpu.image.grid(digits.x, { columns = 3, padding = 2 })
--     print(table.concat(picture:shape(), " ")) -- 2 * 28 + 3 * 2 rows, 3 * 28 + 4 * 2 columns  --> 62 92 1
function M.grid(x, given, who)
  who = who or "image.grid"
  local chosen = chosen_options(who, PNG, given)
  return grid(as_samples(who, as_batch(who, x), chosen.bits), chosen)
end

-- ---- the functions ------------------------------------------------------------------------------

--- encode_png(tensor, {columns =, padding = 2, bits = 8}) -> the bytes of a PNG file, as a string.
--- Options: those of save.
-- Example:
--     local bytes = mgpu.image.encode_png(mgpu.eye(8)) -- white dots on black
--     print(bytes:sub(2, 4), mgpu.image.decode(bytes):sum():item() / 255)  --> PNG 8
function M.encode_png(x, given) return encode("image.encode_png", x, chosen_options("image.encode_png", PNG, given)) end

--- encode_jpeg(tensor, {quality = 95, columns =, padding = 2}) -> the bytes of a JPEG file, as a string.
--- Options: those of save.
-- Example:
--     local x = mgpu.rand { 64, 64, 3 }
--     print(#mgpu.image.encode_jpeg(x, { quality = 20 }) < #mgpu.image.encode_jpeg(x, { quality = 95 }))
--     --> true
function M.encode_jpeg(x, given)
  return encode("image.encode_jpeg", x, chosen_options("image.encode_jpeg", JPEG, given))
end

--- decode(bytes, {channels =, dtype = "uint8"}) -> {rows, columns, channels}: the pixels of a PNG, JPEG, BMP, GIF or
--- WebP file.
-- channels: 1, 3 or 4; those of the file if nil, where a palette counts as 3 and any alpha makes 4. Gray is
-- 0.299 red + 0.587 green + 0.114 blue; alpha is dropped, not blended; gamma is ignored.
-- dtype: "uint8", to which 16 bits are rounded, so that their lower byte is lost; "int32", all 16 bits, from 0 to
-- 65535; or "float32", the same divided by 65535. A sample v of a file with 8 bits is 257 v of 65535, as for
-- TensorFlow's decode_png with uint16.
-- Of a GIF file the first image is read, in the size of the file's screen; its transparent pixels, and those beside an
-- image that is smaller than the screen, are black with alpha 0. CMYK colors of JPEG files become RGB as in Pillow.
-- Errors: a damaged or truncated file, another format, an animated WebP file, more than 65,500 pixels a side or 256 MiB
-- of pixels.
-- Example:
--     local bytes = mgpu.image.encode_png(mgpu.full({ 4, 6, 3 }, 200, { dtype = "uint8" }))
--     local x = mgpu.image.decode(bytes, { channels = 1 }) -- as gray
--     print(x:dtype(), table.concat(x:shape(), " "), x[1][1][1]:item())  --> uint8 4 6 1 200
function M.decode(bytes, given)
  local chosen = chosen_options("image.decode", READ, given)
  if type(bytes) ~= "string" then fail("image.decode", "the bytes must be a string, got a %s", type(bytes)) end
  return core.image_decode(bytes, chosen.channels or 0, chosen.dtype)
end

--- load(path, {channels =, dtype = "uint8"}) -> {rows, columns, channels}: the pixels of an image file, as decode. The
--- contents decide the format, not the name.
-- Example:
--     mgpu.image.save("gray.png", mgpu.rand { 20, 30 })
--     local x = mgpu.image.load("gray.png", { channels = 3 })
--     print(x:dtype(), table.concat(x:shape(), " "))  --> uint8 20 30 3
--     mgpu.image.save("depth.png", mgpu.tensor({ { 0, 1000, 65535 } }, { dtype = "int32" }), { bits = 16 })
--     print(mgpu.image.load("depth.png", { dtype = "int32" })[1][2]:item())  --> 1000
function M.load(path, given)
  local chosen = chosen_options("image.load", READ, given)
  return core.image_load(path, chosen.channels or 0, chosen.dtype)
end

local WRITERS = { png = PNG, jpg = JPEG, jpeg = JPEG }

--- save(path, tensor, {quality = 95, columns =, padding = 2, bits = 8}): writes a .png, .jpg or .jpeg file. If it
--- fails, an old file stays as it was.
-- A batch becomes a grid of images: columns (the square root of their number, rounded up) in a row, with black lines of
-- `padding` pixels. quality, 1 to 100, is JPEG's. bits = 16, for PNG, writes int32 from 0 to 65535, or floats, with
-- 16 bits.
-- Errors: another ending; another shape or dtype; floats outside of 0 to 1; the disk.
-- Example:
--     local digits = mgpu.datasets.digits(25)
--     mgpu.image.save("digits.png", digits.x) -- 25 images as a grid
--     print(table.concat(mgpu.image.load("digits.png"):shape(), " "))  --> 152 152 1
function M.save(path, x, given)
  if type(path) ~= "string" then
    fail("image.save", 'the path comes first, as in save("x.png", tensor); got a %s', type(path))
  end
  local ending = path:lower():match "%.([^./]*)$"
  local declared = WRITERS[ending or ""]
  if not declared then fail("image.save", "%s: the ending must be .png, .jpg or .jpeg", path) end
  local chosen = chosen_options("image.save", declared, given)
  core.check_creatable(path, "image.save")
  core.write_file(path, encode("image.save", x, chosen))
end

-- ---- resizing -----------------------------------------------------------------------------------

local RESIZE = options.declare { positional = 2, { "height", "integer", required = true, min = 1, max = 65500 },
  { "width", "integer", required = true, min = 1, max = 65500 },
  { "method", "string", default = "bilinear", values = require "mgpu.data.augment_options".METHODS },
  { "antialias", "boolean", default = false },
  { "dtype", "string", values = { "uint8", "float16", "bfloat16", "float32", "float64" } } }

--- resize(tensor, {height, width, method = "bilinear", antialias = false, dtype =}) -> the image or images, resized.
-- tensor: {rows, columns}, {rows, columns, channels} or {n, rows, columns, channels}. method: "bilinear", "nearest",
-- "bicubic", "area", "lanczos3" or "lanczos5"; antialias: all pixels count where an image shrinks. The values are
-- those of tf.image.resize, in the dtype of the tensor (rounded for uint8) or in `dtype`. For a dataset: ds:augment {
-- resize = ... }; as an op with a gradient: mgpu.image_resize.
-- Errors: no pixels; whole numbers other than uint8, which only "nearest" can resize.
-- Example:
--     local x = mgpu.rand { 28, 28, 1 }
--     print(table.concat(mgpu.image.resize(x, { 14, 14, method = "area" }):shape(), " "))  --> 14 14 1
function M.resize(x, given)
  if type(given) ~= "table" or getmetatable(given) then
    fail("image.resize", "the size comes second, as in resize(x, {32, 32}); got a %s", type(given))
  end
  local chosen = options.check("image.resize", RESIZE, given)
  if not core.is_tensor(x) then fail("image.resize", "the image must be a tensor, got a %s", type(x)) end
  local shape = x:shape()
  if #shape < 2 or #shape > 4 then
    fail("image.resize", "a tensor of shape {%s} is not an image: {rows, columns}, {rows, columns, channels}, or a "
      .. "batch of the latter", table.concat(shape, ", "))
  end
  local size = { chosen.height, chosen.width }
  local transform = core.augment { resize = size, method = chosen.method, antialias = chosen.antialias,
    dtype = chosen.dtype }
  if #shape < 4 then return core.transform_apply(transform, x, 0, 0) end
  if shape[1] == 0 then fail("image.resize", "there are no images") end
  local rows = require "mgpu.data".from_tensors { x }
  local ds = require "mgpu.data.dataset".transformed(rows, "image.resize", 1, transform)
  return (ds:batch(shape[1]):iter()())
end

return require "mgpu.strict_table" ("mgpu.image", M)
