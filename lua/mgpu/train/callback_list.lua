--- The callbacks of one fit, evaluate or predict as a single object that checks them first, then calls them in order.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local LogNames = require "mgpu.train.log_names"
local logs = require "mgpu.train.logs"
local shared_callbacks = require "mgpu.train.shared_callbacks"
local span = require "mgpu.span"
local world = require "mgpu.parallel.world"

local IS_METHOD = {}
for _, name in ipairs(Callback.METHODS) do IS_METHOD[name] = true end

-- The older name of a method, called where a callback lacks the newer one.
local OLDER = { on_train_batch_begin = "on_batch_begin", on_train_batch_end = "on_batch_end" }

local function fail(what, message, ...) core.fail("usage", what .. ": " .. message:format(...)) end

-- ---- checks -------------------------------------------------------------------------------------

-- Whether the callback or one of its base classes has a callback method. A misspelled one ("on_epoch_ends") raises.
local function has_method(what, callback, label)
  local found = false
  for key in pairs(callback) do
    found = found or IS_METHOD[key]
    if type(key) == "string" and key:find "^on_" and not IS_METHOD[key] then
      fail(what, "%s has a function %q, which is never called%s; there are %s", label, key,
        core.did_you_mean(key, Callback.METHODS), table.concat(Callback.METHODS, ", "))
    end
  end
  local meta = getmetatable(callback)
  local class = type(meta) == "table" and meta.__index
  if type(class) == "table" and class ~= callback then found = has_method(what, class, label) or found end
  return found
end

local function check_callback(what, callback, label)
  if type(callback) ~= "table" then
    fail(what, "%s must be made by mgpu.callbacks or be a table of functions such as on_epoch_end, got %s", label,
      type(callback) == "string" and ("%q"):format(callback) or "a " .. type(callback))
  elseif rawget(callback, "new") then
    fail(what, "%s is a class: call it, as in %s {}", label, callback.class or "Class")
  end
  if not has_method(what, callback, label) and not getmetatable(callback) then
    fail(what, "%s has none of the functions %s", label, table.concat(Callback.METHODS, ", "))
  end
end

-- The option `callbacks` as an array: it may be nil, one callback, or an array of them.
local function to_array(what, given)
  if given == nil or next(given) == nil and not getmetatable(given) then return {} end
  if getmetatable(given) or type(next(given)) == "string" and #given == 0 then
    check_callback(what, given, "callbacks")
    return { given }
  end
  local n = 0
  for key, callback in pairs(given) do
    if type(key) ~= "number" then
      fail(what, "callbacks is an array, but has an entry %q: put the functions into a table", tostring(key))
    end
    check_callback(what, callback, ("callbacks[%d]"):format(key))
    n = n + 1
  end
  for i = 1, n do
    if given[i] == nil then fail(what, "callbacks[%d] is nil: an array has no holes", i) end
  end
  return given
end

-- ---- the list -----------------------------------------------------------------------------------

local CallbackList = {}
CallbackList.__index = CallbackList

--- new(what, model, given, params, history, recorder) -> the list, each callback with its model and params.
-- ARGS what: names the method in errors; given: its option `callbacks`; history: of fit, called after the others, so
--   that it has the values they add to the logs; recorder: of fit, called before the history, or nil.
function CallbackList.new(what, model, given, params, history, recorder)
  local self = setmetatable({ list = { unpack(to_array(what, given)) } }, CallbackList)
  self.list[#self.list + 1] = recorder
  self.history, self.list[#self.list + 1] = history, history
  for _, callback in ipairs(self.list) do callback.model, callback.params = model, params end
  return self
end

--- check_fit(measured, validated, more): lets the callbacks check their options before training starts.
-- ARGS: see log_names.lua.
function CallbackList:check_fit(measured, validated, more)
  local names = LogNames.new(measured, validated, self.list, more)
  self.names = names
  for _, callback in ipairs(self.list) do
    if callback.check_fit then callback:check_fit(names) end
  end
end

--- check(what, callback): raises unless it can be called by fit and the like.
function CallbackList.check(what, callback)
  check_callback(what, callback, "the callback")
  if callback.saves_run then
    fail(what, "what saves and continues a fit must be there when it begins: give it to fit")
  end
end

--- methods_of(callback) -> array of the callback methods that it has.
function CallbackList.methods_of(callback)
  local names = {}
  for _, name in ipairs(Callback.METHODS) do
    if callback[name] then names[#names + 1] = name end
  end
  return names
end

--- add(what, callback): adds one while a fit is under way, before the history, and calls its on_train_begin.
function CallbackList:add(what, callback)
  CallbackList.check(what, callback)
  callback.model, callback.params = self.history.model, self.history.params
  if callback.check_fit then callback:check_fit(self.names) end
  if callback.on_train_begin then callback:on_train_begin(logs.new()) end
  table.insert(self.list, #self.list, callback)
end

local function has(list, method)
  for _, callback in ipairs(list) do
    if callback[method] or callback[OLDER[method]] then return true end
  end
  return false
end

--- has(method): whether any callback has it.
function CallbackList:has(method) return has(self.list, method) end

local function call_each(list, method, ...)
  for _, callback in ipairs(list) do
    local fn = callback[method] or callback[OLDER[method]]
    if fn then span("callback", ("%s:%s"):format(callback.class or "callback", method), nil, fn, callback, ...) end
  end
end

--- call(method, ...): calls it on every callback that has it, in order. With several processes, the user's callbacks
--- run on rank 0 (shared_callbacks.lua), and the history, which is the last, on all.
function CallbackList:call(method, ...)
  if not world.is_joint() then return call_each(self.list, method, ...) end
  local last = select("#", ...) > 0 and select(-1, ...) or nil
  local own = { unpack(self.list, 1, self.history and #self.list - 1 or #self.list) }
  local arguments = { ... }
  if has(own, method) then
    shared_callbacks(own[1].model, last, function() call_each(own, method, unpack(arguments)) end)
  end
  if self.history then call_each({ self.history }, method, ...) end
end

return CallbackList
