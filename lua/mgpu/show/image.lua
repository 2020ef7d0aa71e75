--- Images in the terminal.
--
-- The pixels are an array of bytes, red, green and blue in turn: {rows =, columns =, bytes = uint8_t[]}.
local core = require "mgpu.core"
local ffi = require "ffi"
local terminal = require "mgpu.show.terminal"

-- ---- sixel --------------------------------------------------------------------------------------

local bit = require "bit"

local GREYS, LEVELS = 64, 6
-- Bayer's matrix: thresholds between two levels of a color.
local BAYER = { [0] = { [0] = 0, 8, 2, 10 }, { [0] = 12, 4, 14, 6 }, { [0] = 3, 11, 1, 9 }, { [0] = 15, 7, 13, 5 } }

local function is_grey(p)
  for at = 0, p.rows * p.columns * 3 - 1, 3 do
    if p.bytes[at] ~= p.bytes[at + 1] or p.bytes[at] ~= p.bytes[at + 2] then return false end
  end
  return true
end

-- RETURNS the color numbers of the pixels, and the red, green and blue of each number in percent.
local function quantized(p)
  local numbers, palette = ffi.new("uint8_t[?]", p.rows * p.columns), {}
  if is_grey(p) then
    for i = 0, GREYS - 1 do
      local percent = math.floor(i / (GREYS - 1) * 100 + 0.5)
      palette[i] = { percent, percent, percent }
    end
    for i = 0, p.rows * p.columns - 1 do numbers[i] = math.floor(p.bytes[i * 3] / 256 * GREYS) end
    return numbers, palette
  end
  local top = LEVELS - 1
  for i = 0, LEVELS ^ 3 - 1 do
    palette[i] = { math.floor(i / 36) * 20, math.floor(i / 6) % 6 * 20, i % 6 * 20 }
  end
  for y = 0, p.rows - 1 do
    for x = 0, p.columns - 1 do
      local at, threshold = (y * p.columns + x) * 3, (BAYER[y % 4][x % 4] + 0.5) / 16
      local function level(v) return math.min(top, math.floor(v / 255 * top + threshold)) end
      numbers[at / 3] = level(p.bytes[at]) * 36 + level(p.bytes[at + 1]) * 6 + level(p.bytes[at + 2])
    end
  end
  return numbers, palette
end

local function run_text(char, n)
  if n > 3 then return ("!%d%s"):format(n, char) end
  return char:rep(n)
end

-- The pixels of one color in the band of six rows that begins at row `top`.
local function band_text(numbers, p, top, color)
  local out, last, n = {}, nil, 0
  for x = 0, p.columns - 1 do
    local bits = 0
    for k = 0, math.min(6, p.rows - top) - 1 do
      if numbers[(top + k) * p.columns + x] == color then bits = bits + bit.lshift(1, k) end
    end
    local char = string.char(63 + bits)
    if char == last then
      n = n + 1
    else
      if last then out[#out + 1] = run_text(last, n) end
      last, n = char, 1
    end
  end
  if last ~= "?" then out[#out + 1] = run_text(last, n) end
  return table.concat(out)
end

-- The color numbers in a band, in order, or in the whole image if there is no `top`.
local function colors_in(numbers, p, top)
  local used, list = {}, {}
  local first, last = top or 0, math.min(p.rows, top and top + 6 or p.rows)
  for i = first * p.columns, last * p.columns - 1 do used[numbers[i]] = true end
  for color in pairs(used) do list[#list + 1] = color end
  table.sort(list)
  return list
end

-- sixel(pixels) -> the image as DEC sixels, in 64 greys, or in 216 colors by ordered dithering.
-- Source: DEC, VT330/VT340 Programmer Reference Manual, volume 2, chapter 14.
local function sixel(p)
  local numbers, palette = quantized(p)
  local out = { ('\27P0;1;0q"1;1;%d;%d'):format(p.columns, p.rows) }
  for _, color in ipairs(colors_in(numbers, p)) do
    out[#out + 1] = ("#%d;2;%d;%d;%d"):format(color, unpack(palette[color]))
  end
  for top = 0, p.rows - 1, 6 do
    for i, color in ipairs(colors_in(numbers, p, top)) do
      out[#out + 1] = ("%s#%d%s"):format(i > 1 and "$" or "", color, band_text(numbers, p, top, color))
    end
    out[#out + 1] = "-"
  end
  return table.concat(out) .. "\27\\"
end

-- ---- images -------------------------------------------------------------------------------------


local M = {}

local MOST_ROWS = 20 -- rows of the terminal to which a small image is enlarged
local MOST_FACTOR = 16
local RAMP = " .:-=+*#%@"

-- ---- pixels -------------------------------------------------------------------------------------

-- Numbers that are not pixels become uint8: the least is 0, the greatest 255. image.grid refuses a tensor without any.
local function scaled(x)
  local dtype = x:dtype()
  if dtype == "uint8" or x:count() == 0 then return x end
  x = x:to "float32"
  local least, most = x:min():item(), x:max():item()
  if least ~= least or most - least == math.huge then
    core.fail("usage", "show: the tensor has numbers that are not finite")
  end
  if dtype:find "float" and least >= 0 and most <= 1 then return x end
  if most == least then return x * 0 end
  return ((x - least) / (most - least)):clip(0, 1)
end

-- The pixels of a tensor that mgpu.image takes; transparent pixels are drawn over black.
local function pixels_of(x, chosen)
  local grid = require "mgpu.data.image".grid(scaled(x), { columns = chosen.columns, padding = chosen.padding }, "show")
  grid = grid:to "cpu:0"
  core.eval(grid)
  local rows, columns, channels = unpack(grid:shape())
  local from, bytes = ffi.cast("uint8_t *", grid:pointer()), ffi.new("uint8_t[?]", rows * columns * 3)
  for i = 0, rows * columns - 1 do
    local alpha = channels == 4 and from[i * 4 + 3] / 255 or 1
    for k = 0, 2 do bytes[i * 3 + k] = from[i * channels + (channels == 1 and 0 or k)] * alpha end
  end
  return { rows = rows, columns = columns, bytes = bytes }
end

-- The mean color of a block of pixels, in bytes.
local function mean_color(p, top, bottom, left, right)
  local r, g, b, n = 0, 0, 0, (bottom - top) * (right - left)
  for y = top, bottom - 1 do
    for at = (y * p.columns + left) * 3, (y * p.columns + right - 1) * 3, 3 do
      r, g, b = r + p.bytes[at], g + p.bytes[at + 1], b + p.bytes[at + 2]
    end
  end
  return r / n, g / n, b / n
end

-- The image at another size: each new pixel is the mean of those that it covers, at least one.
local function resized(p, rows, columns)
  if rows == p.rows and columns == p.columns then return p end
  local bytes = ffi.new("uint8_t[?]", rows * columns * 3)
  for y = 0, rows - 1 do
    local top = math.floor(y * p.rows / rows)
    local bottom = math.max(top + 1, math.floor((y + 1) * p.rows / rows))
    for x = 0, columns - 1 do
      local left = math.floor(x * p.columns / columns)
      local right = math.max(left + 1, math.floor((x + 1) * p.columns / columns))
      local at = (y * columns + x) * 3
      bytes[at], bytes[at + 1], bytes[at + 2] = mean_color(p, top, bottom, left, right)
    end
  end
  return { rows = rows, columns = columns, bytes = bytes }
end

-- The image to fill at most `columns` x `rows` pixels: shrunk, or enlarged by a whole factor.
local function fitted(p, columns, rows, most_factor)
  local factor = math.min(columns / p.columns, rows / p.rows, most_factor)
  if factor >= 1 then factor = math.floor(factor) end
  return resized(p, math.max(1, math.floor(p.rows * factor)), math.max(1, math.floor(p.columns * factor)))
end

-- ---- characters ---------------------------------------------------------------------------------

-- The nearest of 256 colors: the cube of 6 x 6 x 6, or one of 24 greys.
local function color_index(r, g, b)
  if math.max(r, g, b) - math.min(r, g, b) < 12 then
    local grey = (r + g + b) / 3
    if grey < 4 then return 16 elseif grey > 246 then return 231 end
    return 232 + math.max(0, math.min(23, math.floor((grey - 3) / 10)))
  end
  local function level(v) return math.floor(v / 255 * 5 + 0.5) end
  return 16 + 36 * level(r) + 6 * level(g) + level(b)
end

local function color_code(p, y, x, layer)
  local at = (y * p.columns + x) * 3
  local r, g, b = p.bytes[at], p.bytes[at + 1], p.bytes[at + 2]
  if terminal.has_true_color() then return ("\27[%d;2;%d;%d;%dm"):format(layer, r, g, b) end
  return ("\27[%d;5;%dm"):format(layer, color_index(r, g, b))
end

-- Two rows of pixels in a line: the upper one as the color of an upper half block, the lower as the background.
local function blocks(p)
  local out = {}
  for y = 0, p.rows - 1, 2 do
    local above, below
    for x = 0, p.columns - 1 do
      local fore = color_code(p, y, x, 38)
      local back = y + 1 < p.rows and color_code(p, y + 1, x, 48) or "\27[49m"
      out[#out + 1] = (fore ~= above and fore or "") .. (back ~= below and back or "") .. "▀"
      above, below = fore, back
    end
    out[#out + 1] = "\27[0m\n"
  end
  return table.concat(out)
end

local function ascii(p)
  local half = resized(p, math.max(1, math.floor((p.rows + 1) / 2)), p.columns)
  local out = {}
  for y = 0, half.rows - 1 do
    local line = {}
    for x = 0, half.columns - 1 do
      local at = (y * half.columns + x) * 3
      local light = 0.299 * half.bytes[at] + 0.587 * half.bytes[at + 1] + 0.114 * half.bytes[at + 2]
      local level = math.floor((light + 0.5) / 256 * #RAMP) + 1
      line[#line + 1] = RAMP:sub(level, level)
    end
    out[#out + 1] = table.concat(line):gsub("%s+$", "") .. "\n"
  end
  return table.concat(out)
end

-- ---- the protocols ------------------------------------------------------------------------------

local function bytes_of(p) return ffi.string(p.bytes, p.rows * p.columns * 3) end

local function png_of(p)
  local t = require "mgpu".zeros({ p.rows, p.columns, 3 }, { dtype = "uint8", device = "cpu:0" })
  core.eval(t)
  ffi.copy(t:pointer(), p.bytes, p.rows * p.columns * 3) -- nobody else has seen it
  return require "mgpu.data.image".encode_png(t)
end

--- png(tensor, chosen) -> the bytes of a PNG file, for a page. chosen: see mgpu.show.
function M.png(x, chosen) return png_of(pixels_of(x, chosen)) end

local writers = {}

function writers.kitty(p)
  local text, out, first = require "mgpu.io.base64".encode(bytes_of(p)), {}, true
  for at = 1, #text, 4096 do
    local head = first and ("a=T,f=24,s=%d,v=%d,"):format(p.columns, p.rows) or ""
    local more = at + 4096 <= #text and 1 or 0
    out[#out + 1] = ("\27_G%sm=%d;%s\27\\"):format(head, more, text:sub(at, at + 4095))
    first = false
  end
  return table.concat(out) .. "\n"
end

function writers.iterm(p)
  local png = png_of(p)
  return ("\27]1337;File=inline=1;size=%d;width=%dpx;height=%dpx:%s\7\n"):format(#png, p.columns, p.rows,
    require "mgpu.io.base64".encode(png))
end

function writers.sixel(p) return sixel(p) .. "\n" end

writers.blocks, writers.ascii = blocks, ascii

--- text(tensor, chosen) -> the characters that draw it. chosen: see mgpu.show.
function M.text(x, chosen)
  local protocol = chosen.protocol or terminal.protocol()
  local p = pixels_of(x, chosen)
  local columns, rows, width, height = terminal.size()
  local wide = math.min(chosen.width or columns - 1, 1000)
  if protocol == "blocks" or protocol == "ascii" then
    p = fitted(p, wide, math.max(2, 2 * (rows - 2)), chosen.width and MOST_FACTOR or 1)
  else
    local most = chosen.width and 1e9 or math.min(rows - 2, MOST_ROWS)
    p = fitted(p, math.floor(wide * width), math.max(1, math.floor(most * height)), MOST_FACTOR)
  end
  return writers[protocol](p)
end

return M
