--- The graph of a functional model: from the symbolic tensors given as inputs and outputs to the nodes between them.
--
-- A node is one use of a layer (symbolic_tensor.lua).
local core = require "mgpu.core"
local layer_order = require "mgpu.nn.layer_order"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"

-- ---- the graph ----------------------------------------------------------------------------------

-- RETURNS the symbolic tensors given (one, an array, or a table by name, in the order of the names) as an array, and
-- whether there was more than a single one.
local function symbols_of(self, given, what)
  if symbolic_tensor.is_symbol(given) then return { given }, false end
  if type(given) ~= "table" or getmetatable(given) or next(given) == nil then
    self:fail("%s must be a symbolic tensor (mgpu.Input, or a layer's result for one) or an array "
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
    if not symbolic_tensor.is_symbol(item) then
      self:fail("entry %d of %s is a %s, not a symbolic tensor (mgpu.Input, or a layer's result for "
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

-- The nodes between inputs and outputs in topological order: their numbers rise from a node to those that need it.
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
      self:fail("two layers are called %q: give one of them another name", layer.name)
    end
    seen[layer.name] = true
  end
end

-- self.layers: the layers between inputs and outputs, in Keras's order.
local function list_layers(self)
  local list, seen = {}, {}
  local function add(layer)
    if not seen[layer] then list[#list + 1] = layer end
    seen[layer] = true
  end
  for _, input in ipairs(self.inputs) do
    if input.node.layer.is_input then add(input.node.layer) end
  end
  for _, node in ipairs(self.order) do add(node.layer) end
  self.layers = layer_order(self, list)
  check_names(self)
end

-- A name for each symbolic tensor: its layer's name, with _1, _2, ... if the layer has several tensors; or the name
-- that the layer has for it in `tensor_names`.
local function names_of(list)
  local names, used = {}, {}
  for i, s in ipairs(list) do
    local own = rawget(s.node.layer, "tensor_names")
    local base = own and own[s.index] or s.node.layer.name
    local name, n = base, 1
    while used[name] do
      name, n = base .. "_" .. n, n + 1
    end
    used[name], names[i] = true, name
  end
  return names
end

-- Whether all layers that read the input want integers (Embedding).
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

--- build(model, given): sets inputs, outputs, order (of the nodes), layers, input_names, output_names, input_dtypes.
return function(self, given)
  self.inputs, self.listed = symbols_of(self, given.inputs, "inputs")
  self.outputs, self.several = symbols_of(self, given.outputs, "outputs")
  check_inputs(self)
  self.order = sort_nodes(self)
  list_layers(self)
  self.input_names, self.output_names = names_of(self.inputs), names_of(self.outputs)
  self.input_dtypes = {}
  for i, input in ipairs(self.inputs) do
    local layer, dtype = input.node.layer, input:dtype()
    local stated = (layer.is_input and layer.states_policy or not layer.is_input and dtype:find "int") and dtype
    self.input_dtypes[i] = stated or (reads_integers(self, input) and "int32") or core.floatx()
  end
end
