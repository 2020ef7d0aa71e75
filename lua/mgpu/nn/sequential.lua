--- Sequential: a model of layers one after another.
--
--     local model = mgpu.Sequential { L.Input {28, 28, 1}, L.Flatten {}, L.Dense {10} }
-- It is built at once if the first layer states its input's shape, else at the first call. add(layer) and pop() change
-- it. Options: name, trainable, dtype. Errors: an entry that is not a layer; a layer or a layer's name given twice.
-- Example:
--     local model = mgpu.Sequential { L.Flatten {}, L.Dense { 32, activation = "relu" }, L.Dense { 10 } }
--     print(model.built)  --> false
--     -- the first call builds it
--     print(unpack(model(mgpu.ones { 8, 28, 28, 1 }):shape()))  --> 8 10
--     print(model.built, #model.layers)  --> true 3
local core = require "mgpu.core"
local host_part = require "mgpu.nn.host_part"
local Layer = require "mgpu.nn.layer"
local methods = require "mgpu.methods"
local Network = require "mgpu.nn.network"
local options = require "mgpu.options"
local parallel = require "mgpu.parallel"
local repeated_call = require "mgpu.nn.repeated_call"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"

local Sequential = Network:extend("Sequential", { positional = 0 })

-- ---- layers -------------------------------------------------------------------------------------

-- The entry as a layer: an Input is given as the symbolic tensor that it returns.
local function layer_of(entry)
  if symbolic_tensor.is_symbol(entry) and entry.node.layer.is_input then return entry.node.layer end
  return entry
end

local function check_layer(self, layer, position)
  if type(layer) ~= "table" or not layer.apply or not rawget(layer, "name") then
    self:fail("entry %d is a %s, not a layer%s", position, type(layer),
      type(layer) == "table" and " (layers are made by calling the class: L.Flatten {})" or "")
  end
  for _, other in ipairs(self.layers) do
    if other == layer then self:fail("%s is in the model twice", tostring(layer)) end
    if other.name == layer.name then
      self:fail("two layers are called %q: give one of them another name", layer.name)
    end
  end
  if layer.is_input and (#self.layers > 0 or self.sample_shape) then
    self:fail("Input must be the first layer")
  end
end

-- The sizes of a sample for a built model of one input; nil for any other layer.
local function sample_of_network(layer)
  local shape = layer.is_network and layer.built and layer.built_shape
  if shape and type(shape[1]) == "table" then shape = not layer.listed and shape[1] end
  return shape and { select(2, unpack(shape)) } or nil
end

-- Appends a layer without building it.
local function append(self, entry, position)
  local layer = layer_of(entry)
  check_layer(self, layer, position)
  if layer.is_input then
    self.sample_shape, self.input_dtype = layer.shape, layer.states_policy and layer.compute_dtype or nil
    self.batch_size = rawget(layer, "batch_size")
    return
  end
  if #self.layers == 0 and not self.sample_shape then
    self.sample_shape = rawget(layer, "input_shape") or sample_of_network(layer)
  end
  layer.container = layer.container or self
  self.layers[#self.layers + 1] = layer
end

local function build_all(self)
  if self.sample_shape and #self.layers > 0 then self:ensure_built { -1, unpack(self.sample_shape) } end
end

-- After a change of the layers: builds again, and forgets the graph.
local function layers_changed(self)
  self.built, self.nodes, self.graph = false, nil, nil
  build_all(self)
  host_part.check(self)
end

--- model:add(layer) -> the model: appends the layer. Errors: a layer or a layer's name that it has already.
-- Example:
--     local model = mgpu.Sequential {}
--     model:add(mgpu.Input { 4 }):add(L.Dense { 3 })
--     print(#model.layers, (model:count_params()))  --> 1 15
function Sequential:add(layer)
  append(self, layer, #self.layers + 1)
  layers_changed(self)
  return self
end

--- model:pop() -> the last layer, which is removed.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 }, L.Dense { 1, name = "head" } }
--     print(model:pop(), #model.layers)  --> Dense "head" 1
--     model:add(L.Dense { 10 }) -- another head
--     print(unpack(model(mgpu.ones { 2, 4 }):shape()))  --> 2 10
function Sequential:pop()
  if #self.layers == 0 then self:fail("the model has no layer to remove") end
  local layer = table.remove(self.layers)
  if layer.container == self then layer.container = nil end
  layers_changed(self)
  return layer
end

--- new {layer, ..., name =, trainable =} -> a model; the same as calling Sequential.
-- Example:
--     local model = mgpu.Sequential.new { mgpu.Input { 2 }, L.Dense { 1 }, name = "tiny" }
--     print(model)  --> Sequential "tiny"
function Sequential.new(given)
  given = given or {}
  if type(given) ~= "table" or getmetatable(given) then given = { given } end
  local named = {}
  for key, value in pairs(given) do
    if type(key) ~= "number" then named[key] = value end
  end
  local self = Sequential:make(options.check("Sequential", Sequential.declared, named))
  self.layers, self.shapes, self.strategy = {}, {}, parallel.current()
  for i = 1, #given do append(self, given[i], i) end
  if not self.trainable then self.trainable = false end
  build_all(self)
  host_part.check(self)
  return self
end

function Sequential:build(shape)
  self.shapes = {}
  for _, layer in ipairs(self.layers) do
    layer.known_batch = rawget(self, "batch_size") or rawget(self, "known_batch")
    layer:ensure_built(shape)
    shape = layer:output_shape(shape)
    self.shapes[layer] = shape
  end
end

function Sequential:output_dtype()
  local last = self.layers[#self.layers]
  return last and last:output_dtype(1) or self.compute_dtype
end

function Sequential:output_shape(shape)
  for _, layer in ipairs(self.layers) do shape = layer:output_shape(shape) end
  return shape
end

-- ---- as a graph ---------------------------------------------------------------------------------

-- {input, output}: the layers called one by one on a symbolic tensor, so that a part of the model can be used in
-- others: mgpu.Model { inputs = base.input, outputs = base:get_layer("features").output }.
local function graph_of(self)
  if not self.graph then
    if not self.built then self:fail("has no input and output yet: give it an Input or call it once") end
    local x = require "mgpu.nn.layers".Input { { select(2, unpack(self.built_shape)) }, dtype = self.input_dtype }
    local y, uses = x, {}
    for _, layer in ipairs(self.layers) do
      y = layer(y)
      uses[layer] = y.node or y[1].node -- of a layer with several outputs, the first
    end
    self.graph = { input = x, output = y, uses = uses }
  end
  return self.graph
end

--- model:use_of(layer) -> the layer's node in the model's graph.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 } }
--     print(unpack(model:use_of(model.layers[1]).outputs[1]:shape()))  --> -1 1
function Sequential:use_of(layer) return graph_of(self).uses[layer] end

function Sequential.computed.input(self) return graph_of(self).input end
function Sequential.computed.output(self) return graph_of(self).output end
function Sequential.computed.inputs(self) return { graph_of(self).input } end
function Sequential.computed.outputs(self) return { graph_of(self).output } end

-- ---- use ----------------------------------------------------------------------------------------

function Sequential:call(x, training)
  if #self.layers == 0 then self:fail("the model has no layers") end
  for _, layer in ipairs(self.layers) do x = layer:apply(x, training) end
  return x
end

--- model:apply(x, how), the same as model(x, {training = true}) -> the output. Integer data become floats, unless the
--- first layer wants integers. Errors: a shape other than the model's.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3, kernel_initializer = "ones" } }
--     print(model(mgpu.tensor { { 1, 2 }, { 3, 4 } }))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{3, 3, 3},
--     -->  {7, 7, 7}}
function Sequential:apply(x, how)
  local again = repeated_call.run(self, x, how)
  if again ~= nil then return again end
  if symbolic_tensor.any(x) then return symbolic_tensor.connect(self, x, self:stated_training(how)) end
  if self.reads_values then return host_part.apply(self, x, how) end
  x = self:tensors(x)
  local given, first = x, self.layers[1]
  x = self.as_float(x, self.input_dtype or (first and first.takes_integers and "int32"))
  if self.built and (core.is_tensor(x) or core.is_variable(x)) then
    x = self.with_rank(x, self.built_shape)
    self:check_sample(x, self.built_shape)
  end
  self:begin_call()
  local y = Layer.apply(self, x, how)
  repeated_call.note(self, given, how)
  return y
end

--- model:get_config() -> name, trainable, dtype, the input's shape and dtype, and the layers.
-- Example:
--     local config = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 }, name = "tiny" }:get_config()
--     print(config.name, config.input_shape[1], config.layers[1].class_name)  --> tiny 2 Dense
function Sequential:get_config()
  return { name = self.name, trainable = self.trainable, dtype = self.dtype_policy.name, input_dtype = self.input_dtype,
    batch_size = rawget(self, "batch_size"),
    input_shape = self.sample_shape or (self.built_shape and { select(2, unpack(self.built_shape)) }),
    layers = self:layer_configs() }
end

methods.want_colons(Sequential, "model", "is_network", { "add", "pop" })

return Sequential
