--- Decision trees and forests of the domain ai.onnx.ml; see ops/init.lua.
--
-- All rows go down all trees together, a level at a time: the node of each row and tree is a number, and the tables of
-- the nodes are gathered by it. Leaves lead to themselves. Source: ONNX's operator documentation; where it is silent,
-- onnxruntime.
local core = require "mgpu.core"
local transformed = require "mgpu.nn.onnx.post_transform"
local values = require "mgpu.nn.onnx.values"

local ops, plain = core.ops, values.plain

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

local MODES = { BRANCH_LEQ = "le", BRANCH_LT = "lt", BRANCH_GTE = "ge", BRANCH_GT = "gt", BRANCH_EQ = "eq",
  BRANCH_NEQ = "ne" }

-- ---- the tables of the nodes --------------------------------------------------------------------

local function key(tree, node) return ("%d %d"):format(tree, node) end

local function check_lengths(c)
  local n = #c.nodes_nodeids
  for _, name in ipairs { "nodes_treeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
    "nodes_falsenodeids" } do
    if #c[name] ~= n then fail("%s has %d entries for %d nodes", name, #c[name], n) end
  end
  if n == 0 then fail "there are no nodes" end
end

-- {number of each node by key, yes = , no = numbers of the next nodes, mode =, roots =}.
local function read_nodes(c)
  local t = { number = {}, yes = {}, no = {}, roots = {} }
  local is_child = {}
  for i, node in ipairs(c.nodes_nodeids) do
    local name = key(c.nodes_treeids[i], node)
    if t.number[name] then fail("the node %d of tree %d is there twice", node, c.nodes_treeids[i]) end
    t.number[name] = i
  end
  for i, mode in ipairs(c.nodes_modes) do
    t.yes[i], t.no[i] = i, i
    if mode ~= "LEAF" then
      if not MODES[mode] or t.mode and t.mode ~= mode then
        core.fail("unsupported", ("the mode %q: all nodes must have one of BRANCH_LEQ, _LT, _GTE, _GT, _EQ, _NEQ")
          :format(mode))
      end
      t.mode = mode
      for next_node, ids in pairs { [t.yes] = c.nodes_truenodeids, [t.no] = c.nodes_falsenodeids } do
        next_node[i] = t.number[key(c.nodes_treeids[i], ids[i])]
        if not next_node[i] then fail("a node leads to node %d, which its tree lacks", ids[i]) end
        if is_child[next_node[i]] then fail("two nodes lead to node %d", ids[i]) end
        is_child[next_node[i]] = true
      end
    end
  end
  for i in ipairs(c.nodes_nodeids) do if not is_child[i] then t.roots[#t.roots + 1] = i end end
  return t
end

local DEEPEST, MOST_WEIGHTS = 512, 2 ^ 22 -- levels of a tree; numbers in the table of the nodes' weights

-- The number of levels below the roots; each node has one parent at most, so that no node comes twice.
local function depth_of(t)
  local depth, level = 0, t.roots
  while true do
    local below = {}
    for _, i in ipairs(level) do
      if t.yes[i] ~= i then below[#below + 1], below[#below + 2] = t.yes[i], t.no[i] end
    end
    if #below == 0 then return depth end
    depth, level = depth + 1, below
    if depth > DEEPEST then core.fail("unsupported", ("a tree of more than %d levels"):format(DEEPEST)) end
  end
end

-- ---- scores -------------------------------------------------------------------------------------

local function tensor_of(list, dtype, device) return core.tensor(list, { dtype = dtype, device = device }) end

local function from_zero(list)
  local out = {}
  for i, n in ipairs(list) do out[i] = n - 1 end
  return out
end

-- The leaf of each row in each tree, {rows, trees}.
local function leaves_of(c, x, t)
  local device, rows, columns = x:device(), x:shape()[1], x:shape()[2]
  for i, feature in ipairs(c.nodes_featureids) do
    if t.yes[i] ~= i and (feature < 0 or feature >= columns) then
      fail("a node asks for column %d of %d", feature, columns)
    end
  end
  local features = {}
  for i, feature in ipairs(c.nodes_featureids) do features[i] = t.yes[i] ~= i and feature or 0 end
  features = tensor_of(features, "int32", device)
  local limits, tracks = tensor_of(c.nodes_values, x:dtype(), device), c.nodes_missing_value_tracks_true
  tracks = tracks and tensor_of(tracks, "int32", device)
  local yes, no = tensor_of(from_zero(t.yes), "int32", device), tensor_of(from_zero(t.no), "int32", device)
  local at = ops.broadcast_to(tensor_of({ from_zero(t.roots) }, "int32", device), { shape = { rows, #t.roots } })
  local function of(list) return ops.gather(list, at, { axis = 1 }) end
  for _ = 1, depth_of(t) do
    local x_at = ops.take_along_axis(x, of(features), { axis = 2 })
    local chosen = ops[MODES[t.mode]](x_at, of(limits))
    if tracks then
      chosen = ops.logical_or(chosen, ops.logical_and(ops.isnan(x_at), ops.ne(of(tracks), 0)))
    end
    at = ops.where(chosen, of(yes), of(no))
  end
  return at
end

-- The sums over the trees {rows, targets} of the weights that leaves have: lists of tree, node, target and weight.
local function sums(c, x, targets, prefix)
  local trees, nodes, ids, weights = c[prefix .. "treeids"], c[prefix .. "nodeids"], c[prefix .. "ids"],
    c[prefix .. "weights"]
  check_lengths(c)
  if targets < 1 or targets * #c.nodes_nodeids > MOST_WEIGHTS then
    core.fail("unsupported", ("%.0f results of %d nodes"):format(targets, #c.nodes_nodeids))
  end
  if #trees ~= #weights or #nodes ~= #weights or #ids ~= #weights then fail("%sweights has another length", prefix) end
  local t, table_of = read_nodes(c), {}
  for i in ipairs(c.nodes_nodeids) do
    table_of[i] = {}
    for k = 1, targets do table_of[i][k] = 0 end
  end
  for i, weight in ipairs(weights) do
    local node = t.number[key(trees[i], nodes[i])]
    if not node or ids[i] < 0 or ids[i] >= targets then fail("%sweights has an entry for no leaf or target", prefix) end
    table_of[node][ids[i] + 1] = table_of[node][ids[i] + 1] + weight
  end
  local picked = ops.gather(tensor_of(table_of, "float32", x:device()), leaves_of(c, x, t), { axis = 1 })
  return picked, #t.roots
end

local function with_base(c, y)
  if not c.base_values then return y end
  if #c.base_values ~= y:shape()[2] and #c.base_values ~= 1 then fail("%d base_values", #c.base_values) end
  return y + tensor_of({ c.base_values }, "float32", y:device())
end

-- The input as float, a row of columns for each sample.
local function rows_of(x)
  local t = x:tensor()
  if t:rank() ~= 2 then fail("an input of %d axes, expected rows and columns", t:rank()) end
  return t:dtype():find "float" and t or ops.cast(t, "float32")
end

local NODES = "nodes_treeids:ints nodes_nodeids:ints nodes_featureids:ints nodes_values:floats nodes_modes:texts "
  .. "nodes_truenodeids:ints nodes_falsenodeids:ints nodes_missing_value_tracks_true:ints? nodes_hitrates:floats? "
  .. 'base_values:floats? post_transform:text="NONE" '

-- ---- the ops ------------------------------------------------------------------------------------

M.TreeEnsembleRegressor = { "1 | " .. NODES .. 'aggregate_function:text="SUM" n_targets:int=1 target_treeids:ints '
  .. "target_nodeids:ints target_ids:ints target_weights:floats", function(c, x)
  local picked, trees = sums(c, rows_of(x), c.n_targets, "target_")
  local how, y = { axis = 2 }, nil
  if c.aggregate_function == "SUM" or c.aggregate_function == "AVERAGE" then
    y = ops.sum(picked, how)
    if c.aggregate_function == "AVERAGE" then y = y / trees end
  elseif c.aggregate_function == "MIN" or c.aggregate_function == "MAX" then
    y = ops[c.aggregate_function:lower()](picked, how)
  else
    core.fail("unsupported", ("aggregate_function = %q"):format(c.aggregate_function))
  end
  return plain(transformed(c.post_transform, with_base(c, y)))
end }

-- The label and the scores of two classes from the score of one: probabilities where all weights are positive.
local function two_classes(c, y)
  local positive = true
  for _, weight in ipairs(c.class_weights) do positive = positive and weight >= 0 end
  local best = ops.cast(ops.gt(y, positive and 0.5 or 0), "int32")
  if c.post_transform == "LOGISTIC" then y = ops.sigmoid(y) end
  local other = (positive or c.post_transform == "LOGISTIC") and 1 - y or -y
  return ops.reshape(best, { shape = { -1 } }), ops.concat({ other, y }, { axis = 2 })
end

M.TreeEnsembleClassifier = { "1 | " .. NODES .. "class_treeids:ints class_nodeids:ints class_ids:ints "
  .. "class_weights:floats classlabels_int64s:ints? classlabels_strings:texts?", function(c, x)
  if c.classlabels_strings then core.fail("unsupported", "classlabels_strings: texts are no tensors: use numbers") end
  local labels, one = c.classlabels_int64s or fail "classlabels_int64s are missing", #c.class_ids > 0
  for _, id in ipairs(c.class_ids) do one = one and id == c.class_ids[1] end
  local y = ops.sum((sums(c, rows_of(x), #labels, "class_")), { axis = 2 })
  local best
  if one and #labels == 2 then
    local column = core.methods.slice(y, { {}, { c.class_ids[1] + 1, c.class_ids[1] + 1 } })
    best, y = two_classes(c, with_base(c, column))
  else
    y = with_base(c, y)
    best = ops.argmax(y, { axis = 2 })
    y = transformed(c.post_transform, y)
  end
  return plain(ops.gather(tensor_of(labels, "int64", y:device()), best, { axis = 1 })), plain(y)
end }

return M
