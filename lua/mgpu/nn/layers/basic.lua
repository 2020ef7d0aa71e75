--- Layers of no family: Input, Lambda, Dense, the embeddings and Masking, as in the folder "core" of Keras.
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local lora = require "mgpu.nn.layers.lora"
local masks = require "mgpu.nn.masks"
local mixed_precision = require "mgpu.nn.mixed_precision"
local products = require "mgpu.nn.quantized.products"
local quantized = require "mgpu.nn.quantized.layers"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"
local tables = require "mgpu.nn.quantized.tables"

local ops = core.ops

local M = {}

-- ---- Input --------------------------------------------------------------------------------------

--- Input {28, 28, 1}: the shape of one sample, without the batch.
-- The first entry of a Sequential, or the start of a functional model (symbolic_tensor.lua).
-- Options: shape (the sizes; -1 is unknown), dtype (default floatx: integer data are cast to it; "string" for texts,
-- which layers such as TextVectorization read), name, batch_size (any batch fits, but layers with stateful = true learn
-- it from here). RETURNS a symbolic tensor {-1, sizes...}.
-- Example:
--     local x = mgpu.Input { 28, 28, 1 }
--     local model = mgpu.Model { inputs = x, outputs = L.Dense { 10 } (L.Flatten {} (x)) }
--     print(unpack(model(mgpu.zeros { 2, 28, 28, 1 }):shape()))  --> 2 10
local Input = Layer:extend("Input", { whole = "shape", positional = 0,
  { "shape", "shape", required = true },
  { "batch_size", "integer", min = 1 },
})

function Input:init()
  self.autocast = false
  self.is_input = true
  self.built = true
end

function Input:call(x) return x end -- luacheck: no self

function Input:output_shape(shape) return shape end -- luacheck: no self

local make = Input.new

--- new {sizes...} -> the symbolic tensor of the input; the same as calling Input.
function Input.new(given)
  local layer
  if type(given) == "table" and given.dtype == "string" then
    local rest = {}
    for key, value in pairs(given) do rest[key] = key ~= "dtype" and value or nil end
    layer = make(rest)
    layer.states_policy, layer.dtype_policy = true, mixed_precision.TEXT
  else
    layer = make(given)
  end
  local dtype = layer.states_policy and layer.compute_dtype or core.floatx()
  return symbolic_tensor.input(layer, { -1, unpack(layer.shape) }, dtype)
end

M.Input = Input

-- ---- Lambda -------------------------------------------------------------------------------------

--- Lambda {function, output_shape =}: y = function(x, training), any function of tensors.
-- output_shape: the sizes of a sample of the output, or a function of the input's shape; without it the function is
-- called with zeros to find out. Errors: a function that returns no tensor; saving: write a class with
-- mgpu.Layer:extend to get a layer that can be saved.
-- Example:
--     local double = L.Lambda { function(x) return x * 2 end }
--     print(double(mgpu.tensor { { 1, 2 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{2, 4}}
local Lambda = Layer:extend("Lambda", { positional = 1,
  { "function", "function", required = true },
  { "output_shape", "any" },
})

-- The batch of a shape or of an array of shapes.
local function batch_of(shape) return type(shape[1]) == "table" and shape[1][1] or shape[1] end

function Lambda:init()
  local stated = rawget(self, "output_shape") -- the option, not the method of this name
  self.fn, self["function"], self.output_shape = self["function"], nil, nil
  if type(stated) == "table" then
    for _, size in ipairs(stated) do
      if type(size) ~= "number" or size % 1 ~= 0 or size < -1 then
        self:fail "output_shape must hold the sizes of a sample of the output"
      end
    end
    self.output_shape = function(_, shape) return { batch_of(shape), unpack(stated) } end
  elseif type(stated) == "function" then
    self.output_shape = function(_, shape) return stated(shape) end
  elseif stated ~= nil then
    self:fail "output_shape must be the sizes of a sample, without the batch, or a function"
  end
end

function Lambda:call(x, training)
  return self.fn(x, training)
end

function Lambda:get_config()
  self:fail "a Lambda holds a function, which cannot be saved: write a layer with mgpu.Layer:extend"
end

M.Lambda = Lambda

-- ---- Dense --------------------------------------------------------------------------------------

--- Dense {units, activation =, use_bias = true, kernel_initializer = "glorot_uniform", ...}
-- y = activation(x W + b) over the last axis: x {batch, ..., inputs} -> {batch, ..., units}, in the dtype of x.
-- Weights: kernel W {inputs, units}, bias b {units}.
-- Options: bias_initializer = "zeros", kernel_regularizer, bias_regularizer, activity_regularizer,
-- kernel_constraint, bias_constraint, lora_rank and lora_alpha (see enable_lora).
-- Errors: x with fewer than 2 axes, or another last axis than at the first call.
-- Example:
--     local dense = L.Dense { 4, activation = "relu" }
--     print(unpack(dense(mgpu.ones { 2, 3 }):shape()))  --> 2 4
--     -- a kernel of 3 * 4 numbers and 4 biases
--     print((dense:count_params()))  --> 16
local Dense = Layer:extend("Dense", lora.options(kernels.options { positional = 1,
  { "units", "integer", min = 1, required = true },
}))

Dense.supports_masking = true

function Dense:init() kernels.activate(self) end

function Dense:build(shape)
  if #shape < 2 then
    self:fail("the input must have at least 2 axes (batch, features), got shape %s",
      self.shape_text(shape))
  end
  self.kernel = kernels.add(self, "kernel", { shape[#shape], self.units })
  kernels.add_bias(self, self.units)
end

lora.adapt(Dense, "kernel")

function Dense:output_shape(shape)
  if self.activate == activations.glu or type(self.activation) == "function" then
    return Layer.output_shape(self, shape) -- these activations may change the shape
  end
  local out = { unpack(shape) }
  out[#out] = self.units
  return out
end

function Dense:call(x)
  local inputs, shape = self.kernel:shape()[1], x:shape()
  if shape[#shape] ~= inputs then
    self:fail("the input has %s features, the layer was built for %d", tostring(shape[#shape]), inputs)
  end
  local y = ops.matmul(x, lora.weight(self):value())
  if self.bias then y = y + self.bias end
  return self.activate(y)
end

quantized.adapt(Dense, products.Dense)

M.Dense = Dense

-- ---- Embedding ----------------------------------------------------------------------------------

--- Embedding {input_dim, output_dim, embeddings_initializer = "uniform", embeddings_regularizer =,
-- embeddings_constraint =, mask_zero = false, lora_rank =, lora_alpha =}
-- Looks up one row of a table for each id: x {batch, ...} of whole numbers 0 .. input_dim - 1 ->
-- {batch, ..., output_dim}. Weight: embeddings {input_dim, output_dim}.
-- mask_zero: id 0 is padding; its steps are masked (nn/masks.lua), and 0 is still a row of the table.
-- lora_rank, lora_alpha: see enable_lora. Errors: an id outside the table, found when the step runs.
-- Example:
--     local words = L.Embedding { 1000, 16 } -- 1000 words, 16 numbers for each
--     print(unpack(words(mgpu.tensor { { 4, 8, 15 }, { 16, 23, 42 } }):shape()))  --> 2 3 16
local Embedding = Layer:extend("Embedding", lora.options { positional = 2,
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

local build_table = Embedding.build
lora.adapt(Embedding, "embeddings")

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

--- ids(layer, x) -> the ids as integers; a step fails if one is not among those of the layer's table.
function M.ids(layer, x)
  local ids = integer_ids(x)
  core.guard(ops.all(ops.logical_and(ops.ge(ids, 0), ops.lt(ids, layer.input_dim))), "data",
    ("%s: an id is not among 0 to %d (input_dim - 1)"):format(tostring(layer), layer.input_dim - 1))
  return ids
end

function Embedding:call(x)
  local ids = M.ids(self, x)
  return ops.cast(ops.gather(lora.weight(self):value(), ids, { axis = 1 }), { dtype = self.compute_dtype })
end

local look_up = Embedding.call
quantized.adapt(Embedding, tables.Embedding)

M.Embedding = Embedding

-- ---- ReversibleEmbedding ------------------------------------------------------------------------

--- ReversibleEmbedding {input_dim, output_dim, tie_weights = true, embeddings_initializer = "uniform",
-- embeddings_regularizer =, embeddings_constraint =, mask_zero = false, reverse_dtype =, logit_soft_cap =,
-- lora_rank =, lora_alpha =}
-- An Embedding that also goes back: with the call option reverse = true x {batch, ..., output_dim} -> scores of all ids
-- {batch, ..., input_dim}, the products with the rows of the table; with tie_weights = false with the columns of a
-- weight reverse_embeddings {output_dim, input_dim}. logit_soft_cap: scores become cap * tanh(scores / cap).
-- reverse_dtype: the dtype of these products. Errors: as Embedding.
-- Source: Press & Wolf, Using the output embedding to improve language models, 2016.
-- Example:
--     local words = L.ReversibleEmbedding { 1000, 16 }
--     local vectors = words(mgpu.tensor { { 4, 8, 15 } })
--     print(unpack(words(vectors, { reverse = true }):shape()))  --> 1 3 1000
local ReversibleEmbedding = Layer:extend("ReversibleEmbedding", lora.options { positional = 2,
  { "input_dim", "integer", min = 1, required = true },
  { "output_dim", "integer", min = 1, required = true },
  { "tie_weights", "boolean", default = true },
  { "embeddings_initializer", "initializer", default = "uniform" },
  { "embeddings_regularizer", "regularizer" },
  { "embeddings_constraint", "constraint" },
  { "mask_zero", "boolean", default = false },
  { "reverse_dtype", "string" },
  { "logit_soft_cap", "number" },
})

ReversibleEmbedding.takes_integers, ReversibleEmbedding.autocast = true, false
ReversibleEmbedding.call_options = { { "reverse", "boolean" } }
ReversibleEmbedding.call_parameters = { "reverse", "training" }

function ReversibleEmbedding:build()
  build_table(self)
  if self.tie_weights then return end
  self.reverse_embeddings = self:add_weight { name = "reverse_embeddings",
    shape = { self.output_dim, self.input_dim }, initializer = self.embeddings_initializer }
end

lora.adapt(ReversibleEmbedding, "embeddings")

function ReversibleEmbedding:output_shape(shape, _, options)
  if not (options and options.reverse) then return Embedding.output_shape(self, shape) end
  local out = { unpack(shape) }
  if out[#out] ~= self.output_dim then
    self:fail("with reverse = true the input must have %d features, got shape %s", self.output_dim,
      self.shape_text(shape))
  end
  out[#out] = self.input_dim
  return out
end

function ReversibleEmbedding:compute_mask(x, _, options)
  return self.mask_zero and not (options and options.reverse) and ops.ne(x, 0) or nil
end

function ReversibleEmbedding:call(x, training, options)
  if not (options and options.reverse) then return look_up(self, x, training) end
  self:output_shape(x:shape(), nil, options)
  local dtype = self.reverse_dtype or self.compute_dtype
  local kernel = ops.cast((self.reverse_embeddings or lora.weight(self)):value(), { dtype = dtype })
  local y = ops.matmul(ops.cast(x, { dtype = dtype }), kernel, { transpose_b = self.tie_weights })
  local cap = self.logit_soft_cap
  return cap and ops.tanh(y * (1 / cap)) * cap or y
end

quantized.adapt(ReversibleEmbedding, tables.ReversibleEmbedding)

M.ReversibleEmbedding = ReversibleEmbedding

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
