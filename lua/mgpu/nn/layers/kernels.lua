--- What the layers with kernels and a bias share: their options, and how they make the weights.
local activations = require "mgpu.nn.activations"

local M = {}

--- weight_options(own, weights, has_activity) -> the declared options of a layer: its own, then initializers,
--- regularizers and constraints of its weights, in Keras's order. weights: an array of {name, initializer}.
-- has_activity: whether activity_regularizer is among them.
function M.weight_options(own, weights, has_activity)
  for _, kind in ipairs { "initializer", "regularizer", "constraint" } do
    for _, weight in ipairs(weights) do
      own[#own + 1] = { weight[1] .. "_" .. kind, kind, default = kind == "initializer" and weight[2] or nil }
    end
    if kind == "regularizer" and has_activity then own[#own + 1] = { "activity_regularizer", kind } end
  end
  return own
end

--- options(own, kernels = {"kernel"}) -> the declared options of a layer: its own, then activation, use_bias, and
--- initializers, regularizers and constraints of the kernels and the bias, as in Keras.
function M.options(own, kernels)
  local weights = {}
  for i, kernel in ipairs(kernels or { "kernel" }) do weights[i] = { kernel, "glorot_uniform" } end
  weights[#weights + 1] = { "bias", "zeros" }
  own[#own + 1] = { "activation", "activation" }
  own[#own + 1] = { "use_bias", "boolean", default = true }
  return M.weight_options(own, weights, true)
end

--- activate(layer): looks up its activation, as layer.activate.
function M.activate(layer) layer.activate = activations.get(layer.activation, tostring(layer)) end

--- add(layer, name, shape, options = name) -> a new weight; its initializer, regularizer and constraint are the options
--- that begin with `options`.
function M.add(layer, name, shape, options)
  options = options or name
  return layer:add_weight { name = name, shape = shape, initializer = layer[options .. "_initializer"],
    regularizer = layer[options .. "_regularizer"], constraint = layer[options .. "_constraint"] }
end

--- add_bias(layer, n): makes layer.bias {n}, unless use_bias is false.
function M.add_bias(layer, n)
  if layer.use_bias then layer.bias = M.add(layer, "bias", { n }) end
end

-- kernel_size of any number of axes, then more sizes.
local function sizes(layer, ...)
  local list = type(layer.kernel_size) == "table" and { unpack(layer.kernel_size) } or { layer.kernel_size }
  for _, size in ipairs { ... } do list[#list + 1] = size end
  return list
end

--- add_depthwise(layer, name): makes layer[name] {kernel_size..., channels, depth_multiplier}, whose options begin with
--- "depthwise".
function M.add_depthwise(layer, name)
  layer[name] = M.add(layer, name, sizes(layer, layer.channels, layer.depth_multiplier), "depthwise")
end

--- add_separable(layer): makes the weights of a separable convolution: depthwise_kernel, pointwise_kernel {1...,
--- channels * depth_multiplier, filters} and the bias.
function M.add_separable(layer)
  M.add_depthwise(layer, "depthwise_kernel")
  local pointwise = sizes(layer, layer.channels * layer.depth_multiplier, layer.filters)
  for i = 1, #pointwise - 2 do pointwise[i] = 1 end
  layer.pointwise_kernel = M.add(layer, "pointwise_kernel", pointwise, "pointwise")
  M.add_bias(layer, layer.filters)
end

return M
