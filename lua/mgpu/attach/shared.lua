--- With several processes: an attached command changes nothing that the ranks share.
--
-- It runs on one rank, at a step of its own. Had it changed weights or flags there, this rank would go on with others
-- than the rest. Such changes are undone, and the command fails.
local core = require "mgpu.core"
local shared_weights = require "mgpu.train.shared_weights"

local M = {}

local FLAGS = { "stop_training", "stop_evaluating", "stop_predicting" }

local function trainable_of(model)
  local list = {}
  model:each_layer(function(layer) list[#list + 1] = layer.trainable and true or false end)
  return list
end

local function restore_trainable(model, before)
  local i, changed = 0, false
  model:each_layer(function(layer)
    i = i + 1
    if before[i] == nil or (layer.trainable and true or false) == before[i] then return end
    layer.trainable, changed = before[i], true
  end)
  return changed
end

-- Gives the variables their values of before. RETURNS the name of one that had another.
local function restore_variables(variables, values, counts)
  local name
  for i, v in ipairs(variables) do
    if core.variable_changes(v) ~= counts[i] then
      v:assign(values[i])
      name = name or v.name
    end
  end
  return name
end

local function undo(model, before)
  local changed = restore_variables(before.variables, before.values, before.counts)
  if restore_trainable(model, before.trainable) then changed = changed or "which layers are trainable" end
  for _, flag in ipairs(FLAGS) do
    if model[flag] ~= before[flag] then
      model[flag] = before[flag]
      changed = changed or flag
    end
  end
  return changed and ("undone: the command has changed %s on one rank only: with several processes use job.stop(), "
    .. "job.learning_rate and job.add_callback on rank 0"):format(core.printable(changed, true)) or nil
end

--- guard(fit) -> a function, to be called after the command. RETURNS, as that, a sentence about what was undone; nil:
--- nothing was. fit: the one that is running, or nil.
function M.guard(fit)
  if not fit or not fit.joint then return function() end end
  local model = fit.model
  local variables, counts = shared_weights.variables_of(model), {}
  for i, v in ipairs(variables) do counts[i] = core.variable_changes(v) end
  local before = { variables = variables, counts = counts, values = shared_weights.values_of(variables),
    trainable = trainable_of(model) }
  for _, flag in ipairs(FLAGS) do before[flag] = model[flag] end
  return function() return undo(model, before) end
end

return M
