--- Tokenizers of byte-level BPE from files: GPT-2's vocab.json and merges.txt, and tokenizer.json.
local byte_pairs = require "mgpu.text.byte_pairs"
local core = require "mgpu.core"
local files = require "mgpu.text.files"
local tokenizer = require "mgpu.text.tokenizer"

local M = {}

local END_OF_TEXT = "<|endoftext|>"

-- The ranks of merges.txt: a pair a line, the most important one first; lines with "#version" are comments.
local function read_merges(path)
  local ranks, rank = {}, 0
  for line in files.read(path):gmatch "[^\r\n]+" do
    if not line:find "^#version" then
      if not line:find "^%S+ %S+$" then
        files.fail(path, "merge %d is not two tokens with a space between them", rank + 1)
      end
      ranks[line], rank = rank, rank + 1
    end
  end
  return ranks
end

--- from_gpt2(vocab, merges) -> the tokenizer of the two files.
function M.from_gpt2(vocab, merges)
  local ids = files.read_json(vocab)
  return tokenizer.new(vocab, { ids = ids, added = { [END_OF_TEXT] = ids[END_OF_TEXT] },
    model = byte_pairs.new(read_merges(merges), {}) })
end

local MODEL_OPTIONS = { "dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges" }

local function check_parts(path, file)
  local model = file.model
  if model.type ~= nil and model.type ~= "BPE" or files.kind(file.pre_tokenizer) ~= "ByteLevel" then
    core.fail("unsupported", ("text.load: %s: only the models WordPiece, and BPE with the pre_tokenizer ByteLevel, are "
      .. "supported"):format(path))
  end
  files.refuse(path, "normalizer", file.normalizer)
  files.refuse(path, "decoder", files.kind(file.decoder) ~= "ByteLevel" and file.decoder)
  for _, option in ipairs(MODEL_OPTIONS) do files.refuse(path, "model's " .. option, model[option]) end
end

--- from_json(path, file) -> the ids and the model of a tokenizer.json.
function M.from_json(path, file)
  check_parts(path, file)
  local model, before, ranks = file.model, file.pre_tokenizer, {}
  for i, pair in ipairs(files.listed(path, model.merges, "merges")) do
    if type(pair) == "table" and type(pair[1]) == "string" and type(pair[2]) == "string" then
      pair = pair[1] .. " " .. pair[2]
    end
    if type(pair) ~= "string" or not pair:find "^%S+ %S+$" then files.fail(path, "merge %d is not two tokens", i) end
    ranks[pair] = i
  end
  return model.vocab, byte_pairs.new(ranks, { prefix_space = before.add_prefix_space == true,
    whole = before.use_regex == false })
end

return M
