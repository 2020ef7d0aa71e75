--- Layers as ops of ONNX: a function (graph, layer, value or array of values) -> the layer's output value, by class.
--
-- onnx/images.lua has those over images and sequences, onnx/merging.lua those with several inputs, onnx/operations.lua
-- operations. At inference dropout and noise do nothing.
local activations = require "mgpu.nn.onnx.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local ops = core.ops

local M = {}
for _, part in ipairs { require "mgpu.nn.onnx.images", require "mgpu.nn.onnx.merging",
  require "mgpu.nn.onnx.operations" } do
  for name, export in pairs(part) do M[name] = export end
end

-- x computed in float32, if it is of a half type: fn(value) -> value.
local function in_float32(g, v, dtype, fn)
  local wide = v.dtype == "float64" and v or g:cast(v, "float32")
  return g:cast(fn(wide), dtype)
end

-- ---- identities ---------------------------------------------------------------------------------

local function identity(_, _, v) return v end
for _, name in ipairs { "ActivityRegularization", "Dropout", "SpatialDropout2D", "GaussianNoise" } do
  M[name] = identity
end

-- ---- weights ------------------------------------------------------------------------------------

function M.Dense(g, layer, v)
  local dtype, shape = layer.compute_dtype, { unpack(v.shape) }
  local x, kernel = g:plain(v), g:weight(layer.kernel, dtype)
  shape[#shape] = layer.units
  local name
  if #shape == 2 then
    name = g:op("Gemm", { x, kernel, layer.bias and g:weight(layer.bias, dtype) })
  else
    name = g:op("MatMul", { x, kernel })
    if layer.bias then name = g:op("Add", { name, g:weight(layer.bias, dtype) }) end
  end
  return activations.apply(g, layer, g.value(name, shape, dtype))
end

-- Fractions and ids outside the table are errors here; ONNX cuts fractions off.
function M.Embedding(g, layer, v)
  if layer.mask_zero then layer:fail "mask_zero: ONNX has no masks: such a layer cannot be saved as .onnx" end
  if not v.dtype:find "int" then v = g:cast(v, "int32") end
  local name = g:op("Gather", { g:weight(layer.embeddings, layer.compute_dtype), g:plain(v) }, { axis = 0 })
  return g.value(name, layer:output_shape(v.shape), layer.compute_dtype)
end

-- The channels must be the second axis: they are moved there unless they are.
local function normalize(g, layer, v)
  local dtype = v.dtype
  local function constant(variable, number)
    if variable then return g:weight(variable, dtype) end
    return g:weight({ name = ("%s/%g"):format(layer.name, number), value = function()
      return ops.full({ layer.channels }, number, "float32")
    end }, dtype)
  end
  local inputs = { false, constant(layer.gamma, 1), constant(layer.beta, 0), constant(layer.moving_mean),
    constant(layer.moving_variance) }
  local function batch_norm(x)
    inputs[1] = x
    return g:op("BatchNormalization", inputs, { epsilon = { float = layer.epsilon } })
  end
  if layer.at == 2 and #v.shape > 2 then return g.value(batch_norm(g:plain(v)), v.shape, dtype) end
  if layer.at == #v.shape then return g.first_value(batch_norm(g:first(v)), v.shape, dtype) end
  local swapped = {}
  for i = 1, #v.shape do swapped[i] = i - 1 end
  swapped[2], swapped[layer.at] = layer.at - 1, 1
  local y = batch_norm(g:op("Transpose", { g:plain(v) }, { perm = swapped }))
  return g.value(g:op("Transpose", { y }, { perm = swapped }), v.shape, dtype)
end

function M.BatchNormalization(g, layer, v)
  return in_float32(g, v, v.dtype, function(wide) return normalize(g, layer, wide) end)
end

-- gamma or beta, which have the sizes of the axes, so that they broadcast against x.
local function broadcast(g, layer, variable, v)
  local sizes = {}
  for i = 1, #v.shape do sizes[i] = 1 end
  for i, at in ipairs(layer.axes) do sizes[at] = layer.sizes[i] end
  return g:weight(variable, v.dtype, "broadcast", function(t) return ops.reshape(t, { shape = sizes }) end)
end

local function normalize_samples(g, layer, v)
  local x, axes = g:plain(v), {}
  for i, at in ipairs(layer.axes) do axes[i] = at - 1 end
  local function mean(name) return g:op("ReduceMean", { name }, { axes = axes, keepdims = 1 }) end
  local centered = g:op("Sub", { x, mean(x) })
  local variance = mean(g:op("Mul", { centered, centered }))
  local deviation = g:op("Sqrt", { g:op("Add", { variance, g:number(layer.epsilon, v.dtype) }) })
  local y = g:op("Div", { layer.rms_scaling and x or centered, deviation })
  if layer.gamma then y = g:op("Mul", { y, broadcast(g, layer, layer.gamma, v) }) end
  if layer.beta then y = g:op("Add", { y, broadcast(g, layer, layer.beta, v) }) end
  return g.value(y, v.shape, v.dtype)
end

function M.LayerNormalization(g, layer, v)
  return in_float32(g, v, layer.compute_dtype, function(wide) return normalize_samples(g, layer, wide) end)
end

-- ---- activations --------------------------------------------------------------------------------

function M.Activation(g, layer, v) return activations.apply(g, layer, v) end

-- ONNX keeps the factor as float32.
function M.ELU(g, layer, v)
  return g:map(v, function(x) return g:op("Elu", { x }, { alpha = { float = layer.alpha } }) end)
end

function M.LeakyReLU(g, layer, v)
  return g:map(v, function(x) return g:op("LeakyRelu", { x }, { alpha = { float = layer.negative_slope } }) end)
end

function M.ThresholdedReLU(g, layer, v)
  return g:map(v, function(x) return g:op("ThresholdedRelu", { x }, { alpha = { float = layer.theta } }) end)
end

function M.ReLU(g, layer, v)
  local slope, from = layer.negative_slope, layer.threshold
  return g:map(v, function(x)
    local y
    if from == 0 and slope == 0 then
      y = g:op("Relu", { x })
    else
      local at = g:number(from, v.dtype)
      local below = g:op("Mul", { g:op("Sub", { x, at }), g:number(slope, v.dtype) })
      y = g:op("Where", { g:op("Greater", { x, at }), x, below })
    end
    return layer.max_value and g:op("Min", { y, g:number(layer.max_value, v.dtype) }) or y
  end)
end

function M.PReLU(g, layer, v)
  return g.value(g:op("PRelu", { g:plain(v), g:weight(layer.alpha, v.dtype) }), v.shape, v.dtype)
end

local function softmax_over(g, v, axes)
  local x, list = g:plain(v), g:integers(axes)
  local e = g:op("Exp", { g:op("Sub", { x, g:op("ReduceMax", { x }, { axes = axes, keepdims = 1 }) }) })
  return g.value(g:op("Div", { e, g:op("ReduceSum", { e, list }, { keepdims = 1 }) }), v.shape, v.dtype)
end

function M.Softmax(g, layer, v)
  local axes = {}
  for i, axis in ipairs(type(layer.axis) == "table" and layer.axis or { layer.axis }) do
    axes[i] = axis < 0 and axis + #v.shape or axis - 1
  end
  if #axes == 1 then return g.value(g:op("Softmax", { g:plain(v) }, { axis = axes[1] }), v.shape, v.dtype) end
  return in_float32(g, v, v.dtype, function(wide) return softmax_over(g, wide, axes) end)
end

-- ---- shapes -------------------------------------------------------------------------------------

-- channels_first data are flattened in channels_last order.
function M.Flatten(g, layer, v)
  local x = g:plain(v)
  if images.is_first(layer) and #v.shape > 2 then
    local perm = { 0 }
    for i = 2, #v.shape - 1 do perm[i] = i end
    perm[#v.shape] = 1
    x = g:op("Transpose", { x }, { perm = perm })
  end
  return g.value(g:op("Flatten", { x }, { axis = 1 }), layer:output_shape(v.shape), v.dtype)
end

-- 0 is the size of the batch, whatever it is.
function M.Reshape(g, layer, v)
  local name = g:op("Reshape", { g:plain(v), g:integers { 0, unpack(layer.target_shape) } })
  return g.value(name, layer:output_shape(v.shape), v.dtype)
end

function M.Permute(g, layer, v)
  local perm, shape = { 0, unpack(layer.dims) }, { v.shape[1] }
  for i, d in ipairs(layer.dims) do shape[i + 1] = v.shape[d + 1] end
  return g.value(g:op("Transpose", { g:plain(v) }, { perm = perm }), shape, v.dtype)
end

return M
