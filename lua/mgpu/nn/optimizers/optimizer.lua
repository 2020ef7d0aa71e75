--- The base of all optimizers: a rule that turns gradients into changes of variables.
--
--     local opt = mgpu.optimizers.Adam {learning_rate = 1e-3, clipnorm = 1}
--     opt:apply(grads, model.trainable_variables)
--     opt.learning_rate = 1e-4            -- acts at the next step, under mgpu.jit too
--
-- Options of all, with Keras's meaning:
--   learning_rate            a number, one of mgpu.schedules, or a saved {class_name =, config =}
--   clipnorm, clipvalue, global_clipnorm   bounds for the norm of each gradient, for its elements, for the norm of
--                            all gradients together; at most one of them; 0 is no bound
--   weight_decay             v <- v - rate * weight_decay * v before the update
--   exclude_from_weight_decay   {"part of a name", variable, {name = "a whole name"}, ...}
--   use_ema = false, ema_momentum = 0.99, ema_overwrite_frequency   averages of the variables: averages.lua
--   loss_scale_factor        the gradients are those of the loss times this number, see scale_loss
--   name
--
-- Everything that changes from step to step (rate, step count, slots) is a variable, so a jitted step never needs
-- a new trace. The file of a rule defines update(self, v, g, slots, now): it assigns the variable's slots and
-- returns the amount to subtract from v. `now` holds the scalars of the step in the dtype of v: now.rate, and what
-- the rule's scalars(self, now) adds.
local averages = require "mgpu.nn.optimizers.averages"
local core = require "mgpu.core"
local decay = require "mgpu.nn.optimizers.decay"
local Schedule = require "mgpu.nn.schedules.schedule"

local ops = core.ops

local Optimizer = {}

-- Options that every optimizer has, after its own.
local SHARED = {
  { "clipnorm", "number", min = 0 },
  { "clipvalue", "number", min = 0 },
  { "global_clipnorm", "number", min = 0 },
  { "weight_decay", "number", min = 0 },
  { "exclude_from_weight_decay", "table" },
  { "use_ema", "boolean", default = false },
  { "ema_momentum", "number", default = 0.99, min = 0, max = 1 },
  { "ema_overwrite_frequency", "integer", min = 1 },
  { "loss_scale_factor", "number", above = 0 },
  { "name", "string" },
}

-- A variable of one number.
function Optimizer.scalar(value, dtype, name)
  return core.variable(core.tensor(value, { dtype = dtype }), { name = name, trainable = false })
end

-- ---- slots --------------------------------------------------------------------------------------

-- A value everywhere, where v lies, that is no part of a trace, so that a slot may be made while one
-- is open.
local function filled(v, value)
  if not core.tracing() then
    local full = core.place(ops.full { shape = v:shape(), value = value, dtype = v:dtype() }, v:device())
    core.eval(full)
    return full
  end
  local function nested(shape, axis)
    local rows = {}
    for i = 1, shape[axis] do rows[i] = axis == #shape and value or nested(shape, axis + 1) end
    return rows
  end
  return core.tensor(v:rank() == 0 and value or nested(v:shape(), 1),
    { dtype = v:dtype(), device = v:device() })
end

local function build_slots(self, v)
  local slots, names = {}, self:slot_names()
  if self.options.use_ema then names[#names + 1] = averages.SLOT end
  for _, name in ipairs(names) do
    slots[name] = core.variable(filled(v, self:slot_start(name)), {
      name = ("%s/%s"):format(v.name, name), trainable = false })
    self.state[#self.state + 1] = slots[name]
  end
  self.slots[v] = slots
  self.built[#self.built + 1] = v
end

-- Makes the slots of the variables that have none yet. `apply` does so too.
function Optimizer:build(variables)
  for _, v in ipairs(variables) do
    if not self.slots[v] then
      averages.check_new(self, v)
      build_slots(self, v)
    end
  end
end

-- Everything a checkpoint must hold: step count, learning rate (if it is no schedule), what the rule
-- keeps for itself, then the slots in the order of the variables given to build.
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

-- A limit of 0 is none, as in Keras.
function Optimizer:limit(name)
  local limit = self.options[name]
  return limit and limit > 0 and limit
end

function Optimizer:clip(grads)
  local limit = self:limit "clipnorm"
  if limit then
    return clip_all(grads, function(g) return clip_norm(g, ops.sqrt(square_sum(g)), limit) end)
  end
  limit = self:limit "global_clipnorm"
  if limit then
    local total, home = nil, grads[1]:device()
    for _, g in ipairs(grads) do
      local sum = core.place(square_sum(g), home)
      total = total and total + sum or sum
    end
    local norm = ops.sqrt(total)
    -- 0, but NaN for an infinite norm, which would make zeros of finite gradients.
    local scale = limit / ops.maximum(norm, limit) + (norm - norm)
    return clip_all(grads, function(g)
      return g * core.place(ops.cast(scale, { dtype = g:dtype() }), g:device())
    end)
  end
  limit = self:limit "clipvalue"
  if limit then
    return clip_all(grads, function(g) return ops.minimum(ops.maximum(g, -limit), limit) end)
  end
  return grads
end

-- The loss whose gradients `apply` expects: times loss_scale_factor, if there is one, so that small
-- gradients are not lost in a narrow dtype.
function Optimizer:scale_loss(loss)
  local factor = self.options.loss_scale_factor
  return factor and loss * factor or loss
end

-- The gradients of a loss that scale_loss made, as those of the loss itself; false stays.
function Optimizer:unscale(grads)
  local factor = self.options.loss_scale_factor
  return factor and clip_all(grads, function(g) return g and g / factor end) or grads
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

-- The step's scalars, computed in float64 and cast once for each dtype, for each device.
local function step_scalars(self)
  local exact = { rate = self.schedule and self.schedule(self.iterations) or self.rate:value() }
  exact.step = ops.cast(ops.add(self.iterations, 1), { dtype = "float64" })
  self:scalars(exact)
  local cast = {}
  return function(dtype, device)
    local key = dtype .. "@" .. device
    local now = cast[key]
    if not now then
      now = {}
      for name, value in pairs(exact) do
        now[name] = core.place(ops.cast(value, { dtype = dtype }), device)
      end
      cast[key] = now
    end
    return now
  end
end

-- What `apply` is given: an array of gradients and one of variables.
function Optimizer.check_apply(grads, variables)
  local example = "as in opt:apply(grads, model.trainable_variables)"
  if type(grads) ~= "table" then
    core.fail("usage", ("apply: the gradients must be an array of tensors, got %s, %s"):format(type(grads),
      example))
  elseif type(variables) ~= "table" then
    core.fail("usage", ("apply: the variables must be an array, got %s, %s"):format(type(variables), example))
  end
  for i, v in ipairs(variables) do
    if not core.is_variable(v) then
      core.fail("usage", ("apply: entry %d of the variables is a %s, not a variable, %s"):format(i,
        core.is_tensor(v) and "tensor" or type(v), example))
    end
  end
  for i, g in ipairs(grads) do
    if g and not core.is_tensor(g) then
      core.fail("usage", ("apply: the gradient %d must be a tensor or false, got a %s"):format(i, type(g)))
    end
  end
end

-- Changes the variables by their gradients; a gradient of false leaves its variable alone.
function Optimizer:apply(grads, variables)
  self.check_apply(grads, variables)
  self:apply_unscaled(self:unscale(grads), variables)
end

-- The same with gradients that `unscale` has been given.
function Optimizer:apply_unscaled(grads, variables)
  self:build(variables)
  local gs, vs = connected(grads, variables)
  gs = self:clip(gs)
  local scalars = step_scalars(self)
  for i, v in ipairs(vs) do
    local value = v:value()
    local now = scalars(v:dtype(), value:device())
    local change = self:update(value, gs[i], self.slots[v], now)
    if decay.applies(self, v) then
      value = value - value * (self.options.weight_decay * now.rate)
    end
    v:assign(value - change)
  end
  averages.update(self)
  self.iterations:assign(ops.add(self.iterations, 1))
  self.begun = true
end

-- How often apply was called, skipped steps included.
function Optimizer:steps_taken() return tonumber(self.iterations:item()) end

Optimizer.apply_gradients = Optimizer.apply
Optimizer.finalize_variable_values = averages.finalize
Optimizer.exclude_from_weight_decay = decay.exclude

-- What a rule may override: the names of a variable's slots, the value each starts with, scalars of
-- the step, and variables of its own.
function Optimizer.slot_names() return {} end
function Optimizer.slot_start() return 0 end
function Optimizer.scalars() end
function Optimizer.own_variables() return {} end

-- The options as they are now, from which an equal optimizer can be made.
function Optimizer:get_config()
  local config = {}
  for key, value in pairs(self.options) do config[key] = value end
  config.learning_rate = self.schedule and Schedule.saved(self.schedule) or self.learning_rate
  config.exclude_from_weight_decay = decay.saved(self)
  return config
end

-- ---- making optimizers --------------------------------------------------------------------------

local function check_rate(who, value)
  if type(value) ~= "number" or not (value >= 0) or value == math.huge then
    core.fail("usage", ('%s: option "learning_rate" must be a number of at least 0 or one of '
      .. "mgpu.schedules, got %s"):format(who, type(value) == "table" and "a table" or tostring(value)))
  end
end

-- The schedule that an option is or describes; nil for a number.
local function schedule_of(who, value)
  local described = type(value) == "table" and type(value.class_name) == "string"
  if described or Schedule.is(value) then return Schedule.get(value) end
  check_rate(who, value)
end

-- The rate at the next step, as a number.
local function present_rate(self)
  if not self.schedule then return rawget(self, "rate"):item() end
  return self.schedule(tonumber(self.iterations:item()))
end

local function set_rate(self, value)
  if self.schedule then
    core.fail("usage", ("%s: its learning_rate is a schedule and cannot be set: make the optimizer with "
      .. "a number instead"):format(self.name))
  elseif type(value) == "table" then
    core.fail("usage", ("%s: a schedule is given when the optimizer is made; learning_rate can be set to "
      .. "a number only"):format(self.name))
  end
  check_rate(self.name, value)
  self.rate:assign(core.tensor(value, { dtype = "float64" }))
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
--   definition.declared  its own options, as mgpu.options declares them; learning_rate comes first; one
--                        of the shared ones may be here with another default
--   definition.update    and scalars, slot_names, slot_start, own_variables: see above
--   definition.base      the class it takes all else from, if not Optimizer
-- RETURNS the class: called with options it makes an optimizer.
function Optimizer.define(definition)
  local class = setmetatable({}, {
    __index = definition.base or Optimizer,
    __call = function(class, given) return class.new(given) end,
    __tostring = function() return "optimizer class " .. definition.class end,
  })
  for key, value in pairs(definition) do class[key] = value end
  class.declared = { unpack(definition.declared) }
  local own = {}
  for _, option in ipairs(definition.declared) do own[option[1]] = true end
  for _, option in ipairs(SHARED) do
    if not own[option[1]] then class.declared[#class.declared + 1] = option end
  end

  local meta = {}
  -- learning_rate reads and writes a variable; all else is a field or a method.
  function meta.__index(self, key)
    if key == "learning_rate" then return present_rate(self) end
    return class[key]
  end
  function meta.__newindex(self, key, value)
    if key == "learning_rate" then set_rate(self, value) else rawset(self, key, value) end
  end
  function meta.__tostring(self) return "optimizer " .. self.name end

  function class.new(given)
    local chosen = Schedule.check(definition.class, class.declared, given or {})
    one_clip(definition.class, chosen)
    local schedule = schedule_of(definition.class, chosen.learning_rate)
    local self = setmetatable({ name = chosen.name or definition.class, options = chosen,
      schedule = schedule or false, iterations = Optimizer.scalar(0, "int64", "iterations"), slots = {}, state = {},
      built = {}, begun = false }, meta)
    self.state[1] = self.iterations
    if not schedule then
      rawset(self, "rate", Optimizer.scalar(chosen.learning_rate, "float64", "learning_rate"))
      self.state[2] = self.rate
    end
    for _, v in ipairs(self:own_variables()) do self.state[#self.state + 1] = v end
    if chosen.exclude_from_weight_decay then
      self:exclude_from_weight_decay(chosen.exclude_from_weight_decay)
    end
    return self
  end
  return class
end

return Optimizer
