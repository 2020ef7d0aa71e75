--- A model as the JSON from which TensorBoard draws the conceptual graph: the part of Keras 3's configuration that
--- its graph plugin reads: names, classes, dtypes, and which layers feed a layer.
local core = require "mgpu.core"

local describe -- a layer

-- Keras's way to name an output of a use of a layer: {layer, use from 0, output from 0}.
local function history(symbol)
  local node, use = symbol.node, 0
  for i, other in ipairs(node.layer.nodes or {}) do
    if other == node then use = i - 1 end
  end
  return { node.layer.name, use, symbol.index - 1 }
end

-- The uses of a layer among the nodes, as inbound_nodes.
local function inbound_nodes(nodes, layer)
  local list = {}
  for _, node in ipairs(nodes) do
    if node.layer == layer then
      local args = {}
      for i, s in ipairs(node.inputs) do
        args[i] = { class_name = "__keras_tensor__", config = { keras_history = history(s) } }
      end
      list[#list + 1] = { args = { args } }
    end
  end
  return list
end

local function names_of(symbols)
  local list = {}
  for i, s in ipairs(symbols) do list[i] = s.node.layer.name end
  return list
end

-- The layers of a functional model, the inputs first.
local function functional(model, config)
  config.layers, config.output_layers = {}, {}
  for i, layer in ipairs(model.layers) do
    config.layers[i] = describe(layer)
    config.layers[i].inbound_nodes = layer.is_input and core.empty_array or inbound_nodes(model.order, layer)
  end
  config.input_layers = names_of(model.inputs)
  for i, s in ipairs(model.outputs) do config.output_layers[i] = history(s) end
end

describe = function(layer)
  local config = { name = layer.name, dtype = layer.compute_dtype }
  if layer.is_network and layer.order then
    functional(layer, config)
  elseif layer.is_network then
    config.layers = { layer.sample_shape and { class_name = "InputLayer", config = { name = "input" } } }
    for _, inner in ipairs(layer.layers) do config.layers[#config.layers + 1] = describe(inner) end
  end
  return { class_name = layer.is_network and layer.order and "Functional" or layer.is_input and "InputLayer"
    or layer.class_name, name = layer.name, config = config }
end

--- model_json(model) -> the JSON.
return function(model) return core.json_encode(describe(model)) end
