--- TextVectorization {max_tokens =, standardize = "lower_and_strip_punctuation", split = "whitespace", ngrams =,
--- output_mode = "int", output_sequence_length =, pad_to_max_tokens = false, vocabulary =, idf_weights =}: texts as
--- indices of words, or as vectors that count them.
-- layer:adapt(texts) or layer:set_vocabulary(list) chooses the vocabulary. x: a list of strings or {batch, 1} -> int64
-- {batch, words}, padded with 0, or cut, to output_sequence_length or to the longest text; index 1 is for unknown
-- words. Other output modes: {batch, size of the vocabulary}. standardize: also "lower", "strip_punctuation", "none" or
-- a function of a text; split: also "character", "none" or a function that returns a list; ngrams: a number or a list
-- of them. Letters outside of ASCII are not lowered. In a model it stands behind an Input with dtype = "string", in
-- front of all layers with weights. Source: Keras.
-- Example:
--     local layer = L.TextVectorization { output_sequence_length = 4 }
--     layer:adapt { "The cat.", "the dog" }
--     print(table.concat(layer:get_vocabulary(), " "))  -->  [UNK] the dog cat
--     print(layer { "the Cat sat" })
--     --> tensor {1, 4} int64 cpu:0
--     --> {{2, 4, 1, 0}}
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local lookup = require "mgpu.nn.layers.categories.lookup"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"
local values = require "mgpu.nn.layers.categories.values"

local MODES = { "int", "multi_hot", "count", "tf_idf" }

local TextVectorization = Layer:extend("TextVectorization", {
  { "max_tokens", "integer", min = 2 },
  { "standardize", "string|function", default = "lower_and_strip_punctuation" },
  { "split", "string|function", default = "whitespace" },
  { "ngrams", "integer|integers" },
  { "output_mode", "string", default = "int", values = MODES },
  { "output_sequence_length", "integer", min = 1 },
  { "pad_to_max_tokens", "boolean", default = false },
  { "vocabulary", "table" },
  { "idf_weights", "table" },
})

local PUNCTUATION = "[!\"#$%%&()*+,%-./:;<=>?@%[\\%]^_`{|}~']"

local function strip(text) return (text:gsub(PUNCTUATION, "")) end

local STANDARDIZE = {
  lower = string.lower,
  strip_punctuation = strip,
  lower_and_strip_punctuation = function(text) return strip(text:lower()) end,
  none = function(text) return text end,
}

local function parts(pattern)
  return function(text)
    local list = {}
    for part in text:gmatch(pattern) do list[#list + 1] = part end
    return list
  end
end

local SPLIT = {
  whitespace = parts "[^ \t\n\v\f\r]+",
  character = parts "[%z\1-\127\194-\244][\128-\191]*",
  none = function(text) return { text } end,
}

local function chosen(self, name, known)
  local value = self[name]
  if type(value) == "function" then return value end
  local names = {}
  for key in pairs(known) do names[#names + 1] = key end
  table.sort(names)
  return known[value] or self:fail("option %q: unknown value %q; it is a function or one of %s", name, value,
    table.concat(names, ", "))
end

local function with_ngrams(words, widths)
  local list = {}
  for _, width in ipairs(widths) do
    for i = 1, #words - width + 1 do list[#list + 1] = table.concat(words, " ", i, i + width - 1) end
  end
  return list
end

-- What the vocabulary has become, as options.
local function keep(self)
  self.vocabulary, self.idf_weights = self.lookup().vocabulary, self.lookup().idf_weights
end

function TextVectorization:init()
  local standardize, split = chosen(self, "standardize", STANDARDIZE), chosen(self, "split", SPLIT)
  local widths = self.ngrams
  if type(widths) == "number" then
    widths = {}
    for i = 1, self.ngrams do widths[i] = i end
  end
  if self.output_sequence_length and self.output_mode ~= "int" then
    self:fail 'output_sequence_length needs output_mode = "int"'
  end
  local words = lookup.StringLookup { name = self.name, max_tokens = self.max_tokens, mask_token = "",
    output_mode = self.output_mode, pad_to_max_tokens = self.pad_to_max_tokens, vocabulary = self.vocabulary,
    idf_weights = self.idf_weights }
  words.class_name = self.class_name
  function words.prepare(text)
    if type(text) == "table" and #text == 1 then text = text[1] end
    if type(text) ~= "string" then self:fail("takes texts, got a %s", type(text)) end
    local list = split(standardize(text))
    return widths and with_ngrams(list, widths) or list
  end
  self.lookup = function() return words end -- a function, since it is no layer inside of this one
  keep(self)
end

--- layer:named_tensors() -> the tensors that Keras's files hold for the layer besides its weights, by path.
-- Example:
--     print(next(L.TextVectorization { vocabulary = { "a" } }:named_tensors()))  --> nil
function TextVectorization:named_tensors()
  local list = {}
  for path, t in pairs(self.lookup():named_tensors()) do list[path], list["_lookup_layer/" .. path] = t, t end
  return list
end

--- layer:adapt(data): the vocabulary becomes the words of the data, the most frequent ones first. data: a list of
--- texts, or a dataset of batches of text.
-- Example:
--     local layer = L.TextVectorization {}
--     layer:adapt { "b a b" }
--     print(table.concat(layer:get_vocabulary(false), " "))  --> b a
function TextVectorization:adapt(data)
  self.lookup():adapt(data)
  keep(self)
end

--- layer:set_vocabulary(list, idf_weights): the words, with or without "" and "[UNK]" before them; weights for
--- output_mode "tf_idf", as many as words.
-- Example:
--     local layer = L.TextVectorization {}
--     layer:set_vocabulary { "a", "b" }
--     print(layer:vocabulary_size())  --> 4
function TextVectorization:set_vocabulary(list, idf)
  self.lookup():set_vocabulary(list, idf)
  keep(self)
end

--- layer:get_vocabulary(include_special_tokens = true) -> the list of words; a word's index is its place, from 0.
-- Example:
--     local layer = L.TextVectorization { vocabulary = { "a", "b" } }
--     print(#layer:get_vocabulary(), #layer:get_vocabulary(false))  --> 4 2
function TextVectorization:get_vocabulary(special) return self.lookup():get_vocabulary(special) end

--- layer:vocabulary_size() -> the number of words with the special tokens.
-- Example:
--     local layer = L.TextVectorization { vocabulary = { "a", "b" } }
--     print(layer:vocabulary_size())  --> 4
function TextVectorization:vocabulary_size() return self.lookup():vocabulary_size() end

TextVectorization.reads_values, TextVectorization.takes_text = true, true

function TextVectorization:output_shape(shape)
  if #shape > 2 or (shape[2] or 1) ~= 1 then
    self:fail("takes one text a row, an Input of shape {1} or {}, got %s", self.shape_text(shape))
  end
  if self.output_mode == "int" then return { shape[1], self.output_sequence_length or -1 } end
  return self.lookup():output_shape { shape[1], 1 }
end

function TextVectorization:output_dtype() return self.lookup():output_dtype() end

function TextVectorization:apply(x)
  if symbolic_tensor.any(x) then return symbolic_tensor.connect(self, x) end
  if not values.is_text(x) then self:fail("takes texts, in tables or datasets, got %s", type(x)) end
  local words, single = self.lookup(), type(x) == "string"
  local rows, longest = {}, self.output_sequence_length or 0
  for i, text in ipairs(single and { x } or x) do
    rows[i] = words:indices(words.prepare(text))
    if not self.output_sequence_length then longest = math.max(longest, #rows[i]) end
  end
  local fill = self.output_mode == "int" and 0 or -1 -- encode leaves -1 out
  if self.output_mode ~= "int" then longest = math.max(longest, 1) end -- a tensor of no numbers has no rows
  for _, row in ipairs(rows) do
    for i = #row + 1, longest do row[i] = fill end
    for i = #row, longest + 1, -1 do row[i] = nil end
  end
  if longest == 0 then return core.ops.full(single and { 0 } or { #rows, 0 }, 0, "int64") end
  local y = words:encoded(core.tensor(rows, { dtype = "int64" }))
  return single and y[1] or y
end

return TextVectorization
