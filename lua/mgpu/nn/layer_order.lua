--- The layers of a functional model in Keras's order. It is the order of model.layers, of the model's weights and of
--- the summary, and Keras's files depend on it. It depends on the graph alone, not on which layer was made first, so a
--- model that was loaded or cloned has the order of the original.
--
-- Layers far from the outputs come first; among equally far ones, those that a walk from the outputs to the inputs
-- meets first (Keras's map_graph).

-- The nodes in the order in which the walk leaves them, inputs first, and layer -> the number under which it was met.
local function walk(model)
  local met, count, done, order, given = {}, 0, {}, {}, {}
  for _, input in ipairs(model.inputs) do given[input] = true end
  local stack = {} -- {node, position of the next input, whether it is an input of the model}
  local function enter(s)
    if done[s.node] == nil then
      done[s.node] = false
      if not met[s.node.layer] then
        count = count + 1
        met[s.node.layer] = count
      end
      stack[#stack + 1] = { s.node, 1, given[s] }
    end
  end
  for _, output in ipairs(model.outputs) do
    enter(output)
    while #stack > 0 do
      local top = stack[#stack]
      local nextone = not top[3] and top[1].inputs[top[2]]
      top[2] = top[2] + 1
      if nextone then
        enter(nextone)
      else
        stack[#stack] = nil
        done[top[1]] = true
        order[#order + 1] = top[1]
      end
    end
  end
  return order, met
end

--- layer_order(model, layers) -> array of the layers in Keras's order.
return function(model, layers)
  local order, met = walk(model)
  local node_depth, layer_depth = {}, {}
  for i = #order, 1, -1 do
    local node = order[i]
    local depth = math.max(node_depth[node] or 0, layer_depth[node.layer] or 0)
    layer_depth[node.layer], node_depth[node] = depth, depth
    for _, s in ipairs(node.inputs) do node_depth[s.node] = math.max(depth + 1, node_depth[s.node] or 0) end
  end
  local list, position = {}, {}
  for i, layer in ipairs(layers) do list[i], position[layer] = layer, i end
  table.sort(list, function(a, b)
    local da, db = layer_depth[a] or 0, layer_depth[b] or 0
    if da ~= db then return da > db end
    local ma, mb = met[a] or 0, met[b] or 0 -- an input that no output depends on comes first
    if ma ~= mb then return ma < mb end
    return position[a] < position[b]
  end)
  return list
end
