--- Layers that hash values into bins: Hashing, HashedCrossing. RETURNS the classes by name.
--
-- They read the values, so they work on tables of strings or numbers and on tensors with values, as in dataset:map with
-- text, and at the front of models (nn/host_part.lua), but not inside of traced functions.
local core = require "mgpu.core"
local fingerprint = require "mgpu.nn.layers.categories.fingerprint"
local Layer = require "mgpu.nn.layer"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"
local values = require "mgpu.nn.layers.categories.values"

local M = {}

-- Without its fraction, as Keras casts it; and without the sign of -0.
local function whole(value) return (value < 0 and math.ceil(value) or math.floor(value)) + 0 end

--- Hashing {num_bins, mask_value =, salt =, output_mode = "int"}: the bin of each value, by a hash of its text.
-- The hash is FarmHash64, or with a salt (a whole number or two) SipHash64: the same bins as in Keras. mask_value: its
-- bin is 0, which no other value gets. x: strings, nested tables of strings, or whole numbers -> int64 of the same
-- shape; other output modes as in CategoryEncoding, floating. In models it stands in front of layers with weights.
-- Source: Keras.
-- Example:
--     print(L.Hashing { 3 } { { "A" }, { "B" }, { "C" } })
--     --> tensor {3, 1} int64 cpu:0
--     --> {{1},
--     -->  {0},
--     -->  {1}}
local Hashing = Layer:extend("Hashing", { positional = 1,
  { "num_bins", "integer", min = 1, required = true },
  { "mask_value", "string|number" },
  { "salt", "integer|integers" },
  { "output_mode", "string", default = "int", values = { "int", "one_hot", "multi_hot", "count" } },
})

function Hashing:init() fingerprint.salted(self) end

Hashing.reads_values, Hashing.takes_text = true, true

function Hashing:output_shape(shape) return values.encoded_shape(self, shape, self.output_mode, self.num_bins) end

function Hashing:output_dtype() return self.output_mode == "int" and "int64" or core.floatx() end

function Hashing:apply(x)
  if symbolic_tensor.any(x) then return symbolic_tensor.connect(self, x) end
  local bins, masked = self.num_bins, self.mask_value ~= nil and self.num_bins > 1
  if masked then bins = bins - 1 end
  local function bin(value)
    if masked and value == self.mask_value then return 0 end
    return fingerprint.bin(type(value) == "number" and whole(value) or value, self.salt, bins) + (masked and 1 or 0)
  end
  if type(x) ~= "string" and type(x) ~= "table" and not core.is_tensor(x) then
    self:fail("takes strings, numbers or tensors with values, got %s", type(x))
  end
  local indices = core.tensor(values.map(values.plain(x), bin), { dtype = "int64" })
  return values.encode(indices, self.output_mode, self.num_bins, self:output_dtype())
end

M.Hashing = Hashing

local KEY = 0xDECAFCAFFEULL

--- HashedCrossing {num_bins, output_mode = "int"}: the bin of each combination of values of two or more features.
-- Called with an array of features, each a list of strings or whole numbers {batch} or {batch, 1} -> int64 of that
-- shape; output_mode "one_hot": {batch, num_bins}, floating. The bins are those of Keras. Source: Keras.
-- Example:
--     print(L.HashedCrossing { 5 } { { "A", "B" }, mgpu.tensor({ 101, 101 }, { dtype = "int64" }) }:shape()[1])  --> 2
local HashedCrossing = Layer:extend("HashedCrossing", { positional = 1,
  { "num_bins", "integer", min = 1, required = true },
  { "output_mode", "string", default = "int", values = { "int", "one_hot" } },
})

HashedCrossing.reads_values, HashedCrossing.takes_text = true, true

function HashedCrossing:output_shape(shapes)
  return values.encoded_shape(self, shapes[1], self.output_mode, self.num_bins)
end

HashedCrossing.output_dtype = Hashing.output_dtype

function HashedCrossing:apply(features)
  if type(features) ~= "table" or symbolic_tensor.is_symbol(features) or #features < 2 then
    self:fail "takes an array of at least two features"
  end
  if symbolic_tensor.any(features) then return symbolic_tensor.connect(self, features) end
  local columns, like = {}, values.plain(features[1])
  for k, feature in ipairs(features) do
    local list = {}
    values.each(values.plain(feature), function(value) list[#list + 1] = value end)
    if k > 1 and #list ~= #columns[1] then
      self:fail("feature 1 has %d values, but feature %d has %d", #columns[1], k, #list)
    end
    columns[k] = list
  end
  local row = 0
  local indices = values.map(like, function()
    local hash = KEY
    row = row + 1
    for _, list in ipairs(columns) do
      local value = list[row]
      if type(value) == "number" and value % 1 ~= 0 then self:fail("takes strings and whole numbers, got %g", value) end
      hash = fingerprint.cat(hash, type(value) == "string" and fingerprint.farm(value)
        or fingerprint.whole(value))
    end
    return fingerprint.bucket(hash, self.num_bins)
  end)
  return values.encode(core.tensor(indices, { dtype = "int64" }), self.output_mode, self.num_bins, self:output_dtype())
end

M.HashedCrossing = HashedCrossing

return M
