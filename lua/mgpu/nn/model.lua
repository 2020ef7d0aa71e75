--- Model: a graph of layers between symbolic tensors, with any number of inputs and outputs.
--
-- A layer may be used several times (its weights are shared), and a model may be a layer of another one.
-- Data for several inputs are an array in the order of `inputs`, or a table by their names; several outputs come
-- back as an array. Inputs and outputs are named after the layers that make them.
-- Options: inputs and outputs (a symbolic tensor or an array of them), name, trainable, dtype.
-- Errors: outputs that need other inputs; two layers of one name; an entry that is not a symbolic tensor.
-- Example:
--     local a, b = mgpu.Input { 8, name = "a" }, mgpu.Input { 4, name = "b" }
--     local h = L.Concatenate {} { L.Dense { 16, activation = "relu" } (a), b }
--     local model = mgpu.Model { inputs = { a, b }, outputs = L.Dense { 1 } (h), name = "two" }
--     print(unpack(model:predict { mgpu.rand { 5, 8 }, mgpu.rand { 5, 4 } }:shape()))  --> 5 1
local build_graph = require "mgpu.nn.model_graph"
local core = require "mgpu.core"
local graph_calls = require "mgpu.nn.graph_calls"
local host_part = require "mgpu.nn.host_part"
local Layer = require "mgpu.nn.layer"
local Network = require "mgpu.nn.network"
local options = require "mgpu.options"
local parallel = require "mgpu.parallel"
local repeated_call = require "mgpu.nn.repeated_call"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"

local Model = Network:extend("Model", { positional = 0,
  { "inputs", "any", required = true },
  { "outputs", "any", required = true },
})

--- new {inputs =, outputs =, ...} -> a model; the same as calling Model.
-- Example:
--     local x = mgpu.Input { 2 }
--     print(mgpu.Model.new { inputs = x, outputs = L.Dense { 1 } (x), name = "tiny" })  --> Model "tiny"
function Model.new(given)
  local self = Model:make(options.check("Model", Model.declared, given or {}))
  local inputs, outputs = self.inputs, self.outputs
  self.inputs, self.outputs, self.layers, self.strategy = nil, nil, {}, parallel.current()
  build_graph(self, { inputs = inputs, outputs = outputs })
  self.built, self.built_shape = true, {}
  for i, input in ipairs(self.inputs) do self.built_shape[i] = input:shape() end
  if not self.trainable then self.trainable = false end
  host_part.check(self)
  return self
end

function Model.computed.input(self) return self.listed and self.inputs or self.inputs[1] end
function Model.computed.output(self) return self.several and self.outputs or self.outputs[1] end

-- ---- use ----------------------------------------------------------------------------------------

-- The outputs as call returns them: without an array if the model was given a single one.
local function result(self, list) return self.several and list or list[1] end

function Model:output_dtype(i) return self.outputs[i]:dtype() end

function Model:output_shape(given)
  local shapes = {}
  for i, input in ipairs(self.inputs) do shapes[input] = self.listed and given[i] or given end
  for _, node in ipairs(self.order) do
    local list = {}
    for i, s in ipairs(node.inputs) do list[i] = shapes[s] end
    local out = node.layer:output_shape(node.listed and list or list[1], nil, node.options)
    for i, s in ipairs(node.outputs) do shapes[s] = node.several and out[i] or out end
  end
  local list = {}
  for i, output in ipairs(self.outputs) do list[i] = shapes[output] end
  return result(self, list)
end

function Model:call(x, training)
  local values = {}
  for i, input in ipairs(self.inputs) do values[input] = type(x) == "table" and x[i] or x end
  graph_calls(self.order, values, training)
  local list = {}
  for i, output in ipairs(self.outputs) do list[i] = values[output] end
  return result(self, list)
end

--- model:arrange(x) -> the data as an array in the order of the inputs. Errors: a name that no input has.
function Model:arrange(x)
  local n = #self.inputs
  if type(x) == "table" and not getmetatable(x) and x[1] == nil and next(x) ~= nil then
    local list = {}
    for i, name in ipairs(self.input_names) do
      if x[name] == nil then self:fail("the input %q is missing", name) end
      list[i] = x[name]
    end
    for name in pairs(x) do
      local known = false
      for _, own in ipairs(self.input_names) do known = known or own == name end
      if not known then
        self:fail("there is no input %q%s", tostring(name), core.did_you_mean(name, self.input_names))
      end
    end
    return list
  end
  if type(x) ~= "table" or symbolic_tensor.is_symbol(x) then x = { x } end
  if n == 1 and type(x[1]) ~= "userdata" and not symbolic_tensor.is_symbol(x[1]) then
    x = { self.inputs[1]:dtype() == "string" and x or core.tensor(x) }
  end
  if #x ~= n then self:fail("%d inputs were given, the model takes %d", #x, n) end
  return x
end

--- model:apply(x, how), the same as model(x, {training = true}) -> the outputs. Integer data become floats, unless only
--- layers that want integers read them. Errors: another number of inputs; shapes other than the model's.
function Model:apply(x, how)
  local again = repeated_call.run(self, x, how)
  if again ~= nil then return again end
  if symbolic_tensor.any(x) then
    local list = self:arrange(x)
    return symbolic_tensor.connect(self, self.listed and list or list[1], self:stated_training(how))
  end
  if self.reads_values then return host_part.apply(self, x, how) end
  local list = {}
  for i, t in ipairs(self:arrange(x)) do
    t = self.as_float(type(t) == "table" and core.tensor(t) or t, self.input_dtypes[i])
    if not core.is_tensor(t) and not core.is_variable(t) then
      self:fail("expected a tensor for input %q, got %s", self.input_names[i], type(t))
    end
    t = self.with_rank(t, self.inputs[i]:shape())
    self:check_sample(t, self.inputs[i]:shape(), #self.inputs > 1 and self.input_names[i])
    list[i] = t
  end
  self:begin_call()
  local y = Layer.apply(self, self.listed and list or list[1], how)
  repeated_call.note(self, x, how)
  return y
end

-- ---- saving -------------------------------------------------------------------------------------

--- model:get_config() -> name, trainable, dtype, layers, and the uses of the layers in order: {layer = position,
--- inputs = {{use, output}, ...}, training = and options = if the use states them}; use 0, output i is input i of the
--- model.
function Model:get_config()
  local position, source = {}, {}
  for i, layer in ipairs(self.layers) do position[layer] = i end
  for i, input in ipairs(self.inputs) do source[input] = { 0, i } end
  local uses = {}
  for n, node in ipairs(self.order) do
    local inputs = {}
    for i, s in ipairs(node.inputs) do inputs[i] = source[s] end
    uses[n] = { layer = position[node.layer], inputs = inputs, listed = node.listed,
      training = node.training, options = node.options }
    for i, s in ipairs(node.outputs) do source[s] = { n, i } end
  end
  local inputs, outputs = {}, {}
  for i, input in ipairs(self.inputs) do
    inputs[i] = { layer = position[input.node.layer], shape = { select(2, unpack(input:shape())) } }
  end
  for i, output in ipairs(self.outputs) do outputs[i] = source[output] end
  return { name = self.name, trainable = self.trainable, dtype = self.dtype_policy.name,
    layers = self:layer_configs(), uses = uses, inputs = inputs, outputs = outputs, listed = self.listed,
    several = self.several }
end

return Model
