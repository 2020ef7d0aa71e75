--- Symbolic tensors: what mgpu.Input returns and what a layer returns when it is called with one.
--
--     local x = mgpu.Input { 28, 28, 1 }
--     local y = L.Dense { 10 } (L.Flatten {} (x))      -- builds the layers, computes nothing
--     local model = mgpu.Model { inputs = x, outputs = y }
-- A symbolic tensor knows its shape (-1 for the batch), its dtype and the node that makes it. A node is one use of a
-- layer: {layer, inputs, outputs, listed = whether it was called with an array, number}.
local core = require "mgpu.core"

local M = {}

local Symbol = {}
local made = 0 -- nodes so far; a node's number is above those of all nodes it needs

local function fail(message, ...) core.fail("usage", message:format(...)) end

--- is_symbol(value): whether it is a symbolic tensor.
function M.is_symbol(value) return type(value) == "table" and getmetatable(value) == Symbol end

--- any(value): whether it is a symbolic tensor or an array with one among its entries.
function M.any(value)
  if M.is_symbol(value) then return true end
  if type(value) ~= "table" or getmetatable(value) then return false end
  for _, item in ipairs(value) do
    if M.is_symbol(item) then return true end
  end
  return false
end

local methods = {}

--- s:shape() -> the sizes, -1 for the batch.
methods.shape = require "mgpu.methods".no_field("t:shape()[1]", function(self) return { unpack(self.sizes) } end)

--- s:dtype() -> the dtype's name.
function methods.dtype(self) return self.kind end

--- s:rank() -> the number of axes.
function methods.rank(self) return #self.sizes end

-- The node of an operation of these symbolic tensors.
local function operate(op, arguments, inputs)
  return require "mgpu.nn.layers".Operation { op, arguments } (#inputs > 1 and inputs or inputs[1])
end

-- x:mean(2) and so on make operations (operations/methods.lua).
function Symbol.__index(_, key)
  if methods[key] then return methods[key] end
  methods[key] = require "mgpu.nn.operations.methods".find(key, M.is_symbol, operate)
  if methods[key] then return methods[key] end
  if type(key) == "string" and rawget(core.methods, key) then
    fail("%s: a symbolic tensor has no values to compute with: use a layer, as in "
      .. "L.Lambda { function(t) return t:%s() end } (x)", key, key)
  end
end

local function text(shape)
  local parts = {}
  for i, size in ipairs(shape) do parts[i] = size == -1 and "None" or tostring(size) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

function Symbol:__tostring()
  return ("symbolic tensor %s of %s"):format(text(self.sizes), tostring(self.node.layer))
end

-- Of two symbolic tensors these are the merging layers, which treat the batch as Keras does.
local MERGING = { add = "Add", sub = "Subtract", mul = "Multiply" }

-- The metamethod for an operator between symbolic tensors and numbers.
local function arithmetic(operator, operation, sign)
  return function(a, b)
    local number = type(a) == "number" or type(b) == "number"
    if not number and not (M.is_symbol(a) and M.is_symbol(b)) then
      fail("%s: the operands must be symbolic tensors or numbers: use L.Lambda for anything else", sign)
    end
    if number then
      local x = { input = 1 }
      return operate(operation, { x1 = type(a) == "number" and a or x, x2 = type(b) == "number" and b or x },
        { type(a) == "number" and b or a })
    end
    if MERGING[operator] then return require "mgpu.nn.layers"[MERGING[operator]] {} { a, b } end
    return operate(operation, { x1 = { input = 1 }, x2 = { input = 2 } }, { a, b })
  end
end

for sign, names in pairs { ["+"] = "add Add", ["-"] = "sub Subtract", ["*"] = "mul Multiply", ["/"] = "div TrueDivide",
  ["%"] = "mod Mod", ["^"] = "pow Power" } do
  local operator, operation = names:match "(%a+) (%a+)"
  Symbol["__" .. operator] = arithmetic(operator, operation, sign)
end

function Symbol.__unm(a) return operate("Negative", { x = { input = 1 } }, { a }) end

local function refuse(sign)
  return function() fail("%s: a symbolic tensor has no values to compare: use L.Lambda", sign) end
end
Symbol.__lt, Symbol.__le = refuse "<", refuse "<="

-- The symbolic tensor for output `index` of the node.
local function new(node, index, shape, dtype)
  return setmetatable({ node = node, index = index, sizes = shape, kind = dtype }, Symbol)
end

-- The size of the batches that Input states, or nil: shapes have -1 in its place, since only layers that keep states
-- between batches need it.
local function batch_of(inputs)
  for _, s in ipairs(inputs) do
    if s.batch_size then return s.batch_size end
  end
end

--- input(layer, shape with the batch, dtype) -> the symbolic tensor that stands for data given to a model.
function M.input(layer, shape, dtype)
  made = made + 1
  local node = { layer = layer, inputs = {}, outputs = {}, number = made }
  node.outputs[1] = new(node, 1, shape, dtype)
  node.outputs[1].batch_size = rawget(layer, "batch_size")
  layer.nodes = { node }
  return node.outputs[1]
end

-- Whether shapes is one shape (numbers) rather than an array of them.
local function is_shape(shapes) return type(shapes[1]) ~= "table" end

--- connect(layer, x, training, options) -> the output of the layer for a symbolic tensor or an array of them: a
--- symbolic tensor, or an array if the layer has several outputs. Builds the layer. training: if not nil, this use of
--- the layer is always called with it. options: the others of the call (call_arguments.lua), or nil.
function M.connect(layer, x, training, options)
  local listed = not M.is_symbol(x)
  local inputs, shapes, dtypes = listed and { unpack(x) } or { x }, {}, {}
  for i = 1, #inputs do
    if not M.is_symbol(inputs[i]) then
      layer:fail("input %d is a %s, the others are symbolic tensors", i, type(inputs[i]))
    end
    shapes[i], dtypes[i] = inputs[i]:shape(), inputs[i]:dtype()
    if dtypes[i] == "string" and not layer.takes_text then
      layer:fail "computes with numbers, but its input is text: put a layer such as StringLookup between them"
    end
  end
  local given = listed and shapes or shapes[1]
  layer.known_batch = batch_of(inputs)
  layer:ensure_built(given, options)
  local out = layer:output_shape(given, dtypes, options)
  made = made + 1
  local node = { layer = layer, inputs = inputs, listed = listed, outputs = {}, number = made,
    training = training, options = options }
  layer.nodes = rawget(layer, "nodes") or {}
  layer.nodes[#layer.nodes + 1] = node
  for i, shape in ipairs(is_shape(out) and { out } or out) do
    node.outputs[i] = new(node, i, shape, layer:output_dtype(i))
    node.outputs[i].batch_size = layer.known_batch
  end
  node.several = not is_shape(out)
  return node.several and { unpack(node.outputs) } or node.outputs[1]
end

return M
