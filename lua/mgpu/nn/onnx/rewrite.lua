--- Writing the layer OnnxGraph again: its nodes as they were read, with the weights as they are now.
local check = require "mgpu.nn.onnx.check"
local values = require "mgpu.nn.onnx.values"

local M = {}

-- The attributes of a node, as onnx/graph.lua writes them.
local function attributes_of(g, layer, node)
  local out = {}
  for name, a in pairs(check.list(node.attributes)) do
    if a.kind == "graph" then layer:fail('node %q (%s): branches cannot be saved as .onnx', node.name, node.op) end
    local value = type(a.value) == "table" and check.list(a.value) or a.value
    out[name] = a.kind == "tensor" and g.attribute_tensor(layer.constant_tensors[a.value]) or { kind = a.kind,
      value = value }
  end
  return out
end

-- The tensors of the file that nodes or outputs read: their names in the new graph.
local function add_tensors(g, layer, names)
  local read = {}
  for _, node in ipairs(check.list(layer.graph.nodes)) do
    for _, name in ipairs(check.list(node.inputs)) do read[name] = true end
  end
  for _, output in ipairs(layer.graph.outputs) do read[output.name] = true end
  for _, entry in ipairs(check.list(layer.graph.constants)) do
    if read[entry.name] then names[entry.name] = g:tensor(entry.name, layer.constant_tensors[entry.name]) end
  end
  for i, entry in ipairs(check.list(layer.graph.weights)) do
    local t = layer.own_weights[i]:value()
    names[entry.name] = g:tensor(entry.name, entry.kernel and values.from_kernel(t) or t)
  end
end

--- OnnxGraph(graph, layer, values) -> the values of the outputs.
function M.OnnxGraph(g, layer, vs)
  local names, list = { [""] = "" }, vs.shape and { vs } or vs
  for i, input in ipairs(layer.graph.inputs) do names[input.name] = g:plain(g:cast(list[i], input.dtype)) end
  add_tensors(g, layer, names)
  for _, node in ipairs(check.list(layer.graph.nodes)) do
    local inputs, outputs = {}, check.list(node.outputs)
    for i, name in ipairs(check.list(node.inputs)) do inputs[i] = names[name] end
    local made = inputs -- ZipMap, whose result is a tensor here
    if node.op ~= "ZipMap" then
      made = g:ops(node.op, inputs, attributes_of(g, layer, node), #outputs, node.domain)
    end
    for i, name in ipairs(outputs) do if name ~= "" then names[name] = made[i] end end
  end
  local shapes, out = {}, {}
  for i, v in ipairs(list) do shapes[i] = v.shape end
  shapes = layer:output_shape(#list > 1 and shapes or shapes[1])
  for i, output in ipairs(layer.graph.outputs) do
    out[i] = g.value(names[output.name], type(shapes[1]) == "table" and shapes[i] or shapes, layer:output_dtype(i))
  end
  return unpack(out)
end

return M
