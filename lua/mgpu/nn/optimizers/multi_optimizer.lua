--- MultiOptimizer {optimizer_map, loss_scale_factor =, name =}: trains each variable with one of several optimizers.
-- optimizer_map: an OptimizerMap, or a function of a variable that returns its optimizer (such a model is saved without
-- its optimizer only). opt.optimizers: those that train variables, each with its learning_rate; the MultiOptimizer has
-- none, so callbacks that change the rate, and compile's lr_scale, refuse it. loss_scale_factor counts for all of them.
-- Bounds of norms are those of each optimizer's own variables. Source: Keras.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 4, name = "body" }, L.Dense { 1, name = "head" } }
--     local map = mgpu.optimizers.OptimizerMap { mgpu.optimizers.SGD { 0.01 } }
--     map["head/.*"] = mgpu.optimizers.Adam { 0.1 }
--     model:compile { optimizer = mgpu.optimizers.MultiOptimizer { map }, loss = "mse" }
--     model:fit(mgpu.rand { 8, 2 }, mgpu.rand { 8, 1 }, { verbose = 0 })
--     for _, opt in ipairs(model.optimizer.optimizers) do print(opt, opt.learning_rate, #opt:variables()) end
--     --> optimizer Adam 0.1 6
--     --> optimizer SGD 0.01 2
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"
local OptimizerMap = require "mgpu.nn.optimizers.optimizer_map"
local options = require "mgpu.options"
local variable_paths = require "mgpu.nn.variable_paths"
local warnings = require "mgpu.warnings"

local Multi = { class = "MultiOptimizer" }

Multi.declared = { positional = 1,
  { "optimizer_map", "any", required = true },
  { "loss_scale_factor", "number", above = 0 },
  { "name", "string" },
}

local function fail(message, ...) core.fail("usage", "MultiOptimizer: " .. message:format(...)) end

Multi.scale_loss, Multi.unscale, Multi.apply = Optimizer.scale_loss, Optimizer.unscale, Optimizer.apply
Multi.apply_gradients, Multi.steps_taken, Multi.check_apply = Multi.apply, Optimizer.steps_taken, Optimizer.check_apply

-- ---- choosing -----------------------------------------------------------------------------------

local function position_of(self, optimizer)
  for i, other in ipairs(self.optimizers) do
    if other == optimizer then return i end
  end
  self.optimizers[#self.optimizers + 1] = optimizer
  return #self.optimizers
end

-- The optimizer of a variable, and the key of the map that names it.
local function choose(self, v)
  if OptimizerMap.is(self.map) then return self.map:find(v, self.paths and self.paths[v]) end
  local optimizer = self.map(v)
  if type(optimizer) ~= "table" or not optimizer.apply_unscaled or optimizer.skips_steps or optimizer.optimizers then
    fail("the function must return an optimizer for the variable %q, and no LossScaleOptimizer or MultiOptimizer, "
      .. "but it returns %s", v.name, tostring(optimizer))
  end
  return optimizer
end

--- opt:index_of(v) -> the position in opt.optimizers of the variable's optimizer, chosen once.
function Multi:index_of(v)
  if not self.chosen[v] then self.chosen[v] = position_of(self, (choose(self, v))) end
  return self.chosen[v]
end

--- opt:train_model(model): the keys of the map are paths of the model's variables. model:compile calls it.
function Multi:train_model(model) self.model = model end

-- Warns of keys of the map that match no variable of the model.
local function check_keys(self, variables)
  if not self.model or self.checked or not OptimizerMap.is(self.map) then return end
  local used, names = {}, {}
  for i, v in ipairs(variables) do
    local _, key = choose(self, v)
    if key then used[key] = true end
    names[i] = v.name
  end
  for key in pairs(self.map.entries) do
    if not used[key] then
      warnings.once(self.model, "MultiOptimizer: the key %q matches none of the trained variables: %s", key,
        table.concat(names, ", "))
    end
  end
  self.checked = true
end

-- What belongs to each optimizer of two parallel arrays, the second of variables: {{firsts, variables}, ...}.
local function shared_out(self, list, variables)
  local shares = {}
  for i, v in ipairs(variables) do
    local at = self:index_of(v)
    shares[at] = shares[at] or { {}, {} }
    local firsts, vs = unpack(shares[at])
    firsts[#firsts + 1], vs[#vs + 1] = list[i], v
  end
  return shares
end

-- ---- the parts of an optimizer ------------------------------------------------------------------

--- opt:build(variables): chooses an optimizer for each of the variables, and makes its slots.
function Multi:build(variables)
  if self.model then self.paths = variable_paths(self.model) end
  check_keys(self, variables)
  local shares = shared_out(self, variables, variables)
  for at, optimizer in ipairs(self.optimizers) do
    local own = shares[at] and shares[at][2] or {}
    optimizer:build(own)
    for _, v in ipairs(own) do self.slots[v] = optimizer.slots[v] end
  end
end

--- opt:variables() -> the step count, then those of each optimizer.
function Multi:variables()
  local list = { self.iterations }
  for _, optimizer in ipairs(self.optimizers) do
    for _, v in ipairs(optimizer:variables()) do list[#list + 1] = v end
  end
  return list
end

--- opt:state_name(v) -> the name in files of one of its variables that is no slot: two optimizers have a rate each.
function Multi:state_name(v)
  for i, optimizer in ipairs(self.optimizers) do
    for _, own in ipairs(optimizer:variables()) do
      if own == v then return ("inner_%d_%s"):format(i, v.name) end
    end
  end
  return v.name
end

--- opt:apply_unscaled(grads, variables): a step of each optimizer, with the gradients of its variables.
function Multi:apply_unscaled(grads, variables)
  if #grads ~= #variables then
    core.fail("usage", ("apply: %d gradients for %d variables"):format(#grads, #variables))
  end
  self:build(variables)
  local stepped = false
  local shares = shared_out(self, grads, variables)
  for at, optimizer in ipairs(self.optimizers) do
    local connected = false
    for _, g in ipairs(shares[at] and shares[at][1] or {}) do connected = connected or g end
    if connected then optimizer:apply_unscaled(unpack(shares[at])) end
    stepped = stepped or connected
  end
  if not stepped then
    core.fail("usage", "apply: no variable has a gradient: the loss does not depend on any of them")
  end
  self.iterations:assign(core.ops.add(self.iterations, 1))
end

--- opt:finalize_variable_values(variables): calls the method of each optimizer with its variables.
function Multi:finalize_variable_values(variables)
  local shares = shared_out(self, variables, variables)
  for at, optimizer in ipairs(self.optimizers) do
    if shares[at] then optimizer:finalize_variable_values(shares[at][2]) end
  end
end

--- opt:exclude_from_weight_decay(given): calls the method of all optimizers.
function Multi:exclude_from_weight_decay(given)
  for _, optimizer in ipairs(self.optimizers) do optimizer:exclude_from_weight_decay(given) end
end

--- opt:scale_rate(scaled): raises for true, as there is no one rate.
function Multi:scale_rate(scaled) -- luacheck: no self
  if scaled then fail "compile's lr_scale needs an optimizer with one learning_rate: give each of its own" end
end

--- opt:get_config() -> the options. Errors: a function that chooses optimizers.
function Multi:get_config()
  if not OptimizerMap.is(self.map) then
    fail "a function chooses the optimizers, which cannot be stored: save with {include_optimizer = false}"
  end
  return { name = self.name, loss_scale_factor = self.options.loss_scale_factor,
    optimizer_map = { class_name = "OptimizerMap", config = self.map:get_config() } }
end

-- ---- making them --------------------------------------------------------------------------------

local function no_rate(self)
  fail("%q has no learning_rate: its optimizers have one each, as opt.optimizers[1].learning_rate", self.name)
end

local meta = {}
function meta.__index(self, key)
  if key == "learning_rate" then no_rate(self) end
  return Multi[key]
end
function meta.__newindex(self, key, value)
  if key == "learning_rate" then no_rate(self) end
  if key == "begun" then -- after a state was loaded
    for _, optimizer in ipairs(self.optimizers) do optimizer.begun = value end
  end
  Optimizer.check_assignment(self, Multi, key)
  rawset(self, key, value)
end
function meta.__tostring(self) return core.printable("optimizer " .. self.name, true) end

--- new {optimizer_map, loss_scale_factor =, name =} -> the optimizer; the same as calling the class.
function Multi.new(given)
  if OptimizerMap.is(given) then given = { given } end
  local chosen = options.check("MultiOptimizer", Multi.declared, given)
  local map = chosen.optimizer_map
  if type(map) == "table" and map.class_name == "OptimizerMap" then map = OptimizerMap(map.config) end
  if not OptimizerMap.is(map) and type(map) ~= "function" then
    fail("optimizer_map must be an OptimizerMap or a function of a variable, got a %s", type(map))
  end
  return setmetatable({ name = chosen.name or "MultiOptimizer", options = chosen, map = map, chosen = {}, slots = {},
    optimizers = OptimizerMap.is(map) and map:list() or {}, built = {}, rate_scale = false, schedule = false,
    iterations = Optimizer.scalar(0, "int64", "iterations") }, meta)
end

return setmetatable(Multi, { __call = function(class, given) return class.new(given) end,
  __tostring = function() return "optimizer class MultiOptimizer" end })
