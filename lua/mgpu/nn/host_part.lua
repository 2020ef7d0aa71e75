--- The part of a model that runs on the host, batch by batch, before the traced step: layers that read values, such as
--- TextVectorization and Hashing, and all layers in front of them.
--
-- Texts are data, not tensors, and a hash is no tensor op. So a model with such layers is cut in two: the nodes that
-- they need run here, in Lua, and the model's *body*, a functional model that shares the other layers, takes their
-- results. No gradient comes through the cut, so no layer in front of it may have weights to train. A model all of
-- whose layers are on the host has a body without layers.
local core = require "mgpu.core"
local graph_calls = require "mgpu.nn.graph_calls"
local host = require "mgpu.data.host"
local with_device = require "mgpu.nn.device_scope".with_device

local M = {}

-- ---- cutting ------------------------------------------------------------------------------------

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

-- node -> the layer that makes it run on the host, which is its own or one behind it. Errors: weights to train.
local function nodes_on_host(graph, given)
  local reader = {}
  for i = #graph.order, 1, -1 do
    local node = graph.order[i]
    if node.layer.reads_values then reader[node] = node.layer end
    local behind = reader[node]
    if behind then
      if #node.layer.trainable_variables > 0 then
        node.layer:fail(behind == node.layer
          and "has layers that read values as well as weights to train, so it is no layer: use its layers one by one"
          or "has weights to train, but %s behind it reads values on the host, through which no gradient comes",
          tostring(behind))
      end
      for _, s in ipairs(node.inputs) do
        if not given[s] then reader[s.node] = behind end
      end
    end
  end
  return reader
end

-- The symbolic tensors that the nodes behind the cut, and the outputs, take from the nodes in front of it.
local function tensors_at_cut(graph, given, reader)
  local list, seen = {}, {}
  local function add(s)
    if seen[s] or not (given[s] or reader[s.node]) then return end
    seen[s], list[#list + 1] = true, s
    if s:dtype() == "string" then
      s.node.layer:fail("its texts leave the layers that read values: a model returns tensors only")
    end
  end
  for _, node in ipairs(graph.order) do
    for _, s in ipairs(reader[node] and {} or node.inputs) do add(s) end
  end
  for _, s in ipairs(graph.outputs) do add(s) end
  return list
end

-- The part of a functional model that has one.
local function cut(graph, name)
  local given = set_of(graph.inputs)
  local reader = nodes_on_host(graph, given)
  local part = { inputs = graph.inputs, nodes = {}, results = tensors_at_cut(graph, given, reader) }
  for _, node in ipairs(graph.order) do
    if reader[node] then part.nodes[#part.nodes + 1] = node end
  end
  part.body = require "mgpu.nn.model" { name = name, inputs = #part.results > 1 and part.results or part.results[1],
    outputs = graph.several and graph.outputs or graph.outputs[1] }
  return part
end

local function has_part(model)
  if model.takes_text then return true end
  for _, layer in ipairs(model.layers) do
    if layer.reads_values then return true end
  end
  return false
end

local function find(model)
  if not has_part(model) then return nil end
  if model.class_name == "Model" then return cut(model, model.name) end
  if not model.built then
    model:fail 'its layers read values, so it must begin with an Input, as mgpu.Input {1, dtype = "string"} for texts'
  end
  local graph = require "mgpu.nn.model" { name = model.name, inputs = model.input, outputs = model.output }
  return M.of(graph)
end

--- of(model) -> {inputs, nodes, results = symbolic tensors at the cut, body = the model behind it}, or nil for a model
--- without layers that read values. Errors: a layer with weights to train in front of such a layer; texts behind them;
--- a Sequential without an Input.
function M.of(model)
  local known = rawget(model, "host_part")
  if known == nil then
    known = find(model) or false
    model.host_part = known
  end
  return known or nil
end

--- check(model): raises of's errors, but leaves a Sequential alone that is not built yet.
function M.check(model)
  model.host_part = nil
  if model.built then M.of(model) end
end

-- ---- data ---------------------------------------------------------------------------------------

-- Raises unless value is an array of texts, nested as deep as the shape is long. sizes[axis]: of the first array.
local function check_texts(value, wanted, axis, sizes, fail)
  if axis > #wanted then
    if type(value) ~= "string" then fail("must hold texts, has a %s among them", type(value)) end
    return
  end
  if type(value) ~= "table" then
    fail("must be an array of texts%s, got a %s", #wanted > 1 and " for each row" or "",
      type(value) == "userdata" and "tensor" or type(value))
  end
  if axis > 1 then
    sizes[axis] = sizes[axis] or wanted[axis] ~= -1 and wanted[axis] or #value
    if #value ~= sizes[axis] then fail("has %d texts in a row, expected %d", #value, sizes[axis]) end
  end
  for _, item in ipairs(value) do check_texts(item, wanted, axis + 1, sizes, fail) end
end

--- texts(value, shape, fail) -> a column of texts: an array of rows with as many axes as the shape. A last axis of size
--- 1 is added or dropped where that makes it fit. fail(message, ...): raises.
function M.texts(value, shape, fail)
  local rows = value
  if type(value) == "table" then
    local first = value[1]
    if first == nil then fail "is empty" end
    if #shape == 2 and shape[2] == 1 and type(first) == "string" then
      rows = {}
      for i, text in ipairs(value) do rows[i] = { text } end
    elseif #shape == 1 and type(first) == "table" and #first == 1 then
      rows = {}
      for i, row in ipairs(value) do rows[i] = type(row) == "table" and row[2] == nil and row[1] or row end
    end
  end
  check_texts(rows, shape, 1, {}, fail)
  return rows
end

--- results(part, columns) -> the tensors for the body, computed on the host. columns: texts or a tensor for each input
--- of the model.
function M.results(part, columns)
  local place = host()
  local function compute()
    local values, list = {}, {}
    for i, input in ipairs(part.inputs) do
      local column = columns[i]
      values[input] = type(column) ~= "table" and column:device() ~= place and column:to(place) or column
    end
    graph_calls(part.nodes, values, false)
    for i, s in ipairs(part.results) do list[i] = values[s] end
    core.eval(unpack(list))
    return list
  end
  return with_device(place, function() return core.no_grad(compute) end)
end

-- The data of one call for input i.
local function column(model, i, value)
  local input, name = model.inputs[i], (model.input_names or {})[i]
  if input:dtype() == "string" then
    return M.texts(value, input:shape(), function(message, ...)
      model:fail("input%s " .. message, name and (" %q"):format(name) or "", ...)
    end)
  end
  local t = type(value) == "table" and core.tensor(value) or value
  if not core.is_tensor(t) and not core.is_variable(t) then
    model:fail("expected a tensor%s, got a %s", name and (" for input %q"):format(name) or "", type(t))
  end
  t = model.with_rank(t, input:shape())
  model:check_sample(t, input:shape(), #model.inputs > 1 and name)
  return t
end

--- inputs(model, list) -> the tensors for the body of a model with such a part, from an array of its own inputs.
function M.inputs(model, list)
  local columns = {}
  for i, value in ipairs(list) do columns[i] = column(model, i, value) end
  return M.results(M.of(model), columns)
end

--- apply(model, x, how) -> model(x, how) for a model with such a part.
function M.apply(model, x, how)
  local part, list = M.of(model), M.inputs(model, model.arrange and model:arrange(x) or { x })
  return part.body:apply(#list > 1 and list or list[1], how)
end

return M
