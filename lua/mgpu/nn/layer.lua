--- The base of all layers.
--
-- A layer is made with options, gets its weights in `build(shape)` at the first use, and computes in
-- `call(x, training)`. Own layers extend it:
--     local Scale = mgpu.Layer:extend("Scale", { units = "integer", activation = "linear" })
--     function Scale:build(shape) self.w = self:add_weight { name = "w", shape = { shape[#shape] } } end
--     function Scale:call(x) return x * self.w end
-- Declared options become fields of self. Shapes include the batch, whose size is -1 in build.
-- The option dtype, a dtype or a policy (mixed_precision.lua), says what a layer computes in: call gets
-- floating inputs cast to that, and reads weights cast to it, unless the class says autocast = false.
local core = require "mgpu.core"
local mixed_precision = require "mgpu.nn.mixed_precision"
local names = require "mgpu.nn.layer_names"
local options = require "mgpu.options"
local symbol = require "mgpu.nn.symbolic_tensor"

local Layer = { class_name = "Layer", declared = options.declare {}, autocast = true }
for name, value in pairs(require "mgpu.nn.weights") do Layer[name] = value end

-- What every layer accepts besides its own.
local SHARED = {
  { "name", "string" },
  { "trainable", "boolean", default = true },
  { "dtype", "string|table" },
  { "input_shape", "shape" },
  { "device", "string|integer", min = 1 },
  { "stream_name", "string" }, -- what its random numbers go by, if not by its name (names.lua)
}

Layer.groups = nil -- while a step is traced on device groups: the first device of each stage
local around -- the device of mgpu.with_device

--- with_device(name, fn): layers made in fn get `device = name` unless they say another. Unlike one that a
--- layer says itself, it is not saved, and where one scope made the whole model, compiling that for several
--- devices replaces it: the scope was where a template was built. RETURNS what fn returns.
function Layer.with_device(name, fn)
  if type(name) == "string" then
    name = core.device_info(name).name
  elseif type(name) ~= "number" or name < 1 or name % 1 ~= 0 then
    core.fail("usage", "with_device: expected a device's name or its place in a group, got "
      .. tostring(name))
  end
  if type(fn) ~= "function" then core.fail("usage", "with_device: expected a function, got " .. type(fn)) end
  local before = around
  around = name
  local results = { pcall(fn) }
  around = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

-- ---- classes ------------------------------------------------------------------------------------

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

--- extend(class_name, declared) -> a class; declared: a list as in options.lua, or a map.
function Layer:extend(class_name, declared)
  local own = declared or {}
  local class = setmetatable({ class_name = class_name, super = self }, {
    __index = self,
    __call = function(class, given) return class.new(given) end,
    __tostring = function() return "layer class " .. class_name end,
  })
  class.own_declared = options.declare(own)
  class.declared = with_shared(class.own_declared)
  class.computed = setmetatable({}, { __index = self.computed })
  class.meta = {
    __index = function(layer, key)
      local value = class[key]
      if value ~= nil then return value end
      local compute = class.computed[key]
      return compute and compute(layer)
    end,
    __newindex = function(layer, key, value)
      if key == "trainable" then return layer:set_trainable(value) end
      rawset(layer, key, value)
    end,
    __call = function(layer, x, how) return layer:apply(x, how) end,
    __tostring = function(layer) return ("%s %q"):format(class_name, layer.name) end,
  }
  function class.new(given)
    return class:make(options.check(class_name, class.declared, given == nil and {} or given))
  end
  return class
end

--- A layer of the class from checked options.
function Layer:make(chosen)
  local layer = chosen
  local dtype = layer.dtype
  layer.is_trainable, layer.trainable, layer.dtype = layer.trainable, nil, nil
  setmetatable(layer, self.meta)
  local stream_name = layer.name
  if not layer.name then layer.name, stream_name = names.new(self.class_name) end
  layer.stream_name = layer.stream_name or stream_name
  layer.states_policy, layer.dtype_policy = dtype ~= nil, mixed_precision.get(dtype, tostring(layer))
  layer.weights = {} -- of this layer itself, in order of making
  layer.built = false
  layer.scoped = not layer.device and around ~= nil or nil -- its device is a scope's
  layer.device = layer.device or around
  if type(layer.device) == "string" then layer.device = core.device_info(layer.device).name end
  if layer.init then layer:init() end
  return layer
end

function Layer.computed.trainable(self) return self.is_trainable end

function Layer.computed.compute_dtype(self) return self.dtype_policy.compute_dtype end
function Layer.computed.variable_dtype(self) return self.dtype_policy.variable_dtype end
Layer.computed.dtype = Layer.computed.variable_dtype -- Keras's other name for it

--- The symbols of the layer's first use, where it is part of a functional model.
function Layer.computed.output(self)
  local node = rawget(self, "nodes") and self.nodes[1]
  if not node then self:fail("has no output: it has not been called with a symbolic tensor") end
  return node.several and node.outputs or node.outputs[1]
end

function Layer.computed.input(self)
  local node = rawget(self, "nodes") and self.nodes[1]
  if not node then self:fail("has no input: it has not been called with a symbolic tensor") end
  return node.listed and node.inputs or node.inputs[1]
end

-- ---- errors -------------------------------------------------------------------------------------

--- Raises `Conv2D "conv2d": message` at the user's line.
function Layer:fail(message, ...)
  core.fail("usage", ("%s %q: %s"):format(self.class_name, self.name, message:format(...)))
end

local function shape_text(shape)
  local parts = {}
  for i, size in ipairs(shape) do parts[i] = size == -1 and "None" or tostring(size) end
  return "{" .. table.concat(parts, ", ") .. "}"
end
Layer.shape_text = shape_text

--- For build: the input must have `rank` axes, the batch included.
function Layer:need_rank(shape, rank, meaning)
  if #shape ~= rank then
    self:fail("the input must have %d axes (%s), got shape %s", rank, meaning, shape_text(shape))
  end
end

-- ---- use ----------------------------------------------------------------------------------------

function Layer:build() end -- luacheck: no self

--- For an own layer that has none.
function Layer:call()
  self:fail("has no call: say what it computes, as in function %s:call(x, training)", self.class_name)
end

-- Of the call in progress: what calls of layers within it take on that do not say it. nil outside.
local training_now

--- Whether a layer's call is in progress.
function Layer.in_call() return training_now ~= nil end

-- layer:call(x, training).
local function run(self, x, training)
  if training == training_now then return mixed_precision.call(self, x, training) end
  local before = training_now
  training_now = training
  local ok, y = pcall(mixed_precision.call, self, x, training)
  training_now = before
  if not ok then error(y, 0) end
  return y
end

local CALL = options.declare { { "training", "boolean" } }

--- What the second argument of layer(x, how) says: true, false, or nil for nothing.
function Layer:stated_training(how)
  if how == nil or type(how) == "boolean" then return how end
  if type(how) ~= "table" or getmetatable(how) then
    self:fail("after the input come options such as {training = true}, got %s; several inputs are given as "
      .. "one array", type(how) == "table" and tostring(how) or "a " .. type(how))
  end
  return options.check(("%s %q"):format(self.class_name, self.name), CALL, how).training
end

-- The shape of what call makes of zeros of these sizes; nothing is computed.
local function shape_of_call(self, sizes)
  local function zeros(size) return core.ops.full(size, 0, self.compute_dtype) end
  local x
  if type(sizes[1]) == "table" then
    x = {}
    for i, size in ipairs(sizes) do x[i] = zeros(size) end
  else
    x = zeros(sizes)
  end
  local y = core.no_grad(function() return run(self, x, false) end)
  if type(y) == "userdata" then return y:shape() end
  if type(y) ~= "table" then self:fail("call returned a %s, not a tensor", type(y)) end
  local shapes = {}
  for i, t in ipairs(y) do shapes[i] = t:shape() end
  return shapes
end

-- The same with each unknown size taken as n.
local function with_unknown(shape, n)
  local sizes = {}
  for i, size in ipairs(shape) do
    sizes[i] = type(size) == "table" and with_unknown(size, n) or (size == -1 and n or size)
  end
  return sizes
end

-- Sizes that differ between the two are unknown.
local function merge(a, b)
  local out = {}
  for i, size in ipairs(a) do
    out[i] = type(size) == "table" and merge(size, b[i]) or (size == b[i] and size or -1)
  end
  return out
end

--- The output's shape for an input's (an array of shapes for an array of inputs), the batch and other
--- unknown sizes being -1. Asked of two lazy calls with different sizes in the unknown places, which
--- compute nothing; a layer to which these sizes mean something says its own rule.
function Layer:output_shape(shape)
  local losses = rawget(self, "call_losses")
  local a = shape_of_call(self, with_unknown(shape, 24))
  local out = merge(a, shape_of_call(self, with_unknown(shape, 36)))
  self.call_losses = losses
  return out
end

--- Builds once, for a shape (or array of shapes) whose batch is -1.
function Layer:ensure_built(shape)
  if self.built then return end
  self.built_shape = shape
  self:build(shape)
  self.built = true
  if not self.trainable then self.trainable = false end -- what build has made is frozen too
end

local function shape_with_batch(self, x)
  if type(x) ~= "userdata" then self:fail("expected a tensor, got %s", type(x)) end
  local shape = x:shape()
  if #shape == 0 then self:fail("expected a tensor with the batch as its first axis, got a number") end
  shape[1] = -1
  return shape
end

-- The shape of x, or the shapes of an array of tensors.
local function shapes_with_batch(self, x)
  if type(x) ~= "table" then return shape_with_batch(self, x) end
  local shapes = {}
  for i, t in ipairs(x) do shapes[i] = shape_with_batch(self, t) end
  return shapes
end

-- That the array of inputs holds all that stands in it.
local function check_array(self, x)
  local fault = core.array_fault(x)
  if fault then self:fail("the inputs: %s", fault) end
end

--- x as the layer takes it: a tensor, or an array of tensors; nested numbers become a tensor.
function Layer:tensors(x)
  if type(x) ~= "table" then return x end
  if type(x[1]) == "userdata" then
    check_array(self, x)
    local list = {}
    for i, item in ipairs(x) do list[i] = type(item) == "table" and core.tensor(item) or item end
    return list
  end
  return core.tensor(x)
end

-- As Keras: the penalty of the output is that of the average sample. Of halves it is a float32.
local function add_activity(self, y)
  for _, t in ipairs(type(y) == "table" and y or { y }) do
    if mixed_precision.is_half(t) then t = core.ops.cast(t, { dtype = "float32" }) end
    self:add_loss(self.activity_regularizer(t) / t:shape()[1])
  end
end

-- Where the layer computes: on its device, or with its weights, or (nil) where its input lies.
local function device_of(self)
  local own = rawget(self, "device")
  if type(own) == "string" then return own end
  if own and Layer.groups then return Layer.groups[own] end
  return self.weights[1] and self.weights[1]:device()
end

-- x, or each of its tensors, on the layer's device.
local function brought(self, x)
  local device = device_of(self)
  if type(x) ~= "table" then
    return device and x:device() ~= device and core.place(x, device) or x
  end
  local list = {}
  device = device or x[1]:device()
  for i, t in ipairs(x) do list[i] = t:device() ~= device and core.place(t, device) or t end
  return list
end

--- layer(x, {training =}) or layer(x, training): x is a tensor with the batch first, or an array of them,
--- or symbolic. Without `training` it is that of the call in which this one is made, or false.
function Layer:apply(x, how)
  local training = self:stated_training(how)
  if symbol.any(x) then
    if not symbol.is_symbol(x) then check_array(self, x) end
    return symbol.connect(self, x, training)
  end
  x = self:tensors(x)
  if type(x) ~= "userdata" and type(x) ~= "table" then
    self:fail("expected a tensor, got %s", type(x))
  end
  if not self.built then self:ensure_built(shapes_with_batch(self, x)) end
  if training == nil then training = training_now or false end
  local y = run(self, mixed_precision.inputs(self, brought(self, x)), training)
  if rawget(self, "activity_regularizer") then add_activity(self, y) end
  return y
end

--- The dtype of what the layer makes.
function Layer:output_dtype() return self.compute_dtype end

--- The declared options as they are now, name, trainable and the policy's name, ready for JSON.
function Layer:get_config()
  local config = { name = self.name, trainable = self.trainable, dtype = self.dtype_policy.name,
    device = not rawget(self, "scoped") and rawget(self, "device") or nil,
    stream_name = self.stream_name ~= self.name and self.stream_name or nil }
  for _, option in ipairs(self.own_declared) do
    local value = rawget(self, option[1])
    if type(value) == "function" then
      self:fail("option %q is a function, which cannot be saved: use a name", option[1])
    end
    if type(value) == "table" and value.get_config then value = value:get_config() end
    config[option[1]] = value
  end
  return config
end

return Layer
