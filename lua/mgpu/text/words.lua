--- Text into words as GPT-2 cuts it: contractions, letters, numbers and other signs, each with the space before it.
--
-- The regular expression: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
local bit = require "bit"
local ranges = require "mgpu.text.unicode_ranges"

local CHARACTER = "[%z\1-\127\194-\244][\128-\191]*"

local LETTER, NUMBER, SPACE, OTHER = "letter", "number", "space", "other"

-- ---- classes of characters --------------------------------------------------------------------------

local SPACES = { { 9, 13 }, { 32, 32 }, { 0x85, 0x85 }, { 0xA0, 0xA0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200A },
  { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 } }

local firsts, lasts, classes -- the ranges of all classes, in order

local function read_ranges()
  local list = {}
  for _, range in ipairs(SPACES) do list[#list + 1] = { range[1], range[2], SPACE } end
  for class, text in pairs { [LETTER] = ranges.letters, [NUMBER] = ranges.numbers } do
    local last = 0
    for distance, more in text:gmatch "(%x+) (%x+)" do
      local first = last + tonumber(distance, 16)
      last = first + tonumber(more, 16)
      list[#list + 1] = { first, last, class }
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  firsts, lasts, classes = {}, {}, {}
  for i, range in ipairs(list) do firsts[i], lasts[i], classes[i] = range[1], range[2], range[3] end
end

local function code_of(character)
  local code = character:byte()
  if code < 0x80 then return code end
  code = bit.band(code, code >= 0xF0 and 7 or code >= 0xE0 and 15 or 31)
  for i = 2, #character do code = code * 64 + bit.band(character:byte(i), 63) end
  return code
end

local known = {}

local function class_of(character)
  local class = known[character]
  if class then return class end
  if not firsts then read_ranges() end
  local code, low, high = code_of(character), 1, #firsts
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    if firsts[middle] <= code then low = middle else high = middle - 1 end
  end
  class = code >= firsts[low] and code <= lasts[low] and classes[low] or OTHER
  if #character <= 2 then known[character] = class end
  return class
end

-- ---- words ------------------------------------------------------------------------------------------

-- The position behind the characters of one class from `at` on, and the position of the last of them.
local function run(text, at, class)
  local last = at
  while at <= #text do
    local character = text:match("^" .. CHARACTER, at) or text:sub(at, at)
    if class_of(character) ~= class then break end
    last, at = at, at + #character
  end
  return at, last
end

local CONTRACTIONS = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" }

-- The position behind the word at `at`.
local function word_end(text, at)
  for _, ending in ipairs(CONTRACTIONS) do
    if text:sub(at, at + #ending - 1) == ending then return at + #ending end
  end
  local first = text:byte(at) == 32 and at < #text and at + 1 or at
  local class = class_of(text:match("^" .. CHARACTER, first) or text:sub(first, first))
  if class ~= SPACE then return (run(text, first, class)) end
  local stop, last = run(text, at, SPACE)
  if stop > #text or last == at then return stop end
  return last -- the last space belongs to the next word
end

--- words(text) -> the list of its words; together they are the text.
return function(text)
  local list, at = {}, 1
  while at <= #text do
    local stop = word_end(text, at)
    list[#list + 1], at = text:sub(at, stop - 1), stop
  end
  return list
end
