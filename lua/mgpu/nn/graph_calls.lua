--- graph_calls(nodes, values, training): calls the layers of a functional model's nodes, in their order. values: by
--- symbolic tensor, of the inputs; those of all nodes are added. training: where a node does not state it.
local call_arguments = require "mgpu.nn.call_arguments"

return function(nodes, values, training)
  for _, node in ipairs(nodes) do
    local list = {}
    for i, s in ipairs(node.inputs) do list[i] = values[s] end
    local stated = node.training
    if stated == nil then stated = training end
    local y = node.layer:apply(node.listed and list or list[1], call_arguments.how(stated, node.options))
    for i, s in ipairs(node.outputs) do values[s] = node.several and y[i] or y end
  end
end
