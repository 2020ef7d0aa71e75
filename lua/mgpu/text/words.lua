--- Text into words as GPT-2 cuts it: contractions, letters, numbers and other signs, each with the space before it.
--
-- The regular expression: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
local characters = require "mgpu.text.characters"
local ranges = require "mgpu.text.unicode_ranges"

local LETTER, NUMBER, SPACE, OTHER = "letter", "number", "space", "other"

-- ---- classes of characters --------------------------------------------------------------------------

local letters, numbers -- sets, read at first use
local known = {} -- the classes of the characters of one and two bytes

local function find_class(character)
  letters, numbers = letters or characters.set(ranges.letters), numbers or characters.set(ranges.numbers)
  local code = characters.code(character)
  if characters.is_space(code) then return SPACE end
  return letters(code) and LETTER or numbers(code) and NUMBER or OTHER
end

local function class_of(character)
  local class = known[character] or find_class(character)
  if #character <= 2 then known[character] = class end
  return class
end

-- ---- words ------------------------------------------------------------------------------------------

-- The position behind the characters of one class from `at` on, and the position of the last of them.
local function run(text, at, class)
  local last = at
  while at <= #text do
    local character = characters.at(text, at)
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
  local class = class_of(characters.at(text, first))
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
