--- Operation {op, arguments}: an operation of keras.ops as a node of a functional model: what x * 2, 1 - x and
--- x:mean(2) make of symbolic tensors, and what the nodes of Keras's files become.
-- op: Keras's name of the operation's class, such as "Subtract" or "GetItem". arguments: a table by Keras's names, with
-- {input = 1} in place of the first tensor that the layer is called with, {tensor = {{1, 2}}, dtype = "float32"} for a
-- constant, and axes from 0, as in Keras (nn/operations/arguments.lua). It is called with a tensor, or with an array
-- where several inputs are named. Masks end here, as in Keras. Errors: an operation that mgpu does not have; arguments
-- that it does not take; another number of inputs.
-- Example:
--     local x = mgpu.Input { 2 }
--     -- the same as outputs = 1 - x
--     local y = L.Operation { "Subtract", { x1 = 1, x2 = { input = 1 } } } (x)
--     print(mgpu.Model { inputs = x, outputs = y } (mgpu.tensor { { 0.25, 3 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{ 0.75, -2}}
local arguments = require "mgpu.nn.operations.arguments"
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local layer_names = require "mgpu.nn.layer_names"
local operations = require "mgpu.nn.operations"
local probe = require "mgpu.nn.layers.probe"
local reraise = require "mgpu.reraise"

local Operation = Layer:extend("Operation", { positional = 2,
  { "op", "string", required = true },
  { "arguments", "table", required = true },
})

Operation.autocast = false -- as in Keras: an operation computes in the dtypes of its inputs

-- Without a name it gets that of the operation, as in Keras.
function Operation:make(chosen)
  if not chosen.name then
    local stream_name
    chosen.name, stream_name = layer_names.new(chosen.op)
    chosen.stream_name = chosen.stream_name or stream_name
  end
  return Layer.make(self, chosen)
end

function Operation:init()
  self.row = operations.find(self.op)
  if not self.row then
    self:fail("the op keras.ops.%s is not supported%s", self.op, core.did_you_mean(self.op, operations.names()))
  end
  self.count = arguments.check(self.row, self.arguments, function(...) self:fail(...) end)
  self.arguments = arguments.for_json(self.arguments)
  self.constants = {}
end

-- The inputs as an array. Errors: another number than the arguments name.
local function listed(self, x)
  local list = type(x) == "table" and x or { x }
  if #list ~= self.count then
    self:fail("takes %d input%s, got %d", self.count, self.count == 1 and "" or "s", #list)
  end
  return list
end

function Operation:call(x)
  local call = { inputs = listed(self, x), constants = self.constants }
  local ok, y = pcall(function() return self.row.run(arguments.values(self.row, self.arguments, call)) end)
  if not ok then reraise(tostring(self), y) end
  return y
end

-- ---- shapes -------------------------------------------------------------------------------------

local MOST_ELEMENTS = 2 ^ 31 -- of an output for one sample

-- The shapes and dtypes of the outputs for inputs of these shapes, and whether they are an array. Nothing is computed.
local function outputs_for(self, shapes, dtypes)
  local inputs = {}
  for i, shape in ipairs(shapes) do inputs[i] = core.ops.full(shape, 0, dtypes[i]) end
  local y = core.no_grad(function() return self:call(inputs) end)
  local several, list, kinds = type(y) == "table", {}, {}
  for i, t in ipairs(several and y or { y }) do list[i], kinds[i] = t:shape(), t:dtype() end
  return list, kinds, several
end

-- Sizes that stand for unknown ones, tried in turn: with many divisors, and large enough for windows and indices. 1
-- fits beside sizes that are known, since it broadcasts.
local STAND_INS = { { 24, 36 }, { 5040, 10080 }, { 1, 1 } }

--- operation:output_shape(shape, dtypes) -> as Layer's. dtypes: of the inputs; without them those of the last call with
--- symbolic tensors, or floatx.
function Operation:output_shape(given, dtypes)
  local shapes = listed(self, type(given[1]) == "table" and given or { given })
  dtypes = dtypes or rawget(self, "input_dtypes") or {}
  for i = 1, #shapes do dtypes[i] = dtypes[i] or core.floatx() end
  local list, kinds, several
  if self.row.shape then
    local values = { arguments.values(self.row, self.arguments, { inputs = {}, constants = {} }) }
    list, kinds = { self.row.shape(shapes, unpack(values, 2)) }, dtypes
  else
    list, kinds, several = probe(self, shapes, STAND_INS, function(known) return outputs_for(self, known, dtypes) end)
    if not list then error(kinds, 0) end
  end
  for _, shape in ipairs(list) do
    local n = 1
    for _, size in ipairs(shape) do n = n * math.abs(size) end
    if n > MOST_ELEMENTS then self:fail("an output would have %.0f elements", n) end
  end
  self.input_dtypes, self.output_dtypes = dtypes, kinds
  return several and list or list[1]
end

function Operation:output_dtype(i) return self.output_dtypes[i] end

return Operation
