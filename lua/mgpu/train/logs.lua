--- Logs: the values of a step, an epoch or an evaluation, by name in a fixed order.
--
-- A logs table holds each value under its name and, for `unpack`, under its position. `acc` and `accuracy` are one
-- key, and so are `val_acc` and `val_accuracy`. The logs of a step are lazy: they are read from the device when
-- the first field is read.
local M = {}

-- logs -> array of its names in the order they were set. Its field `read` returns the values of lazy logs; `measured`
-- is the number of names that seal found.
local order = setmetatable({}, { __mode = "k" })

-- The other spelling of acc and accuracy, at the end of a name: val_acc is val_accuracy.
local function alias(name)
  if name == "acc" or name:find "_acc$" then return name .. "uracy" end
  if name == "accuracy" or name:find "_accuracy$" then return name:sub(1, -6) end
end

-- Reads the values of lazy logs. A value that was set before keeps its number.
local function fill(self)
  local names = order[self]
  local read = names.read
  names.read = nil
  for name, value in M.each(read()) do
    if rawget(self, name) == nil then self[name] = value end
  end
end

local Logs = {}
function Logs.__index(self, name)
  if type(name) ~= "string" then return nil end
  if order[self].read then
    fill(self)
    if rawget(self, name) ~= nil then return rawget(self, name) end
  end
  local other = alias(name)
  return other and rawget(self, other)
end

function Logs.__newindex(self, name, value)
  local other = alias(name)
  if other and self[other] ~= nil then
    rawset(self, other, value)
    return
  end
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

--- lazy(read) -> logs whose values read() returns, as logs; it is called when a field is read.
function M.lazy(read)
  local logs = M.new()
  order[logs].read = read
  return logs
end

--- seal(logs): names that are set from here on were added by callbacks.
function M.seal(logs) order[logs].measured = #order[logs] end

--- added(logs) -> array of {name, value} of what callbacks have added; nothing before seal.
function M.added(logs)
  local list, names = {}, order[logs]
  for i = (names.measured or #names) + 1, #names do list[#list + 1] = { names[i], rawget(logs, names[i]) } end
  return list
end

--- each(logs): for name, value, added in logs.each(values) do ... end, in the order they were set. `added`: whether a
--- callback added the value. Reads lazy logs.
-- Example:
--     local Show = mgpu.callbacks.Callback:extend "Show"
--     function Show:on_epoch_end(_, logs)
--       for name in self.each(logs) do print(name) end
--     end
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { loss = "mse", metrics = { "mae" } }
--     model:fit(mgpu.ones { 4, 1 }, mgpu.ones { 4, 1 }, { verbose = 0, callbacks = Show {} })
--     --> loss
--     --> mae
function M.each(logs)
  if order[logs].read then fill(logs) end
  local names, i = order[logs], 0
  return function()
    i = i + 1
    if names[i] then return names[i], rawget(logs, names[i]), i > (names.measured or i) end
  end
end

-- {loss = 0.4579, accuracy = 0.85}
function Logs.__tostring(self)
  local parts = {}
  for name, value in M.each(self) do
    parts[#parts + 1] = ("%s = %s"):format(name, type(value) == "number" and ("%.4g"):format(value) or tostring(value))
  end
  return require "mgpu.core".printable("{" .. table.concat(parts, ", ") .. "}", true)
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
