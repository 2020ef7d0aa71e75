--- The base of all layers.
--
-- A layer is made with options, gets its weights in `build(shape)` at the first use, and computes in
-- `call(x, training)`. Own layers extend it:
--     local Scale = mgpu.Layer:extend("Scale", { units = "integer", activation = "linear" })
--     function Scale:build(shape) self.w = self:add_weight { name = "w", shape = { shape[#shape] } } end
--     function Scale:call(x) return x * self.w end
-- Declared options become fields of self. Shapes include the batch, whose size is -1 in build.
local core = require "mgpu.core"
local options = require "mgpu.options"

local Layer = { class_name = "Layer", declared = options.declare {} }

-- What every layer accepts besides its own.
local SHARED = {
  { "name", "string" },
  { "trainable", "boolean", default = true },
  { "dtype", "string" },
  { "input_shape", "shape" },
}

-- ---- names --------------------------------------------------------------------------------------

local counts = {} -- names given so far; mgpu.reset_names() starts again

local function snake(name)
  return (name:gsub("(%l)(%u)", "%1_%2"):gsub("(%u)(%u%l)", "%1_%2"):lower()
    :gsub("conv2_d", "conv2d"):gsub("pooling2_d", "pooling2d"))
end

--- "conv2d", "conv2d_1", ... as Keras numbers them.
function Layer.unique_name(class_name)
  local base = snake(class_name)
  local n = counts[base]
  counts[base] = (n or 0) + 1
  return n and ("%s_%d"):format(base, n) or base
end

function Layer.reset_names() counts = {} end

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
  local meta = {
    __index = class,
    __call = function(layer, x, how) return layer:apply(x, how) end,
    __tostring = function(layer) return ("%s %q"):format(class_name, layer.name) end,
  }
  function class.new(given)
    local chosen = options.check(class_name, class.declared, given == nil and {} or given)
    local layer = setmetatable(chosen, meta)
    layer.name = layer.name or Layer.unique_name(class_name)
    layer.weights = {} -- of this layer itself, in order of making
    layer.built = false
    if layer.init then layer:init() end
    return layer
  end
  return class
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

-- ---- weights ------------------------------------------------------------------------------------

local function stream_of(path) -- FNV-1a: the same path, the same random stream
  local h = 2166136261
  for i = 1, #path do
    h = bit.bxor(h, path:byte(i))
    h = bit.tobit(h)
    -- h * 16777619 mod 2^32, in halves that stay exact in doubles
    local low, high = bit.band(h, 0xffff), bit.rshift(h, 16)
    h = bit.tobit((low * 16777619 + bit.lshift(bit.band(high * 403, 0xffff), 16)) % 4294967296)
  end
  return h % 2147483648
end
Layer.stream_of = stream_of

--- add_weight { name =, shape =, initializer =, trainable =, regularizer =, dtype = } -> variable
function Layer:add_weight(spec)
  if type(spec) ~= "table" or type(spec.shape) ~= "table" then
    self:fail("add_weight needs a table with name and shape")
  end
  for _, size in ipairs(spec.shape) do
    if type(size) ~= "number" or size < 0 then
      self:fail("the weight %q would have shape %s: the input's sizes must be known",
        spec.name or "?", shape_text(spec.shape))
    end
  end
  if core.tracing() then
    self:fail("has no weights yet and cannot make them inside mgpu.jit: give the model an Input, or "
      .. "call it once before")
  end
  local path = self.name .. "/" .. (spec.name or "weight_" .. (#self.weights + 1))
  local initialize = require "mgpu.initializers.initializer".get(spec.initializer or "glorot_uniform")
  local value = initialize(spec.shape, spec.dtype or self.dtype or core.floatx(), stream_of(path))
  core.eval(value)
  local v = core.variable(value, { name = path, trainable = spec.trainable ~= false })
  self.weights[#self.weights + 1] = v
  return v
end

local function is_layer(value) return type(value) == "table" and value.add_weight ~= nil end

-- Layers and variables in fields, or in arrays in fields, by the fields' names.
local function contents(self)
  local keys, found = {}, {}
  for key, value in pairs(self) do
    if key ~= "weights" and type(key) == "string" and value ~= self then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = rawget(self, key)
    if is_layer(value) or core.is_variable(value) then
      found[#found + 1] = value
    elseif type(value) == "table" and not getmetatable(value) then
      for _, item in ipairs(value) do
        if is_layer(item) or core.is_variable(item) then found[#found + 1] = item end
      end
    end
  end
  return found
end

--- All variables of the layer and of what lies in it, each once: { variable, trainable }.
function Layer:collect(list, seen, trainable)
  trainable = trainable and self.trainable ~= false
  local function take(v)
    if seen[v] then return end
    seen[v] = true
    list[#list + 1] = { v, trainable and v.trainable }
  end
  for _, v in ipairs(self.weights) do take(v) end
  for _, item in ipairs(contents(self)) do
    if core.is_variable(item) then take(item) else item:collect(list, seen, trainable) end
  end
  return list
end

--- get_weights() -> array of tensors; set_weights(array) checks every shape before it changes one.
function Layer:get_weights()
  local values = {}
  for i, entry in ipairs(self:collect({}, {}, true)) do values[i] = entry[1]:value() end
  return values
end

function Layer:set_weights(values)
  local list = self:collect({}, {}, true)
  if #values ~= #list then
    self:fail("set_weights: %d arrays given, the layer has %d weights", #values, #list)
  end
  local fitted = {}
  for i, entry in ipairs(list) do
    local t = type(values[i]) == "table" and core.tensor(values[i]) or values[i]
    local wanted, got = shape_text(entry[1]:shape()), shape_text(t:shape())
    if wanted ~= got then
      self:fail("set_weights: array %d has shape %s, %s needs %s", i, got, entry[1].name, wanted)
    end
    fitted[i] = t
  end
  for i, entry in ipairs(list) do entry[1]:assign(fitted[i]) end
end

--- Numbers in the layer's weights: all of them, and the trainable ones.
function Layer:count_params()
  local total, trainable = 0, 0
  for _, entry in ipairs(self:collect({}, {}, true)) do
    local n = entry[1]:count()
    total = total + n
    if entry[2] then trainable = trainable + n end
  end
  return total, trainable
end

-- ---- use ----------------------------------------------------------------------------------------

function Layer:build() end -- luacheck: no self

--- The output's shape for an input's, both with the batch (-1). Asked of a lazy call, which computes
--- nothing; layers that know a rule say it, so that it holds for unknown sizes too.
function Layer:output_shape(shape)
  local sizes = { 1, unpack(shape, 2) }
  for i = 2, #sizes do
    if sizes[i] == -1 then return shape end
  end
  local out = core.no_grad(function()
    return self:call(core.ops.full(sizes, 0, self.dtype or core.floatx()), false):shape()
  end)
  out[1] = shape[1]
  return out
end

--- Builds once, for a shape whose batch is -1.
function Layer:ensure_built(shape)
  if self.built then return end
  self.built_shape = shape
  self:build(shape)
  self.built = true
end

--- layer(x, {training =}): x is a tensor with the batch first.
function Layer:apply(x, how)
  if type(x) == "table" then x = core.tensor(x) end
  if type(x) ~= "userdata" then self:fail("expected a tensor, got %s", type(x)) end
  local shape = x:shape()
  if #shape == 0 then self:fail("expected a tensor with the batch as its first axis, got a number") end
  shape[1] = -1
  self:ensure_built(shape)
  return self:call(x, how and how.training or false)
end

--- The declared options as they are now, name and trainable, ready for JSON.
function Layer:get_config()
  local config = { name = self.name, trainable = self.trainable, dtype = self.dtype }
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
