--- Steps of an optimizer that only happen on a condition known on the device: they are made, and undone where it fails.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

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

return M
