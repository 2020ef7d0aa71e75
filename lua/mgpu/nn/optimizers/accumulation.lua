--- Steps that do not change the weights: gradients added up over several steps, and steps that are undone.
local core = require "mgpu.core"

local ops = core.ops

local M = {}

-- ---- undone steps -------------------------------------------------------------------------------

-- Steps of an optimizer that only happen on a condition known on the device: they are made, and undone where it fails.

-- The variables that a step of the optimizer changes, each with its value before the step.
local function before_step(optimizer, variables)
  local list = {}
  for _, v in ipairs(variables) do list[#list + 1] = { v, v:value() } end
  for _, v in ipairs(optimizer:variables()) do
    if v ~= rawget(optimizer, "rate") then list[#list + 1] = { v, v:value() } end
  end
  return list
end

--- unless(condition, optimizer, variables, step): runs step(), then gives the variables, and those of the optimizer,
--- their old values where `condition`, a bool tensor, is false.
function M.unless(condition, optimizer, variables, step)
  local before = before_step(optimizer, variables)
  step()
  for _, entry in ipairs(before) do
    local v, old = entry[1], entry[2]
    v:assign(ops.where(core.place(condition, v:device()), v:value(), old))
  end
end

-- ---- accumulation -------------------------------------------------------------------------------

-- Gradient accumulation (option gradient_accumulation_steps = n): only every n-th call of apply changes the variables,
-- by the mean gradient of the n calls. The sum of the gradients of a variable is one of its slots.
--
--     sum <- sum + g                                         n - 1 times
--     the rule's step with (sum + g) / n;  sum <- 0          the n-th time
-- As in Keras, `iterations` and a schedule count the calls of apply, and the rule (Adam's correction, for example)
-- counts its own steps.

M.SLOT = "gradient_accumulator"

--- updates(optimizer) -> how many steps the rule has taken, a tensor.
function M.updates(optimizer)
  local n, calls = optimizer.options.gradient_accumulation_steps, optimizer.iterations
  return n and ops.floordiv(calls, n) or calls
end

--- step(optimizer, grads, variables, update): adds up the gradients. At every n-th call it calls update(means).
function M.step(optimizer, grads, variables, update)
  local n, sums, means = optimizer.options.gradient_accumulation_steps, {}, {}
  local due = ops.eq(ops.mod(ops.add(optimizer.iterations, 1), n), 0)
  for i, v in ipairs(variables) do
    sums[i] = optimizer.slots[v][M.SLOT]:value() + grads[i]
    means[i] = sums[i] / n
  end
  M.unless(due, optimizer, variables, function() update(means) end)
  for i, v in ipairs(variables) do
    local slot = optimizer.slots[v][M.SLOT]
    local sum = sums[i]:dtype() == v:dtype() and sums[i] or ops.cast(sums[i], { dtype = v:dtype() })
    slot:assign(ops.where(core.place(due, v:device()), 0, sum))
  end
end

return M
