--- Normalizations of ONNX; see ops/init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local pad_axes = require "mgpu.nn.onnx.pad_axes"
local values = require "mgpu.nn.onnx.values"

local ops, axis_at = core.ops, values.axis_at

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

-- x in float32 if it is of a half type: fn(value) -> value, which gets x's type again.
local function wide(x, fn)
  local dtype = x:dtype()
  if dtype ~= "float16" and dtype ~= "bfloat16" then return fn(x) end
  local function to(kind) return function(t) return ops.cast(t, kind) end end
  return values.map(to(dtype), fn(values.map(to "float32", x)))
end

local function as(v, t) return v:dtype() == t:dtype() and v:tensor() or ops.cast(v:tensor(), t:dtype()) end

-- mean and variance are those of training, given as inputs 4 and 5.
M.BatchNormalization = { "5 | epsilon:float=1e-5 momentum:float=0.9 training_mode:int=0 spatial:int=1",
  function(c, x, scale, bias, mean, variance)
    if c.training_mode ~= 0 or c.outputs > 1 then
      core.fail("unsupported", "training_mode: export the model for inference")
    end
    if c.spatial ~= 1 then core.fail("unsupported", "spatial = 0") end
    local channels = x:shape()[2]
    return wide(x, function(v)
      local t = v:last()
      local function row(of) return ops.reshape(as(of, t), { shape = { 1, channels } }) end
      return values.last(ops.batch_norm(t, ops.concat({ row(mean), row(variance) }, { axis = 1 }), as(scale, t),
        as(bias, t), { epsilon = c.epsilon }))
    end)
  end }

-- (t - mean) / sqrt(variance + epsilon) over these axes; then mean, 1 / deviation.
local function standardized(t, axes, epsilon)
  local how = { axis = axes, keepdims = true }
  local mean = composite.mean(t, how)
  local centered = t - mean
  local inverse = ops.rsqrt(composite.mean(ops.square(centered), how) + epsilon)
  return centered * inverse, mean, inverse
end

M.InstanceNormalization = { "3 | epsilon:float=1e-5", function(c, x, scale, bias)
  local axes = {}
  for i = 3, x:rank() do axes[#axes + 1] = i - 1 end
  if #axes == 0 then fail "there is no spatial axis" end
  return wide(x, function(v)
    local y = standardized(v:last(), axes, c.epsilon)
    return values.last(y * as(scale, y) + as(bias, y))
  end)
end }

-- Scale and bias are for the channels, in opset 18 for the groups.
M.GroupNormalization = { "3 | epsilon:float=1e-5 num_groups:int stash_type:int=1", function(c, x, scale, bias)
  local s = x:shape()
  local groups = c.num_groups
  if groups < 1 or s[2] % groups ~= 0 then fail("%d channels cannot be divided into %d groups", s[2], groups) end
  return wide(x, function(v)
    local t = v:tensor()
    local y = standardized(ops.reshape(t, { shape = { s[1], groups, -1 } }), { 3 }, c.epsilon)
    local n = scale:count()
    local function column(of) return ops.reshape(as(of, t), { shape = { 1, n, 1 } }) end
    y = ops.reshape(ops.reshape(y, { shape = { s[1], n, -1 } }) * column(scale) + column(bias), { shape = s })
    return values.plain(y)
  end)
end }

local function last_axes(x, axis)
  local at, axes = axis_at(axis, x:rank()), {}
  for i = at + 1, x:rank() do axes[#axes + 1] = i end
  return axes
end

M.LayerNormalization = { "2-3 | axis:int=-1 epsilon:float=1e-5 stash_type:int=1", function(c, x, scale, bias)
  local axes, t, dtype = last_axes(x, c.axis), x:tensor(), x:dtype()
  if #axes == 1 and c.outputs == 1 and scale:rank() == 1 then
    local b = bias and as(bias, t) or ops.full(scale:shape(), 0, dtype)
    local shape = t:shape()
    if t:count() > 0 and dtype:find "float[36]" then
      local rows = ops.reshape(t, { shape = { -1, shape[#shape] } })
      local y = ops.layer_norm(rows, as(scale, t), b, { epsilon = c.epsilon })
      return values.plain(ops.reshape(y, { shape = shape }))
    end
  end
  local y, mean, inverse = standardized(dtype:find "16" and ops.cast(t, "float32") or t, axes, c.epsilon)
  y = ops.cast(y, dtype) * as(scale, t)
  return values.plain(bias and y + as(bias, t) or y), values.plain(mean), values.plain(inverse)
end }

M.RMSNormalization = { "2 | axis:int=-1 epsilon:float=1e-5 stash_type:int=1", function(c, x, scale)
  local how = { axis = last_axes(x, c.axis), keepdims = true }
  return values.plain(wide(x, function(v)
    local t = v:tensor()
    return values.plain(t * ops.rsqrt(composite.mean(ops.square(t), how) + c.epsilon))
  end):tensor() * scale:tensor())
end }

-- A norm of 0 leaves zeros.
M.LpNormalization = { "1 | axis:int=-1 p:int=2", function(c, x)
  local t, how = x:tensor(), { axis = axis_at(c.axis, x:rank()) + 1, keepdims = true }
  if c.p ~= 1 and c.p ~= 2 then core.fail("unsupported", ("p = %d"):format(c.p)) end
  local norm = c.p == 1 and ops.sum(ops.abs(t), how) or ops.sqrt(ops.sum(ops.square(t), how))
  return values.plain(t / ops.where(ops.eq(norm, 0), 1, norm))
end }

M.MeanVarianceNormalization = { "1 | axes:ints?", function(c, x)
  local how, t = { axis = {}, keepdims = true }, x:tensor()
  for i, axis in ipairs(c.axes or { 0, 2, 3 }) do how.axis[i] = axis_at(axis, x:rank()) + 1 end
  local centered = t - composite.mean(t, how)
  local deviation = ops.sqrt(composite.mean(ops.square(centered), how))
  return values.plain(centered / (deviation + 1e-9))
end }

-- The squares of `size` neighbouring channels are added up.
M.LRN = { "1 | alpha:float=0.0001 beta:float=0.75 bias:float=1 size:int", function(c, x)
  local t = x:last()
  local rank, channels = t:rank(), t:shape()[t:rank()]
  if c.size < 1 or c.size > 4096 then fail("size = %d", c.size) end
  local each, sum = (c.size - 1) / 2, nil
  local squares = pad_axes(ops.square(t), rank, { math.floor(each) }, { math.ceil(each) })
  for first = 0, c.size - 1 do
    local ranges = {}
    for i = 1, rank do ranges[i] = {} end
    ranges[rank] = { first + 1, first + channels }
    local part = composite.slice(squares, ranges)
    sum = sum and sum + part or part
  end
  return values.last(t / ops.pow(sum * (c.alpha / c.size) + c.bias, c.beta))
end }

return M
