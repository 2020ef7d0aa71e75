--- The characters of text in UTF-8, and sets of them.
--
-- A list of ranges is text of hexadecimal numbers: for each range the distance of its first character from the last one
-- of the range before, and how many characters follow the first.
local bit = require "bit"

local M = {}

--- The pattern of a character. Bytes that are no UTF-8 match nowhere.
M.PATTERN = "[%z\1-\127\194-\244][\128-\191]*"
local AT_START = "^" .. M.PATTERN

--- at(text, place) -> the character there, or the byte if there is none.
function M.at(text, place) return text:match(AT_START, place) or text:sub(place, place) end

--- code(character) -> its number.
function M.code(character)
  local code = character:byte()
  if code < 0x80 then return code end
  code = bit.band(code, code >= 0xF0 and 7 or code >= 0xE0 and 15 or 31)
  for i = 2, #character do code = code * 64 + bit.band(character:byte(i), 63) end
  return code
end

--- of(code) -> the character of that number.
function M.of(code)
  if code < 0x80 then return string.char(code) end
  local last = string.char(0x80 + code % 64)
  code = math.floor(code / 64)
  if code < 32 then return string.char(0xC0 + code) .. last end
  last = string.char(0x80 + code % 64) .. last
  code = math.floor(code / 64)
  if code < 16 then return string.char(0xE0 + code) .. last end
  return string.char(0xF0 + math.floor(code / 64), 0x80 + code % 64) .. last
end

--- set(ranges) -> a function of a character's number: whether it is in the ranges.
function M.set(ranges)
  local firsts, lasts, last = {}, {}, 0
  for distance, more in ranges:gmatch "(%x+)%s+(%x+)" do
    firsts[#firsts + 1] = last + tonumber(distance, 16)
    last = firsts[#firsts] + tonumber(more, 16)
    lasts[#lasts + 1] = last
  end
  return function(code)
    local low, high = 1, #firsts
    while low < high do
      local middle = math.floor((low + high + 1) / 2)
      if firsts[middle] <= code then low = middle else high = middle - 1 end
    end
    return code >= firsts[low] and code <= lasts[low]
  end
end

--- is_space(code): whether the character is white space.
M.is_space = M.set "9 4 13 0 65 0 1b 0 15e0 0 980 a 1e 1 6 0 30 0 fa1 0"

return M
