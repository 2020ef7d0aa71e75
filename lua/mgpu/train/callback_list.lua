--- The callbacks of one fit as a single object that checks them first and then calls them in order.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"

local IS_METHOD = {}
for _, name in ipairs(Callback.METHODS) do IS_METHOD[name] = true end

local function fail(message, ...) core.fail("usage", "fit: " .. message:format(...)) end

-- ---- checks -------------------------------------------------------------------------------------

-- Whether the callback or one of its base classes has a callback method. A misspelled one ("on_epoch_ends") raises.
local function has_method(callback, label)
  local found = false
  for key in pairs(callback) do
    found = found or IS_METHOD[key]
    if type(key) == "string" and key:find "^on_" and not IS_METHOD[key] then
      fail("%s has a function %q, which fit does not call%s; it calls %s", label, key,
        core.did_you_mean(key, Callback.METHODS), table.concat(Callback.METHODS, ", "))
    end
  end
  local meta = getmetatable(callback)
  local class = type(meta) == "table" and meta.__index
  if type(class) == "table" and class ~= callback then found = has_method(class, label) or found end
  return found
end

local function check_callback(callback, label)
  if type(callback) ~= "table" then
    fail("%s must be made by mgpu.callbacks or be a table of functions such as on_epoch_end, got %s", label,
      type(callback) == "string" and ("%q"):format(callback) or "a " .. type(callback))
  elseif rawget(callback, "new") then
    fail("%s is a class: call it, as in %s {}", label, callback.class or "Class")
  end
  if not has_method(callback, label) and not getmetatable(callback) then
    fail("%s has none of the functions %s", label, table.concat(Callback.METHODS, ", "))
  end
end

-- The option `callbacks` as an array: it may be nil, one callback, or an array of them.
local function to_array(given)
  if given == nil or next(given) == nil and not getmetatable(given) then return {} end
  if getmetatable(given) or #given == 0 then
    check_callback(given, "callbacks")
    return { given }
  end
  for key, callback in pairs(given) do
    if type(key) ~= "number" then
      fail("callbacks is an array, but has an entry %q: put the functions into a table", tostring(key))
    end
    check_callback(callback, ("callbacks[%d]"):format(key))
  end
  return given
end

-- ---- the list -----------------------------------------------------------------------------------

local CallbackList = {}
CallbackList.__index = CallbackList

--- new(model, given, history): `given` is fit's option; `history` comes first. Gives each its model and params.
function CallbackList.new(model, given, history)
  local self = setmetatable({ list = { history, unpack(to_array(given)) } }, CallbackList)
  for _, callback in ipairs(self.list) do
    callback.model, callback.params = model, history.params
  end
  return self
end

--- has(method): whether any callback has it.
function CallbackList:has(method)
  for _, callback in ipairs(self.list) do
    if callback[method] then return true end
  end
  return false
end

--- call(method, ...): calls it on every callback that has it, in order.
function CallbackList:call(method, ...)
  for _, callback in ipairs(self.list) do
    local fn = callback[method]
    if fn then fn(callback, ...) end
  end
end

return CallbackList
