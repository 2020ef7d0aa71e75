-- Writes .onnx files that mgpu.load_model is to read: graphs of a few nodes, and messages with anything in them.
local check = require "check"
local Graph = require "mgpu.nn.onnx.graph"
local protobuf = require "mgpu.io.protobuf"

local M = {}

local GRAPH = 5 -- AttributeProto.AttributeType

-- g.branch(fn) -> the GraphProto of a branch whose only output is the name that fn(graph) returns.
function Graph.branch(fn)
  local inner, m = Graph.new(), protobuf.message()
  inner.scope = "branch" .. tostring(inner):gsub("%W", "")
  local output = fn(inner)
  for _, node in ipairs(inner.nodes) do m:message(1, node) end
  for _, tensor in ipairs(inner.initializers) do m:message(5, tensor) end
  return m:message(12, protobuf.message():bytes(1, output))
end

--- add_if(g, condition, yes, no) -> the name of the result of an If with these branches.
function M.add_if(g, condition, yes, no)
  local m = protobuf.message():bytes(1, condition):bytes(2, "if"):bytes(3, "if"):bytes(4, "If")
  for name, branch in pairs { then_branch = yes, else_branch = no } do
    m:message(5, protobuf.message():bytes(1, name):message(6, branch):varint(20, GRAPH))
  end
  g.nodes[#g.nodes + 1] = m
  return "if"
end

--- message{field, value, ...} -> a message of these fields: numbers as varints, texts, and messages.
function M.message(fields)
  local m = protobuf.message()
  for i = 1, #fields, 2 do
    local value = fields[i + 1]
    if type(value) == "number" then
      m:varint(fields[i], value)
    elseif type(value) == "string" then
      m:bytes(fields[i], value)
    else
      m:message(fields[i], value)
    end
  end
  return m
end

--- write_graph(path, fields, opset = 17) -> path: a model whose graph has these fields, as for message.
function M.write_graph(path, fields, opset)
  local model = M.message { 1, 8, 7, M.message(fields), 8, M.message { 2, opset or 17 } }
  check.write(path, model:text())
  return path
end

--- write(path, fn, opset) -> path: the graph that fn(graph) fills, as a file.
function M.write(path, fn, opset)
  local g = Graph.new(opset)
  fn(g)
  check.write(path, g:model "test":text())
  return path
end

return M
