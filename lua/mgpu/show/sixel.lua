--- sixel(pixels) -> the image as DEC sixels, in 64 greys, or in 216 colors by ordered dithering.
-- Source: DEC, VT330/VT340 Programmer Reference Manual, volume 2, chapter 14.
local bit = require "bit"
local ffi = require "ffi"

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

--- sixel(pixels) -> text: see the top. pixels: of show/image.lua.
return function(p)
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
