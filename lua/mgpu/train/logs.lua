--- Logs: the values of an epoch or an evaluation, by name in a fixed order.
--
-- A logs table holds each value under its name and, for `unpack`, under its position. `acc` reads `accuracy` and the
-- other way round; `val_acc` likewise.
local M = {}

local order = setmetatable({}, { __mode = "k" }) -- logs -> array of its names in the order they were set

-- The other spelling of acc and accuracy, with or without val_.
local function alias(name)
  local prefix, base = name:match "^(val_)(.*)$"
  if not prefix then prefix, base = "", name end
  if base == "acc" then return prefix .. "accuracy" end
  if base == "accuracy" then return prefix .. "acc" end
end

local Logs = {}
function Logs.__index(self, name)
  local other = type(name) == "string" and alias(name)
  return other and rawget(self, other)
end

function Logs.__newindex(self, name, value)
  local names = order[self]
  names[#names + 1] = name
  rawset(self, name, value)
end

--- new() -> empty logs.
function M.new()
  local logs = {}
  order[logs] = {}
  return setmetatable(logs, Logs)
end

--- each(logs): for name, value in logs.each(values) do ... end, in the order they were set.
function M.each(logs)
  local names, i = order[logs], 0
  return function()
    i = i + 1
    if names[i] then return names[i], rawget(logs, names[i]) end
  end
end

--- with_positions(logs) -> a copy whose values can be read by position too.
function M.with_positions(logs)
  local copy = M.new()
  for name, value in M.each(logs) do
    copy[name] = value
    rawset(copy, #order[copy], value)
  end
  return copy
end

return M
