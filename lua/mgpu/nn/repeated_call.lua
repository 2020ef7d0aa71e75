--- model(x) again: a call like earlier ones runs a plan, instead of calling all layers.
--
-- An inference call on tensors, outside of any other call, trace and gradient, gives the same each time but for the
-- values of x and of the variables. From the third call with tensors of the same shapes on, the model's call is
-- therefore a jitted function, which gives the same bits on the cpu. Its results keep what they were computed of, so
-- that a gradient taken later flows through them as through any tensor (runtime/core/recipe.h). Everything else calls
-- the layers, as does a model whose calls may depend on more than call_fields.lua compares; layers with loops
-- (mgpu.scan), random numbers or states; x without values.
local call_fields = require "mgpu.nn.call_fields"
local core = require "mgpu.core"
local layer_call = require "mgpu.nn.layer_call"
local masks = require "mgpu.nn.masks"

local M = {}

-- Plans of a model. A program whose shapes change more often gains little, and pays for making them.
local MOST_PLANS = 6
-- Kinds of calls that are counted.
local MOST_KEYS = 100

local in_call = layer_call.in_call

-- Whether the second argument of model(x, how) leaves it at training = false.
local function is_inference(how)
  if not how then return true end
  return type(how) == "table" and how.training == false and next(how) == "training" and next(how, "training") == nil
end

-- ---- making plans -------------------------------------------------------------------------------

-- What tells calls apart, as text; nil if x is something else than tensors.
local function key_of(x)
  local parts = { core.default_device() }
  if type(x) ~= "table" then
    x = { x }
  elseif #x < 2 or getmetatable(x) then
    return nil
  end
  for i, t in ipairs(x) do
    if not core.is_tensor(t) or t:device() ~= parts[1] then return nil end
    parts[i + 1] = t:dtype() .. table.concat(t:shape(), "x")
  end
  return #parts == #x + 1 and table.concat(parts, " ") or nil
end

-- The model's state here: {seen = calls of the layers by key, n_keys of them; due = by key, how many calls there must
-- be before a plan is tried; after = that number at first; fields, step = its jitted call, from the first plan on;
-- masked = whether results have masks}.
local function state_of(model)
  local own = rawget(model, "repeated_call")
  if not own then
    own = { seen = {}, n_keys = 0, due = {}, after = 2 }
    rawset(model, "repeated_call", own)
  end
  return own
end

local function forget_counts(own) own.seen, own.n_keys, own.due = {}, 0, {} end

local function forget_plans(own)
  forget_counts(own)
  own.step, own.fields, own.masked = nil, nil, nil
end

local function new_step(model, own)
  own.fields = call_fields.of(model)
  if not own.fields then return end
  own.step = core.jit(function(...)
    local y = model:apply(select("#", ...) == 1 and (...) or { ... }, false)
    own.masked = own.masked or masks.of(y) ~= nil
    return y
  end, { recorded = true })
end

-- Makes the plan for tensors like x. RETURNS whether it can be used.
local function prepare(model, own, x)
  if own.step and own.step:plans() == MOST_PLANS then
    forget_plans(own)
    own.after = own.after * 2
  end
  if own.masked then return false end
  if not own.step then new_step(model, own) end
  if not own.step then return false end
  local ok, usable = pcall(own.step.prepare, own.step, unpack(type(x) == "table" and x or { x }))
  if own.masked then own.step = nil end
  return ok and usable and not own.masked
end

-- Whether compile has said that the model runs on several devices, or without plans.
local function is_apart(model)
  local compiled = rawget(model, "compiled")
  return compiled and (compiled.devices or compiled.eager)
end

-- Notes a call that has succeeded. If no plan can be used, the next try comes after twice as many calls: the model may
-- have changed by then.
local function note(model, own, x)
  local key = key_of(x)
  if not key then return end
  if own.n_keys == MOST_KEYS then forget_counts(own) end
  if not own.seen[key] then own.n_keys = own.n_keys + 1 end
  local n = (own.seen[key] or 0) + 1
  own.seen[key] = n
  if n < (own.due[key] or own.after) then return end
  if not prepare(model, own, x) then own.due[key] = 2 * n end
end

--- note(model, x, how): model(x, how) has succeeded by calling the layers.
function M.note(model, x, how)
  if in_call() or not is_inference(how) or core.tracing() or core.recording() or masks.of(x) then return end
  if model.reads_values or is_apart(model) then return end
  note(model, state_of(model), x)
end

-- ---- using them ---------------------------------------------------------------------------------

--- run(model, x, how) -> what model(x, how) returns, by a plan; nil: the layers are to be called.
function M.run(model, x, how)
  local own = rawget(model, "repeated_call")
  local step = own and own.step
  if not step or how and not is_inference(how) or in_call() or is_apart(model) then return nil end
  if not call_fields.is_same(model, own.fields) then
    forget_plans(own)
    return nil
  end
  if masks.of(x) then return nil end
  if type(x) == "userdata" then return step:call_recorded(x) end
  if type(x) ~= "table" or #x < 2 or getmetatable(x) then return nil end
  return step:call_recorded(unpack(x))
end

return M
