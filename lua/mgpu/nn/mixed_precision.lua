--- mgpu.mixed_precision: the dtype that layers compute in, and the dtype of their weights.
--
--     mgpu.set_policy "mixed_bfloat16"       -- for the layers and models made from here on
--     L.Dense { 10, dtype = "float32" }      -- for one layer
--     model:compile { precision = "mixed_float16", ... }  -- for the layers that do not state one
-- "int8_from_float32" and the like, as in Keras, say that weights are stored with 8 or 4 bits (nn/quantized/), and
-- "float16_from_float32" or "bfloat16_from_float32" that they are stored as halves, but computed with in float32.
-- A policy is "mixed_bfloat16" or "mixed_float16" (computes in that dtype, weights in float32) or the name of a dtype
-- for both. At a layer's call, floating inputs and weights are cast to its compute dtype; losses, metrics, optimizers
-- and the statistics of normalization stay in float32. Without a policy it is the floatx of the moment.
local core = require "mgpu.core"

local M = {}

local MIXED = { mixed_float16 = "float16", mixed_bfloat16 = "bfloat16" }
local NAMES = { "mixed_float16", "mixed_bfloat16", "float32", "float64", "float16", "bfloat16" }

local Policy = { class_name = "DTypePolicy" }
Policy.__index = Policy
Policy.__tostring = function(self) return "policy " .. require "mgpu.quoted"(self.name) end

--- policy:get_config() -> {name =}, which JSON can hold, as Keras writes it.
function Policy:get_config() return { name = self.name } end

local known = {} -- the policies made so far, by name
local current -- the policy of set_policy; nil: the one named by floatx

local function is_policy(value) return getmetatable(value) == Policy end

-- Modes of Keras's training with 8-bit floats, and of methods whose files need their own decoding.
local REFUSED = { float8 = "training with 8-bit floats", gptq = "weights made by GPTQ", awq = "weights made by AWQ" }

-- What a mode says about weights: {bits =, block =, static =, activations =}, or nil. "int8", with the largest
-- magnitude of each row of the input; "int8/static", with a range of the input; "int4/128" in blocks of rows,
-- "int4" without; "/weights": the input stays as it is (the default for 4 bits), "/activations": it is rounded, too.
local function quantization_of(mode)
  local base, rest = mode:match "^(int[48])(.*)$"
  if not base then return nil end
  local q = { bits = base == "int8" and 8 or 4, activations = base == "int8" }
  for part in rest:gmatch "/([^/]*)" do
    local block = q.bits == 4 and part:match "^%-?%d+$"
    if block then
      q.block = tonumber(block) > 0 and tonumber(block) or nil
      if not q.block and block ~= "-1" then return nil end
    elseif part == "static" and q.bits == 8 then
      q.static = true
    elseif part == "weights" or part == "activations" then
      q.activations = part == "activations"
    else
      return nil
    end
  end
  return (rest == "" or rest:sub(1, 1) == "/") and q or nil
end

-- The policy "MODE_from_SOURCE" for weights that are stored in another way than the policy SOURCE says; nil for another
-- name.
local function stored_policy(name, who, from_name)
  local mode, source = name:match "^(.-)_from_(.+)$"
  if not mode then return nil end
  local refused = REFUSED[mode:match "^%a+%d*"]
  if refused then
    core.fail("unsupported", ("%sthe policy %q, %s, is not supported: save the model before it is quantized"):format(
      who and who .. ": " or "", name, refused))
  end
  local q, half = quantization_of(mode), mode == "float16" or mode == "bfloat16"
  if not q and not half then return nil end
  local base = from_name(source, who, true)
  if base.quantization or not base.floating then return nil end
  return setmetatable({ name = mode .. "_from_" .. base.name, compute_dtype = base.compute_dtype, floating = true,
    variable_dtype = half and mode or base.variable_dtype, quantization = q, source = base.name, mode = mode }, Policy)
end

local stored_as -- while a model is loaded whose float32 weights become halves: their dtype

local from_name
function from_name(name, who, plain)
  if stored_as and name == "float32" and not plain then name = stored_as .. "_from_float32" end
  if known[name] then return known[name] end
  local stored = stored_policy(name, who, from_name)
  if stored then
    known[name] = stored
    return stored
  end
  local dtype = not MIXED[name] and core.dtype_name(name)
  if not MIXED[name] and not dtype then
    core.fail("usage", ("%sunknown policy %q%s: it is mixed_float16, mixed_bfloat16 or the name of a dtype "
      .. "such as float32"):format(who and who .. ": " or "", name, core.did_you_mean(name, NAMES)))
  end
  name = dtype or name
  if not known[name] then
    local compute = dtype or MIXED[name]
    known[name] = setmetatable({ name = name, compute_dtype = compute, variable_dtype = dtype or "float32",
      floating = compute:find "float" ~= nil }, Policy)
  end
  return known[name]
end

--- storing(dtype, fn, ...) -> the first two results of fn(...), during which the policy "float32" means that weights
--- are stored in this dtype (nil: in float32).
-- Example:
--     local dense = mgpu.mixed_precision.storing("float16", function() return L.Dense { 3 } end)
--     print(dense.dtype_policy, dense.variable_dtype)  --> policy "float16_from_float32" float16
function M.storing(dtype, fn, ...)
  if not dtype then return fn(...) end
  stored_as = dtype
  local results = { pcall(fn, ...) }
  stored_as = nil
  if not results[1] then error(results[2], 0) end
  return results[2], results[3]
end

--- The policy of an Input of texts, which are data, not tensors.
M.TEXT = setmetatable({ name = "string", compute_dtype = "string", variable_dtype = "string", floating = false },
  Policy)

--- get(value, who) -> a policy; value: a policy, a name, a saved configuration, or nil for the present policy. `who`
--- begins the message for an unknown name.
-- Example:
--     print(mgpu.mixed_precision.get "float16", mgpu.mixed_precision.get())  --> policy "float16" policy "float32"
function M.get(value, who)
  if value == nil then value = current or core.floatx() end
  if stored_as and is_policy(value) and value.name == "float32" then value = "float32" end
  if is_policy(value) then return value end
  if type(value) == "table" then
    local config = type(value.config) == "table" and value.config or value
    value = config.name or config[1]
    if is_policy(value) then return value end
  end
  if type(value) ~= "string" then
    core.fail("usage", ("%sa policy is a name such as \"mixed_bfloat16\", or made by "
      .. "mgpu.mixed_precision.Policy, got %s"):format(who and who .. ": " or "", type(value)))
  end
  return from_name(value, who)
end

--- Policy "mixed_bfloat16" -> {name, compute_dtype, variable_dtype}
-- Example:
--     local policy = mgpu.mixed_precision.Policy "mixed_bfloat16"
--     print(policy.compute_dtype, policy.variable_dtype)  --> bfloat16 float32
--     print(L.Dense { 3, dtype = policy }.compute_dtype)  --> bfloat16
function M.Policy(given)
  if given == nil then core.fail("usage", "Policy: the name is missing") end
  return M.get(given, "Policy")
end
M.DTypePolicy = M.Policy

--- set_policy(policy): the policy of layers and models made from here on. Also set_dtype_policy, set_global_policy.
-- Errors: an unknown name; an integer dtype.
-- Example:
--     mgpu.set_policy "mixed_bfloat16"
--     local dense = L.Dense { 3 }
--     print(dense(mgpu.ones { 1, 2 }):dtype(), dense.kernel:dtype())  --> bfloat16 float32
--     mgpu.set_policy "float32"
function M.set_policy(value)
  if value == nil then core.fail("usage", "set_policy: the policy is missing") end
  local policy = M.get(value, "set_policy")
  if not policy.floating then
    core.fail("usage", ("set_policy: %s is not a floating point dtype"):format(policy.name))
  end
  current = policy
end
M.set_dtype_policy, M.set_global_policy = M.set_policy, M.set_policy

--- policy() -> the present policy. Also dtype_policy, global_policy.
-- Example:
--     print(mgpu.policy(), mgpu.policy().compute_dtype)  --> policy "float32" float32
function M.policy() return M.get() end
M.dtype_policy, M.global_policy = M.policy, M.policy

--- with_policy(policy, fn) -> what fn() returns, run with that policy, or the one of that name, as the present one.
-- Errors: an unknown name; fn's errors.
-- Example:
--     local function make() return mgpu.layers.Dense(4) end
--     local layer = mgpu.mixed_precision.with_policy("mixed_bfloat16", make)
--     print(layer(mgpu.zeros { 1, 8 }):dtype(), mgpu.policy().name)  --> bfloat16 float32
function M.with_policy(policy, fn)
  local before = current
  current = M.get(policy, "with_policy")
  local ok, result = pcall(fn)
  current = before
  if not ok then error(result, 0) end
  return result
end

--- is_half(t): whether the tensor is float16 or bfloat16.
-- Example:
--     print(mgpu.mixed_precision.is_half(mgpu.ones { 2 }))  --> false
--     print(mgpu.mixed_precision.is_half(mgpu.ones({ 2 }, { dtype = "float16" })))  --> true
function M.is_half(t)
  local dtype = t:dtype()
  return dtype == "float16" or dtype == "bfloat16"
end

-- ---- at a layer's call --------------------------------------------------------------------------

local reading -- the dtype that variables are read as at present; nil: their own

local function read_as(dtype)
  reading = dtype
  core.autocast(dtype)
end

-- x as `dtype`, if it is floating.
local function cast(x, dtype)
  local own = x:dtype()
  if own == dtype or not own:find("float", 1, true) then return x end
  return core.ops.cast(x, { dtype = dtype })
end

--- inputs(layer, x) -> x, a tensor or an array of them, with floating tensors cast to the layer's compute dtype.
-- Example:
--     local dense = L.Dense { 3, dtype = "mixed_float16" }
--     print(mgpu.mixed_precision.inputs(dense, mgpu.ones { 1, 2 }):dtype())  --> float16
function M.inputs(layer, x)
  local dtype = layer.dtype_policy.compute_dtype
  if not layer.autocast or not layer.dtype_policy.floating then return x end
  if type(x) ~= "table" then return cast(x, dtype) end
  local list = {}
  for i, t in ipairs(x) do list[i] = cast(t, dtype) end
  return list
end

--- call(layer, x, training, options) -> layer:call(x, training, options), with variables read in the layer's compute
-- dtype.
-- Example:
--     local dense = L.Dense { 3, dtype = "mixed_float16" }
--     dense:ensure_built { -1, 2 }
--     print(mgpu.mixed_precision.call(dense, mgpu.ones({ 1, 2 }, { dtype = "float16" })):dtype())  --> float16
function M.call(layer, x, training, options)
  local policy, wanted = layer.dtype_policy, nil
  if layer.autocast and policy.floating and (reading or policy.compute_dtype ~= policy.variable_dtype) then
    wanted = policy.compute_dtype
  end
  if wanted == reading then return layer:call(x, training, options) end
  local before = reading
  read_as(wanted)
  local ok, y = pcall(layer.call, layer, x, training, options)
  read_as(before)
  if not ok then error(y, 0) end
  return y
end

-- ---- of a model ---------------------------------------------------------------------------------

local function check_weights(layer, policy, who)
  for _, v in ipairs(layer.weights) do
    local dtype = v:dtype()
    if dtype:find "float" and dtype ~= policy.variable_dtype then
      core.fail("usage", ("%s: precision = %q wants %s weights, but the weights of %s are %s: make the "
        .. "model after mgpu.set_policy %q"):format(who, policy.name, policy.variable_dtype, tostring(layer), dtype,
        policy.name))
    end
  end
end

--- apply(model, value, who = "compile"): gives the policy to the model and to the layers that do not state a dtype.
--- Errors, which begin with `who`: weights of another dtype than the policy's.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1 } }
--     mgpu.mixed_precision.apply(model, "mixed_bfloat16")
--     print(model(mgpu.ones { 1, 2 }):dtype())  --> bfloat16
function M.apply(model, value, who)
  who = who or "compile"
  local policy, layers = M.get(value, who .. ": precision"), {}
  model:each_layer(function(layer)
    if layer.states_policy or layer.is_input then return end
    check_weights(layer, policy, who)
    layers[#layers + 1] = layer
  end)
  for _, layer in ipairs(layers) do layer.dtype_policy = policy end
end

--- computes_in(model, dtype): whether any layer of the model computes in the dtype.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3, dtype = "mixed_float16" }, L.Dense { 1 } }
--     print(mgpu.mixed_precision.computes_in(model, "float16"), mgpu.mixed_precision.computes_in(model, "float64"))
--     --> true false
function M.computes_in(model, dtype)
  local any = false
  model:each_layer(function(layer)
    any = any or (layer.dtype_policy.compute_dtype == dtype and not layer.is_network)
  end)
  return any
end

return setmetatable(M, { __index = function(_, key)
  if key == "LossScaleOptimizer" then return require "mgpu.nn.optimizers".LossScaleOptimizer end
end })
