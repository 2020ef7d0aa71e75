--- Tokenizers, as mgpu.text.load returns them: a model of words (byte_pairs, word_pieces), tokens that are found in the
--- text before it, and a template of what encode puts around a text.
local core = require "mgpu.core"
local files = require "mgpu.text.files"
local options = require "mgpu.options"

local Tokenizer = {}
Tokenizer.__index = Tokenizer
Tokenizer.__tostring = function(self) return ("tokenizer of %d tokens"):format(self.vocab_size) end

local M = {}

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

-- The ids of a text without what the template puts around it.
local function ids_of(self, text)
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

local SINGLE = { { sequence = "A", type = 0 } }
local PAIR = { { sequence = "A", type = 0 }, { sequence = "B", type = 1 } }
local ENCODE = options.declare { { "pair", "string" }, { "add_special_tokens", "boolean", default = true } }
local DECODE = options.declare { { "skip_special_tokens", "boolean", default = false } }

--- tok:encode(text, {pair =, add_special_tokens = true}) -> the list of the ids of its tokens, from 0. Special tokens
--- in the text become their ids; around it come those that the file says, as [CLS] and [SEP] of BERT.
-- pair: a second text; then also returns the list of the types of the tokens, 0 for the first text and 1 for the
-- second.
function Tokenizer:encode(text, given)
  if type(text) ~= "string" then core.fail("usage", "encode: expected text, got " .. type(text)) end
  local chosen = options.check("encode", ENCODE, given or {})
  local template = chosen.add_special_tokens and self.template[chosen.pair and "pair" or "single"]
    or chosen.pair and PAIR or SINGLE
  local ids, types = {}, {}
  for _, piece in ipairs(template) do
    for _, id in ipairs(piece.ids or ids_of(self, piece.sequence == "A" and text or chosen.pair)) do
      ids[#ids + 1], types[#types + 1] = id, piece.type
    end
  end
  if chosen.pair then return ids, types end
  return ids
end

--- tok:decode(ids, {skip_special_tokens = false}) -> the text of a list of ids. skip_special_tokens: leaves out the
--- special tokens, as [CLS].
function Tokenizer:decode(ids, given)
  if type(ids) ~= "table" then core.fail("usage", "decode: expected a list of ids, got " .. type(ids)) end
  local tokens, skip = {}, options.check("decode", DECODE, given or {}).skip_special_tokens
  for _, id in ipairs(ids) do
    local token = self.tokens[id]
    if not token then core.fail("usage", ("decode: no token has the id %s"):format(tostring(id))) end
    if not (skip and self.special[token]) then tokens[#tokens + 1] = token end
  end
  return self.model:decode(tokens, self.added)
end

--- new(path, parts) -> a tokenizer. path: named in errors. parts: ids, by token; added, ids of added tokens; special,
--- the set of those that are special; model, with encode(text, ids, id) and decode(tokens, added); template = {single
--- =, pair =}, each nil or an array of {ids = list} and {sequence = "A" or "B"}, with type.
function M.new(path, parts)
  local tok = setmetatable({ ids = parts.ids, added = parts.added, special = parts.special or parts.added,
    model = parts.model, template = parts.template or {}, tokens = {}, longest_first = {} }, Tokenizer)
  local last = -1
  for _, map in ipairs { tok.ids, tok.added } do
    for token, id in pairs(map) do
      if type(token) ~= "string" or type(id) ~= "number" or id % 1 ~= 0 or id < 0 then
        files.fail(path, "the id of the token %q is no whole number from 0 on", tostring(token))
      end
      tok.tokens[id], last = token, math.max(last, id)
    end
  end
  for token in pairs(tok.added) do
    if token == "" then files.fail(path, "an added token is empty") end
    tok.longest_first[#tok.longest_first + 1] = token
  end
  table.sort(tok.longest_first, function(a, b) return #a > #b or #a == #b and a < b end)
  tok.vocab_size = last + 1
  return tok
end

return M
