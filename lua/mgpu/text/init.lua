--- mgpu.text: tokenizers, which turn text into the ids of tokens and back.
local byte_level_files = require "mgpu.text.byte_level_files"
local core = require "mgpu.core"
local files = require "mgpu.text.files"
local template = require "mgpu.text.template"
local tokenizer = require "mgpu.text.tokenizer"
local word_piece_files = require "mgpu.text.word_piece_files"

local M = {}

local TOKEN_OPTIONS = { "single_word", "lstrip", "rstrip" }

-- The added tokens of a tokenizer.json: their ids, and the set of the special ones.
local function added_tokens(path, file)
  local added, special = {}, {}
  local normalizes = type(file.normalizer) == "table"
  for i, token in ipairs(files.listed(path, file.added_tokens, "added_tokens")) do
    if type(token) ~= "table" or type(token.content) ~= "string" then
      files.fail(path, "added token %d has no content", i)
    end
    local name = ("added token %q with "):format(token.content)
    for _, option in ipairs(TOKEN_OPTIONS) do files.refuse(path, name .. option, token[option]) end
    if normalizes then files.refuse(path, name .. "normalized", token.normalized) end
    added[token.content], special[token.content] = token.id or false, token.special == true or nil
  end
  return added, special
end

local function from_json(path)
  local file = files.read_json(path)
  local model = file.model
  if type(model) ~= "table" or type(model.vocab) ~= "table" then
    files.fail(path, "it has no model with a vocabulary")
  end
  for _, part in ipairs { "truncation", "padding" } do files.refuse(path, part, file[part]) end
  local reader = model.type == "WordPiece" and word_piece_files or byte_level_files
  local ids, made = reader.from_json(path, file)
  local added, special = added_tokens(path, file)
  return tokenizer.new(path, { ids = ids, added = added, special = special, model = made,
    template = template.read(path, file.post_processor) })
end

-- The tokenizer of a vocab.txt, with the tokenizer_config.json beside it, if there is one.
local function from_vocabulary(path)
  local config = (path:match "^.*/" or "") .. "tokenizer_config.json"
  return word_piece_files.from_vocabulary(path, core.file_exists(config) and files.read_json(config) or {})
end

--- load(path) -> a tokenizer: tok:encode(text), tok:decode(ids), tok:id(token), tok.vocab_size.
-- path: a tokenizer.json of Hugging Face with byte-level BPE or BERT's WordPiece; or a vocab.txt of BERT, whose
-- tokenizer_config.json beside it may say do_lower_case (true), strip_accents (as do_lower_case) and
-- tokenize_chinese_chars (true); or a folder that has one of these, or GPT-2's vocab.json and merges.txt. Ids are those
-- of the files, from 0. BPE cuts text into words as GPT-2, WordPiece as BERT; encode puts what the file says around a
-- text, as [CLS] and [SEP]: tok:encode(text, {pair = another text, add_special_tokens = true}) also returns the types
-- of the tokens of a pair, 0 and 1. tok:decode(ids, {skip_special_tokens = false}). Errors: files that are missing,
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
--     write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\nplay\n##ing\n,\n")
--     local bert = mgpu.text.load "vocab.txt"
--     print(unpack(bert:encode "Playing, play"))  --> 1 3 4 5 3 2
--     print(bert:decode { 3, 4, 5, 3 })  --> playing, play
function M.load(path)
  if type(path) ~= "string" then core.fail("usage", "text.load: expected a path, got " .. type(path)) end
  local function has(name) return core.file_exists(path .. "/" .. name) end
  if has "tokenizer.json" then return from_json(path .. "/tokenizer.json") end
  if has "vocab.json" then return byte_level_files.from_gpt2(path .. "/vocab.json", path .. "/merges.txt") end
  if has "vocab.txt" then return from_vocabulary(path .. "/vocab.txt") end
  return (path:match "%.txt$" and from_vocabulary or from_json)(path)
end

return M
