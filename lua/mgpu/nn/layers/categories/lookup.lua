--- Layers with a vocabulary: StringLookup, IntegerLookup. RETURNS the classes by name.
--
-- Indices: 0 for the mask token, if there is one and output_mode is "int"; then num_oov_indices for values that are not
-- in the vocabulary; then the vocabulary, in its order. The option `vocabulary` holds what adapt and set_vocabulary
-- chose, without special tokens, so configurations and files have it.
local core = require "mgpu.core"
local fingerprint = require "mgpu.nn.layers.categories.fingerprint"
local Layer = require "mgpu.nn.layer"
local number_lookup = require "mgpu.nn.layers.categories.number_lookup"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"
local values = require "mgpu.nn.layers.categories.values"

local M = {}

-- What the two have in common.
local Lookup = {}

local function oov_start(self) return self.mask_token ~= nil and self.output_mode == "int" and 1 or 0 end

local function token_start(self) return oov_start(self) + self.num_oov_indices end

function Lookup:init()
  fingerprint.salted(self)
  if self.salt and self.kind == "number" and self.oov_method == "floormod" then
    self:fail 'salt needs oov_method = "farmhash"'
  end
  if self.invert and self.output_mode ~= "int" then self:fail 'invert needs output_mode = "int"' end
  if self.pad_to_max_tokens and not self.max_tokens then self:fail "pad_to_max_tokens needs max_tokens" end
  local n = self.num_oov_indices -- with none, a number that is not in the vocabulary is an error
  self.reads_values = self.kind == "string" or not self.invert and (n == 0 or n > 1 and self.oov_method == "farmhash")
  local list = self.vocabulary
  if list then self:set_vocabulary(list, self.idf_weights) end
end

-- A list without the special tokens, if it begins with them.
local function without_special(self, list)
  for i = 1, token_start(self) do
    local special = i <= oov_start(self) and self.mask_token or self.oov_token
    if list[i] ~= special then return list, false end
  end
  local rest = {}
  for i = token_start(self) + 1, #list do rest[#rest + 1] = list[i] end
  return rest, true
end

--- layer:set_vocabulary(list, idf_weights): the terms, with or without the special tokens before them; weights for
--- output_mode "tf_idf", as many as terms.
function Lookup:set_vocabulary(list, idf)
  if type(list) ~= "table" or #list == 0 then self:fail "the vocabulary must be a list of at least one term" end
  if (idf ~= nil) ~= (self.output_mode == "tf_idf") then
    self:fail(idf and 'idf_weights need output_mode = "tf_idf"' or 'output_mode "tf_idf" needs idf_weights')
  end
  if idf and #idf ~= #list then self:fail("idf_weights has %d numbers for %d terms", #idf, #list) end
  local tokens, special = without_special(self, list)
  local index = {}
  for i, token in ipairs(tokens) do
    if type(token) ~= self.kind then self:fail("term %d of the vocabulary is a %s", i, type(token)) end
    if index[token] then self:fail("the vocabulary has the term %q twice", tostring(token)) end
    if token == self.mask_token then self:fail("the vocabulary has the mask token %q", tostring(token)) end
    index[token] = token_start(self) + i - 1
  end
  local size = token_start(self) + #tokens
  if self.max_tokens and size > self.max_tokens then
    self:fail("the vocabulary has %d tokens, max_tokens is %d", size, self.max_tokens)
  end
  local own = idf
  if idf and special then
    own = {}
    for i = token_start(self) + 1, #idf do own[#own + 1] = idf[i] end
  end
  self.vocabulary, self.index, self.idf_weights, self.sorted = tokens, index, own, nil
end

--- layer:get_vocabulary(include_special_tokens = true) -> the list of terms; a term's index is its place, from 0.
function Lookup:get_vocabulary(special)
  local list = {}
  for i = 1, special == false and 0 or token_start(self) do
    list[i] = i <= oov_start(self) and self.mask_token or self.oov_token
  end
  for _, token in ipairs(self.vocabulary or {}) do list[#list + 1] = token end
  return list
end

--- layer:vocabulary_size() -> the number of terms with the special tokens.
function Lookup:vocabulary_size() return token_start(self) + #(self.vocabulary or {}) end

-- Adds the values of a document to the counts.
local function count(self, document, counts, documents)
  local seen = {}
  values.each(document, function(value)
    if value == self.mask_token or value == self.oov_token then return end
    counts[value] = (counts[value] or 0) + 1
    if not seen[value] then documents[value] = (documents[value] or 0) + 1 end
    seen[value] = true
  end)
end

--- layer:adapt(data): the vocabulary becomes the values of the data, the most frequent ones first. data: a list of
--- documents, a tensor, or a dataset of batches.
function Lookup:adapt(data)
  local counts, documents, total = {}, {}, 0
  local function add(batch)
    batch = values.plain(batch)
    for _, document in ipairs(type(batch) == "table" and batch or { batch }) do
      count(self, self.prepare and self.prepare(document) or document, counts, documents)
      total = total + 1
    end
  end
  values.each_batch(self.class_name .. ": adapt", data, add)
  local list, idf = {}, nil
  for value in pairs(counts) do list[#list + 1] = value end
  if #list == 0 then self:fail "adapt: the data have no values" end
  table.sort(list, function(a, b)
    if counts[a] ~= counts[b] then return counts[a] > counts[b] end
    return a > b
  end)
  for i = #list, (self.max_tokens or math.huge) - token_start(self) + 1, -1 do list[i] = nil end
  if self.output_mode == "tf_idf" then
    idf = {}
    for i, value in ipairs(list) do idf[i] = math.log(1 + total / (1 + documents[value])) end
  end
  self:set_vocabulary(list, idf)
end

-- The index of a value; -1 for masks outside of output_mode "int", which encode leaves out.
local function index_of(self, value)
  if value == self.mask_token then return oov_start(self) == 1 and 0 or -1 end
  local index, n = self.index[value], self.num_oov_indices
  if index then return index end
  if n == 0 then self:fail("%q is not in the vocabulary, and num_oov_indices is 0", tostring(value)) end
  if n == 1 then return oov_start(self) end
  return oov_start(self) + fingerprint.bin(value, self.salt, n)
end

local function term_of(self, index)
  if index == 0 and oov_start(self) == 1 then return self.mask_token end
  return self.vocabulary[index - token_start(self) + 1] or self.oov_token
end

-- The size of the vectors, or nil if it is not known yet.
local function depth_of(self)
  return self.pad_to_max_tokens and self.max_tokens or self.vocabulary and self:vocabulary_size()
end

-- The weights of all indices, for output_mode "tf_idf": the mean for values that are not in the vocabulary.
local function weights_of(self, depth)
  local list, sum = {}, 0
  for _, weight in ipairs(self.idf_weights) do sum = sum + weight end
  for i = 1, depth do list[i] = i <= token_start(self) and sum / #self.idf_weights or 0 end
  for i, weight in ipairs(self.idf_weights) do list[token_start(self) + i] = weight end
  return core.tensor(list)
end

--- layer:named_tensors() -> the tensors that Keras's files hold for the layer besides its weights, by path.
function Lookup:named_tensors()
  if self.output_mode ~= "tf_idf" or not self.idf_weights then return {} end
  return { ["vars/idf_weights"] = weights_of(self, depth_of(self)) }
end

--- layer:encoded(indices) -> the tensor of indices as output_mode says.
function Lookup:encoded(indices)
  local mode, depth = self.output_mode, depth_of(self)
  if mode == "int" then return indices end
  if mode ~= "tf_idf" then return values.encode(indices, mode, depth, "int64") end
  return values.encode(indices, "count", depth, core.floatx()) * weights_of(self, depth)
end

local function need_vocabulary(self)
  if not self.vocabulary then self:fail "has no vocabulary yet: call adapt or set_vocabulary" end
end

--- layer:indices(x) -> nested tables of indices.
function Lookup:indices(x)
  need_vocabulary(self)
  return values.map(x, function(value)
    if type(value) ~= self.kind then self:fail("takes %ss, got a %s", self.kind, type(value)) end
    return index_of(self, value)
  end)
end

function Lookup:output_shape(shape)
  return self.invert and shape or values.encoded_shape(self, shape, self.output_mode, depth_of(self))
end

function Lookup:output_dtype()
  if self.invert and self.kind == "string" then return "string" end
  return self.output_mode == "tf_idf" and core.floatx() or "int64"
end

-- The result for a tensor of whole numbers, made of tensor ops.
local function of_numbers(self, x)
  need_vocabulary(self)
  if self.invert then return number_lookup.terms(self, token_start(self), x) end
  return self:encoded(number_lookup.indices(self, token_start(self), oov_start(self), x))
end

function Lookup:apply(x)
  if symbolic_tensor.any(x) then return symbolic_tensor.connect(self, x) end
  if type(x) ~= "table" and type(x) ~= self.kind and not core.is_tensor(x) then
    self:fail("takes %ss, nested tables or tensors with values, got %s", self.kind, type(x))
  end
  if not self.reads_values then
    if not core.is_tensor(x) then
      values.each(x, function(value)
        if type(value) ~= "number" then self:fail("takes numbers, got a %s", type(value)) end
      end)
      x = core.tensor(x, { dtype = "int64" })
    end
    return of_numbers(self, x)
  end
  x = values.plain(x)
  if not self.invert then return self:encoded(core.tensor(self:indices(x), { dtype = "int64" })) end
  need_vocabulary(self)
  return values.map(x, function(index) return term_of(self, index) end)
end

local function define(name, kind, oov_token)
  local class = Layer:extend(name, {
    { "max_tokens", "integer", min = 2 }, { "num_oov_indices", "integer", default = 1, min = 0 },
    { "mask_token", kind }, { "oov_token", kind, default = oov_token },
    { "vocabulary", "table" }, { "idf_weights", "table" }, { "invert", "boolean", default = false },
    { "output_mode", "string", default = "int", values = { "int", "one_hot", "multi_hot", "count", "tf_idf" } },
    { "pad_to_max_tokens", "boolean", default = false },
    { "oov_method", "string", default = "floormod", values = { "floormod", "farmhash" } },
    { "salt", "integer|integers" },
  })
  for key, method in pairs(Lookup) do class[key] = method end
  class.kind, class.takes_text, class.autocast = kind, kind == "string", false
  return class
end

--- StringLookup {vocabulary =, max_tokens =, num_oov_indices = 1, mask_token =, oov_token = "[UNK]", invert = false,
--- output_mode = "int", ...}: the indices of strings in a vocabulary, or with invert the strings of indices.
-- layer:adapt(data) or layer:set_vocabulary(list) chooses the vocabulary. x: a string or nested tables of strings
-- -> int64 of that shape; output_mode "one_hot", "multi_hot", "count" or "tf_idf": vectors of the size of the
-- vocabulary. Strings are no tensors: use it on tables, in dataset:map, and in models behind an Input with dtype =
-- "string", in front of all layers with weights. Errors: no vocabulary. Source: Keras.
-- Example:
--     local layer = L.StringLookup { vocabulary = { "a", "b" } }
--     print(layer { "b", "x", "a" })
--     --> tensor {3} int64 cpu:0
--     --> {2, 0, 1}
M.StringLookup = define("StringLookup", "string", "[UNK]")

--- IntegerLookup {vocabulary =, max_tokens =, num_oov_indices = 1, mask_token =, oov_token = -1, invert = false,
--- output_mode = "int", oov_method = "floormod", salt =, ...}: the indices of whole numbers in a vocabulary.
-- As StringLookup, for tables and tensors of whole numbers, anywhere in a model. Without out-of-vocabulary indices, and
-- with oov_method "farmhash" for several of them, it reads the values and stands in front of all layers with weights.
-- Source: Keras.
-- Example:
--     local layer = L.IntegerLookup { vocabulary = { 12, 36 } }
--     print(layer { 36, 7, 12 })
--     --> tensor {3} int64 cpu:0
--     --> {2, 0, 1}
M.IntegerLookup = define("IntegerLookup", "number", -1)

return M
