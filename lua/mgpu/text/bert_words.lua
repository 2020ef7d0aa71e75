--- Text into words as BERT's tokenizer cuts it: BertNormalizer and BertPreTokenizer of the package tokenizers.
--
-- Each character is treated alone: control characters go, Chinese ones become words, accents go (the character is
-- decomposed, and its nonspacing marks are dropped), letters become small. Then words end at white space, and each
-- punctuation character is a word. Unicode would also sort marks that remain, which are very rare; this does not. Bytes
-- that are no UTF-8 are left out.
local characters = require "mgpu.text.characters"
local tables = require "mgpu.text.bert_tables"

-- ---- maps of characters, read at first use ----------------------------------------------------------

-- character -> what takes its place.
local function read_map(runs, parts)
  local map, last = {}, 0
  for first, step, more, offset in runs:gmatch "(%x+)%s+(%x)%s+(%x+)%s+(%-?%x+)" do
    first, step = last + tonumber(first, 16), tonumber(step, 16)
    last = first + tonumber(more, 16) * step
    local sign = offset:sub(1, 1) == "-" and -1 or 1
    local distance = sign * tonumber(offset:match "%x+", 16)
    for code = first, last, step do map[characters.of(code)] = characters.of(code + distance) end
  end
  for code, list in parts:gmatch "(%x+)=(%S+)" do
    map[characters.of(tonumber(code, 16))] = list:gsub("%x+", function(part)
      return characters.of(tonumber(part, 16))
    end):gsub(",", "")
  end
  return map
end

local maps

local function read_maps()
  maps = { small = read_map(tables.small, tables.small_parts), bare = read_map(tables.bare, tables.bare_parts) }
  for _, name in ipairs { "removed", "chinese", "punctuation", "marks" } do
    maps[name] = characters.set(tables[name])
  end
end

-- The letters of a syllable of Hangul, in the order of Unicode: 19 first consonants, 21 vowels, 27 last consonants or
-- none.
local function hangul(code)
  local index = code - 0xAC00
  local last = index % 28
  return characters.of(0x1100 + math.floor(index / 588)) .. characters.of(0x1161 + math.floor(index % 588 / 28))
    .. (last > 0 and characters.of(0x11A7 + last) or "")
end

local function without_accents(character, code)
  if code >= 0xAC00 and code <= 0xD7A3 then return hangul(code) end
  if maps.marks(code) then return "" end
  return maps.bare[character] or character
end

-- ---- pieces -----------------------------------------------------------------------------------------

-- What a character becomes: an array of characters, with " " for the end of a word and around single ones.
local function pieces_of(options, character)
  local code = characters.code(character)
  if options.clean and maps.removed(code) then return {} end -- before white space: a line tabulation is both
  if characters.is_space(code) then return { " " } end
  local text, list = options.strip and without_accents(character, code) or character, {}
  if options.small then
    text = text:gsub(characters.PATTERN, maps.small)
  end
  local alone = options.chinese and maps.chinese(code)
  for piece in text:gmatch(characters.PATTERN) do
    local single = maps.punctuation(characters.code(piece))
    if single then list[#list + 1] = " " end
    list[#list + 1] = piece
    if single then list[#list + 1] = " " end
  end
  if alone then
    table.insert(list, 1, " ")
    list[#list + 1] = " "
  end
  return list
end

--- new(options) -> a function of a text: the list of its words, each an array of characters. options: clean = without
--- control characters, chinese = Chinese characters are words, strip = without accents, small = in small letters.
return function(options)
  local kept = {} -- the pieces of the characters of one and two bytes
  return function(text)
    if not maps then read_maps() end
    local words, word = {}, nil
    for character in text:gmatch(characters.PATTERN) do
      local pieces = kept[character] or pieces_of(options, character)
      if #character <= 2 then kept[character] = pieces end
      for _, piece in ipairs(pieces) do
        if piece == " " then
          word = nil
        else
          if not word then
            word = {}
            words[#words + 1] = word
          end
          word[#word + 1] = piece
        end
      end
    end
    return words
  end
end
