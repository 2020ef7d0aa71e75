--- Models in Keras's configurations: Sequential and Functional of Keras 2 and 3 <-> those of model_config.lua.
--
-- A functional model of Keras names the inputs of each use (node) of a layer by {layer's name, which use of it, which
-- output}, counted from 0; ours numbers the uses in an order in which they can be made.
local call_arguments = require "mgpu.nn.call_arguments"
local core = require "mgpu.core"
local keras1 = require "mgpu.nn.keras.keras1"
local layers = require "mgpu.nn.keras.layers"
local model_config = require "mgpu.nn.model_config"
local objects = require "mgpu.nn.keras.objects"
local operations = require "mgpu.nn.keras.operations"
local ordered_keys = require "mgpu.ordered_keys"
local origin = require "mgpu.nn.keras.origin"
local recorded_masks = require "mgpu.nn.keras.recorded_masks"
local tf_functions = require "mgpu.nn.keras.tf_functions"
local tf_graph_ops = require "mgpu.nn.keras.tf_graph_ops"

local M = {}

local given = objects.given

-- ---- from Keras: sequential ---------------------------------------------------------------------

-- RETURNS the model's policy, the first one that a layer states, and removes it from the layers that have it.
local function common_policy(list)
  local policy
  for _, layer in ipairs(list) do
    if layer.class_name ~= "Input" then policy = policy or layer.config.dtype end
  end
  for _, layer in ipairs(list) do
    if layer.config.dtype == policy and layer.class_name ~= "Input" then layer.config.dtype = nil end
  end
  return policy
end

local function sequential_from(config, at)
  local list, ours = {}, { name = given(config.name), trainable = given(config.trainable) }
  for i, entry in ipairs(config.layers) do
    local layer = M.from_keras(entry, at)
    if layer.class_name == "Input" and i == 1 then
      ours.input_shape, ours.input_dtype = layer.config.shape, layer.config.dtype
      ours.batch_size = layer.config.batch_size
    else
      list[#list + 1] = layer
    end
  end
  local built = given(config.build_input_shape) or given(config.batch_input_shape)
  if not ours.input_shape and type(built) == "table" and type(built[1]) ~= "table" then
    ours.input_shape = layers.shape_from(built, at)
  end
  ours.layers, ours.dtype = list, common_policy(list)
  return { class_name = "Sequential", config = ours }
end

-- ---- from Keras: functional ---------------------------------------------------------------------

-- All places [name, use, output] in a structure of lists and objects, in Keras's order; `place(value)` recognises one.
local function collect_places(value, place, list, at)
  local found = place(value)
  if found then
    list[#list + 1] = found
  elseif type(value) == "table" then
    for _, key in ipairs(ordered_keys(value)) do collect_places(value[key], place, list, at) end
  elseif given(value) ~= nil then
    objects.fail(at, "a layer is called with %s: only outputs of layers can be inputs", tostring(value))
  end
  return list
end

-- ["dense", 0, 0], or nil.
local function plain_place(value)
  if type(value) ~= "table" or type(value[1]) ~= "string" or type(value[2]) ~= "number" then return nil end
  return { name = value[1], use = value[2], output = type(value[3]) == "number" and value[3] or 0,
    options = type(value[4]) == "table" and value[4] or nil }
end

-- {class_name = "__keras_tensor__", config = {keras_history = ["dense", 0, 0]}}, or nil.
local function tensor_place(value)
  if type(value) ~= "table" or value.class_name ~= "__keras_tensor__" then return nil end
  return type(value.config) == "table" and plain_place(value.config.keras_history) or nil
end

-- Adds the keyword arguments of a call to a use: training as `recorded`, mask, options of the layer's call, and its
-- named tensors and initial states, which join the inputs. ARGS place: recognises a place. Errors: other arguments.
local function add_arguments(use, arguments, class, place, name, at)
  local options, tensors = {}, use.tensors
  local function take(key, value)
    local found = class and call_arguments.is_tensor(class, key) and place(value)
    if found then
      use.inputs[#use.inputs + 1], tensors[#tensors + 1], use.listed = found, key, true
    elseif key == "training" then
      use.recorded = value
    elseif key == "initial_state" and class and class.takes_states then -- inputs behind the first
      collect_places(value, place, use.inputs, at)
      use.listed = true
    elseif key == "mask" and value ~= false then
      use.mask = place(value)
        or objects.fail(at, "layer %q is called with the argument mask, which is no tensor", name)
    elseif class and call_arguments.is_option(class, key) then
      options[key] = value
    elseif value ~= false then
      objects.fail(at, "layer %q is called with the argument %s, which is not supported", name, tostring(key))
    end
  end
  local seen = {}
  for _, key in ipairs(class and call_arguments.parameters(class) or {}) do -- tensors in their order
    seen[key] = true
    if given(arguments[key]) ~= nil then take(key, arguments[key]) end
  end
  for key, value in pairs(arguments) do
    if not seen[key] and given(value) ~= nil then take(key, value) end
  end
  for i, tensor in ipairs(tensors) do
    if tensor ~= class.call_tensors[i] then options.tensors = tensors end
  end
  use.options = next(options) ~= nil and options or nil
end

-- The arguments of a call of Keras 3 by name, without its first one.
local function named_arguments(node, class, name, at)
  local names, arguments = call_arguments.parameters(class or {}), {}
  for key, value in pairs(given(node.kwargs) or {}) do arguments[key] = value end
  for i = 2, #node.args do
    if not names[i] or not class or not (class.call_tensors or class.call_parameters) then
      objects.fail(at, "layer %q is called with several arguments, not with one list", name)
    end
    arguments[names[i]] = node.args[i]
  end
  return arguments
end

-- One use: {inputs = places, listed =, recorded = the argument training, options = of the call}. ARGS class: of the
-- layer; nil for a model.
local function use_from(node, name, class, at)
  if type(node) ~= "table" then objects.damaged(at, "a use of %q is not a list", name) end
  local first = class and class.call_tensors and class.call_tensors[1]
  if node.args then -- Keras 3
    local kwargs = type(node.args) == "table" and given(node.kwargs)
    if type(kwargs) == "table" and #node.args == 0 and given(kwargs[first or "inputs"]) ~= nil then
      node = { args = { kwargs[first or "inputs"] }, kwargs = kwargs }
      kwargs[first or "inputs"] = nil
    end
    if type(node.args) ~= "table" or #node.args == 0 or kwargs and type(kwargs) ~= "table" then
      objects.fail(at, "layer %q is called without inputs", name)
    end
    local use = { inputs = collect_places(node.args[1], tensor_place, {}, at), listed = not tensor_place(node.args[1]),
      tensors = { first } }
    add_arguments(use, named_arguments(node, class, name, at), class, tensor_place, name, at)
    return use
  end
  local single = plain_place(node)
  local places = single and { single } or collect_places(node, plain_place, {}, at)
  if #places == 0 then objects.damaged(at, "a use of %q has no inputs", name) end
  local use = { inputs = places, listed = #places > 1, tensors = { first } }
  add_arguments(use, places[1].options or {}, class, plain_place, name, at)
  return use
end

-- The class of a layer in our form, or nil.
local function class_at(layer, at)
  local name = type(layer) == "table" and layer.class_name
  if at.custom[name] then return at.custom[name] end
  return name and layers.knows(name) and require "mgpu.nn.layers"[name] or nil
end

-- The function that reads a use of an entry which is an operation and no layer, and the function that recognises a
-- place in its arguments; nil for layers.
local function reader_of(entry, at)
  if operations.is_operation(entry, at) then return operations.from_node, tensor_place end
  if tf_functions.is_function(entry) then return tf_functions.from_node, plain_place end
  if tf_graph_ops.is_graph_op(entry) then return tf_graph_ops.from_node, plain_place end
end

-- Returns a function that reads the operation at a place: what its reader RETURNS, or nil.
local function layers_by_place(config, at)
  local entries = {}
  for _, entry in ipairs(config.layers) do
    if type(entry) == "table" and type(entry.name) == "string" then entries[entry.name] = entry end
  end
  local in_progress = {} -- nodes; one that depends on itself is not read again
  return function(place)
    local entry = entries[place.name]
    local read, recognise = reader_of(entry, at)
    local node = read and type(entry.inbound_nodes) == "table" and entry.inbound_nodes[place.use + 1]
    if type(node) ~= "table" or in_progress[node] then return nil end
    in_progress[node] = true
    local layer, places = read(entry, node, at, recognise)
    in_progress[node] = nil
    return layer, places
  end
end

-- The use number n of an operation, with its layer as `operation`.
local function operation_use(read, entry, node, n, place, at)
  if type(node) ~= "table" then objects.damaged(at, "a use of %q is not a list", tostring(entry.name)) end
  local layer, places = read(entry, node, at, place)
  if #places == 0 then objects.damaged(at, "a use of %q has no inputs", tostring(entry.name)) end
  if n > 1 then layer.config.name = ("%s_use_%d"):format(layer.config.name, n) end
  return { inputs = places, listed = #places > 1, operation = layer }
end

-- All uses of layers, with the layer's position and its number among the uses of the layer; name -> use -> its key;
-- name -> position. Adds the layers to `list`: an operation has its arguments in its uses, so each use is a layer.
local function uses_from(config, list, at)
  local uses, by_place, position = {}, {}, {}
  for i, entry in ipairs(config.layers) do list[i] = not reader_of(entry, at) and M.from_keras(entry, at) end
  at.layer_at = layers_by_place(config, at) -- after inner models, which set their own
  for i, entry in ipairs(config.layers) do
    local name = type(entry) == "table" and given(entry.name)
    if name == nil and type(entry.config) == "table" then name = given(entry.config.name) end
    if type(name) ~= "string" then objects.damaged(at, "layer %d has no name", i) end
    if position[name] then objects.damaged(at, "two layers are called %q", name) end
    position[name], by_place[name] = i, {}
    local nodes = given(entry.inbound_nodes) or {}
    local read, place = reader_of(entry, at)
    for n, node in ipairs(type(nodes) == "table" and nodes or {}) do
      local use
      if read then
        use = operation_use(read, entry, node, n, place, at)
        list[n == 1 and i or #list + 1] = use.operation
      else
        use = use_from(node, name, class_at(list[i], at), at)
        use.training = origin.fixed(node, use.recorded, list[i], at)
      end
      use.layer = n > 1 and read and #list or i
      uses[#uses + 1], by_place[name][n - 1] = use, use
    end
    if not list[i] then objects.damaged(at, "the operation %q is used nowhere", name) end
  end
  recorded_masks.check(uses, list, by_place, at)
  return uses, by_place, position
end

-- Keras 2 counts the uses of an inner model from 1, since it has one use from the start; Keras 3 does so only where a
-- functional model makes an output of the outer model. Makes them count from 0.
local function count_from_zero(uses, outputs, by_place, class_of, at)
  local places, lowest, highest = {}, {}, {}
  for _, use in ipairs(uses) do
    for _, place in ipairs(use.inputs) do places[#places + 1] = place end
  end
  for _, place in ipairs(outputs) do
    if class_of(place) == "Model" then
      place.use = math.max(0, place.use - 1)
    else
      places[#places + 1] = place
    end
  end
  for _, place in ipairs(places) do
    lowest[place.name] = math.min(lowest[place.name] or math.huge, place.use)
    highest[place.name] = math.max(highest[place.name] or 0, place.use)
  end
  for _, place in ipairs(places) do
    local class, name = class_of(place), place.name
    local from_one = lowest[name] > 0 and (at.keras2 or not by_place[name][highest[name]])
    if (class == "Sequential" or class == "Model") and from_one then place.use = place.use - 1 end
  end
end

-- Sorts the uses so that each comes after those that it needs and after earlier ones of its layer, and numbers them
-- (Kahn's algorithm).
local function sort_uses(uses, by_place, is_input, at)
  local ready, waiting, order, last = {}, {}, {}, {}
  local function wait_for(source, use)
    use.missing = use.missing + 1
    waiting[source] = waiting[source] or {}
    table.insert(waiting[source], use)
  end
  for _, use in ipairs(uses) do
    use.missing = 0
    if last[use.layer] then wait_for(last[use.layer], use) end
    last[use.layer] = use
    for _, place in ipairs(use.inputs) do
      local source = by_place[place.name] and by_place[place.name][place.use]
      if source then
        wait_for(source, use)
      elseif not is_input(place) then
        objects.damaged(at, "there is no use %d of a layer %q", place.use, place.name)
      end
    end
    if use.missing == 0 then ready[#ready + 1] = use end
  end
  local at_use = 1
  while ready[at_use] do
    local use = ready[at_use]
    at_use = at_use + 1
    order[#order + 1], use.number = use, #order + 1
    for _, other in ipairs(waiting[use] or {}) do
      other.missing = other.missing - 1
      if other.missing == 0 then ready[#ready + 1] = other end
    end
  end
  if #order < #uses then objects.damaged(at, "layers need each other in a circle") end
  return order
end

local function functional_from(config, at)
  local list = {}
  local uses, by_place, position = uses_from(config, list, at)
  local input_places = collect_places(config.input_layers, plain_place, {}, at)
  local output_places = collect_places(config.output_layers, plain_place, {}, at)
  local function class_of(place)
    local layer = list[position[place.name] or 0]
    return layer and layer.class_name
  end
  count_from_zero(uses, output_places, by_place, class_of, at)
  local input_number, inputs = {}, {}
  for i, place in ipairs(input_places) do
    if class_of(place) ~= "Input" then objects.damaged(at, "%q is not an input", place.name) end
    local layer = position[place.name]
    input_number[place.name], inputs[i] = i, { layer = layer, shape = list[layer].config.shape }
  end
  local order = sort_uses(uses, by_place, function(place) return input_number[place.name] and place.use == 0 end, at)
  local function ours(places)
    local found = {}
    for i, place in ipairs(places) do
      local use = by_place[place.name] and by_place[place.name][place.use]
      local input = input_number[place.name]
      if not use and not input then objects.damaged(at, "there is no use %d of a layer %q", place.use, place.name) end
      found[i] = use and { use.number, place.output + 1 } or { 0, input }
    end
    return found
  end
  local our_uses = {}
  for n, use in ipairs(order) do
    our_uses[n] = { layer = use.layer, inputs = ours(use.inputs), listed = use.listed, training = use.training,
      options = use.options }
  end
  local outputs = ours(output_places)
  if #inputs == 0 or #outputs == 0 then objects.damaged(at, "the model has no inputs or no outputs") end
  return { class_name = "Model", config = { name = given(config.name), trainable = given(config.trainable),
    layers = list, dtype = common_policy(list), uses = our_uses, inputs = inputs, outputs = outputs,
    listed = #inputs > 1, several = #outputs > 1 } }
end

--- from_keras(entry, at) -> {class_name =, config =} for model_config, from Keras's form of a model or layer.
-- at: see objects.lua. Errors: unknown classes and options; damaged configurations.
function M.from_keras(entry, at)
  local name = type(entry) == "table" and entry.class_name
  if name ~= "Sequential" and name ~= "Functional" and name ~= "Model" then return layers.from_layer(entry, at) end
  local config = given(entry.config)
  if name == "Sequential" and type(config) == "table" and config[1] then config = { layers = config } end -- Keras 1
  if type(config) ~= "table" or type(config.layers) ~= "table" then
    objects.damaged(at, "the model %s has no layers", name)
  end
  if name == "Sequential" then return sequential_from(config, at) end
  return functional_from(config, at)
end

--- read(entry, at) -> what from_keras RETURNS; whatever is wrong with the entry is an error that names the file.
function M.read(entry, at)
  local ours = model_config.guarded(at.path, function() return M.from_keras(keras1.translated(entry, at), at) end)
  origin.warn(at)
  return ours
end

-- ---- to Keras -----------------------------------------------------------------------------------

--- to_entry(layer, style) -> Keras's form of a layer or inner model. Each layer states its policy, since layers do not
--- inherit one from the model in Keras.
function M.to_entry(layer, style)
  if layer.is_network then return M.to_keras(layer, style) end
  if layer.class_name == "Operation" then return operations.to_entry(layer) end
  local config = layer:get_config()
  if layer.is_input and not layer.states_policy then config.dtype = nil end
  return layers.to_layer(layer, config, style)
end

-- Keras's form of a model.
local function model_entry(class_name, config, style)
  return { class_name = class_name, config = config,
    module = class_name == "Functional" and "keras.src.models.functional" or "keras",
    registered_name = style == "keras" and class_name == "Functional" and class_name or core.null }
end

local function sequential_to(model, style)
  local config, list = model:get_config(), {}
  if config.input_shape then
    list[1] = layers.to_input({ name = model.layers[1] and model.layers[1].name .. "_input" or "input_layer",
      shape = config.input_shape, dtype = config.input_dtype, batch_size = config.batch_size }, style)
  end
  for _, layer in ipairs(model.layers) do list[#list + 1] = M.to_entry(layer, style) end
  return model_entry("Sequential", { name = config.name, trainable = config.trainable,
    layers = #list > 0 and list or core.empty_array,
    build_input_shape = config.input_shape and layers.shape_to(config.input_shape) or nil }, style)
end

-- Keras's place for our {use, output}.
local function place_of(place, names, input_names)
  if place[1] == 0 then return { input_names[place[2]], 0, 0 } end
  local use = names[place[1]]
  return { use.name, use.number, place[2] - 1 }
end

-- The keyword arguments of a use, and how many of its inputs are the first argument; the others are among the keyword
-- arguments, by name. ARGS list: what stands for each input.
local function arguments_of(use, layer, list)
  local arguments, inputs = { training = use.training }, #list
  for key, value in pairs(use.options or {}) do
    if key ~= "tensors" then arguments[key] = value end
  end
  if layer.call_tensors then
    inputs = 1
    local names = call_arguments.names(layer, #list, use.options)
    for i = 2, #list do arguments[names[i]] = list[i] end
  end
  return arguments, inputs
end

-- A use of a layer as Keras 2 or 3 writes it. Operations are Keras 3's in both.
local function node_of(use, layer, list, style, shape_of)
  local is_operation = layer.class_name == "Operation"
  if style == "h5" and not is_operation then
    local arguments, inputs = arguments_of(use, layer, list)
    local node = {}
    for i = 1, inputs do node[i] = { list[i][1], list[i][2], list[i][3], arguments } end
    return node
  end
  local tensors = {}
  for i, place in ipairs(list) do
    local s = shape_of(use.inputs[i])
    tensors[i] = { class_name = "__keras_tensor__", config = { keras_history = place, dtype = s:dtype(),
      shape = layers.shape_to { unpack(s:shape(), 2) } } }
  end
  if is_operation then return operations.to_node(layer, tensors) end
  local arguments = arguments_of(use, layer, tensors)
  local several = use.listed and not layer.call_tensors
  if several and layer.takes_states then
    several, arguments.initial_state = false, tensors[2] and { unpack(tensors, 2) }
  end
  return origin.mark({ args = { several and tensors or tensors[1] }, kwargs = arguments }, use.training)
end

-- Keras's entries of the layers, by layer, and the names of the inputs. An input that is the output of a layer outside
-- the model becomes an InputLayer.
local function entries_of(model, style)
  local by_layer, outside, input_names = {}, {}, {}
  for _, layer in ipairs(model.layers) do by_layer[layer] = M.to_entry(layer, style) end
  for i, input in ipairs(model.inputs) do
    local layer = input.node.layer
    input_names[i] = by_layer[layer] and layer.name or model.input_names[i] .. "_input"
    if not by_layer[layer] then
      outside[#outside + 1] = layers.to_input({ name = input_names[i], shape = { unpack(input:shape(), 2) } }, style)
      outside[#outside].name, outside[#outside].inbound_nodes = input_names[i], core.empty_array
    end
  end
  for layer, entry in pairs(by_layer) do entry.name, entry.inbound_nodes = layer.name, core.empty_array end
  return by_layer, outside, input_names
end

local function functional_to(model, style)
  local config, by_layer, list, input_names = model:get_config(), entries_of(model, style)
  for _, layer in ipairs(model.layers) do list[#list + 1] = by_layer[layer] end
  local function symbol(place)
    if place[1] == 0 then return model.inputs[place[2]] end
    return model.order[place[1]].outputs[place[2]]
  end
  local names, counts = {}, {}
  for n, use in ipairs(config.uses) do
    local entry, places = by_layer[model.layers[use.layer]], {}
    names[n] = { name = entry.name, number = counts[entry] or 0 }
    counts[entry] = names[n].number + 1
    for i, place in ipairs(use.inputs) do places[i] = place_of(place, names, input_names) end
    if entry.inbound_nodes == core.empty_array then entry.inbound_nodes = {} end
    table.insert(entry.inbound_nodes, node_of(use, model.layers[use.layer], places, style, symbol))
  end
  local inputs, outputs = {}, {}
  for i, name in ipairs(input_names) do inputs[i] = { name, 0, 0 } end
  for i, place in ipairs(config.outputs) do
    outputs[i] = place_of(place, names, input_names)
    local use = config.uses[place[1]]
    if use and model.layers[use.layer].class_name == "Model" then outputs[i][2] = outputs[i][2] + 1 end
  end
  return model_entry("Functional", { name = config.name, trainable = config.trainable, layers = list,
    input_layers = inputs, output_layers = outputs }, style)
end

--- to_keras(model, style) -> Keras's form of the model. style: "h5" (read by Keras 2 and 3) or "keras" (Keras 3).
-- Errors: an option that is a function.
function M.to_keras(model, style)
  return (model.class_name == "Sequential" and sequential_to or functional_to)(model, style)
end

return M
