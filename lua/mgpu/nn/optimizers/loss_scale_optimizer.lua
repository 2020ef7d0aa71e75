--- LossScaleOptimizer {inner_optimizer, initial_scale = 2^15, dynamic_growth_steps = 2000}: runs another optimizer on
--- gradients of the loss times a scale, so that small gradients do not become 0 in float16.
--
--     gradients not finite: the step is skipped, scale <- scale / 2, count <- 0
--     else: the inner optimizer's step with gradients / scale, count <- count + 1;
--           after dynamic_growth_steps such steps in a row: scale <- 2 scale, count <- 0
--
--     local opt = mgpu.optimizers.LossScaleOptimizer { mgpu.optimizers.Adam {} }
--     ... return opt:scale_loss(loss) ...      -- what is differentiated
--     opt:apply(grads, variables)              -- takes the scaled gradients
-- model:compile wraps the optimizer of a model with float16 layers. The check covers all gradients on all devices.
-- The scale is a variable, so a jitted step follows it. `skipped` counts the skipped steps.
-- Errors: gradients that are not finite even with the smallest scale. Source: Keras's LossScaleOptimizer.
-- Example:
--     local v = mgpu.variable(mgpu.tensor { 1 })
--     local opt = mgpu.optimizers.LossScaleOptimizer { mgpu.optimizers.SGD { learning_rate = 1 }, initial_scale = 8 }
--     opt:apply({ mgpu.tensor { 4 } }, { v }) -- 4 is 8 times the gradient
--     print(v:value():item())  --> 0.5
--     opt:apply({ mgpu.tensor { 1 / 0 } }, { v }) -- an overflow: no step, and half the scale
--     print(v:value():item(), opt.skipped:value():item())  --> 0.5 1
local compile_options = require "mgpu.train.compile_options"
local core = require "mgpu.core"
local options = require "mgpu.options"
local Optimizer = require "mgpu.nn.optimizers.optimizer"
local accumulation = require "mgpu.nn.optimizers.accumulation"

local ops = core.ops

local LossScale = { class = "LossScaleOptimizer" }

LossScale.declared = { positional = 1,
  { "inner_optimizer", "any", required = true },
  { "initial_scale", "number", default = 2 ^ 15 },
  { "dynamic_growth_steps", "integer", default = 2000, min = 1 },
  { "name", "string" },
}

-- Below LEAST even the largest float16 gradient would be scaled to 0, so no scale helps; above MOST it would overflow.
local LEAST, MOST = 2 ^ -24, 2 ^ 126

LossScale.skips_steps = true
LossScale.BAD_SCALE = "the gradients are not finite (NaN or infinite), whatever the loss scale"

-- ---- the parts of an optimizer ------------------------------------------------------------------

--- opt:variables() -> its own state, then the state of the inner optimizer, as Optimizer:variables.
function LossScale:variables()
  return { self.step_counter, self.dynamic_scale, self.skipped, unpack(self.inner_optimizer:variables()) }
end

--- opt:build(variables): makes the slots of the inner optimizer.
function LossScale:build(variables) self.inner_optimizer:build(variables) end

--- opt:scale_loss(loss) -> the loss times the scale.
function LossScale:scale_loss(loss) return loss * self.dynamic_scale end

--- opt:unscale(grads) -> the gradients divided by the scale, in float32 at least.
-- The scale is within its bounds anyway. Bounding it here again tells the graph passes that a finite float16 stays
-- finite, so that the check for finite gradients need not wait for the division.
function LossScale:unscale(grads)
  local list = {}
  for i, g in ipairs(grads) do
    if g then -- a float16 variable has float16 gradients
      local wide = g:dtype() == "float64" and g or ops.cast(g, { dtype = "float32" })
      local scale = core.place(self.dynamic_scale:value(), g:device())
      list[i] = wide / ops.minimum(ops.maximum(scale, LEAST), MOST)
    else
      list[i] = false
    end
  end
  return list
end

--- opt:steps_taken() -> how often apply was called, skipped steps included.
function LossScale:steps_taken()
  return self.inner_optimizer:steps_taken() + tonumber(self.skipped:item())
end

--- opt:finalize_variable_values(variables): calls the method of the inner optimizer.
function LossScale:finalize_variable_values(variables)
  self.inner_optimizer:finalize_variable_values(variables)
end

--- opt:exclude_from_weight_decay(given): calls the method of the inner optimizer.
function LossScale:exclude_from_weight_decay(given) self.inner_optimizer:exclude_from_weight_decay(given) end

--- opt:get_config() -> the options, the inner optimizer's among them.
function LossScale:get_config()
  local inner = self.inner_optimizer
  return { name = self.name, initial_scale = self.options.initial_scale,
    dynamic_growth_steps = self.options.dynamic_growth_steps,
    inner_optimizer = { class_name = inner.class, config = inner:get_config() } }
end

-- ---- one step -----------------------------------------------------------------------------------

-- Whether all gradients are finite: a bool tensor on the device of the scale.
local function all_finite(self, grads)
  local by_device, order, home = {}, {}, self.dynamic_scale:device()
  for _, g in ipairs(grads) do
    if g then
      local device = g:device()
      if not by_device[device] then
        by_device[device], order[#order + 1] = {}, device
      end
      local list = by_device[device]
      list[#list + 1] = g
    end
  end
  local finite
  for _, device in ipairs(order) do
    local list = by_device[device]
    for first = 1, #list, 200 do -- a call takes 255 inputs
      local some = ops.all_finite { unpack(list, first, math.min(first + 199, #list)) }
      some = core.place(some, home)
      finite = finite and ops.logical_and(finite, some) or some
    end
  end
  return finite
end

local function move_scale(self, finite)
  local count, scale = self.step_counter:value(), self.dynamic_scale:value()
  local grows = ops.eq(count, self.options.dynamic_growth_steps - 1)
  local larger = ops.where(grows, ops.minimum(scale * 2, MOST), scale)
  self.dynamic_scale:assign(ops.where(finite, larger, scale / 2))
  self.step_counter:assign(ops.where(ops.logical_and(finite, ops.logical_not(grows)), ops.add(count, 1), 0))
  self.skipped:assign(ops.add(self.skipped, ops.cast(ops.logical_not(finite), { dtype = "int64" })))
end

--- opt:apply_unscaled(grads, variables): the inner optimizer's step on gradients that `unscale` returned; it is undone
--- if a gradient is not finite.
function LossScale:apply_unscaled(grads, variables)
  self:build(variables)
  local finite, inner = all_finite(self, grads), self.inner_optimizer
  accumulation.unless(finite, inner, variables, function() inner:apply_unscaled(grads, variables) end)
  core.guard(ops.logical_or(finite, ops.ge(self.dynamic_scale, LEAST)), "nonfinite", LossScale.BAD_SCALE)
  move_scale(self, finite)
end

--- opt:apply(grads, variables): one step with the gradients of the scaled loss. Also apply_gradients.
function LossScale:apply(grads, variables)
  Optimizer.check_apply(grads, variables)
  self:apply_unscaled(self:unscale(grads), variables)
end
LossScale.apply_gradients = LossScale.apply

-- ---- making them --------------------------------------------------------------------------------

-- Fields that are read from and written to the inner optimizer.
local INNER = { learning_rate = true, iterations = true, slots = true, built = true }

local meta = {}
function meta.__index(self, key)
  if INNER[key] then return rawget(self, "inner_optimizer")[key] end
  return LossScale[key]
end
function meta.__newindex(self, key, value)
  if INNER[key] then
    self.inner_optimizer[key] = value
  else
    Optimizer.check_assignment(self, LossScale, key)
    rawset(self, key, value)
  end
end
function meta.__tostring(self) return core.printable("optimizer " .. self.name, true) end

local function inner_of(value)
  if type(value) == "table" and type(value.class_name) == "string" then
    value = require "mgpu.nn.optimizers"[value.class_name](value.config)
  end
  local inner = compile_options.optimizer(value, "LossScaleOptimizer: inner_optimizer")
  if inner.skips_steps then
    core.fail("usage", "LossScaleOptimizer: the inner optimizer is one itself")
  end
  return inner
end

--- new {inner_optimizer, initial_scale = 2^15, dynamic_growth_steps = 2000} -> the optimizer; the same as calling the
--- class. The inner optimizer is one of mgpu.optimizers, or its name.
function LossScale.new(given)
  local chosen = options.check("LossScaleOptimizer", LossScale.declared, given)
  if not (chosen.initial_scale >= LEAST and chosen.initial_scale <= MOST) then
    core.fail("usage", ('LossScaleOptimizer: option "initial_scale" must be from 2^-24 to 2^126, got %g')
      :format(chosen.initial_scale))
  end
  return setmetatable({ name = chosen.name or "loss_scale_optimizer", options = chosen,
    inner_optimizer = inner_of(chosen.inner_optimizer),
    step_counter = Optimizer.scalar(0, "int64", "step_counter"),
    dynamic_scale = Optimizer.scalar(chosen.initial_scale, "float32", "dynamic_scale"),
    skipped = Optimizer.scalar(0, "int64", "skipped") }, meta)
end

return setmetatable(LossScale, { __call = function(class, given) return class.new(given) end,
  __tostring = function() return "optimizer class LossScaleOptimizer" end })
