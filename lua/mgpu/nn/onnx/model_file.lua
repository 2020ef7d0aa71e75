--- The graph of a .onnx file in the form that the layer OnnxGraph takes, from what core.onnx_open has read.
--
--     {opset = 17, learners = 3,                         opsets of ONNX's own domain and of ai.onnx.ml
--      inputs = {{name =, dtype =, shape = {-1, 3}}},    -1: any size
--      outputs = {{name =, dtype =, shape =}},           dtype and shape may be missing
--      nodes = {{op =, domain =, name =, inputs = {...}, outputs = {...},
--                attributes = {axis = {kind = "int", value = 1}}}},
--      constants = {{name =, dtype =, shape =, values = {...}}},
--      weights = {{name =, dtype =, shape =, kernel = true, trainable = false}}}
-- Only nodes that the outputs need are kept. Tensors of the file that are learned become weights, all others constants.
-- A kernel is kept in our order of axes (values.lua), if convolutions alone read it.
-- Whether the ops exist and the names fit together is for check.lua to say.
local arguments = require "mgpu.nn.operations.arguments"
local core = require "mgpu.core"
local types = require "mgpu.nn.onnx.types"

local M = {}

local KINDS = { "float", "int", "text", "tensor", "graph", "floats", "ints", "texts" } -- AttributeProto.AttributeType
local FIELDS = { float = "f", int = "i", text = "s", tensor = "t", graph = "g", floats = "floats", ints = "ints",
  texts = "strings" }
local DEFAULTS = { float = 0, int = 0, text = "" }

-- A list of the file, which leaves out empty ones.
local function list_of(value) return type(value) == "table" and value ~= core.empty_array and value or {} end

local function domain_of(name) return name ~= nil and name ~= "ai.onnx" and name or "" end

-- ---- tensors ------------------------------------------------------------------------------------

-- What is collected of a file: tensors by name, {entry =, dtype =, shape =, order =}, and the names in their order.
local function new_file(path, entries)
  return { path = path, entries = entries, tensors = {}, names = {}, made = 0 }
end

local function fail(file, message, ...) core.fail("data", ("%s: %s"):format(file.path, message:format(...))) end

local function add_tensor(file, name, tensor)
  if file.tensors[name] then fail(file, "the tensor %q is there twice", name) end
  file.tensors[name] = tensor
  file.names[#file.names + 1] = name
  return name
end

-- A tensor of the file.
local function stored(file, t)
  local entry = file.entries[t.tensor]
  return { entry = t.tensor, dtype = entry.dtype, shape = entry.shape }
end

-- Adds a tensor that a graph has under a name. Two branches may use a name for different tensors: the second one then
-- gets another, which `renamed` notes for the nodes of the branch.
local function add_named(file, name, tensor, renamed)
  if file.tensors[name] and renamed then
    file.made = file.made + 1
    renamed[name] = ("%s:%d"):format(name, file.made)
    name = renamed[name]
  end
  return add_tensor(file, name, tensor)
end

-- A name for a tensor of an attribute, which has none of its own.
local function own_name(file, node)
  file.made = file.made + 1
  return ("%s:%s:%d"):format(node.name or "", node.op_type or "", file.made)
end

-- ---- nodes --------------------------------------------------------------------------------------

local read_nodes

local function read_attribute(file, node, a, renamed)
  local kind = KINDS[a.type or 0]
  local where = ("node %q (%s)"):format(node.name or "", node.op_type or "")
  if not a.name or not kind then fail(file, "%s: the attribute %q has no known type", where, a.name or "") end
  if a.ref_attr_name then fail(file, "%s: the attribute %q refers to one of a function", where, a.name) end
  local value = a[FIELDS[kind]]
  if value == nil then value = DEFAULTS[kind] end
  if kind == "tensor" then
    if not value then fail(file, "%s: the attribute %q is empty", where, a.name) end
    value = add_tensor(file, own_name(file, node), stored(file, value))
  elseif kind == "graph" then
    value = read_nodes(file, list_of(value), setmetatable({}, { __index = renamed }))
  elseif kind:find "s$" then
    value = list_of(value)
  end
  return { kind = kind, value = value }
end

local VALUES = { value_float = "float32", value_floats = "float32", value_int = "int64", value_ints = "int64" }

-- A node of the op Constant: its value becomes a tensor of the file.
local function add_constant(file, node, renamed)
  local a, name = list_of(node.attribute)[1] or {}, list_of(node.output)[1] or ""
  if a.name == "value" and a.t then return add_named(file, name, stored(file, a.t), renamed) end
  local dtype = VALUES[a.name]
  if not dtype then
    core.fail("unsupported", ("%s: node %q (Constant): the attribute %q is not supported: value, value_float, "
      .. "value_floats, value_int and value_ints are"):format(file.path, node.name or "", a.name or ""))
  end
  local kind = KINDS[a.type or 0]
  if not kind then fail(file, "node %q (Constant): the attribute %q has no known type", node.name or "", a.name) end
  local value = a[FIELDS[kind]] or 0
  local numbers, shape = type(value) == "table" and list_of(value) or { value }, {}
  for i, number in ipairs(numbers) do numbers[i] = arguments.NOT_IN_JSON[number] or number end
  if a.name:find "s$" then shape[1] = #numbers end
  add_named(file, name, { values = numbers, dtype = dtype, shape = shape }, renamed)
end

local function read_node(file, node, renamed)
  local attributes, inputs = {}, {}
  for _, a in ipairs(list_of(node.attribute)) do
    if attributes[a.name] then fail(file, "node %q has the attribute %q twice", node.name or "", a.name) end
    attributes[a.name or ""] = read_attribute(file, node, a, renamed)
  end
  for i, name in ipairs(list_of(node.input)) do inputs[i] = renamed and renamed[name] or name end
  local domain = domain_of(node.domain)
  return { op = node.op_type or "", domain = domain ~= "" and domain or nil, name = node.name or "",
    inputs = inputs, outputs = list_of(node.output), attributes = next(attributes) and attributes or nil }
end

-- The nodes and outputs of a graph or of a branch; its tensors go to the file. renamed: of a branch, the other names of
-- its tensors.
function read_nodes(file, graph, renamed)
  local out = { nodes = {}, outputs = {} }
  for _, t in ipairs(list_of(graph.initializer)) do add_named(file, t.name, stored(file, t), renamed) end
  for _, node in ipairs(list_of(graph.node)) do
    if node.op_type == "Constant" and domain_of(node.domain) == "" then
      add_constant(file, node, renamed)
    else
      out.nodes[#out.nodes + 1] = read_node(file, node, renamed)
    end
  end
  for i, output in ipairs(list_of(graph.output)) do
    out.outputs[i] = { name = renamed and renamed[output.name] or output.name or "" }
  end
  return out
end

-- Calls fn(node) for each node, also in branches.
local function each_node(graph, fn)
  for _, node in ipairs(graph.nodes) do
    fn(node)
    for _, a in pairs(node.attributes or {}) do if a.kind == "graph" then each_node(a.value, fn) end end
  end
end

-- Adds the names that a node reads: its inputs, the tensors of its attributes, and the outputs of its branches.
local function add_needed(needed, node)
  for _, name in ipairs(node.inputs) do needed[name] = true end
  for _, a in pairs(node.attributes or {}) do
    if a.kind == "tensor" then needed[a.value] = true end
    for _, output in ipairs(a.kind == "graph" and a.value.outputs or {}) do needed[output.name] = true end
  end
end

-- The nodes that the outputs need, from the last one up.
local function drop_unused(graph)
  local needed, kept = {}, {}
  for _, output in ipairs(graph.outputs) do needed[output.name] = true end
  for i = #graph.nodes, 1, -1 do
    local node, used = graph.nodes[i], false
    for _, name in ipairs(node.outputs) do used = used or needed[name] end
    if used then
      table.insert(kept, node)
      each_node({ nodes = { node } }, function(inner) add_needed(needed, inner) end)
    end
  end
  for i = 1, math.floor(#kept / 2) do kept[i], kept[#kept + 1 - i] = kept[#kept + 1 - i], kept[i] end
  graph.nodes = kept
  return needed
end

-- ---- which tensors are weights ------------------------------------------------------------------

-- Inputs, from 1, of which an op reads the numbers: they are constants.
local READ = { Resize = { [2] = true, [3] = true, [4] = true }, Upsample = { [2] = true },
  Pad = { [3] = true }, Range = { true, true, true } }
-- Ops whose inputs from the second on are weights even if they are a single number.
local LAYERS = { Conv = true, ConvTranspose = true, Gemm = true, MatMul = true, BatchNormalization = true,
  InstanceNormalization = true, LayerNormalization = true, GroupNormalization = true, PRelu = true, RNN = true,
  GRU = true, LSTM = true }

-- For each name the uses {node, position}; and the op that makes it.
local function uses_of(graph)
  local uses, maker = {}, {}
  each_node(graph, function(node)
    for i, name in ipairs(node.inputs) do
      uses[name] = uses[name] or {}
      table.insert(uses[name], { node, i })
    end
    for _, name in ipairs(node.outputs) do maker[name] = node.op end
  end)
  return uses, maker
end

local function is_in_layer(uses)
  for _, use in ipairs(uses) do if LAYERS[use[1].op] then return true end end
  return false
end

local function is_weight(tensor, uses, maker)
  local count = 1
  for _, size in ipairs(tensor.shape) do count = count * size end
  if not tensor.dtype:find "float" or #tensor.shape == 0 or count == 0 then return false end
  local found = count > 1
  for _, use in ipairs(uses) do
    local node, at = use[1], use[2]
    if (READ[node.op] or {})[at] then return false end
    found = found or LAYERS[node.op]
    if node.op == "Add" then found = found or LAYERS[maker[node.inputs[3 - at] or ""] or ""] end
  end
  return found and #uses > 0
end

local function is_kernel(tensor, uses)
  for _, use in ipairs(uses) do
    if use[1].op ~= "Conv" and use[1].op ~= "ConvTranspose" or use[2] ~= 2 then return false end
  end
  return #tensor.shape >= 3
end

-- Statistics of batch normalization are no parameters.
local function is_statistic(uses)
  for _, use in ipairs(uses) do
    if use[1].op ~= "BatchNormalization" or use[2] < 4 then return false end
  end
  return true
end

local function kernel_shape(shape)
  local out = { unpack(shape, 3) }
  out[#out + 1], out[#out + 2] = shape[2], shape[1]
  return out
end

local function sort_tensors(file, graph, needed)
  local uses, maker = uses_of(graph)
  graph.constants, graph.weights = {}, {}
  for _, name in ipairs(file.names) do
    local tensor, own = file.tensors[name], uses[name] or {}
    if is_weight(tensor, own, maker) then
      tensor.kernel, tensor.in_layer = is_kernel(tensor, own), is_in_layer(own)
      local weight = { name = name, dtype = tensor.dtype, kernel = tensor.kernel or nil,
        shape = tensor.kernel and kernel_shape(tensor.shape) or tensor.shape }
      if is_statistic(own) then weight.trainable = false end
      table.insert(graph.weights, weight)
    elseif needed[name] then
      table.insert(graph.constants, { name = name, dtype = tensor.dtype, shape = tensor.shape })
    end
  end
end

-- ---- the graph ----------------------------------------------------------------------------------

-- The sizes of a ValueInfoProto, -1 where they are not known; nil without a shape.
local function shape_of(info)
  local shape = info.shape
  if not shape then return nil end
  local sizes = {}
  for i, dim in ipairs(list_of(shape.dim)) do
    sizes[i] = type(dim) == "table" and dim.dim_value or -1
    if sizes[i] < 0 then sizes[i] = -1 end
  end
  return sizes
end

local function tensor_type(value) return type(value.type) == "table" and list_of(value.type.tensor_type) or {} end

local function read_inputs(file, graph, out)
  out.inputs = {}
  for _, input in ipairs(list_of(graph.input)) do
    local name = input.name or ""
    if not file.tensors[name] then
      local info = tensor_type(input)
      if not info.elem_type then
        core.fail("unsupported", ("%s: the input %q is no tensor"):format(file.path, name))
      end
      local ok, dtype = pcall(types.dtype_of, info.elem_type)
      if not ok then
        core.fail("unsupported", ("%s: the input %q: %s"):format(file.path, name,
          require "mgpu.error_line"(dtype)))
      end
      table.insert(out.inputs, { name = name, dtype = dtype, shape = shape_of(info) })
    end
  end
end

local function read_opsets(model, out)
  for _, import in ipairs(list_of(model.opset_import)) do
    local domain = domain_of(import.domain)
    if domain == "" then out.opset = import.version end
    if domain == "ai.onnx.ml" then out.learners = import.version end
  end
end

--- graph(path, model, entries) -> the graph, and the tensors of the file by name: {entry = of the file, or values =,
--- dtype =, shape =, kernel = whether to bring it into our order, in_layer = whether a layer reads it}.
-- ARGS model: the decoded note "model"; entries: of the open file, its tensors().
function M.graph(path, model, entries)
  local file = new_file(path, entries)
  local out = read_nodes(file, model.graph)
  read_opsets(model, out)
  read_inputs(file, model.graph, out)
  for i, output in ipairs(list_of(model.graph.output)) do
    local info = tensor_type(output)
    local ok, dtype = pcall(types.dtype_of, info.elem_type)
    out.outputs[i].shape, out.outputs[i].dtype = shape_of(info), ok and dtype or nil
  end
  sort_tensors(file, out, drop_unused(out))
  return out, file.tensors
end

-- Integers beyond 2^53 are not exact as numbers of Lua; the largest ones mean "to the end".
local EXACT, LIMIT = 2 ^ 53, 9.2e18

local function numbers_of(path, name, t)
  local list = core.ops.reshape(t, { shape = { t:count() } }):totable()
  if t:dtype() == "int64" then
    for _, number in ipairs(list) do
      if math.abs(number) > EXACT and math.abs(number) < LIMIT then
        core.fail("unsupported", ("%s: the tensor %q has integers above 2^53"):format(path, name))
      end
    end
  end
  return list
end

--- fill(path, graph, tensors, read): gives the constants their values; read: name of an entry -> tensor.
function M.fill(path, graph, tensors, read)
  for _, constant in ipairs(graph.constants) do
    local tensor = tensors[constant.name]
    local values = tensor.values or numbers_of(path, constant.name, read[tensor.entry])
    constant.values = arguments.for_json(values)
  end
end

return M
