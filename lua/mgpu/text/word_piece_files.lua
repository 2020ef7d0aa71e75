--- Tokenizers of the kind WordPiece from files: BERT's vocab.txt, and tokenizer.json.
local bert_words = require "mgpu.text.bert_words"
local core = require "mgpu.core"
local files = require "mgpu.text.files"
local template = require "mgpu.text.template"
local tokenizer = require "mgpu.text.tokenizer"
local word_pieces = require "mgpu.text.word_pieces"

local M = {}

-- An option of the file: true, false, or where it is absent or null the default.
local function flag(path, value, default, what)
  if value == nil or value == core.null then return default end
  if type(value) ~= "boolean" then files.fail(path, "%s is not true or false", what) end
  return value
end

-- The options of bert_words that a BertNormalizer states; none for a file without one.
local function word_options(path, normalizer)
  if normalizer == nil or normalizer == core.null then return {} end
  if files.kind(normalizer) ~= "BertNormalizer" then files.refuse(path, "normalizer", normalizer) end
  local function of(name, default) return flag(path, normalizer[name], default, "the normalizer's " .. name) end
  local small = of("lowercase", true)
  return { clean = of("clean_text", true), chinese = of("handle_chinese_chars", true), small = small,
    strip = of("strip_accents", small) }
end

local function decoder_of(path, decoder)
  if decoder == nil or decoder == core.null then return nil end
  if files.kind(decoder) ~= "WordPiece" or type(decoder.prefix) ~= "string" then
    files.refuse(path, "decoder", decoder)
  end
  return { prefix = decoder.prefix, cleanup = flag(path, decoder.cleanup, true, "the decoder's cleanup") }
end

--- from_json(path, file) -> the ids and the model of a tokenizer.json.
function M.from_json(path, file)
  local model = file.model
  if files.kind(file.pre_tokenizer) ~= "BertPreTokenizer" then
    core.fail("unsupported", ("text.load: %s: the model WordPiece is supported with the pre_tokenizer BertPreTokenizer "
      .. "only"):format(path))
  end
  local unknown, prefix, longest = model.unk_token, model.continuing_subword_prefix, model.max_input_chars_per_word
  if type(unknown) ~= "string" or not model.vocab[unknown] then
    files.fail(path, "its vocabulary lacks the token for unknown words, %s", tostring(unknown))
  elseif type(prefix) ~= "string" or type(longest) ~= "number" then
    files.fail(path, "its model has no continuing_subword_prefix or max_input_chars_per_word")
  end
  return model.vocab, word_pieces.new(model.vocab, { unknown = unknown, prefix = prefix, longest_word = longest,
    words = bert_words(word_options(path, file.normalizer)), decoder = decoder_of(path, file.decoder) })
end

local SPECIAL = { "[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]" }

--- from_vocabulary(path, config) -> the tokenizer of a vocab.txt, a token a line. config: that of
--- tokenizer_config.json, of which do_lower_case, strip_accents and tokenize_chinese_chars count.
function M.from_vocabulary(path, config)
  local ids, added, n = {}, {}, 0
  for line in files.read(path):gmatch "([^\n]*)\n?" do
    local token = line:gsub("%s+$", "")
    if token ~= "" then ids[token] = n end
    n = n + 1
  end
  for _, token in ipairs(SPECIAL) do added[token] = ids[token] end
  if not ids["[UNK]"] then files.fail(path, "it lacks the token [UNK] for unknown words") end
  local small = flag(path, config.do_lower_case, true, "do_lower_case")
  local words = bert_words { clean = true, small = small,
    strip = flag(path, config.strip_accents, small, "strip_accents"),
    chinese = flag(path, config.tokenize_chinese_chars, true, "tokenize_chinese_chars") }
  local model = word_pieces.new(ids, { unknown = "[UNK]", prefix = "##", longest_word = 100, words = words,
    decoder = { prefix = "##", cleanup = true } })
  local around = added["[CLS]"] and added["[SEP]"] and template.around(added["[CLS]"], added["[SEP]"]) or nil
  return tokenizer.new(path, { ids = ids, added = added, model = model, template = around })
end

return M
