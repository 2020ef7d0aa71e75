--- Byte-pair encoding of bytes: the tokenizer of GPT-2. Each byte is a printable character; merges join neighbours.
local characters = require "mgpu.text.characters"
local words = require "mgpu.text.words"

local M = {}

-- ---- bytes as characters ----------------------------------------------------------------------------

-- Printable bytes stand for themselves, the others for the characters from 256 on, in order.
local character_of, byte_of = {}, {}
do
  local next_code = 256
  for byte = 0, 255 do
    local printable = byte >= 33 and byte <= 126 or byte >= 161 and byte <= 172 or byte >= 174
    local character = characters.of(printable and byte or next_code)
    if not printable then next_code = next_code + 1 end
    character_of[string.char(byte)], byte_of[character] = character, string.char(byte)
  end
end

-- ---- merging ----------------------------------------------------------------------------------------

-- Joins the neighbours with the lowest rank until none has one.
local function merge(parts, ranks)
  while #parts > 1 do
    local best, pair = math.huge, nil
    for i = 1, #parts - 1 do
      local key = parts[i] .. " " .. parts[i + 1]
      if (ranks[key] or math.huge) < best then best, pair = ranks[key], key end
    end
    if not pair then break end
    local joined, i = {}, 1
    while i <= #parts do
      if i < #parts and parts[i] .. " " .. parts[i + 1] == pair then
        joined[#joined + 1], i = parts[i] .. parts[i + 1], i + 2
      else
        joined[#joined + 1], i = parts[i], i + 1
      end
    end
    parts = joined
  end
  return parts
end

local Model = {}
Model.__index = Model

local MOST_KEPT, LONGEST_KEPT = 50000, 256 -- words whose tokens are remembered, and their bytes

-- The tokens of a word.
local function tokens_of(self, word)
  local tokens = self.kept[word]
  if tokens then return tokens end
  local parts = {}
  for byte in word:gmatch "[%z\1-\255]" do parts[#parts + 1] = character_of[byte] end
  tokens = merge(parts, self.ranks)
  if #word > LONGEST_KEPT then return tokens end
  self.count = self.count + 1
  if self.count > MOST_KEPT then self.kept, self.count = {}, 1 end
  self.kept[word] = tokens
  return tokens
end

--- model:encode(text, ids, id): adds the ids of the text to the list; id(token): of a token.
function Model:encode(text, ids, id)
  if self.prefix_space and text:sub(1, 1) ~= " " then text = " " .. text end
  for _, word in ipairs(self.whole and { text } or words(text)) do
    for _, token in ipairs(tokens_of(self, word)) do ids[#ids + 1] = id(token) end
  end
end

--- model:decode(tokens, added) -> the text. added[token]: whether it is an added token, whose text it is itself.
function Model:decode(tokens, added) -- luacheck: no self
  local parts = {}
  for i, token in ipairs(tokens) do
    parts[i] = added[token] and token or token:gsub(characters.PATTERN, byte_of)
  end
  return table.concat(parts)
end

--- new(ranks, options) -> the model. ranks: of pairs "a b"; options: prefix_space, whole = do not cut into words.
function M.new(ranks, options)
  return setmetatable({ ranks = ranks, kept = {}, count = 0, prefix_space = options.prefix_space,
    whole = options.whole }, Model)
end

return M
