--- Layers of sequences that make masks (nn/masks.lua).
-- RETURNS the classes by name.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

local ops = core.ops

local M = {}

-- ---- Embedding ----------------------------------------------------------------------------------

--- Embedding {input_dim, output_dim, embeddings_initializer = "uniform", embeddings_regularizer =,
-- embeddings_constraint =, mask_zero = false}
-- Looks up one row of a table for each id: x {batch, ...} of whole numbers 0 .. input_dim - 1 ->
-- {batch, ..., output_dim}. Weight: embeddings {input_dim, output_dim}.
-- mask_zero: id 0 is padding; its steps are masked (nn/masks.lua), and 0 is still a row of the table.
-- Errors: an id outside the table, found when the step runs.
-- Example:
--     local words = L.Embedding { 1000, 16 } -- 1000 words, 16 numbers for each
--     print(unpack(words(mgpu.tensor { { 4, 8, 15 }, { 16, 23, 42 } }):shape()))  --> 2 3 16
local Embedding = Layer:extend("Embedding", { positional = 2,
  { "input_dim", "integer", min = 1, required = true },
  { "output_dim", "integer", min = 1, required = true },
  { "embeddings_initializer", "initializer", default = "uniform" },
  { "embeddings_regularizer", "regularizer" },
  { "embeddings_constraint", "constraint" },
  { "mask_zero", "boolean", default = false },
})

Embedding.takes_integers = true -- a model does not cast an input that only such layers read
Embedding.autocast = false -- ids above 256 are not exact in bfloat16; the rows found are cast, not the table

function Embedding:build()
  self.embeddings = self:add_weight { name = "embeddings", shape = { self.input_dim, self.output_dim },
    initializer = self.embeddings_initializer, regularizer = self.embeddings_regularizer,
    constraint = self.embeddings_constraint }
end

function Embedding:output_shape(shape)
  local out = { unpack(shape) }
  out[#out + 1] = self.output_dim
  return out
end

-- The ids as integers. Fractions and NaN become -1, so that the guard finds them.
local function integer_ids(x)
  if x:dtype():find "int" then return x end
  local ids = ops.cast(x, { dtype = "int32" })
  return ops.where(ops.eq(ops.cast(ids, { dtype = x:dtype() }), x), ids, -1)
end

function Embedding:compute_mask(x) return self.mask_zero and ops.ne(x, 0) or nil end

function Embedding:call(x)
  local ids = integer_ids(x)
  core.guard(ops.all(ops.logical_and(ops.ge(ids, 0), ops.lt(ids, self.input_dim))), "data",
    ("%s: an id is not among 0 to %d (input_dim - 1)"):format(tostring(self), self.input_dim - 1))
  return ops.cast(ops.gather(self.embeddings, ids, { axis = 1 }), { dtype = self.compute_dtype })
end

M.Embedding = Embedding

-- ---- Masking ------------------------------------------------------------------------------------

--- Masking {mask_value = 0}: steps whose numbers all equal mask_value are masked, and become 0.
-- x {batch, steps, ...} -> the same shape and dtype, with a mask {batch, steps}: see nn/masks.lua.
-- Example:
--     local model = mgpu.Sequential { L.Masking { 0 }, L.GlobalAveragePooling1D {} }
--     -- the mean of the steps that are not 0
--     print(model(mgpu.tensor { { { 4 }, { 6 }, { 0 } } }):item())  --> 5
local Masking = Layer:extend("Masking", { positional = 1, { "mask_value", "number", default = 0 } })

function Masking:build(shape)
  if #shape < 2 then self:fail("the input must have at least 2 axes, got shape %s", self.shape_text(shape)) end
end

function Masking:output_shape(shape) return shape end -- luacheck: no self

function Masking:compute_mask(x) return ops.any(ops.ne(x, self.mask_value), { axis = -1 }) end

function Masking:call(x) return x * masks.wide(self:compute_mask(x), x) end

M.Masking = Masking

return M
