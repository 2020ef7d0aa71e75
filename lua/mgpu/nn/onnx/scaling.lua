--- Layers that multiply by factors, fixed or from the data, as ops of ONNX; see onnx/layers.lua.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- A constant of the layer: fn() -> the tensor.
local function constant(g, layer, name, dtype, fn)
  return g:weight({ name = ("%s/%s"):format(layer.name, name), value = fn }, dtype)
end

-- A number, or a list of one for each channel.
local function factor(g, layer, name, v)
  local list, rank = layer[name], #v.shape
  if type(list) == "number" then return g:number(list, v.dtype) end
  return constant(g, layer, name, v.dtype, function()
    local sizes = { #list }
    for i = 2, images.is_first {} and rank == 4 and 3 or 1 do sizes[i] = 1 end
    return ops.reshape(core.tensor(list), { shape = sizes })
  end)
end

function M.Rescaling(g, layer, v)
  v = g:cast(v, layer.compute_dtype)
  local scaled = g:op("Mul", { g:plain(v), factor(g, layer, "scale", v) })
  return g.value(g:op("Add", { scaled, factor(g, layer, "offset", v) }), v.shape, v.dtype)
end

function M.LayerScale(g, layer, v)
  return g.value(g:op("Mul", { g:plain(v), g:weight(layer.gamma, v.dtype) }), v.shape, v.dtype)
end

-- The mean or the variance, as it broadcasts against an input.
local function statistic(layer, name)
  local given = layer[name]
  local t = given ~= nil and core.tensor(given, { dtype = "float64" }) or layer["adapt_" .. name]:value():to "float64"
  return ops.reshape(t, { shape = t:count() == 1 and {} or layer.wide })
end

function M.Normalization(g, layer, v)
  v = g:cast(v, layer.compute_dtype)
  local mean = constant(g, layer, "mean", v.dtype, function() return statistic(layer, "mean") end)
  local deviation = constant(g, layer, "deviation", v.dtype, function()
    return statistic(layer, "variance"):sqrt():maximum(1e-7) -- as the layer's
  end)
  local x = g:plain(v)
  local y = layer.invert and g:op("Add", { g:op("Mul", { x, deviation }), mean })
    or g:op("Div", { g:op("Sub", { x, mean }), deviation })
  return g.value(y, v.shape, v.dtype)
end

function M.RMSNormalization(g, layer, v)
  local dtype, axes = v.dtype, {}
  local wide = dtype == "float64" and v or g:cast(v, "float32")
  for i, axis in ipairs(type(layer.axis) == "table" and layer.axis or { layer.axis }) do
    axes[i] = axis < 0 and axis + #v.shape or axis - 1
  end
  local x = g:plain(wide)
  local mean = g:op("ReduceMean", { g:op("Mul", { x, x }) }, { axes = axes, keepdims = 1 })
  local root = g:op("Sqrt", { g:op("Add", { mean, g:number(layer.epsilon, wide.dtype) }) })
  local y = g:op("Mul", { g:op("Div", { x, root }), g:weight(layer.scale, wide.dtype) })
  return g:cast(g.value(y, v.shape, wide.dtype), dtype)
end

return M
