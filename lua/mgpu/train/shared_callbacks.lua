--- Callbacks with several processes: they run on rank 0, and what they decide reaches all ranks.
--
-- Sent are: new values of the model's and the optimizer's variables (weights, learning rate), the flags that stop a
-- loop, values that were added to the logs, the state of the random numbers, and errors. Other fields that a callback
-- sets stay on rank 0.
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"
local shared_weights = require "mgpu.train.shared_weights"
local world = require "mgpu.parallel.world"

local FLAGS = { "stop_training", "stop_evaluating", "stop_predicting" }

local function changes_of(variables)
  local counts = {}
  for i, v in ipairs(variables) do counts[i] = core.variable_changes(v) end
  return counts
end

-- Which layers are trainable, as text: the others would trace another step.
local function trainable_of(model)
  local list = {}
  model:each_layer(function(layer) list[#list + 1] = layer.trainable and "+" or "-" end)
  return table.concat(list)
end

-- The numbers that were added to the logs, as texts, which keep all bits, infinity and NaN.
local function added_numbers(values)
  local list = {}
  for _, each in ipairs(logs.added(values)) do
    if type(each[2]) == "number" then list[#list + 1] = { each[1], ("%.17g"):format(each[2]) } end
  end
  return list
end

local function number_of(text)
  return text:find "nan" and 0 / 0 or text:find "inf" and (text:find "-" and -math.huge or math.huge) or tonumber(text)
end

-- What rank 0 does; RETURNS what the others need to know.
local function run_alone(model, variables, values, fn)
  local before, trainable = changes_of(variables), trainable_of(model)
  fn()
  if model.compiled and model.compiled.next_devices then
    core.fail("usage", "set_devices: a callback cannot change the devices of a model that several processes train")
  elseif trainable_of(model) ~= trainable then
    core.fail("usage", "a callback cannot change which layers are trainable while several processes train: do it "
      .. "between two fits, on all ranks")
  end
  local decided = { changed = {}, flags = {}, logs = added_numbers(values), random = core.rng_state() }
  for i, count in ipairs(changes_of(variables)) do
    if count ~= before[i] then decided.changed[#decided.changed + 1] = i end
  end
  for _, name in ipairs(FLAGS) do decided.flags[name] = model[name] == true end
  return decided
end

--- call(model, values, fn): fn() on rank 0, and its decisions on all ranks.
-- ARGS values: the logs that fn may add to, or nil.
return function(model, values, fn)
  local variables = shared_weights.variables_of(model)
  values = type(values) == "table" and values or logs.new()
  local decided = world.first(function() return run_alone(model, variables, values, fn) end)
  if #decided.changed > 0 then
    local changed = {}
    for i, number in ipairs(decided.changed) do changed[i] = variables[number] end
    core.world_send_values(changed)
  end
  if world.is_first() then return end
  core.rng_state(decided.random)
  for name, flag in pairs(decided.flags) do model[name] = flag or model[name] and false end
  for _, each in ipairs(decided.logs) do
    if values[each[1]] == nil then values[each[1]] = number_of(each[2]) end
  end
end
