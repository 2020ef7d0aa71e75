--- WordPiece: the tokenizer of BERT. Each word becomes the longest token that it begins with, then the longest one that
--- continues it, with a prefix as "##", and so on; a word for which that fails is unknown.
local M = {}

local Model = {}
Model.__index = Model

-- The tokens of a word, an array of characters.
local function tokens_of(self, word)
  if #word > self.longest_word then return { self.unknown } end
  local tokens, at = {}, 1
  while at <= #word do
    local found, stop
    for last = math.min(#word, at + self.longest_token - 1), at, -1 do
      local token = (at > 1 and self.prefix or "") .. table.concat(word, "", at, last)
      if self.ids[token] then
        found, stop = token, last
        break
      end
    end
    if not found then return { self.unknown } end
    tokens[#tokens + 1], at = found, stop + 1
  end
  return tokens
end

--- model:encode(text, ids): adds the ids of the text to the list.
function Model:encode(text, ids)
  for _, word in ipairs(self.words(text)) do
    for _, token in ipairs(tokens_of(self, word)) do ids[#ids + 1] = self.ids[token] end
  end
end

-- What the decoder of the package tokenizers replaces, in order.
local CLEANUP = { { " %.", "." }, { " %?", "?" }, { " !", "!" }, { " ,", "," }, { " ' ", "'" }, { " n't", "n't" },
  { " 'm", "'m" }, { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" } }

--- model:decode(tokens) -> the text: a space before each token that does not continue a word.
function Model:decode(tokens)
  local parts, prefix = {}, self.decoder and self.decoder.prefix
  for i, token in ipairs(tokens) do
    if i > 1 then
      local continues = prefix and token:sub(1, #prefix) == prefix
      token = continues and token:sub(#prefix + 1) or " " .. token
    end
    if self.decoder and self.decoder.cleanup then
      for _, pair in ipairs(CLEANUP) do token = token:gsub(pair[1], pair[2]) end
    end
    parts[i] = token
  end
  return table.concat(parts)
end

--- new(ids, options) -> the model. ids: by token; options: unknown = the token for unknown words, prefix = of tokens
--- that continue a word, longest_word = characters of a word that is not unknown for its length, words(text) -> its
--- words as arrays of characters, decoder = {prefix =, cleanup = whether spaces before punctuation go}; nil: spaces
--- everywhere.
function M.new(ids, options)
  options.ids, options.longest_token = ids, 1
  for token in pairs(ids) do options.longest_token = math.max(options.longest_token, #token) end -- bytes will do
  return setmetatable(options, Model)
end

return M
