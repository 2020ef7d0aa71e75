--- Attention of ONNX (opset 23 on); see ops/init.lua.
--
-- Q {batch, heads, queries, size}, K and V {batch, fewer heads, keys, size}, or with three axes {batch, steps, heads *
-- size}. A query at position i of the whole sequence sees the keys that the mask, is_causal, the windows (opset 25)
-- and nonpad_kv_seqlen (opset 24) leave; one that sees none gives 0. Source: ONNX's operator documentation.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local pad_axes = require "mgpu.nn.onnx.pad_axes"
local types = require "mgpu.nn.onnx.types"
local values = require "mgpu.nn.onnx.values"

local ops, plain = core.ops, values.plain

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

-- {batch, steps, heads * size} as {batch, heads, steps, size}.
local function in_heads(t, heads, what)
  if t:rank() == 4 then return t end
  local s = t:shape()
  if #s ~= 3 or not heads or heads < 1 or s[3] % heads ~= 0 then
    fail("%s of %d axes cannot be divided into %s heads", what, #s, tostring(heads))
  end
  return ops.permute(ops.reshape(t, { shape = { s[1], s[2], heads, s[3] / heads } }), { order = { 1, 3, 2, 4 } })
end

local function appended(past, t) return past and ops.concat({ past:tensor(), t }, { axis = 3 }) or t end

-- Each head of keys or values for several heads of queries.
local function repeated(t, heads)
  local own = t:shape()[2]
  if own == heads then return t end
  if own < 1 or heads % own ~= 0 then fail("%d heads of queries for %d of keys", heads, own) end
  return composite.repeat_elements(t, { repeats = heads / own, axis = 2 })
end

local function both(a, b) return a and b and ops.logical_and(a, b) or a or b end

-- Where a query may see a key: {queries, keys} or {batch, 1, queries, keys} of bool; nil: everywhere.
local function seen(c, queries, keys, past, lengths)
  local allowed
  local column = ops.iota({ 1, keys }, 2, "int64")
  local row = ops.iota({ queries, 1 }, 1, "int64")
  if lengths then
    local n = ops.reshape(lengths:tensor(), { shape = { -1, 1, 1, 1 } })
    allowed = ops.lt(column, n)
    row = row + (n - queries)
  else
    row = row + past
  end
  if c.is_causal ~= 0 then allowed = both(allowed, ops.le(column, row)) end
  if c.left_window_size >= 0 then allowed = both(allowed, ops.ge(column, row - c.left_window_size)) end
  if c.right_window_size >= 0 then allowed = both(allowed, ops.le(column, row + c.right_window_size)) end
  return allowed
end

-- The mask with as many keys as there are.
local function whole_mask(mask, keys)
  local t = mask:tensor()
  local rank, missing = t:rank(), keys - t:shape()[t:rank()]
  return pad_axes(t, rank, { 0 }, { math.max(missing, 0) }, t:dtype() == "bool" and 0 or -math.huge)
end

-- What is added to the scores, or nil: the mask, and -inf where a query does not see a key.
local function bias_of(c, dtype, mask, queries, keys, past, lengths)
  local allowed, added = seen(c, queries, keys, past, lengths), nil
  if mask then
    local t = whole_mask(mask, keys)
    if t:dtype() == "bool" then allowed = both(allowed, t) else added = t end
  end
  if not allowed then return added end
  local none = ops.full({}, -math.huge, dtype)
  return ops.where(allowed, added or ops.full({}, 0, dtype), none)
end

-- Rows without any key become 0.
local function probabilities(c, scores, bias)
  local dtype = scores:dtype()
  local wide = c.softmax_precision and types.dtype_of(c.softmax_precision) or dtype
  local p = ops.cast(ops.softmax(ops.cast(scores, wide), { axis = -1 }), dtype)
  if not bias then return p end
  local hidden = ops.eq(ops.max(bias, { axis = bias:rank(), keepdims = true }), -math.huge)
  return ops.where(hidden, ops.full({}, 0, dtype), p)
end

M.Attention = { "3-7 | is_causal:int=0 kv_num_heads:int? left_window_size:int=-1 q_num_heads:int? "
  .. "qk_matmul_output_mode:int=0 right_window_size:int=-1 scale:float? softcap:float=0 softmax_precision:int?",
  function(c, query, key, value, mask, past_key, past_value, lengths)
    if (past_key == nil) ~= (past_value == nil) then fail "past_key and past_value must be given together" end
    local q = in_heads(query:tensor(), c.q_num_heads, "queries")
    local k = appended(past_key, in_heads(key:tensor(), c.kv_num_heads, "keys"))
    local v = appended(past_value, in_heads(value:tensor(), c.kv_num_heads, "values"))
    local s, keys, dtype = q:shape(), k:shape()[3], q:dtype()
    local scale = math.sqrt(c.scale or 1 / math.sqrt(s[4]))
    local scores = ops.matmul(q * scale, repeated(k, s[2]) * scale, { transpose_b = true })
    local shown = scores
    if c.softcap > 0 then scores = ops.tanh(scores / c.softcap) * c.softcap end
    if c.qk_matmul_output_mode == 1 then shown = scores end
    local past = past_key and past_key:shape()[3] or 0
    local bias = bias_of(c, dtype, mask, s[3], keys, past, lengths)
    if bias then scores = scores + bias end
    if c.qk_matmul_output_mode == 2 then shown = scores end
    local p = probabilities(c, scores, bias)
    if c.qk_matmul_output_mode == 3 then shown = p end
    local y = ops.matmul(p, repeated(v, s[2]))
    if query:rank() == 3 then
      y = ops.reshape(ops.permute(y, { order = { 1, 3, 2, 4 } }), { shape = { s[1], s[3], -1 } })
    end
    return plain(y), plain(k), plain(v), plain(shown)
  end }

return M
