--- With several processes: all ranks begin with the weights and the optimizer's state of rank 0.
--
-- A rank may have changed its own, as a script does that loads weights on rank 0 only. Whether any has is asked before
-- each call that trains or evaluates; only then values are compared.
local core = require "mgpu.core"
local say = require "mgpu.say"
local world = require "mgpu.parallel.world"

local M = {}

--- variables_of(model) -> the variables of the model and of its optimizer, in the same order on all ranks.
function M.variables_of(model)
  local list, optimizer = { unpack(model.variables) }, model.compiled and model.compiled.optimizer
  for _, v in ipairs(model:kept_states()) do list[#list + 1] = v end
  for _, v in ipairs(optimizer and optimizer:variables() or {}) do list[#list + 1] = v end
  return list
end

--- values_of(variables) -> their present values.
function M.values_of(variables)
  local list = {}
  for i, v in ipairs(variables) do list[i] = v:value() end
  return list
end

local function count_changes(model)
  local sum = 0
  for _, v in ipairs(M.variables_of(model)) do sum = sum + 1 + core.variable_changes(v) end
  return sum
end

-- A number that stands for the dtypes and shapes of the variables.
local function layout_of(list)
  local hash = #list
  for _, v in ipairs(list) do
    local text = v:dtype() .. " " .. table.concat(v:shape(), " ")
    for i = 1, #text do hash = (hash * 33 + text:byte(i)) % 2 ^ 47 end
  end
  return hash
end

local function any(number)
  for _, n in ipairs(core.world_gather(number)) do
    if n ~= 0 then return true end
  end
  return false
end

local function send_differing(model)
  local list, differing = M.variables_of(model), {}
  if world.odd_rank(layout_of(list)) then return end -- the step will say what differs
  for i, number in ipairs(core.world_differing(list)) do differing[i] = list[number] end
  if #differing == 0 then return end
  core.world_send_values(differing)
  if world.is_first() then
    say("the ranks had different values of %s%s: all go on with those of rank 0\n", differing[1].name,
      #differing > 1 and (" and %d more variables"):format(#differing - 1) or "")
  end
end

--- share(compiled, model, fn) -> what fn() returns, after all ranks have got equal weights.
function M.share(compiled, model, fn)
  if not world.is_joint() then return fn() end
  core.world_begin()
  if any(compiled.shared_changes ~= count_changes(model) and 1 or 0) then send_differing(model) end
  local results = { fn() }
  compiled.shared_changes = count_changes(model)
  return unpack(results)
end

return M
