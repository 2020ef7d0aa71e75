--- The graph of an ONNX model while it is built (onnx/onnx.proto), in opset 17 unless it was read in another one.
--
-- A value is a tensor of the graph: {shape =, dtype =, plain = name, first = name}. The shape is the one that the
-- layers use, with -1 for sizes that are not known, such as the batch. ONNX wants the channels of images as the second
-- axis; most layers here have them last. So a value may exist in either order or in both: `plain` names the tensor of
-- this shape, `first` names the tensor whose last axis is moved behind the batch. graph:plain(v) and graph:first(v) add
-- a transpose if only the other tensor exists. So a chain of image layers has transposes at its ends only.
-- bfloat16 is float32 in a graph: few ops of this opset take bfloat16, and onnxruntime runs none with it on a CPU.
-- An op is added by graph:op(type, inputs, attributes), with names in and out. Attributes: whole numbers, texts and
-- lists of either as they are; {float = x} for floats; or {kind =, value =}, as the graphs of files have them
-- (model_file.lua).
local core = require "mgpu.core"
local ffi = require "ffi"
local protobuf = require "mgpu.io.protobuf"
local NUMBERS = require "mgpu.nn.onnx.types".NUMBERS

local message = protobuf.message

local OPSET, IR_VERSION, NEW_IR = 17, 8, 10 -- NEW_IR: of opsets above 21
local SIZES = { float32 = 4, uint8 = 1, int32 = 4, int64 = 8, bool = 1, float16 = 2, bfloat16 = 2, float64 = 8 }
local FLOAT, INT, STRING, TENSOR, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 6, 7, 8 -- AttributeProto.AttributeType

local Graph = {}
Graph.__index = Graph

--- new(opset = 17, learners) -> an empty graph. learners: the opset of ai.onnx.ml, if it has such ops. Its field
--- `scope` begins the names of ops: the layer that they belong to.
function Graph.new(opset, learners)
  return setmetatable({ opset = opset or OPSET, learners = learners, scope = "", nodes = {}, initializers = {},
    inputs = {}, outputs = {}, taken = {}, kept = {}, weights = {} }, Graph)
end

-- ---- names and values ---------------------------------------------------------------------------

--- graph:unique(name) -> the name, or with _1, _2, ... if it is taken.
function Graph:unique(name)
  local found, n = name, 0
  while self.taken[found] do
    n = n + 1
    found = name .. "_" .. n
  end
  self.taken[found] = true
  return found
end

-- The dtype in the graph for a layer's dtype.
local function dtype_for(dtype) return dtype == "bfloat16" and "float32" or dtype end

--- graph.value(name, shape, dtype) -> the value of a tensor with this shape.
function Graph.value(name, shape, dtype) return { plain = name, shape = shape, dtype = dtype_for(dtype) } end

--- graph.first_value(name, shape, dtype) -> the value of a tensor with the last axis of the shape behind the batch.
function Graph.first_value(name, shape, dtype)
  if #shape < 3 then return Graph.value(name, shape, dtype) end
  return { first = name, shape = shape, dtype = dtype_for(dtype) }
end

--- graph:plain(v) -> the name of the tensor with the value's shape.
function Graph:plain(v)
  if not v.plain then
    local perm = { 0 }
    for i = 2, #v.shape - 1 do perm[i] = i end
    perm[#v.shape] = 1
    v.plain = self:op("Transpose", { v.first }, { perm = perm })
  end
  return v.plain
end

--- graph:first(v) -> the name of the tensor with the last axis behind the batch.
function Graph:first(v)
  if #v.shape < 3 then return v.plain end
  if not v.first then
    local perm = { 0, #v.shape - 1 }
    for i = 3, #v.shape do perm[i] = i - 2 end
    v.first = self:op("Transpose", { v.plain }, { perm = perm })
  end
  return v.first
end

--- graph:map(v, fn) -> the value of fn(name of the tensor), for an fn that does not care about the order of axes.
function Graph:map(v, fn)
  if v.plain then return self.value(fn(v.plain), v.shape, v.dtype) end
  return self.first_value(fn(v.first), v.shape, v.dtype)
end

--- graph:cast(v, dtype) -> v in this dtype.
function Graph:cast(v, dtype)
  dtype = dtype_for(dtype)
  if v.dtype == dtype then return v end
  v.casts = v.casts or {}
  if not v.casts[dtype] then
    local cast = self:map(v, function(name) return self:op("Cast", { name }, { to = NUMBERS[dtype] }) end)
    cast.dtype, v.casts[dtype] = dtype, cast
  end
  return v.casts[dtype]
end

-- ---- ops ----------------------------------------------------------------------------------------

-- By the kind of {kind =, value =}: what adds the value to the message.
local KINDS = {
  float = function(m, value) m:float(2, value):varint(20, FLOAT) end,
  int = function(m, value) m:varint(3, value):varint(20, INT) end,
  text = function(m, value) m:bytes(4, value):varint(20, STRING) end,
  tensor = function(m, value) m:message(5, value):varint(20, TENSOR) end,
  floats = function(m, value)
    m:bytes(7, #value > 0 and protobuf.little_endian("float", value) or ""):varint(20, FLOATS)
  end,
  ints = function(m, value)
    for _, number in ipairs(value) do m:varint(8, number) end
    m:varint(20, INTS)
  end,
  texts = function(m, value)
    for _, text in ipairs(value) do m:bytes(9, text) end
    m:varint(20, STRINGS)
  end,
}

-- The kind of a value that is written as it is.
local function kind_of(value)
  if type(value) == "string" then return "text" end
  if type(value) == "number" then return "int" end
  if value.float then return "float" end
  return type(value[1]) == "string" and "texts" or "ints"
end

local function attribute(name, value)
  local m, kind = message():bytes(1, name), type(value) == "table" and value.kind or kind_of(value)
  if type(value) == "table" and value.kind then value = value.value elseif kind == "float" then value = value.float end
  KINDS[kind](m, value)
  return m
end

--- graph:ops(op_type, inputs, attributes, n, domain) -> the names of the op's n outputs. An input "" is one that is
--- left out.
function Graph:ops(op_type, inputs, attributes, n, domain)
  local name, m, outputs, names = self:unique(self.scope .. "/" .. op_type), message(), {}, {}
  for i, input in ipairs(inputs) do m:bytes(1, assert(input, i)) end
  for i = 1, n do
    outputs[i] = i == 1 and name or self:unique(name .. ":" .. i)
    m:bytes(2, outputs[i])
  end
  m:bytes(3, name):bytes(4, op_type)
  for key in pairs(attributes or {}) do names[#names + 1] = key end
  table.sort(names)
  for _, key in ipairs(names) do m:message(5, attribute(key, attributes[key])) end
  if domain then m:bytes(7, domain) end
  self.nodes[#self.nodes + 1] = m
  return outputs
end

--- graph:op(op_type, inputs, attributes) -> the name of the op's only output.
function Graph:op(op_type, inputs, attributes) return self:ops(op_type, inputs, attributes, 1)[1] end

-- ---- constants ----------------------------------------------------------------------------------

-- A TensorProto.
local function tensor_message(name, dtype, dims, bytes)
  local m = message()
  for _, size in ipairs(dims) do m:varint(1, size) end
  return m:varint(2, NUMBERS[dtype]):bytes(8, name):bytes(9, bytes)
end

-- Adds a constant with these bytes. RETURNS its name.
local function add_constant(self, name, dtype, dims, bytes)
  name = self:unique(name)
  self.initializers[#self.initializers + 1] = tensor_message(name, dtype, dims, bytes)
  return name
end

-- kept[key], which make() makes at first.
local function once(kept, key, make)
  kept[key] = kept[key] or make()
  return kept[key]
end

-- The elements of a tensor as bytes.
local function bytes_of(t)
  t = core.place(t, "cpu:0")
  if t:count() == 0 then return "" end
  return ffi.string(t:pointer(), t:count() * SIZES[t:dtype()])
end

--- graph:tensor(name, t) -> the name of a constant: the tensor as it is.
function Graph:tensor(name, t) return add_constant(self, name, t:dtype(), t:shape(), bytes_of(t)) end

--- graph.attribute_tensor(t) -> an attribute whose value is the tensor.
function Graph.attribute_tensor(t)
  return { kind = "tensor", value = tensor_message("value", t:dtype(), t:shape(), bytes_of(t)) }
end

--- graph:integers(list) -> the name of a constant int64 vector.
function Graph:integers(list)
  return once(self.kept, "int64 " .. table.concat(list, " "), function()
    return add_constant(self, "integers", "int64", { #list }, protobuf.little_endian("int64_t", list))
  end)
end

--- graph:integer(n) -> the name of a constant int64 scalar.
function Graph:integer(n)
  return once(self.kept, "int64 scalar " .. n, function()
    return add_constant(self, "integer", "int64", {}, protobuf.little_endian("int64_t", { n }))
  end)
end

--- graph:floats(list) -> the name of a constant float32 vector.
function Graph:floats(list)
  return once(self.kept, "float32 " .. table.concat(list, " "), function()
    return add_constant(self, "floats", "float32", { #list }, protobuf.little_endian("float", list))
  end)
end

--- graph:number(x, dtype) -> the name of a constant scalar.
function Graph:number(x, dtype)
  return once(self.kept, ("%s %.17g"):format(dtype, x), function()
    return add_constant(self, "number", dtype, {}, bytes_of(core.tensor(x, { dtype = dtype })))
  end)
end

--- graph:weight(variable, dtype, how, fn) -> the name of a constant: the variable's value in the dtype, changed by fn
--- if it is given; `how` names the change.
function Graph:weight(variable, dtype, how, fn)
  how = how and "/" .. how or ""
  self.weights[variable] = self.weights[variable] or {}
  return once(self.weights[variable], how .. " " .. dtype, function()
    local t = variable:value()
    if fn then t = fn(t) end
    dtype = dtype_for(dtype)
    t = t:dtype() == dtype and t or t:to(dtype)
    return add_constant(self, variable.name .. how, dtype, t:shape(), bytes_of(t))
  end)
end

-- ---- the file -----------------------------------------------------------------------------------

-- A ValueInfoProto. Sizes that are not known have names: the batch is the same one everywhere.
local function value_info(name, shape, dtype)
  local sizes = message()
  for i, size in ipairs(shape) do
    local dim = message()
    if size >= 0 then dim:varint(1, size) else dim:bytes(2, i == 1 and "batch" or ("%s_%d"):format(name, i)) end
    sizes:message(1, dim)
  end
  local tensor = message():varint(1, NUMBERS[dtype]):message(2, sizes)
  return message():bytes(1, name):message(2, message():message(1, tensor))
end

--- graph:add_input(name, shape, dtype) -> the value of an input of the model.
function Graph:add_input(name, shape, dtype)
  local v = self.value(self:unique(name), shape, dtype)
  self.inputs[#self.inputs + 1] = value_info(v.plain, shape, v.dtype)
  return v
end

--- graph:add_output(name, v): an output of the model; the name is one that unique has given.
function Graph:add_output(name, v)
  self.scope = "output"
  local m = message():bytes(1, self:plain(v)):bytes(2, name):bytes(3, name):bytes(4, "Identity")
  self.nodes[#self.nodes + 1] = m
  self.outputs[#self.outputs + 1] = value_info(name, v.shape, v.dtype)
end

--- graph:model(name) -> the ModelProto.
function Graph:model(name)
  local m = message()
  for _, node in ipairs(self.nodes) do m:message(1, node) end
  m:bytes(2, name)
  for _, tensor in ipairs(self.initializers) do m:message(5, tensor) end
  for _, input in ipairs(self.inputs) do m:message(11, input) end
  for _, output in ipairs(self.outputs) do m:message(12, output) end
  local out = message():varint(1, self.opset > 21 and NEW_IR or IR_VERSION):bytes(2, "mgpulua"):message(7, m)
    :message(8, message():bytes(1, ""):varint(2, self.opset))
  if self.learners then out:message(8, message():bytes(1, "ai.onnx.ml"):varint(2, self.learners)) end
  return out
end

return Graph
