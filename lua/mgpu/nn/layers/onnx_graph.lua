--- OnnxGraph {graph}: a graph of ONNX as a layer: what mgpu.load_model makes of a .onnx file.
-- It takes a tensor, or an array of them for several inputs, and returns the outputs of the graph likewise. Inputs are
-- cast to the graph's dtypes. It computes as at inference: dropout does nothing, batch normalization uses its
-- statistics. Weights: the tensors of the file that are learned, under their names there; kernels of convolutions are
-- {sizes..., channels, filters}, as everywhere here. graph: a table that onnx/model_file.lua describes.
-- Opsets 9 to 28; the manual's page saving.md lists the ops, and layer:ops() tells which ones a graph has.
-- Errors: an op, an attribute or an element type that is not supported; a batch of another size than that for which the
-- model was exported; fractions where the graph takes integers.
-- Example:
--     local graph = { opset = 17, inputs = { { name = "x", dtype = "float32", shape = { -1, 2 } } },
--       nodes = { { op = "Relu", name = "", inputs = { "x" }, outputs = { "y" } } },
--       outputs = { { name = "y" } }, constants = {}, weights = {} }
--     print(L.OnnxGraph { graph } (mgpu.tensor { { -1, 2 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{0, 2}}
local check = require "mgpu.nn.onnx.check"
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"
local Layer = require "mgpu.nn.layer"
local NOT_IN_JSON = require "mgpu.nn.operations.arguments".NOT_IN_JSON
local ordered_keys = require "mgpu.ordered_keys"
local probe = require "mgpu.nn.layers.probe"
local reraise = require "mgpu.reraise"
local run = require "mgpu.nn.onnx.run"
local values = require "mgpu.nn.onnx.values"

local OnnxGraph = Layer:extend("OnnxGraph", { positional = 1, { "graph", "table", required = true } })

OnnxGraph.autocast = false -- the graph says what it computes in

local function constant_of(entry)
  local list = {}
  for i, value in ipairs(check.list(entry.values)) do list[i] = NOT_IN_JSON[value] or value end
  local shape = check.list(entry.shape)
  if #list == 0 then return core.place(core.ops.full(shape, 0, entry.dtype), values.HOST) end
  return core.ops.reshape(core.tensor(list, { dtype = entry.dtype, device = values.HOST }), { shape = shape })
end

function OnnxGraph:init()
  self.checked = check.check(self.graph)
  self.constant_tensors, self.tensor_names = {}, {}
  for _, entry in ipairs(check.list(self.graph.constants)) do
    self.constant_tensors[entry.name] = constant_of(entry)
  end
  for i, output in ipairs(self.graph.outputs) do self.tensor_names[i] = output.name end
end

function OnnxGraph:build()
  self.own_weights = {}
  for i, entry in ipairs(check.list(self.graph.weights)) do
    self.own_weights[i] = self:add_weight { name = entry.name, shape = check.list(entry.shape), dtype = entry.dtype,
      trainable = entry.trainable, autocast = false }
  end
end

-- Raises if an axis has another size than in the graph.
local function check_sizes(self, input, shape)
  if #shape ~= #input.shape then
    self:fail("the input %q has the shape %s, the graph takes %s", input.name, self.shape_text(shape),
      self.shape_text(input.shape))
  end
  for i, size in ipairs(input.shape) do
    if size ~= -1 and size ~= shape[i] then
      if i > 1 then
        self:fail("the input %q has the shape %s, the graph takes %s", input.name, self.shape_text(shape),
          self.shape_text(input.shape))
      end
      self:fail("a batch of %d was given, the model was exported for batches of %d: use {batch_size = %d}, or export "
        .. "it with a dynamic first axis", shape[1], size, size)
    end
  end
end

-- The input in the graph's dtype. Fractions where it wants integers are no ids.
local function as_declared(self, t, input)
  if t:dtype() == input.dtype then return t end
  if t:dtype():find "float" and input.dtype:find "int" then
    core.guard(core.ops.all(core.ops.eq(core.ops.round(t), t)), "data",
      ("%s: the input %q has fractions, the graph takes %s"):format(tostring(self), input.name, input.dtype))
  end
  return core.ops.cast(t, input.dtype)
end

local function check_number(self, n)
  if n ~= #self.graph.inputs then self:fail("%d inputs were given, the graph takes %d", n, #self.graph.inputs) end
end

function OnnxGraph:call(x)
  local inputs, weights, list = {}, {}, type(x) == "table" and x or { x }
  check_number(self, #list)
  for i, input in ipairs(self.graph.inputs) do
    check_sizes(self, input, list[i]:shape())
    inputs[input.name] = values.plain(as_declared(self, list[i], input))
  end
  for i, entry in ipairs(check.list(self.graph.weights)) do
    local v = self.own_weights[i]
    weights[entry.name] = (entry.kernel and values.kernel or values.plain)(v:value())
  end
  local ok, outputs = pcall(run.run, self.checked, { inputs = inputs, weights = weights,
    constants = self.constant_tensors, device = list[1]:device() })
  if not ok then reraise(tostring(self), outputs) end
  return #outputs > 1 and outputs or outputs[1]
end

-- ---- shapes -------------------------------------------------------------------------------------

local TRACED = "the graph was traced"

-- Calls fn inside a trace that is given up: of its tensors only the shapes are found out. Outside of a trace many lazy
-- tensors would be evaluated now and then.
local function traced(fn)
  if core.tracing() then return fn() end
  local result
  local ok, problem = pcall(core.jit(function()
    result = fn()
    error(TRACED, 0)
  end))
  if not ok and problem ~= TRACED then error(problem, 0) end
  return result
end

-- The shapes and dtypes of the outputs for inputs of these shapes.
local function outputs_for(self, shapes)
  return unpack(traced(function()
    local inputs, list, dtypes = {}, {}, {}
    for i, shape in ipairs(shapes) do inputs[i] = core.ops.full(shape, 0, self.graph.inputs[i].dtype) end
    local y = self:call(inputs)
    for i, t in ipairs(type(y) == "table" and y or { y }) do list[i], dtypes[i] = t:shape(), t:dtype() end
    return { list, dtypes }
  end))
end

-- Sizes for unknown axes, tried in turn: two of each, so that what differs is unknown.
local STAND_INS = { { 24, 36 }, { 224, 448 }, { 8, 12 }, { 1, 2 } }

-- The shapes with sizes that the graph declares in unknown places.
local function with_declared(self, shapes)
  local out = {}
  for i, shape in ipairs(shapes) do
    out[i] = {}
    for k, size in ipairs(shape) do out[i][k] = size ~= -1 and size or self.graph.inputs[i].shape[k] or -1 end
  end
  return out
end

-- The outputs as the file declares them: shapes and dtypes; nil unless it declares all.
local function declared(self)
  local shapes, dtypes = {}, {}
  for i, output in ipairs(self.graph.outputs) do
    if not output.dtype or not output.shape then return nil end
    shapes[i], dtypes[i] = { unpack(check.list(output.shape)) }, output.dtype
  end
  return shapes, dtypes
end

local function fail_probe(problem, code)
  local tried = {}
  for i, sizes in ipairs(STAND_INS) do tried[i] = sizes[1] end
  core.fail(code or "data", ("%s; unknown sizes were tried as %s, since the file does not declare the shapes of its "
    .. "outputs"):format(error_line(problem), table.concat(tried, ", ")))
end

--- layer:output_shape(shape) -> the shapes of the outputs. The graph is run without values to find them. If it fails
--- with all sizes that are tried in unknown places, they are those that the file declares.
function OnnxGraph:output_shape(given)
  local shapes = type(given[1]) == "table" and given or { given }
  check_number(self, #shapes)
  local list, dtypes, code = probe(self, with_declared(self, shapes), STAND_INS, function(known)
    return outputs_for(self, known)
  end)
  if not list then
    local problem = dtypes
    if code == "unsupported" or code == "oom" or code == "interrupted" or type(problem) ~= "string" then
      error(problem, 0)
    end
    list, dtypes = declared(self)
    if not list then fail_probe(problem, code) end
  end
  self.output_dtypes = dtypes
  local batch = self.graph.inputs[1].shape[1]
  for _, shape in ipairs(list) do if batch ~= -1 and shape[1] == batch then shape[1] = -1 end end
  return #list > 1 and list or list[1]
end

function OnnxGraph:output_dtype(i) return self.output_dtypes[i] end

--- layer:ops() -> how often the graph has each op: {Conv = 20, Relu = 17, ...}.
-- Example:
--     local graph = { opset = 17, inputs = { { name = "x", dtype = "float32", shape = { -1, 2 } } },
--       nodes = { { op = "Relu", name = "", inputs = { "x" }, outputs = { "y" } } },
--       outputs = { { name = "y" } }, constants = {}, weights = {} }
--     print(L.OnnxGraph { graph }:ops().Relu)  --> 1
function OnnxGraph:ops()
  local counts = {}
  for _, node in ipairs(self.checked.nodes) do counts[node.op] = (counts[node.op] or 0) + 1 end
  local out = {}
  for _, name in ipairs(ordered_keys(counts)) do out[name] = counts[name] end
  return out
end

return OnnxGraph
