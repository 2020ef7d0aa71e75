--- What can be joined with a layer before it is quantized: a batch normalization behind it, and then a ReLU.
--
-- fold(network, config, plan) changes the configuration of a model: joined layers become Activation "linear", and the
-- layer gets the activation. plan.norm[layer]: the normalization whose numbers go into its weights.
local core = require "mgpu.core"

local M = {}

-- For each layer (by position) the position of the only layer that reads its only output; nil if there is none.
local function successors(network, config)
  local next_of = {}
  if not config.uses then
    for i = 1, #network.layers - 1 do next_of[i] = i + 1 end
    return next_of
  end
  local readers, uses_of, is_output = {}, {}, {}
  for n, use in ipairs(config.uses) do
    uses_of[use.layer] = (uses_of[use.layer] or 0) + 1
    for _, place in ipairs(use.inputs) do
      readers[place[1]] = readers[place[1]] or {}
      table.insert(readers[place[1]], n)
    end
  end
  for _, place in ipairs(config.outputs) do is_output[place[1]] = true end
  for n, use in ipairs(config.uses) do
    local list = readers[n] or {}
    local reader = #list == 1 and not is_output[n] and config.uses[list[1]]
    if reader and uses_of[use.layer] == 1 and uses_of[reader.layer] == 1 and #reader.inputs == 1 then
      next_of[use.layer] = reader.layer
    end
  end
  return next_of
end

local function is_linear(layer) return layer.activation == nil or layer.activation == "linear" end

-- Whether the layer normalizes the channels that come last.
local function is_norm_of_last(layer, rank)
  return layer.class_name == "BatchNormalization" and layer.built and (layer.axis == -1 or layer.axis == rank)
    and not layer.renorm
end

-- "relu" or "relu6" if the layer is one of these.
local function relu_of(layer)
  if layer.class_name == "Activation" then
    return (layer.activation == "relu" or layer.activation == "relu6") and layer.activation or nil
  end
  if layer.class_name ~= "ReLU" or (layer.negative_slope or 0) ~= 0 or (layer.threshold or 0) ~= 0 then return nil end
  return layer.max_value == nil and "relu" or layer.max_value == 6 and "relu6" or nil
end

local function make_linear(entry)
  entry.class_name = "Activation"
  entry.config = { name = entry.config.name, stream_name = entry.config.stream_name, dtype = entry.config.dtype,
    activation = "linear" }
end

--- fold(network, config, plan): plan.chosen[layer] says which layers will be quantized.
function M.fold(network, config, plan)
  local next_of = successors(network, config)
  for i, layer in ipairs(network.layers) do
    local last = layer.class_name == "Dense" or layer.data_format ~= "channels_first"
    local shared = config.layers[i].shared -- with other models, which have other layers behind it
    if plan.chosen[layer] and is_linear(layer) and last and not shared then
      local own, at = config.layers[i].config, next_of[i]
      local norm = at and not config.layers[at].shared and network.layers[at]
      if norm and is_norm_of_last(norm, #layer.built_shape) then
        plan.norm[layer], plan.replaced[norm] = norm, true
        own.use_bias = true
        make_linear(config.layers[at])
        at = next_of[at]
      end
      local relu = at and not config.layers[at].shared and relu_of(network.layers[at])
      if relu then
        own.activation = relu
        plan.replaced[network.layers[at]] = true
        make_linear(config.layers[at])
      end
    end
  end
end

--- weights(layer, norm) -> kernel and bias in float32, with the normalization.
function M.weights(layer, norm)
  local ops = core.ops
  local kernel = ops.cast(require "mgpu.nn.layers.lora".weight(layer):value(), { dtype = "float32" })
  local bias = rawget(layer, "bias") and ops.cast(layer.bias:value(), { dtype = "float32" })
  if not norm then return kernel, bias end
  local function number(field) return ops.cast(norm[field]:value(), { dtype = "float32" }):to(kernel:device()) end
  local factor = ops.rsqrt(number "moving_variance" + norm.epsilon)
  if rawget(norm, "gamma") then factor = factor * number "gamma" end
  local shift = -number "moving_mean" * factor
  if rawget(norm, "beta") then shift = shift + number "beta" end
  return kernel * factor, bias and bias * factor + shift or shift
end

return M
