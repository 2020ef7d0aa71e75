--- What the attention layers share: which keys a query may see, softmax over them, dropout.
--
-- Scores are {..., queries, keys}. A mask is true where a query may see a key; a query that may see no key has weights
-- of 0.
local call_arguments = require "mgpu.nn.call_arguments"
local core = require "mgpu.core"
local masks = require "mgpu.nn.masks"

local ops = core.ops
local M = {}

--- The options of the calls.
M.call_options = { { "return_attention_scores", "boolean" }, { "use_causal_mask", "boolean" } }

--- The names of the tensors that the layers with projections take.
M.tensors = { "query", "value", "key", "query_mask", "value_mask", "key_mask", "attention_mask" }

--- causal(queries, keys, beside) -> {queries, keys}: a query sees the keys up to its own position. It is on the device
--- of the tensor `beside`.
function M.causal(queries, keys, beside)
  local size = { queries, keys }
  return core.place(ops.ge(ops.iota(size, 1, "int32"), ops.iota(size, 2, "int32")), beside:device())
end

--- window(queries, keys, width, beside) -> {queries, keys}: a query sees the keys less than `width` steps away.
function M.window(queries, keys, width, beside)
  local size = { queries, keys }
  local distance = ops.abs(ops.sub(ops.iota(size, 1, "int32"), ops.iota(size, 2, "int32")))
  return core.place(ops.lt(distance, width), beside:device())
end

--- both(a, b) -> a and b; either may be nil.
function M.both(a, b) return a and b and ops.logical_and(a, b) or a or b end

-- {batch, steps} as {batch, steps, 1} or {batch, 1, steps}.
local function with_axis(mask, at)
  local shape = mask:shape()
  table.insert(shape, at, 1)
  return ops.reshape(ops.ne(mask, 0), { shape = shape })
end

--- mask_of(layer, given, options) -> the mask {batch or 1, queries, keys} of a call, or nil, from the masks of its
--- inputs, its tensors query_mask, value_mask, key_mask and attention_mask, use_causal_mask and sliding_window. The
--- second result is the mask of the query. ARGS given: the tensors by name.
function M.mask_of(layer, given, options)
  local passed = masks.now()
  local named = type(passed) == "table" and call_arguments.named(layer, passed, options) or {}
  local query = given.query_mask or named.query
  local value, key = given.value_mask or named.value, given.key_mask or named.key
  local queries, keys = given.query:shape()[2], given.value:shape()[2]
  local mask = query and with_axis(query, 3)
  mask = M.both(mask, value and with_axis(value, 2))
  mask = M.both(mask, key and with_axis(key, 2))
  local function fixed(fn, ...)
    local t = fn(queries, keys, ...)
    return ops.reshape(t, { shape = { 1, queries, keys } })
  end
  if options and options.use_causal_mask then mask = M.both(mask, fixed(M.causal, given.query)) end
  if layer.sliding_window then mask = M.both(mask, fixed(M.window, layer.sliding_window, given.query)) end
  local wanted = given.attention_mask
  return M.both(wanted and ops.ne(wanted, 0), mask), query
end

local LOWEST = { float16 = -3e4 } -- stands for minus infinity

--- weights(scores, mask) -> softmax over the keys that the mask allows; 0 for a query that may see none.
function M.weights(scores, mask)
  if not mask then return ops.softmax(scores) end
  local low = LOWEST[scores:dtype()] or -1e9
  return ops.where(mask, ops.softmax(ops.where(mask, scores, low)), 0)
end

--- dropped(layer, weights, training) -> the weights after the layer's dropout.
function M.dropped(layer, weights, training)
  if not training or layer.dropout == 0 then return weights end
  local keep = ops.random { shape = weights:shape(), kind = "bernoulli", a = 1 - layer.dropout, dtype = "bool",
    stream = layer.stream }
  return ops.where(keep, weights * (1 / math.max(1e-30, 1 - layer.dropout)), 0)
end

-- ---- long sequences -------------------------------------------------------------------------------

--- Elements of all scores up to which they are computed at once, and of a block of them else.
M.most_scores, M.most_in_block = 2 ^ 25, 2 ^ 19

-- t {..., rows, width} as {n, ..., rows / n, width}.
local function blocks(t, n)
  local shape, order = t:shape(), {}
  local rank = #shape
  shape[rank - 1] = shape[rank - 1] / n
  table.insert(shape, rank - 1, n)
  for i = 1, rank + 1 do order[i] = i end
  table.insert(order, 1, table.remove(order, rank - 1))
  return ops.permute(ops.reshape(t, { shape = shape }), { order = order })
end

-- The inverse.
local function joined(t)
  local shape, order = t:shape(), {}
  local rank = #shape
  for i = 1, rank - 1 do order[i] = i + 1 end
  table.insert(order, rank - 2, 1)
  local n = table.remove(shape, 1)
  shape[rank - 2] = n * shape[rank - 2]
  return ops.reshape(ops.permute(t, { order = order }), { shape = shape })
end

-- The number of blocks: one that divides the queries, with blocks of about most_in_block scores.
local function block_count(queries, others)
  local wanted = math.max(1, math.floor(M.most_in_block / others))
  local n = math.ceil(queries / wanted)
  while queries % n ~= 0 do n = n + 1 end
  return n
end

-- Blocks of queries, one after the other. The gradient computes the scores of a block again, so the memory grows with
-- the number of tokens and not with its square.
local function attend_in_blocks(q, k, v, mask, n)
  local arrays = { blocks(q, n) }
  local by_query = mask and mask:shape()[mask:rank() - 1] > 1
  if by_query then arrays[2] = blocks(mask, n) end
  return joined(core.scan(n, false, true, {}, arrays, function(_, entries)
    local scores = ops.matmul(entries[1], k, { transpose_b = true })
    return { ops.matmul(M.weights(scores, by_query and entries[2] or mask), v) }
  end)[1])
end

--- attend(layer, q, k, v, mask, how) -> {..., queries, size of v}, and the weights unless they were computed in blocks.
-- ARGS q, k, v: {..., steps, size}, q scaled; mask: as broadcast to {..., queries, keys}, or nil; how: {training =,
-- scores = whether the weights are wanted}.
function M.attend(layer, q, k, v, mask, how)
  local shape, keys = q:shape(), k:shape()[k:rank() - 1]
  local queries, others = shape[#shape - 1], keys
  for i = 1, #shape - 2 do others = others * shape[i] end
  local drops = how.training and layer.dropout > 0
  local most = layer.flash_attention == true and 0 or layer.flash_attention == false and math.huge or M.most_scores
  if not (how.scores or drops) and #shape < 8 and queries * others > most then
    local n = block_count(queries, others)
    if n > 1 then return attend_in_blocks(q, k, v, mask, n) end
  end
  local weights = M.weights(ops.matmul(q, k, { transpose_b = true }), mask)
  return ops.matmul(M.dropped(layer, weights, how.training), v), weights
end

return M
