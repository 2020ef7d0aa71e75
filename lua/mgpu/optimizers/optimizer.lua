-- What every optimizer is: a rule that turns gradients into changes of variables.
--
--     local opt = mgpu.optimizers.Adam {learning_rate = 1e-3, clipnorm = 1}
--     opt:apply(grads, model.trainable_variables)
--     opt.learning_rate = 1e-4            -- acts at the next step, under mgpu.jit too
--
-- Everything that changes from step to step (rate, step count, slots) is a variable, so a jitted
-- step never needs a new trace. A rule's file defines update(self, v, g, slots, now): it assigns
-- the variable's slots and returns the amount to subtract from v. `now` holds the step's scalars in
-- the dtype of v: now.rate, and what the rule's own scalars(self, now) adds.

local core = require "mgpu.core"
local options = require "mgpu.options"

local ops = core.ops

local Optimizer = {}

-- Options that every optimizer has, after its own.
local SHARED = {
  { "clipnorm", "number", min = 0 },
  { "clipvalue", "number", min = 0 },
  { "global_clipnorm", "number", min = 0 },
  { "weight_decay", "number", min = 0 },
  { "name", "string" },
}

local function scalar(value, dtype, name)
  return core.variable(core.tensor(value, { dtype = dtype }), { name = name, trainable = false })
end

-- ---- slots --------------------------------------------------------------------------------------

-- Zeros that are no part of a trace, so that a slot may be made while one is open.
local function zeros_like(v)
  if not core.tracing() then
    local zeros = ops.full { shape = v:shape(), value = 0, dtype = v:dtype() }
    core.eval(zeros)
    return zeros
  end
  local function nested(shape, axis)
    local rows = {}
    for i = 1, shape[axis] do rows[i] = axis == #shape and 0 or nested(shape, axis + 1) end
    return rows
  end
  return core.tensor(v:rank() == 0 and 0 or nested(v:shape(), 1), { dtype = v:dtype() })
end

-- Makes the slots of the variables that have none yet. `apply` does so too.
function Optimizer:build(variables)
  for _, v in ipairs(variables) do
    if not self.slots[v] then
      local slots = {}
      for _, name in ipairs(self:slot_names()) do
        slots[name] = core.variable(zeros_like(v), { name = ("%s/%s"):format(v.name, name),
          trainable = false })
        self.state[#self.state + 1] = slots[name]
      end
      self.slots[v] = slots
    end
  end
end

-- Everything a checkpoint must hold: step count, learning rate, then the slots in the order of the
-- variables given to build.
function Optimizer:variables() return self.state end

-- ---- gradients ----------------------------------------------------------------------------------

local function square_sum(g) return ops.sum(ops.square(g)) end

-- g scaled down to a norm of at most `limit`.
local function clip_norm(g, norm, limit) return g * (limit / ops.maximum(norm, limit)) end

local function clip_all(grads, clip)
  local clipped = {}
  for i, g in ipairs(grads) do clipped[i] = clip(g) end
  return clipped
end

function Optimizer:clip(grads)
  local limit = self.options.clipnorm
  if limit then
    return clip_all(grads, function(g) return clip_norm(g, ops.sqrt(square_sum(g)), limit) end)
  end
  limit = self.options.global_clipnorm
  if limit then
    local total
    for _, g in ipairs(grads) do total = total and total + square_sum(g) or square_sum(g) end
    local norm = ops.sqrt(total)
    return clip_all(grads, function(g)
      return clip_norm(g, ops.cast(norm, { dtype = g:dtype() }), limit)
    end)
  end
  limit = self.options.clipvalue
  if limit then
    return clip_all(grads, function(g) return ops.minimum(ops.maximum(g, -limit), limit) end)
  end
  return grads
end

-- The variables with a gradient, and their gradients.
local function connected(grads, variables)
  if #grads ~= #variables then
    core.fail("usage", ("apply: %d gradients for %d variables"):format(#grads, #variables))
  end
  local gs, vs = {}, {}
  for i, g in ipairs(grads) do
    if g then gs[#gs + 1], vs[#vs + 1] = g, variables[i] end
  end
  if #gs == 0 then
    core.fail("usage", "apply: no variable has a gradient: the loss does not depend on any of them")
  end
  return gs, vs
end

-- ---- one step -----------------------------------------------------------------------------------

-- The step's scalars, computed in float64 and cast once for each dtype.
local function scalars_by_dtype(self)
  local exact = { rate = self.rate:value() }
  exact.step = ops.cast(ops.add(self.iterations, 1), { dtype = "float64" })
  self:scalars(exact)
  local cast = {}
  return function(dtype)
    local now = cast[dtype]
    if not now then
      now = {}
      for name, value in pairs(exact) do now[name] = ops.cast(value, { dtype = dtype }) end
      cast[dtype] = now
    end
    return now
  end
end

-- Changes the variables by their gradients; a gradient of false leaves its variable alone.
function Optimizer:apply(grads, variables)
  self:build(variables)
  local gs, vs = connected(grads, variables)
  gs = self:clip(gs)
  local scalars, decay = scalars_by_dtype(self), self.options.weight_decay
  for i, v in ipairs(vs) do
    local now, value = scalars(v:dtype()), v:value()
    local change = self:update(value, gs[i], self.slots[v], now)
    if decay then value = value - value * (decay * now.rate) end
    v:assign(value - change)
  end
  self.iterations:assign(ops.add(self.iterations, 1))
end

Optimizer.apply_gradients = Optimizer.apply

-- What a rule may override.
function Optimizer.slot_names() return {} end
function Optimizer.scalars() end

-- The options as they are now, from which an equal optimizer can be made.
function Optimizer:get_config()
  local config = {}
  for key, value in pairs(self.options) do config[key] = value end
  config.learning_rate = self.learning_rate
  return config
end

-- ---- making optimizers --------------------------------------------------------------------------

local function check_rate(value)
  if type(value) ~= "number" or not (value >= 0) or value == math.huge then
    core.fail("usage", ("learning_rate must be a number >= 0, got %s"):format(tostring(value)))
  end
end

local function one_clip(class, chosen)
  local given
  for _, name in ipairs { "clipnorm", "clipvalue", "global_clipnorm" } do
    if chosen[name] and given then
      core.fail("usage", ("%s: give only one of %s and %s"):format(class, given, name))
    end
    given = chosen[name] and name or given
  end
end

-- ARGS
--   definition.class     the class's name
--   definition.declared  its own options, as mgpu.options declares them; learning_rate comes first
--   definition.update    and scalars, slot_names: see the top
-- RETURNS the class: called with options it makes an optimizer.
function Optimizer.define(definition)
  local class = setmetatable({}, {
    __index = Optimizer,
    __call = function(class, given) return class.new(given) end,
    __tostring = function() return "optimizer class " .. definition.class end,
  })
  for key, value in pairs(definition) do class[key] = value end
  class.declared = { unpack(definition.declared) }
  for _, option in ipairs(SHARED) do class.declared[#class.declared + 1] = option end

  local meta = {}
  -- learning_rate reads and writes a variable; all else is a field or a method.
  function meta.__index(self, key)
    if key == "learning_rate" then return rawget(self, "rate"):item() end
    return class[key]
  end
  function meta.__newindex(self, key, value)
    if key ~= "learning_rate" then return rawset(self, key, value) end
    check_rate(value)
    self.rate:assign(core.tensor(value, { dtype = "float64" }))
  end
  function meta.__tostring(self) return "optimizer " .. self.name end

  function class.new(given)
    local chosen = options.check(definition.class, class.declared, given or {})
    one_clip(definition.class, chosen)
    local rate = scalar(chosen.learning_rate, "float64", "learning_rate")
    local iterations = scalar(0, "int64", "iterations")
    return setmetatable({ name = chosen.name or definition.class, options = chosen, rate = rate,
      iterations = iterations, slots = {}, state = { iterations, rate } }, meta)
  end
  return class
end

return Optimizer
