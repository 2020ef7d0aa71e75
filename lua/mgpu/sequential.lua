--- Sequential: layers one after another.
--
--     local model = mgpu.Sequential { L.Input {28, 28, 1}, L.Flatten {}, L.Dense {10} }
-- Built at once if the first layer says its input's shape, else at the first use. Training methods
-- (compile, fit, ...) come from training.lua, saving from config.lua.
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local Sequential = Layer:extend("Sequential", { positional = 0 })
local new_layer = Sequential.new

for _, part in ipairs { "mgpu.training", "mgpu.config" } do
  for name, method in pairs(require(part)) do Sequential[name] = method end
end

--- variables, trainable_variables: computed, in the order of the layers.
local computed = {}

function computed.variables(self)
  local list = {}
  for i, entry in ipairs(self:collect({}, {}, true)) do list[i] = entry[1] end
  return list
end

function computed.trainable_variables(self)
  local list = {}
  for _, entry in ipairs(self:collect({}, {}, true)) do
    if entry[2] then list[#list + 1] = entry[1] end
  end
  return list
end

function computed.trainable(self) return self.is_trainable end

local meta = {
  __index = function(self, key)
    local compute = computed[key]
    if compute then return compute(self) end
    return Sequential[key]
  end,
  -- Freezing a model freezes its layers, as in Keras: batch normalization must know.
  __newindex = function(self, key, value)
    if key ~= "trainable" then return rawset(self, key, value) end
    self.is_trainable = value
    for _, layer in ipairs(self.layers) do layer.trainable = value end
  end,
  __call = function(self, x, how) return self:apply(x, how) end,
  __tostring = function(self) return ("Sequential %q"):format(self.name) end,
}

-- ---- layers -------------------------------------------------------------------------------------

local function check_layer(self, layer, position)
  if type(layer) ~= "table" or not layer.apply or not rawget(layer, "name") then
    self:fail("entry %d is a %s, not a layer%s", position, type(layer),
      type(layer) == "table" and " (layers are made by calling the class: L.Flatten {})" or "")
  end
  for _, other in ipairs(self.layers) do
    if other == layer then self:fail("%s stands in the model twice", tostring(layer)) end
    if other.name == layer.name then
      self:fail("two layers are called %q: give one a name of its own", layer.name)
    end
  end
  if layer.is_input and (#self.layers > 0 or self.sample_shape) then
    self:fail("Input must be the first layer")
  end
end

--- add(layer): at the end.
function Sequential:add(layer)
  check_layer(self, layer, #self.layers + 1)
  if layer.is_input then
    self.sample_shape = layer.shape
    return self
  end
  if #self.layers == 0 and rawget(layer, "input_shape") then self.sample_shape = layer.input_shape end
  self.layers[#self.layers + 1] = layer
  if self.built then
    self.shapes[layer] = nil
    self.built = false
  end
  if self.sample_shape then self:ensure_built { -1, unpack(self.sample_shape) } end
  return self
end

--- pop(): takes the last layer off and returns it.
function Sequential:pop()
  if #self.layers == 0 then self:fail("there is no layer to take off") end
  return table.remove(self.layers)
end

local function build_all(self)
  if self.sample_shape and #self.layers > 0 then self:ensure_built { -1, unpack(self.sample_shape) } end
end

function Sequential.new(given)
  given = given or {}
  if type(given) ~= "table" or getmetatable(given) then given = { given } end
  local named = {}
  for key, value in pairs(given) do
    if type(key) ~= "number" then named[key] = value end
  end
  local self = new_layer(named)
  self.is_trainable, self.trainable = self.trainable, nil
  setmetatable(self, meta)
  self.layers, self.shapes = {}, {}
  for i = 1, #given do
    local layer = given[i]
    check_layer(self, layer, i)
    if layer.is_input then
      self.sample_shape = layer.shape
    else
      if #self.layers == 0 and rawget(layer, "input_shape") then self.sample_shape = layer.input_shape end
      self.layers[#self.layers + 1] = layer
    end
  end
  if not self.is_trainable then self.trainable = false end
  build_all(self)
  return self
end

function Sequential:build(shape)
  self.shapes = {}
  for _, layer in ipairs(self.layers) do
    layer:ensure_built(shape)
    shape = layer:output_shape(shape)
    self.shapes[layer] = shape
  end
end

function Sequential:output_shape(shape)
  for _, layer in ipairs(self.layers) do shape = layer:output_shape(shape) end
  return shape
end

function Sequential:collect(list, seen, trainable)
  trainable = trainable and self.trainable ~= false
  for _, layer in ipairs(self.layers) do layer:collect(list, seen, trainable) end
  return list
end

function Sequential:call(x, training)
  if #self.layers == 0 then self:fail("the model has no layers") end
  for _, layer in ipairs(self.layers) do x = layer:apply(x, { training = training }) end
  return x
end

local function check_sample(self, x)
  local shape, wanted = x:shape(), self.built_shape
  local fits = #shape == #wanted
  for i = 2, #wanted do fits = fits and (wanted[i] == -1 or wanted[i] == shape[i]) end
  if not fits then
    self:fail("a batch of shape %s was given, the model takes %s", self.shape_text(shape),
      self.shape_text(wanted))
  end
end

--- model(x, {training =}): integers become the float dtype of the model.
function Sequential:apply(x, how)
  if type(x) == "table" then x = core.tensor(x) end
  if type(x) == "userdata" and not x:dtype():find "float" then x = x:cast(core.floatx()) end
  if self.built and type(x) == "userdata" then check_sample(self, x) end
  return Layer.apply(self, x, how)
end

-- ---- looking at it ------------------------------------------------------------------------------

--- get_layer(name) or get_layer {index = n}
function Sequential:get_layer(which)
  if type(which) == "table" then which = which.index or which[1] end
  if type(which) == "number" then
    return self.layers[which] or self:fail("there is no layer %d: the model has %d", which, #self.layers)
  end
  local names = {}
  for i, layer in ipairs(self.layers) do
    if layer.name == which then return layer end
    names[i] = layer.name
  end
  local near = core.nearest(tostring(which), names)
  self:fail("there is no layer %q%s", tostring(which),
    near and (" (did you mean %q?)"):format(near) or "")
end

function Sequential:losses()
  local all = {}
  for _, layer in ipairs(self.layers) do
    for _, loss in ipairs(layer.losses and layer:losses() or {}) do all[#all + 1] = loss end
  end
  return all
end

--- summary(): prints Keras's table. RETURNS nothing.
function Sequential:summary()
  local write = require "mgpu".output
  write(require "mgpu.summary".text(self) .. "\n")
end

function Sequential:get_config()
  local layers = {}
  for i, layer in ipairs(self.layers) do
    layers[i] = { class_name = layer.class_name, config = layer:get_config() }
  end
  return { name = self.name, trainable = self.trainable, input_shape = self.sample_shape
    or (self.built_shape and { select(2, unpack(self.built_shape)) }), layers = layers }
end

getmetatable(Sequential).__call = function(_, given) return Sequential.new(given) end

return Sequential
