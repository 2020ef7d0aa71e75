--- Model: a graph of layers between symbolic tensors, with any number of inputs and outputs.
--
--     local a, b = mgpu.Input { 8, name = "a" }, mgpu.Input { 4, name = "b" }
--     local h = L.Concatenate {} { L.Dense { 16, activation = "relu" } (a), b }
--     local model = mgpu.Model { inputs = { a, b }, outputs = L.Dense { 1 } (h), name = "two" }
-- A layer may be used several times (its weights are shared), a model may be a layer of another.
-- Data for several inputs is an array in the order of `inputs`, or a table by their names; several
-- outputs come back as an array. Several outputs are called by the names of the layers that make them.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local Network = require "mgpu.nn.network"
local options = require "mgpu.options"
local parallel = require "mgpu.parallel"
local symbol = require "mgpu.nn.symbolic_tensor"

local Model = Network:extend("Model", { positional = 0,
  { "inputs", "any", required = true },
  { "outputs", "any", required = true },
})

-- ---- the graph ----------------------------------------------------------------------------------

-- The symbols given: one, an array, or a table by name (in the names' order).
local function symbols(self, given, what)
  if symbol.is_symbol(given) then return { given }, false end
  if type(given) ~= "table" or getmetatable(given) or next(given) == nil then
    self:fail("%s must be a symbolic tensor (mgpu.Input, or what a layer gives for one) or an array "
      .. "of them, got %s", what, type(given) == "table" and "an empty table" or tostring(given))
  end
  local list, keys = {}, {}
  for key in pairs(given) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  if #given > 0 then
    local fault = core.array_fault(given)
    if fault then self:fail("%s: %s", what, fault) end
    for i = 1, #given do list[i] = given[i] end
  else
    for i, key in ipairs(keys) do list[i] = given[key] end
  end
  for i, item in ipairs(list) do
    if not symbol.is_symbol(item) then
      self:fail("entry %d of %s is a %s, not a symbolic tensor (mgpu.Input, or what a layer gives for "
        .. "one)", i, what, type(item))
    end
  end
  return list, true
end

local function check_inputs(self)
  for i, input in ipairs(self.inputs) do
    for k = 1, i - 1 do
      if self.inputs[k] == input then self:fail("inputs: %s is given twice", tostring(input)) end
    end
  end
end

-- The nodes between inputs and outputs, each after those it needs.
local function sort_nodes(self)
  local given, found, waiting, order = {}, {}, {}, {}
  for _, input in ipairs(self.inputs) do given[input] = true end
  local function need(list)
    for _, s in ipairs(list) do
      if not given[s] then
        if s.node.layer.is_input then
          self:fail("the outputs depend on %s, which is not among the inputs", tostring(s.node.layer))
        end
        if not found[s.node] then waiting[#waiting + 1] = s.node end
        found[s.node] = true
      end
    end
  end
  need(self.outputs)
  while #waiting > 0 do
    local node = table.remove(waiting)
    order[#order + 1] = node
    need(node.inputs)
  end
  table.sort(order, function(a, b) return a.number < b.number end)
  return order
end

local function check_names(self)
  local seen = {}
  for _, layer in ipairs(self.layers) do
    if seen[layer.name] then
      self:fail("two layers are called %q: give one a name of its own", layer.name)
    end
    seen[layer.name] = true
  end
end

-- The layers in order of their first use, the inputs' own first.
local function list_layers(self)
  self.layers = {}
  local seen = {}
  local function add(layer)
    if not seen[layer] then self.layers[#self.layers + 1] = layer end
    seen[layer] = true
  end
  for _, input in ipairs(self.inputs) do
    if input.node.layer.is_input then add(input.node.layer) end
  end
  for _, node in ipairs(self.order) do add(node.layer) end
  check_names(self)
end

-- A name for each symbol, after its layer; of several outputs of one layer by position.
local function names_of(list)
  local names, used = {}, {}
  for i, s in ipairs(list) do
    local base = s.node.layer.name
    local name, n = base, 1
    while used[name] do
      name, n = base .. "_" .. n, n + 1
    end
    used[name], names[i] = true, name
  end
  return names
end

-- Whether all who read the input want integers.
local function reads_integers(self, input)
  local readers, integers = 0, 0
  for _, node in ipairs(self.order) do
    for _, s in ipairs(node.inputs) do
      if s == input then
        readers = readers + 1
        if node.layer.takes_integers then integers = integers + 1 end
      end
    end
  end
  return readers > 0 and readers == integers
end

local function build_graph(self, given)
  self.inputs, self.listed = symbols(self, given.inputs, "inputs")
  self.outputs, self.several = symbols(self, given.outputs, "outputs")
  check_inputs(self)
  self.order = sort_nodes(self)
  list_layers(self)
  self.input_names, self.output_names = names_of(self.inputs), names_of(self.outputs)
  self.input_dtypes = {}
  for i, input in ipairs(self.inputs) do
    local stated = input.node.layer.is_input and input.node.layer.states_policy and input:dtype()
    self.input_dtypes[i] = stated or (reads_integers(self, input) and "int32") or core.floatx()
  end
end

function Model.new(given)
  local self = Model:make(options.check("Model", Model.declared, given or {}))
  local inputs, outputs = self.inputs, self.outputs
  self.inputs, self.outputs, self.layers, self.strategy = nil, nil, {}, parallel.current()
  build_graph(self, { inputs = inputs, outputs = outputs })
  self.built, self.built_shape = true, {}
  for i, input in ipairs(self.inputs) do self.built_shape[i] = input:shape() end
  if not self.trainable then self.trainable = false end
  return self
end

function Model.computed.input(self) return self.listed and self.inputs or self.inputs[1] end
function Model.computed.output(self) return self.several and self.outputs or self.outputs[1] end

-- ---- use ----------------------------------------------------------------------------------------

-- One of several outputs is not an array of one.
local function result(self, list) return self.several and list or list[1] end

function Model:output_dtype(i) return self.outputs[i]:dtype() end

function Model:output_shape(given)
  local shapes = {}
  for i, input in ipairs(self.inputs) do shapes[input] = self.listed and given[i] or given end
  for _, node in ipairs(self.order) do
    local list = {}
    for i, s in ipairs(node.inputs) do list[i] = shapes[s] end
    local out = node.layer:output_shape(node.listed and list or list[1])
    for i, s in ipairs(node.outputs) do shapes[s] = node.several and out[i] or out end
  end
  local list = {}
  for i, output in ipairs(self.outputs) do list[i] = shapes[output] end
  return result(self, list)
end

function Model:call(x, training)
  local values = {}
  for i, input in ipairs(self.inputs) do values[input] = type(x) == "table" and x[i] or x end
  for _, node in ipairs(self.order) do
    local list = {}
    for i, s in ipairs(node.inputs) do list[i] = values[s] end
    local stated = node.training
    if stated == nil then stated = training end
    local y = node.layer:apply(node.listed and list or list[1], stated)
    for i, s in ipairs(node.outputs) do values[s] = node.several and y[i] or y end
  end
  local list = {}
  for i, output in ipairs(self.outputs) do list[i] = values[output] end
  return result(self, list)
end

--- The given data as an array in the order of the inputs.
function Model:arrange(x)
  local n = #self.inputs
  if type(x) == "table" and not getmetatable(x) and x[1] == nil and next(x) ~= nil then
    local list = {}
    for i, name in ipairs(self.input_names) do
      if x[name] == nil then self:fail("the input %q is missing", name) end
      list[i] = x[name]
    end
    for name in pairs(x) do
      local near = core.nearest(tostring(name), self.input_names)
      local known = false
      for _, own in ipairs(self.input_names) do known = known or own == name end
      if not known then
        self:fail("there is no input %q%s", tostring(name),
          near and (" (did you mean %q?)"):format(near) or "")
      end
    end
    return list
  end
  if type(x) ~= "table" or symbol.is_symbol(x) then x = { x } end
  if n == 1 and type(x[1]) ~= "userdata" and not symbol.is_symbol(x[1]) then x = { core.tensor(x) } end
  if #x ~= n then self:fail("%d inputs were given, the model takes %d", #x, n) end
  return x
end

--- model(x, {training =}): integers become floats, unless only layers that want integers read them.
function Model:apply(x, how)
  if symbol.any(x) then
    local list = self:arrange(x)
    return symbol.connect(self, self.listed and list or list[1], self:stated_training(how))
  end
  local list = {}
  for i, t in ipairs(self:arrange(x)) do
    t = self.as_float(type(t) == "table" and core.tensor(t) or t, self.input_dtypes[i])
    if type(t) ~= "userdata" then
      self:fail("expected a tensor for input %q, got %s", self.input_names[i], type(t))
    end
    t = self.with_rank(t, self.inputs[i]:shape())
    self:check_sample(t, self.inputs[i]:shape(), #self.inputs > 1 and self.input_names[i])
    list[i] = t
  end
  self:begin_call()
  return Layer.apply(self, self.listed and list or list[1], how)
end

-- ---- saving -------------------------------------------------------------------------------------

--- The layers, and the uses of them in order: {layer = position, inputs = {{use, output}, ...}, training =
--- where a use states it}; use 0, output i is input i of the model.
function Model:get_config()
  local position, source = {}, {}
  for i, layer in ipairs(self.layers) do position[layer] = i end
  for i, input in ipairs(self.inputs) do source[input] = { 0, i } end
  local uses = {}
  for n, node in ipairs(self.order) do
    local inputs = {}
    for i, s in ipairs(node.inputs) do inputs[i] = source[s] end
    uses[n] = { layer = position[node.layer], inputs = inputs, listed = node.listed,
      training = node.training }
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
