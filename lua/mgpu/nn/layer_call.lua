--- Using a layer: building it at the first call, checking and moving its input, running `call`, inferring shapes.
-- These are methods of every layer; layer.lua takes them over.
local call_arguments = require "mgpu.nn.call_arguments"
local core = require "mgpu.core"
local device_scope = require "mgpu.nn.device_scope"
local masks = require "mgpu.nn.masks"
local mixed_precision = require "mgpu.nn.mixed_precision"
local symbolic_tensor = require "mgpu.nn.symbolic_tensor"

local M = {}

-- The `training` of the call in progress, which calls of inner layers inherit; nil outside of calls.
local training_now

--- in_call(): whether a layer's call is in progress.
-- Example:
--     local Ask = mgpu.Layer:extend "Ask"
--     function Ask:call(x)
--       print(self.in_call())
--       return x
--     end
--     Ask {} (mgpu.ones { 1 })
--     --> true
--     print(mgpu.Layer.in_call())  --> false
function M.in_call() return training_now ~= nil end

-- layer:call(x, training, options) under the layer's dtype policy. Its ops bear the layer's name in profiles. The
-- outermost call, for which `training` differs, restores the name after an error, too.
local function run_call(self, x, training, options)
  local outer, before = core.set_layer(self.name), training_now
  if training == before then
    local y = mixed_precision.call(self, x, training, options)
    core.set_layer(outer)
    return y
  end
  training_now = training
  local ok, y = pcall(mixed_precision.call, self, x, training, options)
  training_now = before
  core.set_layer(outer)
  if not ok then error(y, 0) end
  return y
end

local function is_tensor(y) return core.is_tensor(y) or core.is_variable(y) end

local function refuse_output(self, what)
  self:fail("call returned %s; it must return a tensor or an array of tensors", what)
end

-- Only a model, which must know all outputs in order, refuses a table of named tensors: check_array_of_tensors.
local function check_output(self, y)
  if is_tensor(y) or type(y) == "table" then return end
  refuse_output(self, y == nil and "nil" or "a " .. type(y))
end

local function check_array_of_tensors(self, y)
  for i, t in ipairs(y) do
    if not is_tensor(t) then refuse_output(self, ("an array whose entry %d is a %s"):format(i, type(t))) end
  end
  if y[1] == nil then refuse_output(self, "a table without tensors") end
end

--- layer:stated_training(how) -> true, false, or nil if the second argument of layer(x, how) does not say.
-- Example:
--     local layer = L.Dropout { 0.5 }
--     print(layer:stated_training { training = true }, layer:stated_training(false), layer:stated_training())
--     --> true false nil
function M:stated_training(how)
  local _, training = call_arguments.read(self, nil, how)
  return training
end

-- ---- shapes -------------------------------------------------------------------------------------

-- The shape of what call returns for zeros of these sizes. The call is lazy: nothing is computed.
local function shape_of_call(self, sizes, options)
  local function zeros(size) return core.ops.full(size, 0, self.compute_dtype) end
  local x
  if type(sizes[1]) == "table" then
    x = {}
    for i, size in ipairs(sizes) do x[i] = zeros(size) end
  else
    x = zeros(sizes)
  end
  local y = core.no_grad(function() return run_call(self, x, false, options) end)
  check_output(self, y)
  if is_tensor(y) then return y:shape() end
  check_array_of_tensors(self, y)
  local shapes = {}
  for i, t in ipairs(y) do shapes[i] = t:shape() end
  return shapes
end

-- The shape, or array of shapes, with n for each unknown size.
local function with_unknown(shape, n)
  local sizes = {}
  for i, size in ipairs(shape) do
    sizes[i] = type(size) == "table" and with_unknown(size, n) or (size == -1 and n or size)
  end
  return sizes
end

-- The shape with -1 where a and b differ.
local function common_shape(a, b)
  local out = {}
  for i, size in ipairs(a) do
    out[i] = type(size) == "table" and common_shape(size, b[i]) or (size == b[i] and size or -1)
  end
  return out
end

--- layer:output_shape(shape, dtypes, options) -> the output's shape for an input's; arrays of shapes for several
--- inputs or outputs.
--- Unknown sizes, such as the batch, are -1. This default calls the layer lazily with two different sizes in the
--- unknown places; a class for which these sizes matter overrides it. options: of the call (call_arguments.lua).
-- Example:
--     print(unpack(L.Conv2D { 8, 3 }:output_shape { -1, 28, 28, 1 }))  --> -1 26 26 8
function M:output_shape(shape, _, options)
  local losses = rawget(self, "call_losses")
  local a = shape_of_call(self, with_unknown(shape, 24), options)
  local out = common_shape(a, shape_of_call(self, with_unknown(shape, 36), options))
  self.call_losses = losses
  return out
end

--- layer:output_dtype() -> the dtype of the output.
-- Example:
--     print(L.Dense { 1 }:output_dtype(), L.Dense { 1, dtype = "mixed_float16" }:output_dtype())
--     --> float32 float16
function M:output_dtype() return self.compute_dtype end

local function shape_with_batch(self, x)
  if type(x) ~= "userdata" then self:fail("expected a tensor, got %s", type(x)) end
  local shape = x:shape()
  if #shape == 0 then self:fail("expected a tensor with the batch as its first axis, got a number") end
  shape[1] = -1
  return shape
end

-- The shape of x, or the shapes of an array of tensors, with -1 for the batch.
local function shapes_with_batch(self, x)
  if type(x) ~= "table" then return shape_with_batch(self, x) end
  local shapes = {}
  for i, t in ipairs(x) do shapes[i] = shape_with_batch(self, t) end
  return shapes
end

--- layer:ensure_built(shape, options): calls build if it has not been called yet; the batch is -1. options: of the
--- call (call_arguments.lua).
-- Example:
--     local dense = L.Dense { 3 }
--     dense:ensure_built { 32, 2 }
--     print(dense.built, unpack(dense.kernel:shape()))  --> true 2 3
function M:ensure_built(shape, options)
  if self.built then return end
  self:build(shape, options)
  self.built, self.built_shape = true, shape -- also if the class has no `build`
end

-- ---- the call -----------------------------------------------------------------------------------

local function check_array(self, x)
  local fault = core.array_fault(x)
  if fault then self:fail("the inputs: %s", fault) end
end

--- layer:tensors(x) -> x as a tensor or an array of tensors; nested numbers become a tensor.
-- Example:
--     print(L.Flatten {}:tensors { { 1, 2 }, { 3, 4 } })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 2},
--     -->  {3, 4}}
function M:tensors(x)
  if type(x) ~= "table" then return x end
  if type(x[1]) == "userdata" then
    check_array(self, x)
    local list = {}
    for i, item in ipairs(x) do list[i] = type(item) == "table" and core.tensor(item) or item end
    return list
  end
  return core.tensor(x)
end

-- Adds the activity regularizer's penalty. As in Keras it is the penalty of the average sample; for float16 and
-- bfloat16 it is computed in float32.
local function add_activity_loss(self, y)
  for _, t in ipairs(type(y) == "table" and y or { y }) do
    if mixed_precision.is_half(t) then t = core.ops.cast(t, { dtype = "float32" }) end
    self:add_loss(self.activity_regularizer(t) / t:shape()[1])
  end
end

-- x, or each tensor of the array x, on the layer's device. An array comes to one device in any case.
local function on_device(self, x)
  local device = device_scope.device_of(self)
  if type(x) ~= "table" then
    return device and x:device() ~= device and core.place(x, device) or x
  end
  local list = {}
  device = device or x[1]:device()
  for i, t in ipairs(x) do list[i] = t:device() ~= device and core.place(t, device) or t end
  return list
end

--- layer:compute_mask(x, mask) -> the mask of the output, or an array of masks for an array of outputs, or nil; mask:
--- of x, or an array of them, or nil. Override it to make or change masks; this default passes the mask on if the
--- class has supports_masking = true.
-- Example:
--     local x, mask = mgpu.ones { 1, 2, 1 }, mgpu.tensor { { true, false } } -- the second step does not count
--     print(L.Dropout { 0.5 }:compute_mask(x, mask) == mask)  --> true
--     -- its output has no steps
--     print(L.Flatten {}:compute_mask(x, mask))  --> nil
function M:compute_mask(_, mask) return self.supports_masking and type(mask) ~= "table" and mask or nil end

-- Gives y, the output for x, its mask. A network's output has the mask of its last layer.
local function mask_output(self, x, mask, y, options)
  if self.is_network then return end
  local out = self:compute_mask(x, mask, options)
  if type(y) ~= "table" then
    if out then masks.set(y, out) end
    return
  end
  for i, t in ipairs(type(out) == "table" and y or {}) do
    if out[i] then masks.set(t, out[i]) end
  end
end

-- Raises for an array given to a layer that was built for one tensor, and the other way round. Layers without weights
-- and shapes to check, such as Lambda, take what their function takes.
local function check_number_of_inputs(self, x)
  local shape, listed = rawget(self, "built_shape"), type(x) == "table" and not symbolic_tensor.is_symbol(x)
  if not shape or self.is_network or not self.has_build or type(shape[1]) == "table" == listed then return end
  if self.takes_states then return end
  self:fail(listed and "takes one tensor, got an array of %d" or "takes an array of inputs, got one tensor",
    listed and #x or nil)
end

--- layer:apply(x, how), the same as layer(x, how) -> the output.
--
-- x: a tensor with the batch first, an array of tensors, or symbolic tensors. how: {training = true} or true. If it
-- does not say, an inner layer's call inherits `training` from the outer call; the default is false.
-- Errors: x that is not a tensor; a call that returns neither a tensor nor a table; whatever build and call raise.
-- Example:
--     local drop = L.Dropout { 0.5 }
--     print(drop:apply(mgpu.ones { 1, 4 }))
--     --> tensor {1, 4} float32 cpu:0
--     --> {{1, 1, 1, 1}}
--     -- the ones that stay are doubled
--     print(drop(mgpu.ones { 1, 100 }, { training = true }):max():item())  --> 2
function M:apply(x, how)
  local training, options
  x, training, options = call_arguments.read(self, x, how)
  if symbolic_tensor.any(x) then
    if not symbolic_tensor.is_symbol(x) then check_array(self, x) end
    check_number_of_inputs(self, x)
    return symbolic_tensor.connect(self, x, training, options)
  end
  x = self:tensors(x)
  if not core.is_tensor(x) and not core.is_variable(x) and type(x) ~= "table" then
    self:fail("expected a tensor, got %s", type(x))
  end
  check_number_of_inputs(self, x)
  if not self.built then self:ensure_built(shapes_with_batch(self, x), options) end
  if training == nil then training = training_now or false end
  local mask = masks.of(x)
  x = on_device(self, x)
  if mask then mask = masks.beside(mask, x) end
  local y = masks.with(mask, run_call, self, mixed_precision.inputs(self, x), training, options)
  check_output(self, y)
  mask_output(self, x, mask, y, options)
  if rawget(self, "activity_regularizer") then add_activity_loss(self, y) end
  return y
end

return M
