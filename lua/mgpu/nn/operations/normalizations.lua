--- Normalizations and attention in keras.ops.nn; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

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

M.Moments = { "x | axes keepdims? synchronized?", function(x, axes, keepdims, synchronized)
  if synchronized then core.fail("unsupported", "moments: synchronized is not supported") end
  local how = { axis = axes, keepdims = keepdims or false }
  return { composite.mean(x, how), composite.var(x, how) }
end }

M.BatchNorm = { "x mean variance offset:tensor? scale? | axis epsilon?", function(x, mean, variance, offset, scale,
    axis, e)
  local rank = x:rank()
  local at = arguments.axis_at("batch_normalization", axis, rank)
  local y = (x - along(mean, at, rank)) * ops.rsqrt(along(variance, at, rank) + (e or 1e-3))
  if scale then y = y * along(scale, at, rank) end
  return offset and y + along(offset, at, rank) or y
end }

M.Normalize = { "x | axis? order? epsilon?", function(x, axis, order, epsilon)
  local how = { axis = axis or -1, keepdims = true }
  order, epsilon = order or 2, epsilon or EPSILON
  if order == 2 then return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), how), epsilon ^ 2)) end
  if type(order) ~= "number" or order < 1 then
    core.fail("unsupported", "normalize: the order must be a number from 1 on")
  end
  local norm = ops.pow(ops.sum(ops.pow(ops.abs(x), order), how), 1 / order)
  return x / ops.maximum(norm, epsilon)
end }

M.RMSNorm = { "x scale? | axis? epsilon?", function(x, scale, axis, epsilon)
  local how = { axis = axis or -1, keepdims = true }
  local y = x * ops.rsqrt(composite.mean(ops.square(x), how) + (epsilon or EPSILON))
  return scale and y * scale or y
end }

M.LayerNorm = { "x gamma? beta? | axis? epsilon? rms_scaling?", function(x, gamma, beta, axis, epsilon, rms_scaling)
  local how = { axis = axis or -1, keepdims = true }
  local y = rms_scaling and x or x - composite.mean(x, how)
  y = y * ops.rsqrt(composite.var(x, how) + (epsilon or EPSILON))
  if gamma then y = y * gamma end
  return beta and not rms_scaling and y + beta or y
end }

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
