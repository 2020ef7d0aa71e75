--- How the tensors of a batch lie in one argument list: the inputs, then the targets, then the row weights.
--
-- Targets and weights belong to outputs of the model, and some outputs have none. The layout says which tensor is
-- which: "2;1,3;1" is two inputs, targets for outputs 1 and 3, weights for output 1. It is a string because a
-- jitted step gets it as an argument: a step is traced once for each layout.
local M = {}

--- pack(x, y, weight, outputs) -> tensors, layout
-- ARGS x: array of inputs; y, weight: tensor by output number, or nil; outputs: how many the model has.
function M.pack(x, y, weight, outputs)
  local tensors, with_target, with_weight = { unpack(x) }, {}, {}
  for i = 1, outputs do
    if y[i] then tensors[#tensors + 1], with_target[#with_target + 1] = y[i], i end
  end
  for i = 1, outputs do
    if weight[i] then tensors[#tensors + 1], with_weight[#with_weight + 1] = weight[i], i end
  end
  return tensors, ("%d;%s;%s"):format(#x, table.concat(with_target, ","), table.concat(with_weight, ","))
end

--- unpack(layout, tensors) -> x (array), y, weight (by output number): the inverse of pack.
function M.unpack(layout, tensors)
  local inputs, with_target, with_weight = layout:match "^(%d+);([%d,]*);([%d,]*)$"
  local x, y, weight, at = {}, {}, {}, tonumber(inputs)
  for i = 1, at do x[i] = tensors[i] end
  for output in with_target:gmatch "%d+" do
    at = at + 1
    y[tonumber(output)] = tensors[at]
  end
  for output in with_weight:gmatch "%d+" do
    at = at + 1
    weight[tonumber(output)] = tensors[at]
  end
  return x, y, weight
end

return M
