--- mgpu.text: tokenizers, which turn text into the ids of tokens and back.
local byte_pairs = require "mgpu.text.byte_pairs"
local core = require "mgpu.core"

local M = {}

local function fail(path, message, ...) core.fail("data", ("text.load: %s: %s"):format(path, message:format(...))) end

local function read(path)
  local file, message = io.open(path, "rb")
  if not file then core.fail("usage", "text.load: " .. message) end
  local bytes = file:read "*a"
  file:close()
  if not bytes then core.fail("usage", ("text.load: %s cannot be read"):format(path)) end
  return bytes
end

local function read_json(path)
  local ok, value = pcall(core.json_decode, read(path))
  if not ok or type(value) ~= "table" then fail(path, "the file is not a JSON object") end
  return value
end

-- ---- the tokenizer ----------------------------------------------------------------------------------

local Tokenizer = {}
Tokenizer.__index = Tokenizer
Tokenizer.__tostring = function(self) return ("tokenizer of %d tokens"):format(self.vocab_size) end

--- tok:id(token) -> its id from 0, or nil.
function Tokenizer:id(token) return self.added[token] or self.ids[token] end

-- The first added token in the text from `at` on, the longest one if several begin there: where it begins, the token.
-- places: where each token was found last, or false; so each is looked for once behind a place.
local function next_added(self, text, at, places)
  local first, found
  for _, token in ipairs(self.longest_first) do
    local place = places[token]
    if place == nil or place and place < at then
      place = text:find(token, at, true) or false
      places[token] = place
    end
    if place and (not first or place < first) then first, found = place, token end
  end
  return first, found
end

--- tok:encode(text) -> the list of the ids of its tokens, from 0. Special tokens in the text become their ids.
function Tokenizer:encode(text)
  if type(text) ~= "string" then core.fail("usage", "encode: expected text, got " .. type(text)) end
  local ids, at, places = {}, 1, {}
  local function id(token)
    return self.ids[token] or core.fail("data", ("encode: the vocabulary lacks the token %q"):format(token))
  end
  while at <= #text do
    local first, token = next_added(self, text, at, places)
    if not first or first > at then self.model:encode(text:sub(at, (first or 0) - 1), ids, id) end
    if not first then break end
    ids[#ids + 1], at = self.added[token], first + #token
  end
  return ids
end

--- tok:decode(ids) -> the text of a list of ids.
function Tokenizer:decode(ids)
  if type(ids) ~= "table" then core.fail("usage", "decode: expected a list of ids, got " .. type(ids)) end
  local parts = {}
  for i, id in ipairs(ids) do
    local token = self.tokens[id]
    if not token then core.fail("usage", ("decode: no token has the id %s"):format(tostring(id))) end
    parts[i] = self.added[token] and token or self.model:decode(token)
  end
  return table.concat(parts)
end

-- ARGS ids: by token; added: ids of added tokens; model: of byte_pairs.
local function new(path, ids, added, model)
  local tok = setmetatable({ ids = ids, added = added, model = model, tokens = {}, longest_first = {} }, Tokenizer)
  local last = -1
  for _, map in ipairs { ids, added } do
    for token, id in pairs(map) do
      if type(token) ~= "string" or type(id) ~= "number" or id % 1 ~= 0 or id < 0 then
        fail(path, "the id of the token %q is no whole number from 0 on", tostring(token))
      end
      tok.tokens[id], last = token, math.max(last, id)
    end
  end
  for token in pairs(added) do
    if token == "" then fail(path, "an added token is empty") end
    tok.longest_first[#tok.longest_first + 1] = token
  end
  table.sort(tok.longest_first, function(a, b) return #a > #b or #a == #b and a < b end)
  tok.vocab_size = last + 1
  return tok
end

-- ---- files ------------------------------------------------------------------------------------------

local END_OF_TEXT = "<|endoftext|>"

-- The ranks of merges.txt: a pair a line, the most important one first; lines with "#version" are comments.
local function read_merges(path)
  local ranks, rank = {}, 0
  for line in read(path):gmatch "[^\r\n]+" do
    if not line:find "^#version" then
      if not line:find "^%S+ %S+$" then fail(path, "merge %d is not two tokens with a space between them", rank + 1) end
      ranks[line], rank = rank, rank + 1
    end
  end
  return ranks
end

local function from_gpt2(vocab, merges)
  local ids = read_json(vocab)
  return new(vocab, ids, { [END_OF_TEXT] = ids[END_OF_TEXT] }, byte_pairs.new(read_merges(merges), {}))
end

local function listed(path, value, what)
  if value == nil or value == core.null then return {} end
  if type(value) ~= "table" then fail(path, "%s is not a list", what) end
  return value
end

local function is_off(value)
  return value == nil or value == core.null or value == false or value == "" or value == 0
end

-- Refuses a part of the file that would change tokens, and that is not followed here.
local function refuse(path, part, value)
  if not is_off(value) then core.fail("unsupported", ("text.load: %s: its %s is not supported"):format(path, part)) end
end

-- A part that is of the kind ByteLevel, or absent, changes no tokens.
local function refuse_others(path, part, value)
  refuse(path, part, not (type(value) == "table" and value.type == "ByteLevel") and value)
end

local MODEL_OPTIONS = { "dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges" }
local TOKEN_OPTIONS = { "single_word", "lstrip", "rstrip" }

local function check_parts(path, file)
  local model, before = file.model, file.pre_tokenizer
  if type(model) ~= "table" or type(model.vocab) ~= "table" then fail(path, "it has no model with a vocabulary") end
  if model.type ~= nil and model.type ~= "BPE" or type(before) ~= "table" or before.type ~= "ByteLevel" then
    core.fail("unsupported", ("text.load: %s: only the model BPE with the pre_tokenizer ByteLevel is supported")
      :format(path))
  end
  for _, part in ipairs { "normalizer", "truncation", "padding" } do refuse(path, part, file[part]) end
  for _, part in ipairs { "post_processor", "decoder" } do refuse_others(path, part, file[part]) end
  for _, option in ipairs(MODEL_OPTIONS) do refuse(path, "model's " .. option, model[option]) end
end

local function from_json(path)
  local file = read_json(path)
  check_parts(path, file)
  local model, before = file.model, file.pre_tokenizer
  local ranks, added = {}, {}
  for i, pair in ipairs(listed(path, model.merges, "merges")) do
    if type(pair) == "table" and type(pair[1]) == "string" and type(pair[2]) == "string" then
      pair = pair[1] .. " " .. pair[2]
    end
    if type(pair) ~= "string" or not pair:find "^%S+ %S+$" then fail(path, "merge %d is not two tokens", i) end
    ranks[pair] = i
  end
  for i, token in ipairs(listed(path, file.added_tokens, "added_tokens")) do
    if type(token) ~= "table" or type(token.content) ~= "string" then fail(path, "added token %d has no content", i) end
    for _, option in ipairs(TOKEN_OPTIONS) do
      refuse(path, ("added token %q with %s"):format(token.content, option), token[option])
    end
    added[token.content] = token.id or false
  end
  return new(path, model.vocab, added, byte_pairs.new(ranks, { prefix_space = before.add_prefix_space == true,
    whole = before.use_regex == false }))
end

--- load(path) -> a tokenizer: tok:encode(text), tok:decode(ids), tok:id(token), tok.vocab_size.
-- path: a tokenizer.json of Hugging Face with byte-level BPE, or a folder that has one, or GPT-2's vocab.json and
-- merges.txt. Ids are those of the files, from 0. Text is cut into words as in GPT-2. Errors: files that are missing,
-- damaged or of another kind.
-- Example:
--     local function write(name, text)
--       local file = io.open(name, "w")
--       file:write(text)
--       file:close()
--     end
--     write("vocab.json", '{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}')
--     write("merges.txt", "#version: 0.2\na b\n")
--     local tok = mgpu.text.load "."
--     print(unpack(tok:encode "abba<|endoftext|>"))  --> 2 1 0 3
--     print(tok:decode { 2, 1, 0 })  --> abba
function M.load(path)
  if type(path) ~= "string" then core.fail("usage", "text.load: expected a path, got " .. type(path)) end
  local all = path .. "/tokenizer.json"
  if core.file_exists(all) then return from_json(all) end
  if core.file_exists(path .. "/vocab.json") then return from_gpt2(path .. "/vocab.json", path .. "/merges.txt") end
  return from_json(path)
end

return M
