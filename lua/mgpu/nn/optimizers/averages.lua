--- Averages of the variables over the steps (option use_ema). The average of a variable is one of its slots.
--
--     average <- momentum * average + (1 - momentum) * v       after each step; the first sets it to v
-- After every ema_overwrite_frequency steps, and in finalize_variable_values, v <- average.
-- Source: Polyak & Juditsky, Acceleration of stochastic approximation by averaging, 1992.
local accumulation = require "mgpu.nn.optimizers.accumulation"
local core = require "mgpu.core"

local ops = core.ops
local M = {}

M.SLOT = "average"

--- check_new(optimizer, v): raises for a variable that is new after the first step: its average would start at 0.
function M.check_new(optimizer, v)
  if optimizer.options.use_ema and optimizer.begun then
    core.fail("usage", ("%s: the variable %q is new: with use_ema all variables must be given to build, "
      .. "or to the first apply"):format(optimizer.name, v.name))
  end
end

--- update(optimizer): updates the averages of all variables the optimizer knows, as in Keras also of those without a
--- gradient in this step.
function M.update(optimizer)
  local chosen = optimizer.options
  if not chosen.use_ema then return end
  local updates = accumulation.updates(optimizer)
  local later = ops.cast(ops.ne(updates, 0), { dtype = "float64" })
  local momentum = later * chosen.ema_momentum
  local every = chosen.ema_overwrite_frequency
  local due = every and ops.eq(ops.mod(ops.add(updates, 1), every), 0)
  for _, v in ipairs(optimizer.built) do
    local slot, value = optimizer.slots[v][M.SLOT], v:value()
    local device = value:device()
    local share = core.place(ops.cast(momentum, { dtype = v:dtype() }), device)
    local average = share * slot:value() + (1 - share) * value
    slot:assign(average)
    if due then v:assign(ops.where(core.place(due, device), average, value)) end
  end
end

--- opt:finalize_variable_values(variables): sets the variables to their averages. Does nothing without use_ema and
--- before the first step. Errors: a variable that the optimizer does not know.
function M.finalize(optimizer, variables)
  if not optimizer.options.use_ema then return end
  for _, v in ipairs(variables) do
    if not optimizer.slots[v] then
      core.fail("usage", ("finalize_variable_values: %s has never been given the variable %q"):format(
        optimizer.name, v.name))
    end
  end
  local begun = ops.gt(optimizer.iterations, 0)
  for _, v in ipairs(variables) do
    local average = optimizer.slots[v][M.SLOT]:value()
    v:assign(ops.where(core.place(begun, average:device()), average, v:value()))
  end
end

return M
