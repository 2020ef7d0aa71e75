--- The base of all optimizers: a rule that turns gradients into changes of variables.
--
--     local opt = mgpu.optimizers.Adam {learning_rate = 1e-3, clipnorm = 1}
--     opt:apply(grads, model.trainable_variables)
--     opt.learning_rate = 1e-4            -- acts at the next step, under mgpu.jit too
--
-- Options of all, with Keras's meaning:
--   learning_rate            a number, one of mgpu.schedules, or a saved {class_name =, config =}
--   decay = 0                of Keras 1 and 2: the rate of a step is learning_rate / (1 + decay * iterations). It makes
--                            learning_rate the schedule InverseTimeDecay
--   clipnorm, clipvalue, global_clipnorm   bounds for the norm of each gradient, for its elements, for the norm of
--                            all gradients together; at most one of them; 0 is no bound
--   weight_decay             v <- v - rate * weight_decay * v before the update
--   exclude_from_weight_decay   {"part of a name", variable, {name = "a whole name"}, ...}
--   use_ema = false, ema_momentum = 0.99, ema_overwrite_frequency   averages of the variables: averages.lua
--   gradient_accumulation_steps   2 or more: every n-th call of apply changes variables, by the mean of n gradients:
--                            accumulation.lua. Schedules count the calls, also across epochs, as in Keras. With
--                            compile's `accumulate` they count the changes, and the rest of an epoch makes one
--   loss_scale_factor        the gradients belong to the loss times this number, see scale_loss
--   name
--
-- Everything that changes from step to step (rate, step count, slots) is a variable, so a jitted step never needs
-- a new trace. The file of a rule defines update(self, v, g, slots, now): it assigns the variable's slots and
-- returns the amount to subtract from v. `now` holds the scalars of the step in the dtype of v: now.rate, and what
-- the rule's scalars(self, now) adds.
local accumulation = require "mgpu.nn.optimizers.accumulation"
local averages = require "mgpu.nn.optimizers.averages"
local clipping = require "mgpu.nn.optimizers.clipping"
local constraints = require "mgpu.nn.constraints"
local core = require "mgpu.core"
local foreign_names = require "mgpu.foreign_names"
local decay = require "mgpu.nn.optimizers.decay"
local learning_rate = require "mgpu.nn.optimizers.learning_rate"
local methods = require "mgpu.methods"
local Schedule = require "mgpu.nn.schedules.schedule"
local slots = require "mgpu.nn.optimizers.slots"

local ops = core.ops

local Optimizer = {}

local MOST_GUARDS = 100 -- of a step: an asynchronous device takes 255 in all

-- Options of every optimizer, after its own.
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
  { "gradient_accumulation_steps", "integer", min = 2 },
  { "decay", "number", min = 0 },
  { "name", "string" },
}

local EXAMPLE = "opt:apply(grads, model.trainable_variables)"

--- scalar(value, dtype, name) -> a variable of one number, not trainable.
function Optimizer.scalar(value, dtype, name)
  return core.variable(core.tensor(value, { dtype = dtype }), { name = name, trainable = false })
end

-- Raises unless they are an array of variables.
local function check_variables(who, variables)
  if type(variables) ~= "table" then
    core.fail("usage", ("%s: the variables must be an array, got %s, as in %s"):format(who, type(variables), EXAMPLE))
  end
  for i, v in ipairs(variables) do
    if not core.is_variable(v) then
      core.fail("usage", ("%s: entry %d of the variables is a %s, not a variable, as in %s"):format(who, i,
        core.is_tensor(v) and "tensor" or type(v), EXAMPLE))
    end
  end
end

-- Raises for names that other frameworks use: opt:step(), opt.lr.
local function check_name(self, key)
  local advice = foreign_names.advice("optimizer", key)
  if advice then core.fail("usage", ("%s: there is no %q%s"):format(tostring(self), key, advice)) end
end

--- check_assignment(self, class, key): raises for a field that would be set without effect: a name of other frameworks,
--- an option that is fixed when the optimizer is made, or a misspelled learning_rate. Other fields are the user's own.
function Optimizer.check_assignment(self, class, key)
  check_name(self, key)
  for _, option in ipairs(class.declared) do
    if option[1] == key then
      core.fail("usage", ("%s: %q is fixed when the optimizer is made; only learning_rate can be set afterwards")
        :format(tostring(self), key))
    end
  end
  local hint = type(key) == "string" and core.did_you_mean(key, { "learning_rate" }) or ""
  if hint ~= "" then core.fail("usage", ("%s: there is no %q%s"):format(tostring(self), key, hint)) end
end

-- ---- slots --------------------------------------------------------------------------------------

--- opt:build(variables): makes the slots of the variables that have none yet. `apply` does so too.
-- Example:
--     local v, opt = mgpu.variable(mgpu.ones { 3 }, { name = "w" }), mgpu.optimizers.Adam {}
--     opt:build { v }
--     for _, variable in ipairs(opt:variables()) do print(variable.name) end
--     --> iterations
--     --> learning_rate
--     --> w/momentum
--     --> w/velocity
function Optimizer:build(variables)
  check_variables("build", variables)
  for _, v in ipairs(variables) do
    if not self.slots[v] then
      averages.check_new(self, v)
      slots.make(self, v)
    end
  end
end

--- opt:variables() -> what a checkpoint must hold: step count, learning rate (unless it is a schedule), the rule's own
--- variables, then the slots in the order of the variables given to build.
-- Example:
--     local v, opt = mgpu.variable(mgpu.ones { 3 }), mgpu.optimizers.SGD { momentum = 0.9 }
--     opt:build { v }
--     -- step count, learning rate, and the momentum of v
--     print(#opt:variables())  --> 3
function Optimizer:variables() return self.state end

--- opt:scale_rate(scaled): with true, gives the optimizer a variable by which steps multiply the learning rate or what
--- its schedule gives, 1 at the start: opt.rate_scale. With false, takes it away.
-- Example:
--     local v, opt = mgpu.variable(mgpu.tensor { 5 }), mgpu.optimizers.SGD { learning_rate = 0.5 }
--     opt:scale_rate(true)
--     opt.rate_scale:assign(mgpu.tensor(4, { dtype = "float64" }))
--     opt:apply({ mgpu.tensor { 1 } }, { v })
--     print(v:value():item(), opt.learning_rate)  --> 3 0.5
function Optimizer:scale_rate(scaled)
  if scaled == (self.rate_scale ~= false) then return end
  if scaled then
    self.rate_scale = Optimizer.scalar(1, "float64", "lr_scale")
    self.state[#self.state + 1] = self.rate_scale
    return
  end
  local state = {}
  for _, v in ipairs(self.state) do
    if v ~= self.rate_scale then state[#state + 1] = v end
  end
  self.state, self.rate_scale = state, false
end

-- ---- gradients ----------------------------------------------------------------------------------

--- opt:scale_loss(loss) -> the loss times loss_scale_factor, if that is given: the loss whose gradients `apply`
--- expects. Scaling keeps small gradients from becoming 0 in a narrow dtype.
-- Example:
--     local v, opt = mgpu.variable(mgpu.tensor { 3 }), mgpu.optimizers.SGD { learning_rate = 1, loss_scale_factor = 8 }
--     local step = mgpu.value_and_grad(function() return opt:scale_loss(v:square():sum()) end, { v })
--     local _, grads = step()
--     -- 8 times the gradient
--     print(grads[1]:item())  --> 48
--     opt:apply(grads, { v })
--     print(v:value():item())  --> -3
function Optimizer:scale_loss(loss)
  local factor = self.options.loss_scale_factor
  return factor and loss * factor or loss
end

--- opt:unscale(grads) -> the gradients of the loss itself, from those of the scaled loss. Entries may be false.
-- Example:
--     local opt = mgpu.optimizers.SGD { loss_scale_factor = 8 }
--     print(opt:unscale({ mgpu.tensor { 48 } })[1]:item())  --> 6
function Optimizer:unscale(grads)
  local factor = self.options.loss_scale_factor
  if not factor then return grads end
  local list = {}
  for i, g in ipairs(grads) do list[i] = g and g / factor end
  return list
end

-- RETURNS the gradients that are not false, and their variables.
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

-- RETURNS function(dtype, device) -> the scalars of this step. They are computed in float64 and cast once for each
-- dtype and device.
local function step_scalars(self)
  local exact = { rate = self.schedule and self.schedule(self.iterations) or self.rate:value() }
  if self.rate_scale then exact.rate = exact.rate * self.rate_scale:value() end
  exact.step = ops.cast(ops.add(accumulation.updates(self), 1), { dtype = "float64" })
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

--- check_apply(grads, variables): raises unless they are an array of tensors (or false) and one of variables.
function Optimizer.check_apply(grads, variables)
  if type(grads) ~= "table" then
    core.fail("usage", ("apply: the gradients must be an array of tensors, got %s, as in %s"):format(type(grads),
      EXAMPLE))
  end
  check_variables("apply", variables)
  for i, g in ipairs(grads) do
    if g and not core.is_tensor(g) then
      core.fail("usage", ("apply: the gradient %d must be a tensor or false, got a %s"):format(i, type(g)))
    end
  end
end

--- The message of a step that has made a variable infinite, behind the variable's name.
Optimizer.BAD_UPDATE = "is not finite (NaN or infinite): the update overflowed; load saved weights and lower the "
  .. "learning rate"

-- Makes a jitted step fail, before anything is committed, if a gradient is not finite. Each variable has a guard of its
-- own, so that the message can name it; of many variables several share one.
local function guard_finite(grads, variables)
  local share, i = math.ceil(#variables / MOST_GUARDS), 1
  while i <= #variables do
    local first, device, list = variables[i], variables[i]:device(), {}
    local last = math.min(i + share - 1, #variables)
    while i <= last and variables[i]:device() == device do
      if grads[i] then list[#list + 1] = core.place(grads[i], device) end
      i = i + 1
    end
    local others = variables[i - 1] ~= first and (" or one up to " .. variables[i - 1].name) or ""
    core.guard_finite(list, ("apply: the gradient of %s%s is not finite (NaN or infinite)"):format(first.name,
      others))
  end
end

--- opt:apply(grads, variables): one step. grads[i] is the gradient of variables[i], or false to leave it alone; see
--- mgpu.value_and_grad. Also apply_gradients. A jitted step fails, and changes nothing, if a gradient is not finite;
--- it fails, too, if it has made a variable infinite. Errors: arrays of different lengths; no gradient at all.
-- Example:
--     local w = mgpu.variable(mgpu.tensor { 5 })
--     local opt = mgpu.optimizers.SGD { learning_rate = 0.25 }
--     local step = mgpu.value_and_grad(function() return (w - 1):square():sum() end, { w })
--     for _ = 1, 20 do
--       local _, grads = step()
--       opt:apply(grads, { w })
--     end
--     print(w:value():round():item())  --> 1
function Optimizer:apply(grads, variables)
  self.check_apply(grads, variables)
  grads = self:unscale(grads)
  if core.tracing() then guard_finite(grads, variables) end
  self:apply_unscaled(grads, variables)
end

-- One step of the rule.
local function update(self, grads, variables)
  grads = clipping.clip(self.options, grads)
  local scalars = step_scalars(self)
  for i, v in ipairs(variables) do
    local value = v:value()
    local now = scalars(v:dtype(), value:device())
    local decayed = decay.applies(self, v) and value - value * (self:decay_of(v) * now.rate) or value
    v:assign(decayed - self:update(decayed, grads[i], self.slots[v], now))
  end
end

--- opt:apply_unscaled(grads, variables): apply, with gradients that `unscale` returned.
-- Example:
--     local v, opt = mgpu.variable(mgpu.tensor { 1 }), mgpu.optimizers.SGD { learning_rate = 1, loss_scale_factor = 8 }
--     opt:apply_unscaled(opt:unscale { mgpu.tensor { 4 } }, { v })
--     -- 1 - 4 / 8
--     print(v:value():item())  --> 0.5
function Optimizer:apply_unscaled(grads, variables)
  self:build(variables)
  local gs, vs = connected(grads, variables)
  if self.options.gradient_accumulation_steps then
    accumulation.step(self, gs, vs, function(means) update(self, means, vs) end)
  else
    update(self, gs, vs)
  end
  averages.update(self)
  constraints.apply(vs)
  if core.tracing() then core.guard_variables(vs, Optimizer.BAD_UPDATE) end
  self.iterations:assign(ops.add(self.iterations, 1))
  self.begun = true
end

--- opt:steps_taken() -> how often apply was called, skipped steps included.
-- Example:
--     local v, opt = mgpu.variable(mgpu.tensor { 1 }), mgpu.optimizers.Adam {}
--     for _ = 1, 3 do opt:apply({ mgpu.tensor { 1 } }, { v }) end
--     print(opt:steps_taken())  --> 3
function Optimizer:steps_taken() return tonumber(self.iterations:item()) end

Optimizer.apply = methods.colon("opt:apply(grads, variables)", function(self)
  return type(self) == "table" and self.slots ~= nil
end, Optimizer.apply)
Optimizer.apply_gradients = Optimizer.apply
Optimizer.finalize_variable_values = averages.finalize
Optimizer.exclude_from_weight_decay = decay.exclude

-- ---- what a rule overrides ------------------------------------------------------------------------

--- rule:update(v, g, slots, now) -> the amount to subtract from v. Every rule must define it.
-- ARGS v, g: tensors, the variable's value after weight decay, and its gradient; slots: variables by name, to be
-- assigned; now: see the top.
function Optimizer:update()
  core.fail("usage", ("the optimizer class %s has no function update"):format(self.class))
end

--- rule:slot_names(v) -> the names of the slots (variables like v) that the rule keeps for the variable.
function Optimizer.slot_names() return {} end

--- rule:slot_start(name) -> the number that the slot starts with, or "variable" for a copy of the variable.
function Optimizer.slot_start() return 0 end

--- rule.slot_shape(name, shape) -> the shape of the slot of a variable of that shape.
function Optimizer.slot_shape(_, shape) return shape end

--- rule.check(options): raises for values that the declaration of the options cannot refuse.
function Optimizer.check() end

--- rule:decay_of(v) -> the weight decay of the variable.
function Optimizer:decay_of() return self.options.weight_decay end

--- rule:scalars(now): adds the rule's scalars of a step to `now`, which has now.rate and now.step (from 1).
function Optimizer.scalars() end

--- rule:own_variables() -> array of variables that the rule keeps besides the slots.
function Optimizer.own_variables() return {} end

--- opt:get_config() -> the options as they are now, from which an equal optimizer can be made.
-- Example:
--     local config = mgpu.optimizers.Adam { learning_rate = 0.01, beta_1 = 0.8 }:get_config()
--     print(config.learning_rate, config.beta_1, config.amsgrad)  --> 0.01 0.8 false
function Optimizer:get_config()
  local config = {}
  for key, value in pairs(self.options) do config[key] = value end
  config.learning_rate = self.schedule and Schedule.saved(self.schedule) or self.learning_rate
  config.exclude_from_weight_decay = decay.saved(self)
  return config
end

-- ---- making optimizers --------------------------------------------------------------------------

--- define(definition) -> a class of optimizers, to be called with options.
-- ARGS
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them, learning_rate first. A shared option may be
--                        among them, with another default
--   definition.update    and scalars, slot_names, slot_start, own_variables: see above
--   definition.base      the base class, if not Optimizer
function Optimizer.define(definition)
  local class = setmetatable({}, {
    __index = definition.base or Optimizer,
    __call = require "mgpu.options".construct,
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
  -- learning_rate is read from and written to a variable; other keys are fields and methods.
  function meta.__index(self, key)
    if key == "learning_rate" then return learning_rate.get(self) end
    local value = class[key]
    if value == nil then check_name(self, key) end
    return value
  end
  function meta.__newindex(self, key, value)
    if key == "learning_rate" then return learning_rate.set(self, value) end
    Optimizer.check_assignment(self, class, key)
    rawset(self, key, value)
  end
  function meta.__tostring(self) return core.printable("optimizer " .. self.name, true) end

  --- new(options) -> an optimizer of the class; the same as calling the class.
  function class.new(given)
    local chosen = Schedule.check(definition.class, class.declared, given or {})
    clipping.check(definition.class, chosen)
    class.check(chosen)
    learning_rate.apply_decay(definition.class, chosen)
    local schedule = learning_rate.schedule_of(definition.class, chosen.learning_rate)
    local self = setmetatable({ name = chosen.name or definition.class, options = chosen,
      schedule = schedule or false, iterations = Optimizer.scalar(0, "int64", "iterations"), slots = {}, state = {},
      built = {}, begun = false, rate_scale = false }, meta)
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
