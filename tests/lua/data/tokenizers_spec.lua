-- mgpu.text: tokenizers, compared with Hugging Face's package tokenizers (golden/tokenizers), and damaged files.
package.path = "tests/?.lua;" .. package.path
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test

local FOLDER = "tests/golden/tokenizers/"

local function cases() return core.json_decode(check.read(FOLDER .. "cases.json")) end

for _, path in ipairs { "byte_level.json", "gpt2" } do
  test("byte-level BPE encodes and decodes as the package tokenizers: " .. path, function()
    local tok = mgpu.text.load(FOLDER .. path)
    for _, case in ipairs(cases()) do
      check.equal(tok:encode(case.text), case.ids)
      check.equal(tok:decode(case.ids), case.text)
    end
    check.equal(tok:id "<|endoftext|>", 0)
    check.equal(tok.vocab_size, 330)
  end)
end

test("text that is not UTF-8 is encoded byte by byte and comes back", function()
  local tok = mgpu.text.load(FOLDER .. "gpt2")
  for _, text in ipairs { "\255\254 a\128", "\195", "the\xe4\xbd cat" } do
    check.equal(tok:decode(tok:encode(text)), text)
  end
end)

test("a long word is encoded", function()
  local tok = mgpu.text.load(FOLDER .. "gpt2")
  local text = ("the"):rep(1000)
  check.equal(tok:decode(tok:encode(text)), text)
end)

local BYTE_LEVEL = '"pre_tokenizer": {"type": "ByteLevel"}'
local UNSUPPORTED = "only the models WordPiece, and BPE"
local DAMAGED = {
  { "[", "not a JSON object" },
  { "{}", "no model with a vocabulary" },
  { '{"model": {"type": "Unigram", "vocab": {}}}', UNSUPPORTED },
  { '{"model": {"type": "BPE", "vocab": {}}, "pre_tokenizer": {"type": "Split"}}', UNSUPPORTED },
  { '{"model": {"vocab": {}}, "normalizer": {"type": "NFC"}, ' .. BYTE_LEVEL .. "}", "normalizer is not supported" },
  { '{"model": {"vocab": {"a": -1}}, ' .. BYTE_LEVEL .. "}", "no whole number from 0 on" },
  { '{"model": {"vocab": {"a": 0}, "merges": 3}, ' .. BYTE_LEVEL .. "}", "merges is not a list" },
  { '{"model": {"vocab": {"a": 0}, "merges": ["abc"]}, ' .. BYTE_LEVEL .. "}", "merge 1 is not two tokens" },
  { '{"model": {"vocab": {"a": 0}}, "added_tokens": [3], ' .. BYTE_LEVEL .. "}", "added token 1 has no content" },
  { '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "", "id": 1}], ' .. BYTE_LEVEL .. "}",
    "an added token is empty" },
}

-- Parts that would change the tokens are refused.
for part, words in pairs {
  ['"model": {"vocab": {"a": 0}, "dropout": 0.1}'] = "its model's dropout is not supported",
  ['"model": {"vocab": {"a": 0}, "end_of_word_suffix": "</w>"}'] = "its model's end_of_word_suffix is not",
  ['"model": {"vocab": {"a": 0}, "continuing_subword_prefix": "##"}'] = "its model's continuing_subword_prefix is not",
  ['"model": {"vocab": {"a": 0}, "byte_fallback": true}'] = "its model's byte_fallback is not",
  ['"model": {"vocab": {"a": 0}, "ignore_merges": true}'] = "its model's ignore_merges is not",
  ['"model": {"vocab": {"a": 0}}, "truncation": {"max_length": 3}'] = "its truncation is not supported",
  ['"model": {"vocab": {"a": 0}}, "padding": {"pad_id": 3}'] = "its padding is not supported",
  ['"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}'] = "its decoder is not supported",
  ['"model": {"vocab": {"a": 0}}, "post_processor": {"type": "RobertaProcessing"}'] = "its post_processor is not",
  ['"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "b", "id": 1, "lstrip": true}]'] =
    'its added token "b" with lstrip is not supported',
} do DAMAGED[#DAMAGED + 1] = { "{" .. part .. ", " .. BYTE_LEVEL .. "}", words } end

local PIECES = '"pre_tokenizer": {"type": "BertPreTokenizer"}, '
local WORD_PIECE = PIECES .. '"model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0}, '
  .. '"continuing_subword_prefix": "##", "max_input_chars_per_word": 9}'
local PROCESSOR = WORD_PIECE .. ', "post_processor": {"type": "TemplateProcessing", "pair": [], '
for text, words in pairs {
  ['"model": {"type": "WordPiece", "vocab": {"a": 0}}'] = "supported with the pre_tokenizer BertPreTokenizer only",
  [PIECES .. '"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "b"}'] = "lacks the token for unknown",
  [PIECES .. '"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a"}'] = "no continuing_subword_prefix",
  [WORD_PIECE .. ', "normalizer": {"type": "Lowercase"}'] = "its normalizer is not supported",
  [WORD_PIECE .. ', "normalizer": {"type": "BertNormalizer", "lowercase": 3}'] = "lowercase is not true or false",
  [WORD_PIECE .. ', "decoder": {"type": "BPEDecoder"}'] = "its decoder is not supported",
  [WORD_PIECE .. ', "normalizer": {"type": "BertNormalizer"}, "added_tokens": [{"content": "b", "normalized": true}]'] =
    'added token "b" with normalized is not',
  [WORD_PIECE .. ', "post_processor": {"type": "BertProcessing", "cls": 3}'] = "does not give the token cls",
  [PROCESSOR .. '"single": 3}'] = "the template of its post_processor is not a list",
  [PROCESSOR .. '"single": [3]}'] = "piece 1 of the template of its post_processor is no token",
  [PROCESSOR .. '"single": [{"Sequence": {"id": "C", "type_id": 0}}]}'] = 'has a sequence "C"',
  [PROCESSOR .. '"single": [{"SpecialToken": {"id": "C", "type_id": 0}}]}'] = 'does not give the ids of "C"',
} do DAMAGED[#DAMAGED + 1] = { "{" .. text .. "}", words } end

test("damaged and unsupported tokenizer files give clear errors", function()
  local path = check.path "tokenizer.json"
  for _, case in ipairs(DAMAGED) do
    check.write(path, case[1])
    check.raises(function() mgpu.text.load(path) end, case[2])
  end
  local folder = path:match "^(.*)/"
  os.remove(path)
  check.write(folder .. "/vocab.json", '{"a": 0}')
  check.write(folder .. "/merges.txt", "a b c\n")
  check.raises(function() mgpu.text.load(folder) end, "merge 1 is not two tokens")
  check.write(folder .. "/words.txt", "[CLS]\n")
  check.raises(function() mgpu.text.load(folder .. "/words.txt") end, "lacks the token %[UNK%] for unknown words")
end)

for path, recorded in pairs(core.json_decode(check.read(FOLDER .. "word_pieces.json"))) do
  test("WordPiece encodes and decodes as the package tokenizers: " .. path, function()
    local tok = mgpu.text.load(FOLDER .. path)
    for _, case in ipairs(recorded.cases) do
      check.equal(tok:encode(case.text), case.ids)
      check.equal(tok:encode(case.text, { add_special_tokens = false }), case.plain)
      check.equal(tok:decode(case.ids), case.whole)
      check.equal(tok:decode(case.ids, { skip_special_tokens = true }), case.decoded)
    end
    for _, case in ipairs(recorded.pairs) do
      local ids, types = tok:encode(case.text, { pair = case.pair })
      check.equal(ids, case.ids)
      check.equal(types, case.types)
    end
  end)
end

-- Tokens were looked for up to the end of the word, in time that grew with the cube of its length: here some hours.
test("a long word of a tokenizer.json that allows it is cut into pieces", function()
  local path = check.path "long.json"
  check.write(path, (check.read(FOLDER .. "bert.json"):gsub('("max_input_chars_per_word": )%d+', "%11000000")))
  local tok = mgpu.text.load(path)
  local ids, short = tok:encode(("a"):rep(20000)), tok:encode "aa"
  check.equal({ #ids, ids[2], ids[3], ids[20001] }, { 20002, short[2], short[3], short[3] })
end)

test("a pair of texts for a tokenizer without a template is one text after the other", function()
  local tok = mgpu.text.load(FOLDER .. "gpt2")
  local ids, types = tok:encode("the", { pair = "cat" })
  local first, second = tok:encode "the", tok:encode "cat"
  check.equal(#ids, #first + #second)
  check.equal({ ids[1], ids[#ids], types[1], types[#ids] }, { first[1], second[#second], 0, 1 })
end)

test("wrong calls of a tokenizer say what is wrong", function()
  local tok = mgpu.text.load(FOLDER .. "gpt2")
  check.raises(function() mgpu.text.load(3) end, "expected a path")
  check.raises(function() mgpu.text.load "/nowhere" end, "No such file")
  check.raises(function() mgpu.text.load(FOLDER) end, "cannot be read")
  check.raises(function() tok:encode(3) end, "expected text")
  check.raises(function() tok:decode(3) end, "expected a list of ids")
  check.raises(function() tok:encode("a", { pairs = "b" }) end, 'unknown option "pairs"')
  check.raises(function() tok:decode { 5000 } end, "no token has the id 5000")
  local path = check.path "tokenizer.json"
  check.write(path, '{"model": {"vocab": {"a": 0}}, ' .. BYTE_LEVEL .. "}")
  check.raises(function() mgpu.text.load(path):encode "b" end, 'lacks the token "b"')
end)
