--- EinsumDense and the layers of attention as ops of ONNX; see onnx/layers.lua. Masks are those that the call states:
--- layers that would pass some on have no form in ONNX.
local activations = require "mgpu.nn.onnx.activations"
local call_arguments = require "mgpu.nn.call_arguments"
local lora = require "mgpu.nn.layers.lora"

local M = {}

function M.EinsumDense(g, layer, v)
  local dtype, shape = layer.compute_dtype, layer:output_shape(v.shape)
  if layer.activation == "glu" then shape[#shape] = 2 * shape[#shape] end
  local y = g:op("Einsum", { g:plain(v), g:weight(lora.weight(layer), dtype) },
    { equation = layer.equation:gsub("%s", "") .. "" })
  if layer.bias then y = g:op("Add", { y, g:weight(layer.bias, dtype) }) end
  return activations.apply(g, layer, g.value(y, shape, dtype))
end

-- ---- masks --------------------------------------------------------------------------------------

-- Ones {queries, keys} of the tensors {batch, steps, ...}, in float32.
local function ones(g, query, key)
  local function steps(x) return g:op("Shape", { x }, { start = 1, ["end"] = 2 }) end
  local zeros = g:op("ConstantOfShape", { g:op("Concat", { steps(query), steps(key) }, { axis = 0 }) })
  return g:op("Add", { zeros, g:number(1, "float32") })
end

-- The numbers on one side of a diagonal of the matrix.
local function one_side(g, matrix, upper, diagonal)
  return g:op("Trilu", { matrix, diagonal ~= 0 and g:integer(diagonal) or nil }, { upper = upper })
end

local function is_positive(g, x) return g:op("Greater", { x, g:number(0, "float32") }) end

-- a and b; either may be nil.
local function both(g, a, b) return a and b and g:op("And", { a, b }) or a or b end

-- The mask, for scores {batch, queries, keys}, of a causal call and of a window; nil if neither is wanted.
local function fixed_mask(g, layer, query, key, options)
  local causal, width = options.use_causal_mask, layer.sliding_window
  if not causal and not width then return nil end
  local matrix = ones(g, query, key)
  if causal then matrix = one_side(g, matrix, 0, 0) end
  if width then matrix = one_side(g, one_side(g, matrix, 0, width - 1), 1, 1 - width) end
  return is_positive(g, matrix)
end

-- A mask that is given, as {batch, 1, ...} for scores {batch, heads, queries, keys}. axes: those to add, from 0.
local function given_mask(g, v, axes)
  if not v then return nil end
  local mask = g:plain(g:cast(v, "bool"))
  return #axes > 0 and g:op("Unsqueeze", { mask, g:integers(axes) }) or mask
end

-- The mask for scores {batch, heads, queries, keys}, or nil. given: the values by name; query, key: names of tensors.
local function mask_of(g, layer, given, query, key, options)
  local mask = both(g, given_mask(g, given.query_mask, { 1, 3 }), given_mask(g, given.value_mask, { 1, 2 }))
  mask = both(g, mask, given_mask(g, given.key_mask, { 1, 2 }))
  mask = both(g, mask, fixed_mask(g, layer, query, key, options))
  local wanted = given.attention_mask
  return both(g, given_mask(g, wanted, wanted and #wanted.shape == 3 and { 1 } or {}), mask)
end

-- Softmax over the keys that the mask allows; 0 for a query that may see none.
local function weights_of(g, scores, mask, dtype)
  if not mask then return g:op("Softmax", { scores }, { axis = -1 }) end
  local low = g:number(dtype == "float16" and -3e4 or -1e9, dtype)
  local weights = g:op("Softmax", { g:op("Where", { mask, scores, low }) }, { axis = -1 })
  return g:op("Where", { mask, weights, g:number(0, dtype) })
end

-- ---- with projections ---------------------------------------------------------------------------

-- {batch, steps, heads, size} with the axes in another order.
local function ordered(g, x, ...) return g:op("Transpose", { x }, { perm = { ... } }) end

-- Each head as often as queries share it.
local function shared_heads(g, x, heads, times, size)
  if times == 1 then return x end
  x = g:op("Expand", { g:op("Unsqueeze", { x, g:integers { 3 } }), g:integers { 1, 1, 1, times, 1 } })
  return g:op("Reshape", { x, g:integers { 0, 0, heads * times, size } })
end

-- times: how many heads of the queries share one of keys and values.
local function attend(g, layer, vs, options, times)
  local given = call_arguments.named(layer, vs, options)
  local key = given.key or given.value
  if #given.query.shape ~= 3 or #given.value.shape ~= 3 then
    layer:fail "only inputs {batch, steps, features} can be saved as .onnx"
  end
  local q, k = M.EinsumDense(g, layer.query_dense, given.query), M.EinsumDense(g, layer.key_dense, key)
  local v = M.EinsumDense(g, layer.value_dense, given.value)
  local dtype, size = q.dtype, q.shape[4]
  local mask = mask_of(g, layer, given, q.plain, k.plain, options)
  local function all_heads(x) return shared_heads(g, g:plain(x), x.shape[3], times, x.shape[4]) end
  local scaled = g:op("Mul", { g:plain(q), g:number(1 / math.sqrt(size), dtype) })
  local scores = g:op("MatMul", { ordered(g, scaled, 0, 2, 1, 3), ordered(g, all_heads(k), 0, 2, 3, 1) })
  local weights = weights_of(g, scores, mask, dtype)
  local y = ordered(g, g:op("MatMul", { weights, ordered(g, all_heads(v), 0, 2, 1, 3) }), 0, 2, 1, 3)
  if layer.use_gate then y = g:op("Mul", { y, g:plain(M.EinsumDense(g, layer.gate_dense, given.query)) }) end
  local shape = { q.shape[1], q.shape[2], q.shape[3], v.shape[4] }
  local out = M.EinsumDense(g, layer.output_dense, g.value(y, shape, dtype))
  if not options.return_attention_scores then return out end
  return out, g.value(weights, { q.shape[1], q.shape[3], q.shape[2], k.shape[2] }, dtype)
end

function M.MultiHeadAttention(g, layer, vs, options) return attend(g, layer, vs, options, 1) end

function M.GroupQueryAttention(g, layer, vs, options)
  return attend(g, layer, vs, options, layer.num_query_heads / layer.num_key_value_heads)
end

-- ---- without projections ------------------------------------------------------------------------

-- query {batch, queries, 1, size} + key {batch, 1, keys, size}.
local function sums(g, query, key)
  return g:op("Add", { g:op("Unsqueeze", { query, g:integers { 2 } }), g:op("Unsqueeze", { key, g:integers { 1 } }) })
end

local function scaled(g, layer, x, dtype)
  return layer.scale and g:op("Mul", { x, g:weight(layer.scale, dtype) }) or x
end

local function sum_of_last(g, x) return g:op("ReduceSum", { x, g:integers { -1 } }, { keepdims = 0 }) end

local SCORES = {}

function SCORES.Attention(g, layer, query, key, dtype)
  if layer.score_mode == "dot" then
    return scaled(g, layer, g:op("MatMul", { query, ordered(g, key, 0, 2, 1) }), dtype)
  end
  local sum = sum_of_last(g, g:op("Tanh", { scaled(g, layer, sums(g, query, key), dtype) }))
  return g:op("Mul", { sum, g:weight(layer.concat_score_weight, dtype) })
end

function SCORES.AdditiveAttention(g, layer, query, key, dtype)
  return sum_of_last(g, scaled(g, layer, g:op("Tanh", { sums(g, query, key) }), dtype))
end

for class, scores_of in pairs(SCORES) do
  M[class] = function(g, layer, vs, options)
    local dtype, shapes = vs[1].dtype, {}
    for i, v in ipairs(vs) do shapes[i] = v.shape end
    local query, key = g:plain(vs[1]), g:plain(vs[3] or vs[2])
    local mask = fixed_mask(g, layer, query, key, options)
    local weights = weights_of(g, scores_of(g, layer, query, key, dtype), mask, dtype)
    local shape = layer:output_shape(shapes, nil, options)
    local y = g:op("MatMul", { weights, g:plain(vs[2]) })
    if not options.return_attention_scores then return g.value(y, shape, dtype) end
    return g.value(y, shape[1], dtype), g.value(weights, shape[2], dtype)
  end
end

return M
