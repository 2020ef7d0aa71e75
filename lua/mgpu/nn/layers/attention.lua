--- Layers of attention without projections, as in Keras: Attention and AdditiveAttention.
--
-- They are called with an array {query, value} or {query, value, key}: query {batch, queries, size}, value {batch,
-- keys, size'}, key {batch, keys, size} (value, if it is missing) -> {batch, queries, size'}. The masks of query and
-- value count: masked keys get no weight, masked queries give 0.
-- Call options: use_causal_mask = false (a query sees keys up to its own position), return_attention_scores = false
-- (the result is {output, weights {batch, queries, keys}}).
-- RETURNS the classes by name.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"
local scores_of = require "mgpu.nn.layers.attention_scores"

local ops = core.ops
local M = {}

-- ---- what both share ----------------------------------------------------------------------------

local function check(self, shapes)
  if type(shapes[1]) ~= "table" or #shapes < 2 or #shapes > 3 then
    self:fail("takes an array {query, value} or {query, value, key}")
  end
  for i, shape in ipairs(shapes) do
    self:need_rank(shape, 3, ({ "batch, queries, size", "batch, keys, size", "batch, keys, size" })[i])
  end
  local query, value, key = shapes[1], shapes[2], shapes[3] or shapes[2]
  if query[3] ~= key[3] or value[2] ~= key[2] then
    self:fail("the inputs %s (query), %s (value) and %s (key) do not fit: query and key have vectors of one size, "
      .. "value and key the same number of steps", self.shape_text(query), self.shape_text(value), self.shape_text(key))
  end
end

local function output_shape(self, shapes, _, options)
  check(self, shapes)
  local query, value = shapes[1], shapes[2]
  local out = { query[1], query[2], value[3] }
  if not (options and options.return_attention_scores) then return out end
  return { out, { query[1], query[2], value[2] } }
end

local function shapes_of(xs)
  local shapes = {}
  for i, x in ipairs(type(xs) == "table" and xs or { xs }) do shapes[i] = x:shape() end
  return shapes
end

-- The mask {batch, queries, keys} of the scores, and that of the queries.
local function masks_of(xs, options)
  local given, mask = masks.now() or {}, nil
  local queries, keys = xs[1]:shape()[2], xs[2]:shape()[2]
  if given[2] then
    local shape = given[2]:shape()
    mask = ops.reshape(given[2], { shape = { shape[1], 1, shape[2] } })
  end
  if options and options.use_causal_mask then
    local causal = ops.reshape(scores_of.causal(queries, keys, xs[1]), { shape = { 1, queries, keys } })
    mask = scores_of.both(mask, causal)
  end
  return mask, given[1]
end

local function call(self, xs, training, options)
  check(self, shapes_of(xs))
  local query, value, key = xs[1], xs[2], xs[3] or xs[2]
  local mask, query_mask = masks_of(xs, options)
  local weights = scores_of.weights(self:scores(query, key), mask)
  local y = ops.matmul(scores_of.dropped(self, weights, training), value)
  if query_mask then y = ops.where(masks.aligned(query_mask, y), y, 0) end
  if options and options.return_attention_scores then return { y, weights } end
  return y
end

-- query {batch, queries, 1, size} + key {batch, 1, keys, size}.
local function sums(query, key)
  local q, k = query:shape(), key:shape()
  return ops.reshape(query, { shape = { q[1], q[2], 1, q[3] } })
    + ops.reshape(key, { shape = { k[1], 1, k[2], k[3] } })
end

local function define(class_name, declared)
  local class = Layer:extend(class_name, declared)
  class.call_options = scores_of.call_options
  class.call_parameters = { "mask", "training", "return_attention_scores", "use_causal_mask" }
  class.output_shape, class.call = output_shape, call
  function class:compute_mask(_, mask) return type(mask) == "table" and mask[1] or nil end -- luacheck: no self
  return class
end

-- ---- Attention ----------------------------------------------------------------------------------

--- Attention {use_scale = false, score_mode = "dot", dropout = 0, seed =} {query, value, key}.
-- softmax(scores) value, with scores = query key' ("dot"), times a learned `scale` with use_scale; or
-- concat_score_weight * sum(tanh(scale * (query + key))) ("concat"). dropout: of the weights, in training.
-- Weights: scale {} with use_scale, concat_score_weight {} with "concat"; both begin as 1.
-- Source: Luong et al., Effective approaches to attention-based neural machine translation, 2015.
-- Example:
--     local query, value = mgpu.tensor { { { 9, 0 } } }, mgpu.tensor { { { 9, 0 }, { 0, 9 } } }
--     print(L.Attention {} { query, value }:round()) -- the key that points where the query points
--     --> tensor {1, 1, 2} float32 cpu:0
--     --> {{{9, 0}}}
local Attention = define("Attention", { positional = 0,
  { "use_scale", "boolean", default = false },
  { "score_mode", "string", default = "dot", values = { "dot", "concat" } },
  { "dropout", "number", default = 0, min = 0, max = 1 },
  { "seed", "integer", min = 0 },
})

function Attention:build(shapes)
  check(self, shapes)
  self.stream = self:own_stream(self.seed)
  if self.use_scale then self.scale = self:add_weight { name = "scale", shape = {}, initializer = "ones" } end
  if self.score_mode == "concat" then
    self.concat_score_weight = self:add_weight { name = "concat_score_weight", shape = {}, initializer = "ones" }
  end
end

--- layer:scores(query, key) -> {batch, queries, keys}, before the softmax.
-- Example:
--     local layer = L.Attention {}
--     print(layer:scores(mgpu.tensor { { { 1, 2 } } }, mgpu.tensor { { { 3, 4 } } }):item())  --> 11
function Attention:scores(query, key)
  if self.score_mode == "dot" then
    local scores = ops.matmul(query, key, { transpose_b = true })
    return self.scale and scores * self.scale or scores
  end
  local sum = sums(query, key)
  return ops.sum(ops.tanh(self.scale and sum * self.scale or sum), { axis = -1 }) * self.concat_score_weight
end

M.Attention = Attention

-- ---- AdditiveAttention --------------------------------------------------------------------------

--- AdditiveAttention {use_scale = true, dropout = 0, seed =} {query, value, key}.
-- softmax(scores) value, with scores = sum(scale * tanh(query + key)). Weight: scale {size} with use_scale.
-- Source: Bahdanau et al., Neural machine translation by jointly learning to align and translate, 2015.
-- Example:
--     local layer = L.AdditiveAttention { use_scale = false }
--     local y = layer { mgpu.zeros { 1, 1, 2 }, mgpu.tensor { { { 0, 4 }, { 0, 4 } } } }
--     -- two equal keys
--     print(y)
--     --> tensor {1, 1, 2} float32 cpu:0
--     --> {{{0, 4}}}
local AdditiveAttention = define("AdditiveAttention", { positional = 0,
  { "use_scale", "boolean", default = true },
  { "dropout", "number", default = 0, min = 0, max = 1 },
  { "seed", "integer", min = 0 },
})

function AdditiveAttention:build(shapes)
  check(self, shapes)
  self.stream = self:own_stream(self.seed)
  if self.use_scale then self.scale = self:add_weight { name = "scale", shape = { shapes[1][3] } } end
end

--- layer:scores(query, key) -> {batch, queries, keys}, before the softmax.
-- Example:
--     local layer = L.AdditiveAttention { use_scale = false }
--     print(layer:scores(mgpu.zeros { 1, 1, 2 }, mgpu.zeros { 1, 1, 2 }):item())  --> 0
function AdditiveAttention:scores(query, key)
  local y = ops.tanh(sums(query, key))
  return ops.sum(self.scale and y * self.scale or y, { axis = -1 })
end

M.AdditiveAttention = AdditiveAttention

return M
