--- Running a checked graph of ONNX (check.lua): node after node, by the functions of ops/.
--
-- A node whose inputs are all constants is computed at once, on the cpu, also while the model is traced: so shapes that
-- a graph computes are numbers when an op needs them (values.lua).
local core = require "mgpu.core"
local reraise = require "mgpu.reraise"
local values = require "mgpu.nn.onnx.values"

local M = {}

-- Elements of all constants of a run that are computed at once: what is beyond is computed with the rest of the model.
local MOST_FOLDED = 2 ^ 22

-- The call of a node, which its op's function gets.
local function call_of(run, node)
  local c = { opset = node.opset, outputs = #node.outputs, run = run }
  for name, value in pairs(node.attributes) do c[name] = value end
  for name, declared in pairs(node.row.attributes) do
    if declared.kind == "tensor" and c[name] then c[name] = values.constant(run.constants[c[name]], run) end
  end
  return c
end

local function inputs_of(node, scope)
  local list, constant = {}, true
  for i = 1, #node.inputs do
    local v = node.inputs[i] ~= "" and scope[node.inputs[i]] or nil
    list[i] = v
    constant = constant and (v == nil or v.constant ~= nil)
  end
  return list, constant
end

-- The outputs of a node of constants, as constants; nil if there are too many of them.
local function folded(run, node, inputs)
  local results = { core.outside_trace(function()
    run.folding = true
    local results = { pcall(node.row.run, call_of(run, node), unpack(inputs, 1, #node.inputs)) }
    run.folding = false
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2)
  end) }
  local count = run.folded
  for _, v in ipairs(results) do count = count + v:count() end
  if count > MOST_FOLDED then return nil end
  run.folded = count
  for i, v in ipairs(results) do
    if not v.constant then results[i] = values.constant(core.place(v:tensor(), values.HOST), run) end
  end
  return results
end

local run_nodes

local function run_branch(run, node, inputs, scope)
  local condition = inputs[1]:number "the condition"
  local branch = node.branches[(condition ~= false and condition ~= 0) and "then_branch" or "else_branch"]
  local inner, results = setmetatable({}, { __index = scope }), {}
  run_nodes(run, branch.nodes, inner)
  for i, name in ipairs(branch.outputs) do results[i] = inner[name] end
  return results
end

local function run_node(run, node, scope)
  local inputs, constant = inputs_of(node, scope)
  local results
  if node.branches then
    results = run_branch(run, node, inputs, scope)
  else
    results = constant and folded(run, node, inputs)
      or { node.row.run(call_of(run, node), unpack(inputs, 1, #node.inputs)) }
  end
  for i, name in ipairs(node.outputs) do
    if name ~= "" then
      scope[name] = results[i] or core.fail("unsupported", ("output %d is not supported"):format(i))
    end
  end
end

function run_nodes(run, nodes, scope)
  for _, node in ipairs(nodes) do
    run.node = node
    run_node(run, node, scope)
  end
end

--- run(checked, given) -> the outputs as tensors.
-- ARGS given: {inputs = {name = value}, weights = {name = value}, constants = {name = tensor on the cpu}, device =}.
-- Errors: those of the ops, with the node's name.
function M.run(checked, given)
  local run = { constants = given.constants, device = given.device, folding = false, folded = 0 }
  local scope, outputs = {}, {}
  for name, t in pairs(given.constants) do scope[name] = values.constant(t, run) end
  for _, part in ipairs { given.weights, given.inputs } do
    for name, v in pairs(part) do scope[name] = v end
  end
  local ok, problem = pcall(run_nodes, run, checked.nodes, scope)
  if not ok then
    if not run.node then error(problem, 0) end -- Ctrl-C before the first node
    reraise(("node %q (%s, opset %s)"):format(run.node.name, run.node.op, tostring(run.node.opset)), problem)
  end
  for i, name in ipairs(checked.outputs) do outputs[i] = scope[name]:tensor() end
  return outputs
end

return M
