--- What the transformers of mgpu.models share: learned positions, and blocks of attention and a small dense network.
--
-- Source: Vaswani et al., Attention is all you need, 2017; Radford et al., Language models are unsupervised multitask
-- learners (GPT-2), 2019.
local core = require "mgpu.core"
local L = require "mgpu.nn.layers"
local Layer = require "mgpu.nn.layer"

local ops = core.ops
local M = {}

--- PositionEmbedding {length}: adds a learned vector for each position, which begins as random numbers.
-- x {batch, steps, features} -> the same shape and dtype. Weight: embeddings {length, features}. Errors: more steps
-- than length.
local PositionEmbedding = Layer:extend("PositionEmbedding", { positional = 1,
  { "length", "integer", min = 1, required = true },
  { "embeddings_initializer", "initializer", default = "uniform" },
})

PositionEmbedding.supports_masking = true

function PositionEmbedding:build(shape)
  self:need_rank(shape, 3, "batch, steps, features")
  self.embeddings = self:add_weight { name = "embeddings", shape = { self.length, shape[3] },
    initializer = self.embeddings_initializer }
end

function PositionEmbedding:output_shape(shape) -- luacheck: no self
  return shape
end

function PositionEmbedding:call(x)
  local shape = x:shape()
  if shape[2] > self.length then
    self:fail("the input has %d steps, there are %d positions", shape[2], self.length)
  end
  return x + ops.slice(self.embeddings:value(), { start = { 0, 0 }, stop = { shape[2], shape[3] } })
end

M.PositionEmbedding = PositionEmbedding

-- The dense network of a block: width * ratio units with gelu, and back.
local function feed_forward(x, how, name)
  local function dense(units, activation, part)
    return L.Dense { units, activation = activation, kernel_initializer = how.initializer, name = name .. part }
  end
  x = dense(how.width * how.ratio, not how.tanh and "gelu" or nil, "_dense_1")(x)
  if how.tanh then
    x = L.Operation { "Gelu", { x = { input = 1 }, approximate = true }, name = name .. "_gelu" } (x)
  end
  return dense(how.width, nil, "_dense_2")(x)
end

--- block(x, how, name) -> x after self-attention and a dense network, each normalized before and added to its input.
-- ARGS how: width, heads, ratio (of the dense network's units to width), dropout, epsilon (of the normalizations),
--   causal, tanh (whether gelu is approximated by tanh; masks end there), initializer (of the kernels; may be nil).
-- name: the layers are called NAME_norm_1, NAME_attention, NAME_norm_2, NAME_dense_1, ...
function M.block(x, how, name)
  local function added(y, part)
    if how.dropout > 0 then y = L.Dropout { how.dropout, name = ("%s_dropout_%d"):format(name, part) } (y) end
    return L.Add { name = ("%s_add_%d"):format(name, part) } { x, y }
  end
  local function normalized(part)
    return L.LayerNormalization { epsilon = how.epsilon, name = ("%s_norm_%d"):format(name, part) } (x)
  end
  local attention = L.MultiHeadAttention { how.heads, how.width / how.heads, dropout = how.dropout,
    kernel_initializer = how.initializer, name = name .. "_attention" }
  local y = normalized(1)
  x = added(attention({ y, y }, { use_causal_mask = how.causal or nil }), 1)
  x = added(feed_forward(normalized(2), how, name), 2)
  return x
end

--- check_heads(who, width, heads): raises unless the heads share the width evenly.
function M.check_heads(who, width, heads)
  if width % heads ~= 0 then
    core.fail("usage", ("%s: width %d is no multiple of the %d heads"):format(who, width, heads))
  end
end

return M
