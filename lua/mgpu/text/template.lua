--- What a tokenizer puts around texts: the post_processor of a tokenizer.json.
local core = require "mgpu.core"
local files = require "mgpu.text.files"

-- Pieces of a template of the kind TemplateProcessing.
local function pieces_of(path, list, specials)
  local pieces = {}
  if type(list) ~= "table" then files.fail(path, "the template of its post_processor is not a list") end
  for i, entry in ipairs(list) do
    local special = type(entry) == "table" and entry.SpecialToken
    local piece = special or type(entry) == "table" and entry.Sequence
    if type(piece) ~= "table" or type(piece.id) ~= "string" or type(piece.type_id) ~= "number" then
      files.fail(path, "piece %d of the template of its post_processor is no token and no sequence", i)
    end
    local token = special and specials[piece.id]
    if special and (type(token) ~= "table" or type(token.ids) ~= "table" or type(token.ids[1]) ~= "number") then
      files.fail(path, "its post_processor does not give the ids of %q", piece.id)
    end
    if not special and piece.id ~= "A" and piece.id ~= "B" then
      files.fail(path, "its post_processor has a sequence %q", piece.id)
    end
    pieces[i] = { ids = token and token.ids, sequence = not special and piece.id or nil, type = piece.type_id }
  end
  return pieces
end

local READERS = {}

function READERS.TemplateProcessing(path, value)
  local specials = type(value.special_tokens) == "table" and value.special_tokens or {}
  return { single = pieces_of(path, value.single, specials), pair = pieces_of(path, value.pair, specials) }
end

--- around(first, last) -> the template of BERT: a token before the text and one behind it and behind a second one.
local function around(first, last)
  local function token(id, type_id) return { ids = { id }, type = type_id } end
  local single = { token(first, 0), { sequence = "A", type = 0 }, token(last, 0) }
  local pair = { unpack(single) }
  pair[4], pair[5] = { sequence = "B", type = 1 }, token(last, 1)
  return { single = single, pair = pair }
end

function READERS.BertProcessing(path, value)
  local ids = {}
  for _, name in ipairs { "cls", "sep" } do
    local token = value[name]
    if type(token) ~= "table" or type(token[2]) ~= "number" then
      files.fail(path, "its post_processor does not give the token %s and its id", name)
    end
    ids[#ids + 1] = token[2]
  end
  return around(ids[1], ids[2])
end

function READERS.ByteLevel() return nil end -- it moves the places of tokens in the text, not the tokens

--- read(path, value) -> the template for a tokenizer, or nil. value: the post_processor of the file. Errors: other
--- kinds.
local function read(path, value)
  if value == nil or value == core.null then return nil end
  local reader = READERS[files.kind(value)]
  if not reader then files.refuse(path, "post_processor", value) end
  return reader(path, value)
end

return { read = read, around = around }
