--- What the layers with kernels and a bias share: their options, and how they make the weights.
local activations = require "mgpu.nn.activations"

local M = {}

-- Appends {KERNEL_kind, kind} for each kernel, then for the bias.
local function append_each(list, kernels, kind, default)
  for _, kernel in ipairs(kernels) do list[#list + 1] = { kernel .. "_" .. kind, kind, default = default } end
  list[#list + 1] = { "bias_" .. kind, kind, default = default and "zeros" }
end

--- options(own, kernels = {"kernel"}) -> the declared options of a layer: its own, then activation, use_bias, and
--- initializers, regularizers and constraints of the kernels and the bias, as in Keras.
function M.options(own, kernels)
  kernels = kernels or { "kernel" }
  own[#own + 1] = { "activation", "activation" }
  own[#own + 1] = { "use_bias", "boolean", default = true }
  append_each(own, kernels, "initializer", "glorot_uniform")
  append_each(own, kernels, "regularizer")
  own[#own + 1] = { "activity_regularizer", "regularizer" }
  append_each(own, kernels, "constraint")
  return own
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

return M
