--- Attention with several heads and learned projections, as in Keras: MultiHeadAttention and GroupQueryAttention.
--
-- They are called with an array {query, value} or {query, value, key}; key is value if it is missing. The masks of the
-- inputs count: masked queries and keys get no weight. Call options: use_causal_mask = false (a query sees keys up to
-- its own position), attention_mask = a tensor {batch, queries, keys} that is true where a query may see a key,
-- return_attention_scores = false (the result is {output, weights}), and query_mask, value_mask, key_mask {batch,
-- steps}.
-- A query that may see no key has weights of 0, so that its output is the bias of the last projection. Keras does the
-- same where it returns the scores, and gives other numbers elsewhere.
-- RETURNS the classes by name.
local call_arguments = require "mgpu.nn.call_arguments"
local core = require "mgpu.core"
local EinsumDense = require "mgpu.nn.layers.einsum_dense"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local mixed_precision = require "mgpu.nn.mixed_precision"
local scores_of = require "mgpu.nn.layers.attention_scores"

local ops = core.ops
local M = {}

-- The options of both after their sizes.
local SHARED = kernels.weight_options({
  { "sliding_window", "integer", min = 1 },
  { "flash_attention", "boolean" },
  { "use_gate", "boolean", default = false },
  { "seed", "integer", min = 0 },
}, { { "kernel", "glorot_uniform" }, { "bias", "zeros" } }, true)

local function with_shared(own)
  for _, option in ipairs(SHARED) do own[#own + 1] = option end
  return own
end

-- ---- what both share ----------------------------------------------------------------------------

local function define(class_name, declared)
  local class = Layer:extend(class_name, declared)
  class.supports_masking = true
  class.call_options, class.call_tensors = scores_of.call_options, scores_of.tensors
  class.call_parameters = { "return_attention_scores", "training", "use_causal_mask" }
  class.contents_in_order = { "query_dense", "key_dense", "gate_dense", "value_dense", "output_dense" }
  function class:compute_mask(_, mask) return type(mask) == "table" and mask[1] or nil end -- luacheck: no self
  return class
end

-- The shapes by name, with `key`. Errors: missing ones, other ranks, another number of keys than of values.
local function check(self, shapes, options, rank)
  if type(shapes[1]) ~= "table" then self:fail("takes an array {query, value} or {query, value, key}") end
  local named = call_arguments.named(self, shapes, options)
  if not named.query or not named.value then self:fail("needs query and value") end
  named.key = named.key or named.value
  for _, name in ipairs { "query", "value", "key" } do
    if #named[name] < 3 or rank and #named[name] ~= rank then
      self:fail("%s must have %s axes (batch, steps, features), got shape %s", name, rank or "at least 3",
        self.shape_text(named[name]))
    end
  end
  for i = 2, #named.value - 1 do
    if named.value[i] ~= named.key[i] then
      self:fail("value %s and key %s must have the same steps", self.shape_text(named.value),
        self.shape_text(named.key))
    end
  end
  return named
end

-- A projection of the layer, in its policy. ARGS axes: the letters of the axes before the last; from, to: the letters
-- of the axes that are summed and made; sizes: of the latter.
local function project(self, name, axes, from, to, sizes, shape, activation)
  local out = {}
  for i = 1, #axes - 1 do out[i] = -1 end
  for _, size in ipairs(sizes) do out[#out + 1] = size end
  local dense = mixed_precision.with_policy(self.dtype_policy, function()
    return EinsumDense { ("%s%s,%s%s->%s%s"):format(axes, from, from, to, axes, to), out,
      bias_axes = self.use_bias and to or nil, activation = activation, name = self.name .. "/" .. name,
      stream_name = self.stream_name .. "/" .. name, kernel_initializer = self.kernel_initializer,
      bias_initializer = self.bias_initializer, kernel_regularizer = self.kernel_regularizer,
      bias_regularizer = self.bias_regularizer, activity_regularizer = self.activity_regularizer,
      kernel_constraint = self.kernel_constraint, bias_constraint = self.bias_constraint,
      device = rawget(self, "device") }
  end)
  dense:ensure_built(shape)
  return dense
end

local LETTERS = "abcdefgh"

-- Makes the projections. ARGS heads: of the queries, and of keys and values; size, value_size: of a head; out: the
-- sizes of the output behind the batch and the steps.
local function build_projections(self, named, heads, key_heads, size, value_size, out)
  local axes, key_axes = LETTERS:sub(1, #named.query - 1), LETTERS:sub(1, #named.key - 1)
  self.query_dense = project(self, "query", axes, "x", "yz", { heads, size }, named.query)
  self.key_dense = project(self, "key", key_axes, "x", "yz", { key_heads, size }, named.key)
  if self.use_gate then
    self.gate_dense = project(self, "gate", axes, "x", "yz", { heads, value_size }, named.query, "sigmoid")
  end
  self.value_dense = project(self, "value", key_axes, "x", "yz", { key_heads, value_size }, named.value)
  local shape = { unpack(named.query) }
  shape[#shape], shape[#shape + 1] = heads, value_size
  self.output_dense = project(self, "attention_output", axes, "yz", ("uvwtsr"):sub(1, #out), out, shape)
  self.activity_regularizer = nil -- each projection has it
  self.stream = self:own_stream(self.seed)
end

local function check_flash(self)
  if self.flash_attention and self.dropout > 0 then
    self:fail "flash_attention = true cannot be combined with dropout"
  end
end

-- The axes in the order, as ops.permute.
local function permuted(x, order) return ops.permute(x, { order = order }) end

local function product(sizes)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n
end

local function joined(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, item in ipairs(list) do all[#all + 1] = item end
  end
  return all
end

local function sizes_at(shape, axes)
  local sizes = {}
  for i, axis in ipairs(axes) do sizes[i] = shape[axis] end
  return sizes
end

-- Attention over the axes `attended` of q, k, v {batch, ..., heads, size}. RETURNS the output in the shape of q, and
-- the weights {batch, other axes, heads, attended axes of q, attended axes of k}, if they were kept. mask: {batch,
-- attended axes of q, of k}. how: see attention_scores.lua.
local function attend(self, q, k, v, attended, mask, how)
  local rank, seen, batch = q:rank(), {}, {}
  for _, axis in ipairs(attended) do seen[axis] = true end
  for axis = 1, rank - 1 do if not seen[axis] then batch[#batch + 1] = axis end end
  local order = joined(batch, attended, { rank })
  local outer, targets = sizes_at(q:shape(), batch), sizes_at(q:shape(), attended)
  local sources = sizes_at(k:shape(), attended)
  local function rows(t, steps)
    return ops.reshape(permuted(t, order), { shape = joined(outer, { product(steps), t:shape()[rank] }) })
  end
  if mask then
    local shape, full = mask:shape(), #attended * 2
    local leading = { unpack(shape, 1, #shape - full) }
    local wide = joined(leading, targets, sources)
    while #leading < #outer do leading[#leading + 1] = 1 end
    if #attended > 1 then mask = ops.broadcast_to(mask, { shape = wide }) end
    shape = { unpack(mask:shape(), mask:rank() - full + 1) }
    local cut = full / 2
    mask = ops.reshape(mask, { shape = joined(leading, { product { unpack(shape, 1, cut) },
      product { unpack(shape, cut + 1) } }) })
  end
  local y, weights = scores_of.attend(self, rows(q * (1 / math.sqrt(q:shape()[rank])), targets), rows(k, sources),
    rows(v, sources), mask, how)
  local back = {}
  for to, from in ipairs(order) do back[from] = to end
  y = permuted(ops.reshape(y, { shape = joined(outer, targets, { v:shape()[rank] }) }), back)
  return y, weights, joined(outer, targets, sources)
end

-- What the calls share. repeated(t): keys or values with as many heads as the queries.
local function call(self, xs, training, options, attended, repeated)
  local given = call_arguments.named(self, xs, options)
  given.key = given.key or given.value
  local mask = scores_of.mask_of(self, given, options)
  local q, k, v = self.query_dense(given.query), self.key_dense(given.key), self.value_dense(given.value)
  if repeated then k, v = repeated(k), repeated(v) end
  local wanted = options and options.return_attention_scores
  local y, weights, shape = attend(self, q, k, v, attended, mask, { training = training, scores = wanted })
  if self.use_gate then y = y * self.gate_dense(given.query) end
  y = self.output_dense(y)
  if not wanted then return y end
  if self.flash_attention then self:fail "flash_attention = true cannot return the attention scores" end
  return { y, ops.reshape(weights, { shape = shape }) }
end

local function shapes_of(self, xs)
  local shapes = {}
  if type(xs) ~= "table" then self:fail "takes an array {query, value} or {query, value, key}" end
  for i, x in ipairs(xs) do shapes[i] = x:shape() end
  return shapes
end

-- ---- MultiHeadAttention -------------------------------------------------------------------------

--- MultiHeadAttention {num_heads, key_dim, value_dim = key_dim, dropout = 0, use_bias = true, output_shape =,
-- attention_axes =, ...} {query, value, key}
-- Attention of num_heads projections of the inputs, whose results are projected again; the file says how it is called.
-- query {batch, queries, features}, value and key {batch, keys, features'} -> {batch, queries, features}, or with
-- output_shape {batch, queries, output_shape...}. The inputs may have further axes; attention_axes names the axes of
-- the steps (2 = the first after the batch; default: all between the batch and the features).
-- Weights, kernels and biases of: query {features, heads, key_dim}, key, (with use_gate: gate), value, output
-- {heads, value_dim, features}. Options: sliding_window (keys less than so many steps away), use_gate = false (the
-- heads' results are multiplied by sigmoid(query W)), kernel_initializer = "glorot_uniform", bias_initializer =
-- "zeros", kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint, seed;
-- flash_attention: true computes the scores of a block of queries at a time, and again for the gradient, so that memory
-- grows with the steps and not with their square; false never does; nil: above 2^25 scores.
-- Source: Vaswani et al., Attention is all you need, 2017.
-- Example:
--     local attention = L.MultiHeadAttention { 4, 16 }
--     local x = mgpu.ones { 2, 10, 32 }
--     print(unpack(attention({ x, x }, { use_causal_mask = true }):shape()))  --> 2 10 32
--     local y, weights = unpack(attention({ x, x }, { return_attention_scores = true }))
--     print(unpack(weights:shape()))  --> 2 4 10 10
local MultiHeadAttention = define("MultiHeadAttention", with_shared { positional = 2,
  { "num_heads", "integer", min = 1, required = true },
  { "key_dim", "integer", min = 1, required = true },
  { "value_dim", "integer", min = 1 },
  { "dropout", "number", default = 0, min = 0, max = 1 },
  { "use_bias", "boolean", default = true },
  { "output_shape", "shape" },
  { "attention_axes", "integer|integers" },
})

-- Keras's names of the fields, where they differ; they are in its files.
MultiHeadAttention.keras_fields = { gate_dense = "_gate_dense" }

function MultiHeadAttention:init()
  self.sizes, self.output_shape = rawget(self, "output_shape"), nil -- the name of a method
  if self.sizes and #self.sizes == 0 then self.sizes = nil end
  self.value_dim = self.value_dim or self.key_dim
  check_flash(self)
end

function MultiHeadAttention:get_config()
  local config = Layer.get_config(self)
  config.output_shape, config.activity_regularizer = self.sizes, self.own_activity_regularizer
  return config
end

-- The axes of the steps, from 1.
local function attended_axes(self, rank)
  local axes, list = self.attention_axes, {}
  if type(axes) == "number" then axes = { axes } end
  if not axes then
    for axis = 2, rank - 1 do list[#list + 1] = axis end
    return list
  end
  for i, axis in ipairs(axes) do
    list[i] = axis < 0 and axis + rank + 1 or axis
    if list[i] < 2 or list[i] >= rank then
      self:fail("attention_axes: axis %d is not between the batch and the features of an input with %d axes",
        axis, rank)
    end
  end
  return list
end

function MultiHeadAttention:build(shapes, options)
  local named = check(self, shapes, options)
  self.attended = attended_axes(self, #named.query)
  self.own_activity_regularizer = self.activity_regularizer and self.activity_regularizer:get_config() or nil
  build_projections(self, named, self.num_heads, self.num_heads, self.key_dim, self.value_dim,
    self.sizes or { named.query[#named.query] })
end

function MultiHeadAttention:output_shape(shapes, _, options)
  local named = check(self, shapes, options)
  local query, value = named.query, named.value
  local out = { unpack(query, 1, #query - 1) }
  for _, size in ipairs(self.sizes or { query[#query] }) do out[#out + 1] = size end
  if not (options and options.return_attention_scores) then return out end
  local seen, weights = {}, {}
  local attended = attended_axes(self, #query)
  for _, axis in ipairs(attended) do seen[axis] = true end
  for axis = 1, #query - 1 do if not seen[axis] then weights[#weights + 1] = query[axis] end end
  weights[#weights + 1] = self.num_heads
  return { out, joined(weights, sizes_at(query, attended), sizes_at(value, attended)) }
end

function MultiHeadAttention:call(xs, training, options)
  check(self, shapes_of(self, xs), options)
  return call(self, xs, training, options, self.attended)
end

M.MultiHeadAttention = MultiHeadAttention

-- ---- GroupQueryAttention ------------------------------------------------------------------------

--- GroupQueryAttention {head_dim, num_query_heads, num_key_value_heads, dropout = 0, use_bias = true, ...}
-- {query, value, key}
-- MultiHeadAttention where several heads of the queries share one of keys and values.
-- query {batch, queries, features}, value and key {batch, keys, features'} -> {batch, queries, features}.
-- Weights and options as MultiHeadAttention. Errors: num_key_value_heads does not divide num_query_heads.
-- Source: Ainslie et al., GQA, 2023.
-- Example:
--     local attention = L.GroupQueryAttention { 16, 8, 2 }
--     local x = mgpu.ones { 2, 10, 32 }
--     print(unpack(attention({ x, x }):shape()))  --> 2 10 32
--     print(unpack(attention.key_dense.kernel:shape()))  --> 32 2 16
local GroupQueryAttention = define("GroupQueryAttention", with_shared { positional = 3,
  { "head_dim", "integer", min = 1, required = true },
  { "num_query_heads", "integer", min = 1, required = true },
  { "num_key_value_heads", "integer", min = 1, required = true },
  { "dropout", "number", default = 0, min = 0, max = 1 },
  { "use_bias", "boolean", default = true },
})

GroupQueryAttention.python_name = "GroupedQueryAttention" -- in automatic names and paths
GroupQueryAttention.keras_fields = { query_dense = "_query_dense", key_dense = "_key_dense",
  gate_dense = "_gate_dense", value_dense = "_value_dense", output_dense = "_output_dense" }

function GroupQueryAttention:init()
  if self.num_query_heads % self.num_key_value_heads ~= 0 then
    self:fail("%d heads of queries cannot share %d heads of keys and values evenly", self.num_query_heads,
      self.num_key_value_heads)
  end
  check_flash(self)
end

function GroupQueryAttention:get_config()
  local config = Layer.get_config(self)
  config.activity_regularizer = self.own_activity_regularizer
  return config
end

function GroupQueryAttention:build(shapes, options)
  local named = check(self, shapes, options, 3)
  self.own_activity_regularizer = self.activity_regularizer and self.activity_regularizer:get_config() or nil
  build_projections(self, named, self.num_query_heads, self.num_key_value_heads, self.head_dim, self.head_dim,
    { named.query[3] })
end

function GroupQueryAttention:output_shape(shapes, _, options)
  local named = check(self, shapes, options, 3)
  local query = named.query
  if not (options and options.return_attention_scores) then return { unpack(query) } end
  return { { unpack(query) }, { query[1], self.num_query_heads, query[2], named.value[2] } }
end

function GroupQueryAttention:call(xs, training, options)
  check(self, shapes_of(self, xs), options, 3)
  local shared = self.num_query_heads / self.num_key_value_heads
  return call(self, xs, training, options, { 2 }, function(t)
    local s = t:shape()
    local wide = { s[1], s[2], s[3], shared, s[4] }
    t = ops.broadcast_to(ops.reshape(t, { shape = { s[1], s[2], s[3], 1, s[4] } }), { shape = wide })
    return ops.reshape(t, { shape = { s[1], s[2], s[3] * shared, s[4] } })
  end)
end

M.GroupQueryAttention = GroupQueryAttention

return M
