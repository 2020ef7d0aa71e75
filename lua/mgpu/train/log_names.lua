--- The names that the logs of a fit will hold, so that callbacks can check names before the first step.
--
-- names.epoch has those of on_epoch_end, names.batch those of on_train_batch_end: tables of logs.lua, in which `acc`
-- finds `accuracy`, with "always", or "sometimes" for values that only some epochs have. names.open says that a
-- callback of the user may add others.
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"

local LogNames = {}
LogNames.__index = LogNames

local function list_of(set)
  local list = {}
  for name in logs.each(set) do list[#list + 1] = name end
  return list
end

--- names:check(who, what, name, when = "epoch") -> "always", "sometimes", or nil where a callback may add the name.
--- Raises if the logs will not have it. ARGS who, what: the callback and its option in the message.
function LogNames:check(who, what, name, when)
  local set = self[when or "epoch"]
  if set[name] or (self.open and when ~= "batch") then return set[name] end
  local list, hint = list_of(set), nil
  if self.epoch[name] then
    hint = " after a batch, only after an epoch"
  elseif name:find "^val_" and not self.validated then
    hint = ", since no epoch has validation data"
  end
  core.fail("usage", ("fit: %s: option %q: the logs have no value %q%s; they have %s"):format(who, what, name,
    hint or core.did_you_mean(name, list), table.concat(list, ", ")))
end

-- Whether a callback may add values that are not known here. A class names those it adds in `adds`.
local function is_open(callback)
  return not callback.adds and (callback.on_epoch_end or callback.on_test_end) and true or false
end

--- new(measured, validated, callbacks, more) -> the names.
-- ARGS measured: array of the names of loss and metrics; validated: nil without validation, "always", or "sometimes"
--   where only some epochs validate; callbacks: array of them; more: array of names that fit adds to an epoch.
function LogNames.new(measured, validated, callbacks, more)
  local self = setmetatable({ epoch = logs.new(), batch = logs.new(), open = false, validated = validated }, LogNames)
  for _, name in ipairs(measured) do
    self.epoch[name], self.batch[name] = "always", "always"
  end
  for _, name in ipairs(validated and measured or {}) do self.epoch["val_" .. name] = validated end
  for _, name in ipairs(more) do self.epoch[name] = "always" end
  for _, callback in ipairs(callbacks) do
    for _, name in ipairs(callback.adds or {}) do self.epoch[name] = "always" end
    self.open = self.open or is_open(callback)
  end
  return self
end

return LogNames
