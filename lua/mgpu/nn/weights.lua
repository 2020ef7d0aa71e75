--- The weights of a layer and of the layers inside it: making, finding, freezing, reading, writing. Methods of every
--- layer; layer.lua takes them over.
local blank_weights = require "mgpu.nn.blank_weights"
local core = require "mgpu.core"
local methods = require "mgpu.methods"

local M = {}

local regularizer_of = setmetatable({}, { __mode = "k" }) -- variable -> function(tensor)

-- ---- making -------------------------------------------------------------------------------------

-- The random stream of a path, a number below 2^31: its FNV-1a hash. The same path always has the same stream.
local function stream_of(path)
  local h = 2166136261
  for i = 1, #path do
    h = bit.bxor(h, path:byte(i))
    h = bit.tobit(h)
    -- h * 16777619 mod 2^32, in 16-bit halves, since the whole product is not exact in a double
    local low, high = bit.band(h, 0xffff), bit.rshift(h, 16)
    h = bit.tobit((low * 16777619 + bit.lshift(bit.band(high * 403, 0xffff), 16)) % 4294967296)
  end
  return h % 2147483648
end

--- layer:own_stream(seed) -> the random stream for numbers drawn in call, derived from the layer's name and the user's
--- seed (may be nil).
-- Example:
--     local Noise = mgpu.Layer:extend("Noise", { seed = "integer" })
--     function Noise:init() self.stream = self:own_stream(self.seed) end
--     function Noise:call(x, training)
--       return training and x + mgpu.random { shape = x:shape(), kind = "normal", stream = self.stream } or x
--     end
--     local a, b = Noise { seed = 1, name = "a" }, Noise { seed = 1, name = "b" } -- each draws other numbers
--     print((a(mgpu.zeros { 2 }, true) - b(mgpu.zeros { 2 }, true)):ne(0):any():item())  --> true
function M:own_stream(seed) return stream_of(self.stream_name .. (seed and ":" .. seed or "")) end

local function check_sizes(self, spec)
  if type(spec) ~= "table" or type(spec.shape) ~= "table" then
    self:fail("add_weight needs a table with name and shape")
  end
  for _, size in ipairs(spec.shape) do
    if type(size) ~= "number" or size < 0 then
      self:fail("the weight %q would have shape %s: the input's sizes must be known",
        spec.name or "?", self.shape_text(spec.shape))
    end
  end
end

--- layer:add_weight {name =, shape =, initializer = "glorot_uniform", trainable = true, regularizer =, constraint =,
--- dtype =, autocast = true, optional = false} -> the variable. For build. dtype: by default that of the layer's
--- policy. autocast = false: call reads the weight in its own dtype, whatever the layer computes in. optional: a file
--- may lack the weight, which then has its initial value. Errors: an unknown size; a jitted function around it.
-- Example:
--     local Scale = mgpu.Layer:extend "Scale"
--     function Scale:build(shape)
--       self.factor = self:add_weight { name = "factor", shape = { shape[#shape] }, initializer = "ones" }
--     end
--     function Scale:call(x) return x * self.factor end
--     print(Scale {} (mgpu.tensor { { 2, 3 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{2, 3}}
function M:add_weight(spec)
  check_sizes(self, spec)
  if core.tracing() then
    self:fail("has no weights yet and cannot make them inside mgpu.jit: give the model an Input, or "
      .. "call it once before")
  end
  local name = "/" .. (spec.name or "weight_" .. (#self.weights + 1))
  local initialize = require "mgpu.nn.initializers".get(spec.initializer or "glorot_uniform")
  local dtype = spec.dtype or self.variable_dtype
  local value = blank_weights.value(self, self.name .. name, spec.shape, dtype, spec.optional)
  if not value then
    value = initialize(spec.shape, dtype, stream_of(self.stream_name .. name))
    core.eval(value)
  end
  if type(rawget(self, "device")) == "string" then value = value:to(self.device) end
  local v = core.variable(value, { name = self.name .. name, trainable = spec.trainable ~= false,
    autocast = spec.autocast })
  if spec.constraint then require "mgpu.nn.constraints".set(v, spec.constraint) end
  if spec.regularizer then
    regularizer_of[v] = require "mgpu.nn.regularizers".get(spec.regularizer)
  end
  self.weights[#self.weights + 1] = v
  return v
end

-- ---- finding ------------------------------------------------------------------------------------

local function is_layer(value) return type(value) == "table" and value.add_weight ~= nil end

-- Fields whose layers and variables do not belong to the layer; container: the Sequential that holds it;
-- state_variables: of a stateful layer, which are no weights in Keras.
local NOT_CONTENTS = { weights = true, nodes = true, container = true, state_variables = true }

--- layer:each_content(fn): calls fn(item, field, whether it is in an array) for the layers and variables in its fields,
--- or in arrays in its fields, sorted by field name; of a class with `contents_in_order`, in the order of this array
--- of field names.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3, name = "first" } }
--     model.layers[1]:each_content(function(item, field) print(field, item.name) end)
--     --> bias first/bias
--     --> kernel first/kernel
function M:each_content(fn)
  local keys = {}
  for i, key in ipairs(self.contents_in_order or {}) do keys[i] = key end
  for key, value in pairs(self.contents_in_order and {} or self) do
    if not NOT_CONTENTS[key] and type(key) == "string" and value ~= self then
      keys[#keys + 1] = key
    end
  end
  if not self.contents_in_order then table.sort(keys) end
  for _, key in ipairs(keys) do
    local value = rawget(self, key)
    if is_layer(value) or core.is_variable(value) then
      fn(value, key, false)
    elseif type(value) == "table" and not getmetatable(value) then
      for _, item in ipairs(value) do
        if is_layer(item) or core.is_variable(item) then fn(item, key, true) end
      end
    end
  end
end

--- layer:contents() -> array of what each_content finds.
-- Example:
--     local dense = L.Dense { 3 }
--     dense:ensure_built { -1, 2 }
--     -- kernel and bias
--     print(#dense:contents())  --> 2
function M:contents()
  local found = {}
  self:each_content(function(item) found[#found + 1] = item end)
  return found
end

--- layer:each_layer(fn): calls fn(layer) for the layer and every layer inside it, each once.
-- Example:
--     local model = mgpu.Sequential { L.Flatten {}, L.Dense { 3 } }
--     model:each_layer(function(layer) print(layer) end)
--     --> Sequential "sequential"
--     --> Flatten "flatten"
--     --> Dense "dense"
function M:each_layer(fn, seen)
  seen = seen or {}
  if seen[self] then return end
  seen[self] = true
  fn(self)
  for _, item in ipairs(self:contents()) do
    if not core.is_variable(item) then item:each_layer(fn, seen) end
  end
end

--- layer:kept_states() -> array of the variables in which stateful layers keep states between batches. They are no
--- weights, and model files do not hold them, as in Keras.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 5, 2, batch_size = 1 }, L.LSTM { 3, stateful = true } }
--     print(#model:kept_states())  --> 2
function M:kept_states()
  local list = {}
  self:each_layer(function(layer)
    for _, v in ipairs(rawget(layer, "state_variables") or {}) do list[#list + 1] = v end
  end)
  return list
end

--- layer:collect({}, {}, true) -> {variable, trainable} for all variables of the layer and the layers inside it, each
--- once.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.BatchNormalization {} }
--     for _, entry in ipairs(model:collect({}, {}, true)) do print(entry[1].name, entry[2]) end
--     --> batch_normalization/gamma true
--     --> batch_normalization/beta true
--     --> batch_normalization/moving_mean false
--     --> batch_normalization/moving_variance false
function M:collect(list, seen, trainable)
  trainable = trainable and self.trainable ~= false
  local function take(v)
    if seen[v] then return end
    seen[v] = true
    list[#list + 1] = { v, trainable and v.trainable }
  end
  for _, v in ipairs(self.weights) do take(v) end
  for _, item in ipairs(self:contents()) do
    if core.is_variable(item) then take(item) else item:collect(list, seen, trainable) end
  end
  return list
end

local computed = {} -- fields whose value is computed when they are read
M.computed = computed

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

function computed.non_trainable_variables(self)
  local list = {}
  for _, entry in ipairs(self:collect({}, {}, true)) do
    if not entry[2] then list[#list + 1] = entry[1] end
  end
  return list
end

--- layer:set_trainable(value), the same as layer.trainable = value: freezes (false) the layer and the layers inside it.
-- As in Keras it reaches the inner layers themselves, since batch normalization behaves differently when frozen.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3 }, L.Dense { 1 } }
--     model.layers[1].trainable = false
--     print(#model.variables, #model.trainable_variables)  --> 4 2
function M:set_trainable(value)
  if type(value) ~= "boolean" then self:fail("trainable must be true or false, got %s", type(value)) end
  if value ~= self.is_trainable then core.turn_trainable(self) end -- invalidates traced steps
  self.is_trainable = value
  for _, item in ipairs(self:contents()) do
    if not core.is_variable(item) then item.trainable = value end
  end
end

-- ---- reading and writing ------------------------------------------------------------------------

--- layer:get_weights() -> array of tensors, the values of all variables in order.
-- Example:
--     local dense = L.Dense { 3 }
--     dense:ensure_built { -1, 2 }
--     local kernel, bias = unpack(dense:get_weights())
--     print(unpack(kernel:shape()))  --> 2 3
--     print(bias:sum():item())  --> 0
function M:get_weights()
  local values = {}
  for i, entry in ipairs(self:collect({}, {}, true)) do values[i] = entry[1]:value() end
  return values
end

--- layer:set_weights(array): assigns all variables, from tensors or nested numbers. Errors: another number of arrays,
--- or a shape that does not fit; then nothing has changed.
-- Example:
--     local dense = L.Dense { 1 }
--     dense:ensure_built { -1, 2 }
--     dense:set_weights { { { 10 }, { 1 } }, { 0.5 } } -- kernel {2, 1}, bias {1}
--     print(dense(mgpu.tensor { { 3, 4 } }):item())  --> 34.5
function M:set_weights(values)
  local list = self:collect({}, {}, true)
  if type(values) ~= "table" or #values ~= #list then
    self:fail("set_weights: %s given, the layer has %d weights",
      type(values) == "table" and #values .. " arrays" or "a " .. type(values), #list)
  end
  local fitted = {}
  for i, entry in ipairs(list) do
    local t = type(values[i]) == "userdata" and values[i] or core.tensor(values[i])
    local wanted, got = self.shape_text(entry[1]:shape()), self.shape_text(t:shape())
    if wanted ~= got then
      self:fail("set_weights: array %d has shape %s, %s needs %s", i, got, entry[1].name, wanted)
    end
    fitted[i] = t
  end
  for i, entry in ipairs(list) do entry[1]:assign(fitted[i]:to(entry[1]:device())) end
end

--- layer:count_params() -> the number of weights (elements), and how many of them are trainable.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 }, L.BatchNormalization {} }
--     -- half of the normalization's 4 * 3 are moving statistics
--     print(model:count_params())  --> 27 21
function M:count_params()
  local total, trainable = 0, 0
  for _, entry in ipairs(self:collect({}, {}, true)) do
    local n = entry[1]:count()
    total = total + n
    if entry[2] then trainable = trainable + n end
  end
  return total, trainable
end

-- ---- losses -------------------------------------------------------------------------------------

--- layer:add_loss(scalar): called in `call`, adds the scalar tensor to the model's loss for that call.
-- Example:
--     local Penalty = mgpu.Layer:extend("Penalty", { weight = 0.1 })
--     function Penalty:call(x)
--       self:add_loss(x:square():sum() * self.weight)
--       return x
--     end
--     local layer = Penalty { weight = 0.5 }
--     layer(mgpu.tensor { { 1, 3 } })
--     print(layer:losses()[1]:item())  --> 5
function M:add_loss(value)
  self.call_losses = rawget(self, "call_losses") or {}
  table.insert(self.call_losses, value)
end

--- layer:forget_losses(): drops what add_loss added in earlier calls.
-- Example:
--     local dense = L.Dense { 1, activity_regularizer = "l2" }
--     dense(mgpu.ones { 1, 2 })
--     print(#dense:losses())  --> 1
--     dense:forget_losses()
--     print(#dense:losses())  --> 0
function M:forget_losses()
  self:each_layer(function(layer)
    if rawget(layer, "call_losses") then layer.call_losses = nil end
  end)
end

--- layer:losses() -> array of scalars to add to the loss: the penalties of the regularizers of trainable weights, then
--- what layers added in the last call (activity regularizers, add_loss).
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 },
--       L.Dense { 1, kernel_initializer = "ones", kernel_regularizer = mgpu.regularizers.L1 { 0.5 } } }
--     print(#model:losses(), model:losses()[1]:item())  --> 1 1
function M:losses()
  local all = {}
  for _, entry in ipairs(self:collect({}, {}, true)) do
    local regularizer = entry[2] and regularizer_of[entry[1]]
    if regularizer then all[#all + 1] = regularizer(entry[1]:value()) end
  end
  self:each_layer(function(layer)
    for _, loss in ipairs(rawget(layer, "call_losses") or {}) do all[#all + 1] = loss end
  end)
  return all
end

-- ---- misuse that Lua would not explain ----------------------------------------------------------------

methods.want_colons(M, "layer", "add_weight",
  { "add_weight", "add_loss", "get_weights", "set_weights", "count_params", "losses" })

return M
