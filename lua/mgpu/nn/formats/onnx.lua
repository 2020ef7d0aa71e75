--- ONNX (https://onnx.ai): the model as a graph of ops that other programs run.
--
-- A file that is written holds the model at inference: no optimizer, no dropout. Inputs and outputs have the names of
-- model.input_names and output_names ("input" and the last layer's name for a Sequential); the batch may have any size.
-- Layers become ops in nn/onnx/. bfloat16 layers compute in float32 there; float64 models are valid, but onnxruntime
-- has few ops for that dtype. Errors, before anything is written: a layer without ops in ONNX, by name.
-- A file that is read becomes a Model of its inputs and one layer OnnxGraph.
local blank_weights = require "mgpu.nn.blank_weights"
local check = require "mgpu.nn.onnx.check"
local core = require "mgpu.core"
local device_scope = require "mgpu.nn.device_scope"
local exporters = require "mgpu.nn.onnx.layers"
local Graph = require "mgpu.nn.onnx.graph"
local layers = require "mgpu.nn.layers"
local matching = require "mgpu.nn.formats.matching"
local Model = require "mgpu.nn.model"
local model_config = require "mgpu.nn.model_config"
local model_file = require "mgpu.nn.onnx.model_file"
local values = require "mgpu.nn.onnx.values"

local M = { inference_only = true } -- what compile made is not stored, and needs no form for files

local LARGEST = 2 ^ 31 - 1 -- bytes of a protobuf message

local export_layer -- (graph, layer, values, listed, options of the call) -> array of values

-- The exporter of the layer's class. A class of the user's with a name of ours is another class.
local function exporter_of(layer)
  local export = exporters[layer.class_name]
  if export and layers[layer.class_name].meta == layer.meta then return export end
  layer:fail "ONNX has no op for this class: such a layer cannot be saved as .onnx"
end

local function check_inference(layer, training)
  if training then layer:fail "it is used with training = true, which a .onnx file, for inference, has no place for" end
end

-- The value with an axis of size 1 added at its end, or dropped there, if that gives it the rank of `wanted`.
local function with_rank(g, v, wanted)
  local shape, rank = { unpack(v.shape) }, #v.shape
  if rank == #wanted then return v end
  local op_type = rank < #wanted and "Unsqueeze" or "Squeeze"
  shape[math.max(rank, #wanted)] = rank < #wanted and 1 or nil
  return g.value(g:op(op_type, { g:plain(v), g:integers { -1 } }), shape, v.dtype)
end

local function export_sequential(g, model, v)
  v = with_rank(g, v, model.built_shape)
  for _, layer in ipairs(model.layers) do v = export_layer(g, layer, { v }, false)[1] end
  return { v }
end

local function export_model(g, model, inputs)
  local made, list = {}, {}
  for i, s in ipairs(model.inputs) do made[s] = with_rank(g, inputs[i], s:shape()) end
  for _, node in ipairs(model.order) do
    check_inference(node.layer, node.training)
    local given = {}
    for i, s in ipairs(node.inputs) do given[i] = made[s] end
    local outputs = export_layer(g, node.layer, given, node.listed, node.options)
    for i, s in ipairs(node.outputs) do made[s] = outputs[i] end
  end
  for i, s in ipairs(model.outputs) do list[i] = made[s] end
  return list
end

-- The inputs cast to the layer's dtype, as a call does it.
local function cast_inputs(g, layer, vs)
  if not layer.autocast then return vs end
  local list = {}
  for i, v in ipairs(vs) do list[i] = v.dtype:find "float" and g:cast(v, layer.compute_dtype) or v end
  return list
end

export_layer = function(g, layer, vs, listed, options)
  if layer.is_network then
    return (layer.order and export_model or export_sequential)(g, layer, layer.order and vs or vs[1])
  end
  local export = exporter_of(layer)
  if rawget(layer, "quantization") then
    core.fail("unsupported", ("%s has weights of %d bits, which are not written to .onnx files: save the model before "
      .. "it is quantized"):format(tostring(layer), layer.quantization.bits))
  end
  g.scope = layer.name
  vs = cast_inputs(g, layer, vs)
  return { export(g, layer, listed and vs or vs[1], options or {}) }
end

-- {name, shape, dtype} of each input.
local function inputs_of(model)
  if not model.order then
    local first = model.layers[1]
    local dtype = model.input_dtype or (first and first.takes_integers and "int32") or core.floatx()
    return { { "input", model.built_shape, dtype } }
  end
  local list = {}
  for i, s in ipairs(model.inputs) do list[i] = { model.input_names[i], s:shape(), model.input_dtypes[i] } end
  return list
end

local function output_names(model)
  if model.order then return model.output_names end
  local last = model.layers[#model.layers]
  return { last and last.name or "output" }
end

-- The graph to write: in the opset of a graph that was read, which stands alone unless that is the opset of our layers.
local function new_graph(model)
  local g, read, others = Graph.new(), nil, 0
  model:each_layer(function(layer)
    if layer.class_name == "OnnxGraph" then
      read = read or layer
      if layer.graph.opset ~= read.graph.opset then layer:fail("its opset is not that of %s", tostring(read)) end
    elseif not layer.is_input and not layer.is_network then
      others = others + 1
    end
  end)
  if not read then return g end
  local opset = read.graph.opset or g.opset
  if others > 0 and opset ~= g.opset then
    read:fail("its opset is %d, which cannot be saved as .onnx beside other layers, whose opset is %d", opset, g.opset)
  end
  return Graph.new(opset, read.graph.learners)
end

-- The model as a graph. Raises for a layer that ONNX lacks.
local function graph_of(model)
  if model.reads_values then
    core.fail("unsupported", ("%s: layers that read values, such as texts, have no form in ONNX: save model.body, the "
      .. "part behind them"):format(tostring(model)))
  end
  local g, inputs = new_graph(model), {}
  for i, input in ipairs(inputs_of(model)) do inputs[i] = g:add_input(unpack(input)) end
  local names = {}
  for i, name in ipairs(output_names(model)) do names[i] = g:unique(name) end
  for i, v in ipairs(export_layer(g, model, inputs, true)) do g:add_output(names[i], v) end
  return g
end

--- check(model): raises if the model cannot be saved.
function M.check(model) graph_of(model) end

--- save(model, path): writes the model.
function M.save(model, path)
  local message = graph_of(model):model(model.name)
  if message.size > LARGEST then
    core.fail("unsupported", ("%s: a .onnx file holds at most 2 GiB, the model needs %.1f GiB"):format(path,
      message.size / 2 ^ 30))
  end
  core.write_file(path, message.pieces)
end

-- ---- reading ------------------------------------------------------------------------------------

-- The numbers of the weights.
local function count_numbers(graph)
  local total = 0
  for _, weight in ipairs(graph.weights) do
    local n = 1
    for _, size in ipairs(weight.shape) do n = n * size end
    total = total + n
  end
  return total
end

-- The symbolic inputs of the graph.
local function symbolic_inputs(graph)
  local list = {}
  for i, input in ipairs(graph.inputs) do
    local given = { { unpack(input.shape, 2) }, dtype = input.dtype, name = input.name }
    if input.shape[1] > 0 then given.batch_size = input.shape[1] end
    list[i] = layers.Input(given)
  end
  return list
end

local function make_model(path, graph, tensors, read)
  model_file.fill(path, graph, tensors, read)
  local layer = layers.OnnxGraph { graph }
  local inputs = symbolic_inputs(graph)
  local shapes = {}
  for i, input in ipairs(inputs) do shapes[i] = input:shape() end
  layer:ensure_built(#shapes > 1 and shapes or shapes[1])
  for i, weight in ipairs(graph.weights) do
    local tensor, v = tensors[weight.name], layer.own_weights[i]
    local t = read[tensor.entry] or core.tensor(tensor.values, { dtype = tensor.dtype })
    t = (tensor.kernel and values.to_kernel(t) or t):to(v:device())
    core.eval(t) -- so that the file's order of axes can be freed
    v:assign(t)
    if tensor.entry then read[tensor.entry] = nil end
  end
  inputs = #inputs > 1 and inputs or inputs[1]
  return Model { inputs = inputs, outputs = layer(inputs) }
end

-- Says which weights of layers have a NaN or an infinity. Other tensors with one are masks, and not trained.
local function check_finite(path, graph, tensors, entries)
  local bad, names = {}, {}
  for _, entry in ipairs(entries) do bad[entry] = true end
  for _, weight in ipairs(graph.weights) do
    local tensor = tensors[weight.name]
    if bad[tensor.entry] and tensor.in_layer then names[#names + 1] = weight.name end
    if bad[tensor.entry] and not tensor.in_layer then weight.trainable = false end
  end
  matching.warn_nonfinite(path, names)
end

--- load_model(path, custom, compile) -> the model, which is not compiled and whose weights are frozen.
function M.load_model(path)
  local file = core.onnx_open(path)
  local graph, tensors = model_file.graph(path, core.json_decode(file:notes().model), file:tensors())
  model_config.guarded_graph(path, check.check, graph, true)
  -- on the host, where constants are kept, whatever the default device is
  local read, nonfinite = device_scope.with_device(values.HOST, function() return file:read() end)
  file:close()
  check_finite(path, graph, tensors, nonfinite)
  local model = blank_weights.with_room(count_numbers(graph), path, function()
    return model_config.guarded_graph(path, make_model, path, graph, tensors, read)
  end)
  model.trainable = false
  return model
end

return M
