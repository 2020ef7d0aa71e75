--- Whether a graph of the layer OnnxGraph can be run: ops, attributes and names. The graph is data from outside, of a
--- .onnx file or of another file of a model, so nothing of it is taken for granted.
local core = require "mgpu.core"
local NOT_IN_JSON = require "mgpu.nn.operations.arguments".NOT_IN_JSON
local ops = require "mgpu.nn.onnx.ops"
local ordered_keys = require "mgpu.ordered_keys"

local M = {}

M.OLDEST, M.NEWEST = 9, 28 -- opsets of ONNX's own domain
local NEWEST_LEARNERS = 5
local MOST_NODES, MOST_DEPTH = 100000, 8

local function is_list(value, kind)
  if type(value) ~= "table" or value == core.empty_array then return value == core.empty_array end
  local n = 0
  for _ in pairs(value) do n = n + 1 end
  for i = 1, n do
    if value[i] == nil or kind and type(value[i]) ~= kind then return false end
  end
  return true
end

--- list(value) -> the list, or an empty one for what JSON has in its place.
function M.list(value) return (value == nil or value == core.empty_array) and {} or value end

local function damaged(what, ...) core.fail("data", "the graph is damaged: " .. what:format(...)) end

-- ---- attributes ---------------------------------------------------------------------------------

local function whole(value) return type(value) == "number" and value % 1 == 0 end
local function number(value) return type(value) == "number" or NOT_IN_JSON[value] ~= nil end

local function list_with(fits)
  return function(value)
    if not is_list(value) then return false end
    for _, item in ipairs(M.list(value)) do if not fits(item) then return false end end
    return true
  end
end

local function text(value) return type(value) == "string" end

local FITS = { int = whole, float = number, text = text, tensor = text, ints = list_with(whole),
  floats = list_with(number), texts = list_with(text), graph = function(value) return type(value) == "table" end }

-- The value as ops get it.
local function plain_value(kind, value)
  if kind == "float" then return NOT_IN_JSON[value] or value end
  if not kind:find "s$" then return value end
  local list = {}
  for i, item in ipairs(M.list(value)) do list[i] = kind == "floats" and NOT_IN_JSON[item] or item end
  return list
end

local function names_of(declared)
  local list = ordered_keys(declared)
  return #list > 0 and table.concat(list, ", ") or "none"
end

-- The attributes by name, with defaults.
local function attributes_of(row, node, refuse)
  local out = {}
  for name, declared in pairs(row.attributes) do out[name] = declared.default end
  for name, a in pairs(M.list(node.attributes)) do
    local declared = row.attributes[name]
    if not declared then
      refuse("the attribute %q is not supported: those of this op are %s", tostring(name), names_of(row.attributes))
    end
    if type(a) ~= "table" or not FITS[a.kind] or not FITS[a.kind](a.value) then damaged("the attribute %q", name) end
    if a.kind ~= declared.kind then
      refuse("the attribute %q has the type %s: expected %s", name, a.kind, declared.kind)
    end
    out[name] = plain_value(a.kind, a.value)
  end
  for name, declared in pairs(row.attributes) do
    if declared.required and out[name] == nil then refuse("the attribute %q is missing", name) end
  end
  return out
end

-- ---- nodes --------------------------------------------------------------------------------------

local function check_form(node)
  if type(node) ~= "table" or type(node.op) ~= "string" or type(node.name) ~= "string"
    or not is_list(node.inputs, "string") or not is_list(node.outputs, "string")
    or node.domain ~= nil and type(node.domain) ~= "string"
    or type(M.list(node.attributes)) ~= "table" then
    damaged "a node lacks its op, inputs or outputs"
  end
end

-- Names what is not supported, all of it in one message.
local function fail_unsupported(list, opset)
  local parts = {}
  for i = 1, math.min(#list, 5) do
    local node = list[i]
    local domain = node.domain or ""
    local names = ops.names(domain)
    local what = domain ~= "" and domain .. "." .. node.op or node.op
    parts[i] = ("%s (node %q)%s"):format(what, node.name,
      names and core.did_you_mean(node.op, names) or (": there are no ops of the domain %q"):format(domain))
  end
  core.fail("unsupported", ("%s of ONNX that %s not supported, opset %s: %s%s; the manual's page saving.md lists those "
    .. "that are"):format(#list == 1 and "an op" or #list .. " ops", #list == 1 and "is" or "are", tostring(opset),
    table.concat(parts, ", "), #list > 5 and ", ..." or ""))
end

local function check_counts(row, inputs, refuse)
  local n = #inputs
  if n < row.least or n > row.most then
    refuse("%d inputs, the op takes %s", n, row.least == row.most and tostring(row.least)
      or row.most == math.huge and "at least " .. row.least or ("%d to %d"):format(row.least, row.most))
  end
  for i = 1, row.least do
    if inputs[i] == "" then refuse("input %d is missing", i) end
  end
end

local check_nodes

-- The branches of the op If.
local function branches_of(state, node, known, depth, refuse)
  local out = {}
  for _, name in ipairs { "then_branch", "else_branch" } do
    local a = M.list(node.attributes)[name]
    if type(a) ~= "table" or a.kind ~= "graph" or type(a.value) ~= "table" then refuse("%s is missing", name) end
    if depth == MOST_DEPTH then refuse "branches are nested too deep" end
    local outputs = {}
    local inner = setmetatable({}, { __index = known })
    out[name] = { nodes = check_nodes(state, a.value.nodes, inner, depth + 1) }
    for i, output in ipairs(M.list(a.value.outputs)) do
      outputs[i] = type(output) == "table" and output.name
      if not inner[outputs[i]] then damaged("the branch lacks its output %q", tostring(outputs[i])) end
    end
    out[name].outputs = outputs
  end
  return out
end

local function check_node(state, node, known, depth)
  check_form(node)
  local function refuse(message, ...)
    core.fail("unsupported", ("node %q (%s, opset %s): %s"):format(node.name, node.op, tostring(state.opset),
      message:format(...)))
  end
  local domain, inputs = node.domain or "", { unpack(M.list(node.inputs)) }
  while inputs[#inputs] == "" do inputs[#inputs] = nil end
  for _, name in ipairs(inputs) do
    if name ~= "" and not known[name] then
      damaged("node %q (%s) reads %q, which is not made before it", node.name, node.op, name)
    end
  end
  local out = { op = node.op, name = node.name, inputs = inputs, outputs = M.list(node.outputs),
    opset = domain == "" and state.opset or state.learners }
  if node.op == "If" and domain == "" then
    out.branches = branches_of(state, node, known, depth, refuse)
  else
    if domain == "" and not state.opset then damaged "it names no opset of ONNX" end
    out.row = ops.find(domain, node.op)
    if not out.row then
      table.insert(state.unsupported, node)
    else
      check_counts(out.row, inputs, refuse)
      out.attributes = attributes_of(out.row, node, refuse)
      for name, declared in pairs(out.row.attributes) do
        if declared.kind == "tensor" and out.attributes[name] and not state.constants[out.attributes[name]] then
          damaged("the attribute %q names no constant", name)
        end
      end
    end
  end
  for _, name in ipairs(out.outputs) do
    if name ~= "" and known[name] then damaged("%q is made twice", name) end
    known[name] = true
  end
  return out
end

function check_nodes(state, nodes, known, depth)
  if not is_list(M.list(nodes), "table") then damaged "its nodes are no list" end
  local list = {}
  for i, node in ipairs(M.list(nodes)) do
    state.count = state.count + 1
    if state.count > MOST_NODES then core.fail("unsupported", ("a graph of more than %d nodes"):format(MOST_NODES)) end
    list[i] = check_node(state, node, known, depth)
  end
  return list
end

-- ---- the graph ----------------------------------------------------------------------------------

local function is_shape(shape, least)
  if not is_list(shape, "number") or #M.list(shape) > 8 then return false end
  for _, size in ipairs(M.list(shape)) do
    if size % 1 ~= 0 or size < least or size > 2 ^ 53 then return false end
  end
  return true
end

-- Adds the names of a list of tensors.
local function add_names(known, list, what, least)
  if not is_list(M.list(list), "table") then damaged("%s are no list", what) end
  for _, entry in ipairs(M.list(list)) do
    if type(entry.name) ~= "string" or entry.name == "" or type(entry.dtype) ~= "string"
      or not is_shape(entry.shape, least) then
      damaged("an entry of %s lacks its name, dtype or shape", what)
    end
    if known[entry.name] then damaged("%q is there twice", entry.name) end
    known[entry.name] = true
  end
end

local function check_opsets(graph)
  local opset, learners = graph.opset, graph.learners
  if opset ~= nil and (not whole(opset) or opset < M.OLDEST or opset > M.NEWEST) then
    core.fail("unsupported", ("opset %s: those from %d to %d are supported; convert the model with "
      .. "onnx.version_converter"):format(tostring(opset), M.OLDEST, M.NEWEST))
  end
  if learners ~= nil and (not whole(learners) or learners < 1 or learners > NEWEST_LEARNERS) then
    core.fail("unsupported", ("opset %s of ai.onnx.ml: those from 1 to %d are supported"):format(tostring(learners),
      NEWEST_LEARNERS))
  end
end

local function check_constants(graph, unread)
  local set = {}
  for _, constant in ipairs(M.list(graph.constants)) do
    local count = 1
    set[constant.name] = true
    for _, size in ipairs(M.list(constant.shape)) do count = count * size end
    core.check_dtype("OnnxGraph", constant.dtype)
    if not unread and (not is_list(constant.values) or #M.list(constant.values) ~= count) then
      damaged("the constant %q has not the %d numbers of its shape", constant.name, count)
    end
    for _, value in ipairs(unread and {} or M.list(constant.values)) do
      if not number(value) and type(value) ~= "boolean" then
        damaged("the constant %q has no numbers", constant.name)
      end
    end
  end
  return set
end

--- check(graph, unread) -> {nodes =, outputs = names}: nodes have op, name, inputs, outputs, opset, attributes = values
--- by name, and row (ops/init.lua), or branches. unread: the constants have no values yet.
-- Errors: an op or attribute that is not supported; a damaged graph.
function M.check(graph, unread)
  check_opsets(graph)
  local known, outputs = {}, {}
  if type(graph.inputs) == "table" and graph.inputs[1] then
    for _, input in ipairs(graph.inputs) do
      if type(input) ~= "table" then damaged "an input is no table" end
      if not is_list(input.shape, "number") or not M.list(input.shape)[1] then
        core.fail("unsupported", ("the input %q has no known number of axes, or none: models here have the batch as "
          .. "the first axis"):format(tostring(input.name)))
      end
    end
  else
    core.fail("unsupported", "the graph has no inputs")
  end
  add_names(known, graph.inputs, "inputs", -1)
  add_names(known, graph.constants, "constants", 0)
  add_names(known, graph.weights, "weights", 0)
  local state = { opset = graph.opset, learners = graph.learners, count = 0, unsupported = {},
    constants = check_constants(graph, unread) }
  local nodes = check_nodes(state, graph.nodes, known, 1)
  if #state.unsupported > 0 then fail_unsupported(state.unsupported, graph.opset) end
  if not is_list(graph.outputs, "table") or not M.list(graph.outputs)[1] then damaged "it has no outputs" end
  for i, output in ipairs(graph.outputs) do
    if not known[output.name] then damaged("the output %q is not made", tostring(output.name)) end
    if output.shape ~= nil and not is_shape(output.shape, -1) then
      damaged("the shape of the output %q", output.name)
    end
    if output.dtype ~= nil then core.check_dtype("OnnxGraph", output.dtype) end
    outputs[i] = output.name
  end
  return { nodes = nodes, outputs = outputs }
end

return M
