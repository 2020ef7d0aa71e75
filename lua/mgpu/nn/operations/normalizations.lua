--- Normalizations and attention in keras.ops.nn; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half

local ops = core.ops

local M = {}

local EPSILON = 1e-7 -- keras.config.epsilon()

-- The numbers of a vector along the axis `at` of a tensor of rank `rank`.
local function along(t, at, rank)
  if type(t) == "number" or t:rank() ~= 1 then return t end
  local shape = {}
  for i = 1, rank do shape[i] = i == at and t:count() or 1 end
  return ops.reshape(t, { shape = shape })
end

-- The tensor, in float32 if it is a half: squares of float16 overflow from 256 on. Keras does the same.
local function wide(t) return core.is_tensor(t) and is_half(t) and ops.cast(t, "float32") or t end

M.Moments = { "x | axes keepdims? synchronized?", function(x, axes, keepdims, synchronized)
  if synchronized then core.fail("unsupported", "moments: synchronized is not supported") end
  local how, list = { axis = axes, keepdims = keepdims or false }, {}
  for i, fn in ipairs { composite.mean, composite.var } do
    local y = fn(wide(x), how)
    if x:dtype() == "float16" then y = composite.clip(y, -65504, 65504) end
    list[i] = ops.cast(y, x:dtype())
  end
  return list
end }

M.BatchNorm = { "x mean variance offset:tensor? scale? | axis epsilon?", function(x, mean, variance, offset, scale,
    axis, e)
  local rank = x:rank()
  local at = arguments.axis_at("batch_normalization", axis, rank)
  local y = (x - along(mean, at, rank)) * ops.rsqrt(along(variance, at, rank) + (e or 1e-3))
  if scale then y = y * along(scale, at, rank) end
  return offset and y + along(offset, at, rank) or y
end }

-- fn(x, ...) in float32 for halves, and y as x.
local function widened(fn)
  return function(x, ...) return ops.cast(fn(wide(x), ...), x:dtype()) end
end

M.Normalize = { "x | axis? order? epsilon?", widened(function(x, axis, order, epsilon)
  local how = { axis = axis or -1, keepdims = true }
  order, epsilon = order or 2, epsilon or EPSILON
  if order == 2 then return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), how), epsilon ^ 2)) end
  if type(order) ~= "number" or order < 1 then
    core.fail("unsupported", "normalize: the order must be a number from 1 on")
  end
  local norm = ops.pow(ops.sum(ops.pow(ops.abs(x), order), how), 1 / order)
  return x / ops.maximum(norm, epsilon)
end) }

M.RMSNorm = { "x scale? | axis? epsilon?", widened(function(x, scale, axis, epsilon)
  local how = { axis = axis or -1, keepdims = true }
  local y = x * ops.rsqrt(composite.mean(ops.square(x), how) + (epsilon or EPSILON))
  return scale and y * wide(scale) or y
end) }

-- A weight for the normalized axes of x, which are not the last one alone, as a tensor of x's rank.
local function over_axes(t, x, axis)
  if t == nil or t:rank() == 0 or t:rank() == x:rank() then return t end
  local shape, size, last = {}, x:shape(), true
  for i = 1, #size do shape[i] = 1 end
  for _, each in ipairs(type(axis) == "table" and axis or { axis }) do
    local at = arguments.axis_at("layer_normalization", each, #size)
    shape[at], last = size[at], last and at == #size
  end
  return last and t or ops.reshape(t, { shape = shape })
end

M.LayerNorm = { "x gamma? beta? | axis? epsilon? rms_scaling?", widened(function(x, gamma, beta, axis,
    epsilon, rms_scaling)
  axis = axis or -1
  gamma, beta = over_axes(wide(gamma), x, axis), over_axes(wide(beta), x, axis)
  local how = { axis = axis, keepdims = true }
  local y = rms_scaling and x or x - composite.mean(x, how)
  y = y * ops.rsqrt(composite.var(x, how) + (epsilon or EPSILON))
  if gamma then y = y * gamma end
  return beta and not rms_scaling and y + beta or y
end) }

-- query {batch, steps, heads, size}; key and value {batch, places, heads, size}.
M.DotProductAttention = { "query key:tensor value bias? mask? scale:number? | is_causal? flash_attention:boolean? "
  .. "attn_logits_soft_cap:number?", function(query, key, value, bias, mask, scale, is_causal, _, cap)
  local s = query:shape()
  local scores = composite.einsum("bthd,bshd->bhts", query, key) * (scale or 1 / math.sqrt(s[#s]))
  if cap then scores = ops.tanh(scores / cap) * cap end
  if bias then scores = scores + bias end
  local allowed = mask and ops.cast(mask, "bool")
  if is_causal then
    local t = scores:shape()
    local before = ops.ge(ops.iota({ t[3], t[4] }, 1, "int32"), ops.iota({ t[3], t[4] }, 2, "int32"))
    allowed = allowed and ops.logical_and(allowed, before) or before
  end
  if allowed then scores = ops.where(allowed, scores, scores:dtype() == "float16" and -3e4 or -3e38 * 0.7) end
  return composite.einsum("bhts,bshd->bthd", ops.softmax(scores, { axis = -1 }), value)
end }

return M
