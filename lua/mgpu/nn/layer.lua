--- mgpu.Layer: the base of all layers.
--
-- A layer is made with options, gets its weights in `build(shape)` at the first use, and computes in
-- `call(x, training)`. Own layers extend it.
-- Declared options become fields of self. Shapes include the batch, whose size is -1 in build.
-- The option dtype, a dtype or a policy (mixed_precision.lua), says what a layer computes in: call gets floating
-- inputs cast to it and reads weights cast to it, unless the class says autocast = false.
-- Example:
--     local Scale = mgpu.Layer:extend("Scale", { initial = 1 })
--     function Scale:build(shape)
--       self.w = self:add_weight { name = "w", shape = { shape[#shape] },
--         initializer = mgpu.initializers.constant { self.initial } }
--     end
--     function Scale:call(x) return x * self.w end
--     print(Scale { initial = 3 } (mgpu.tensor { { 1, 2 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{3, 6}}
local core = require "mgpu.core"
local device_scope = require "mgpu.nn.device_scope"
local layer_names = require "mgpu.nn.layer_names"
local mixed_precision = require "mgpu.nn.mixed_precision"
local options = require "mgpu.options"

local Layer = { class_name = "Layer", declared = options.declare {}, autocast = true }
for _, part in ipairs { "mgpu.nn.weights", "mgpu.nn.layer_call" } do
  for name, value in pairs(require(part)) do Layer[name] = value end
end

-- How many fields have been added to layers: see call_fields.lua.
local added_fields = { n = 0 }
Layer.added_fields = added_fields

-- Options of every layer, besides those of its class.
local SHARED = {
  { "name", "string" },
  { "trainable", "boolean", default = true },
  { "dtype", "string|table" },
  { "input_shape", "shape" },
  { "device", "string|integer", min = 1 },
  { "stream_name", "string" }, -- names its random stream, if that is not its name (layer_names.lua)
}

-- ---- classes ------------------------------------------------------------------------------------

-- The declared options of a class and the shared ones it does not declare itself.
local function with_shared(list)
  local all = { positional = list.positional or 0, whole = list.whole }
  for _, option in ipairs(list) do all[#all + 1] = option end
  for _, option in ipairs(SHARED) do
    local taken = false
    for _, own in ipairs(list) do taken = taken or own[1] == option[1] end
    if not taken then all[#all + 1] = option end
  end
  return all
end

-- The `build` of a class, after which the layer is built, whether ensure_built or the user has called it. A frozen
-- layer freezes the weights that it has made.
local function marks_built(build)
  return function(self, shape, chosen)
    build(self, shape, chosen)
    self.built, self.built_shape = true, shape
    if not self.trainable then self.trainable = false end
  end
end

--- Layer:extend(class_name, declared) -> a class, to be called with options.
-- ARGS declared: the options, as a list (see options.lua) or a map {option = type or default}; they become fields.
-- Example:
--     local Double = mgpu.Layer:extend("Double", { times = 1 }) -- an option and its default
--     function Double:call(x) return x * 2 ^ self.times end
--     print(Double { times = 3 } (mgpu.tensor { 1, 2 }))
--     --> tensor {2} float32 cpu:0
--     --> { 8, 16}
function Layer:extend(class_name, declared)
  local own = declared or {}
  local class = setmetatable({ class_name = class_name, super = self }, {
    __index = self,
    __newindex = function(class, key, value) rawset(class, key, key == "build" and marks_built(value) or value) end,
    __call = options.construct,
    __tostring = function() return "layer class " .. class_name end,
  })
  class.own_declared = options.declare(own)
  class.declared = with_shared(class.own_declared)
  class.computed = setmetatable({}, { __index = self.computed })
  class.meta = {
    class = class,
    __index = function(layer, key)
      local value = class[key]
      if value ~= nil then return value end
      local compute = class.computed[key]
      if compute then return compute(layer) end
      if class.unknown_field then class.unknown_field(layer, key) end
    end,
    __newindex = function(layer, key, value)
      if key == "trainable" then return layer:set_trainable(value) end
      added_fields.n = added_fields.n + 1
      rawset(layer, key, value)
    end,
    __call = function(layer, x, how) return layer:apply(x, how) end,
    __tostring = function(layer) return class_name .. " " .. require "mgpu.quoted"(layer.name) end,
  }
  --- new(options) -> a layer of the class; the same as calling the class.
  -- Example:
  --     -- as L.Dense { 3, name = "hidden" }
  --     print(L.Dense.new { 3, name = "hidden" })  --> Dense "hidden"
  function class.new(given)
    return class:make(options.check(class_name, class.declared, given == nil and {} or given))
  end
  return class
end

--- class:make(chosen) -> a layer from checked options.
-- Example:
--     local Plain = mgpu.Layer:extend "Plain"
--     print(Plain:make { name = "made", trainable = true })  --> Plain "made"
function Layer:make(chosen)
  local layer = chosen
  local dtype, scope = layer.dtype, device_scope.current()
  layer.is_trainable, layer.trainable, layer.dtype = layer.trainable, nil, nil
  setmetatable(layer, self.meta)
  local stream_name = layer.name
  if not layer.name then layer.name, stream_name = layer_names.new(self.python_name or self.class_name) end
  layer.stream_name = layer.stream_name or stream_name
  layer.states_policy, layer.dtype_policy = dtype ~= nil, mixed_precision.get(dtype, tostring(layer))
  layer.weights = {} -- of this layer without inner layers, in the order they were made
  layer.built = false
  layer.scoped = not layer.device and scope ~= nil or nil -- its device comes from a with_device scope
  layer.device = layer.device or scope
  if type(layer.device) == "string" then layer.device = core.device_name(layer.device) end
  if layer.init then layer:init() end
  return layer
end

function Layer.computed.trainable(self) return self.is_trainable end

function Layer.computed.compute_dtype(self) return self.dtype_policy.compute_dtype end
function Layer.computed.variable_dtype(self) return self.dtype_policy.variable_dtype end
Layer.computed.dtype = Layer.computed.variable_dtype -- Keras's other name for it

-- The layer's use in the Sequential that holds it, else its first use in a functional model; nil if there is none.
local function first_use(self)
  local container = rawget(self, "container")
  if container then return container:use_of(self) end
  return rawget(self, "nodes") and self.nodes[1]
end

--- layer.input, layer.output: the symbolic tensors of its use in a Sequential, or of its first use in a functional
--- model.
function Layer.computed.output(self)
  local node = first_use(self)
  if not node then self:fail("has no output: it has not been called with a symbolic tensor") end
  return node.several and node.outputs or node.outputs[1]
end

function Layer.computed.input(self)
  local node = first_use(self)
  if not node then self:fail("has no input: it has not been called with a symbolic tensor") end
  return node.listed and node.inputs or node.inputs[1]
end

-- ---- errors -------------------------------------------------------------------------------------

--- layer:fail(message, ...): raises the error `Conv2D "conv2d": message` at the user's line.
-- Example:
--     print(pcall(function() L.Dense { 3, name = "hidden" }:fail("%d inputs are too many", 7) end))
--     --> false ... Dense "hidden": 7 inputs are too many
function Layer:fail(message, ...)
  core.fail("usage", ("%s %q: %s"):format(self.class_name, self.name, message:format(...)))
end

--- shape_text(shape) -> "{None, 28, 28, 1}".
-- Example:
--     print(mgpu.Layer.shape_text { -1, 28, 28, 1 })  --> {None, 28, 28, 1}
local function shape_text(shape)
  local parts = {}
  for i, size in ipairs(shape) do parts[i] = size == -1 and "None" or tostring(size) end
  return "{" .. table.concat(parts, ", ") .. "}"
end
Layer.shape_text = shape_text

--- layer:need_rank(shape, rank, meaning): raises unless the input has `rank` axes, batch included. `meaning` names
--- them in the error: "batch, steps, channels".
-- Example:
--     local layer = L.Flatten { name = "f" }
--     print(pcall(function() layer:need_rank({ -1, 5 }, 3, "batch, steps, channels") end))
--     --> false ... Flatten "f": the input must have 3 axes (batch, steps, channels), got shape {None, 5}
function Layer:need_rank(shape, rank, meaning)
  if #shape ~= rank then
    self:fail("the input must have %d axes (%s), got shape %s", rank, meaning, shape_text(shape))
  end
end

-- ---- what classes override ------------------------------------------------------------------------

--- layer:build(shape): makes the weights with add_weight; called once, before the first call. Override it.
-- ARGS shape: of the input, with -1 for the batch; an array of shapes for an array of inputs.
-- Example:
--     local Bias = mgpu.Layer:extend "Bias"
--     function Bias:build(shape)
--       self.b = self:add_weight { name = "b", shape = { shape[2] }, initializer = "zeros" }
--     end
--     function Bias:call(x) return x + self.b end
--     local layer = Bias {}
--     layer(mgpu.ones { 4, 3 }) -- builds it
--     print(unpack(layer.b:shape()))  --> 3
function Layer:build() end -- luacheck: no self
local no_build = Layer.build
function Layer.computed.has_build(self) return self.build ~= no_build end

--- layer:call(x, training) -> the output: a tensor, or an array of tensors. Every class must define it.
-- Example:
--     local Noisy = mgpu.Layer:extend "Noisy"
--     function Noisy:call(x, training) return training and x + mgpu.randn(x:shape()) or x end
--     print(Noisy {} (mgpu.ones { 1, 2 }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{1, 1}}
function Layer:call()
  self:fail("has no call: say what it computes, as in function %s:call(x, training)", self.class_name)
end

-- The value of an option as get_config has it: a layer is {class_name =, config =}.
local function saved(value)
  if type(value) ~= "table" then return value end
  if value.add_weight then return { class_name = value.class_name, config = value:get_config() } end
  if value.get_config then return value:get_config() end
  if type(value[1]) ~= "table" or not value[1].add_weight then return value end
  local list = {}
  for i, layer in ipairs(value) do list[i] = saved(layer) end
  return list
end

--- layer:get_config() -> name, trainable, dtype policy and the declared options as they are now, ready for JSON.
-- Errors: an option that is a function, which cannot be saved.
-- Example:
--     local config = L.Dense { 3, activation = "relu", name = "hidden" }:get_config()
--     print(config.name, config.units, config.activation, config.use_bias)  --> hidden 3 relu true
function Layer:get_config()
  local config = { name = self.name, trainable = self.trainable, dtype = self.dtype_policy.name,
    device = not rawget(self, "scoped") and rawget(self, "device") or nil,
    stream_name = self.stream_name ~= self.name and self.stream_name or nil }
  for _, option in ipairs(self.own_declared) do
    local value = rawget(self, option[1])
    if type(value) == "function" then
      self:fail("option %q is a function, which cannot be saved: use a name", option[1])
    end
    config[option[1]] = saved(value)
  end
  return config
end

return Layer
