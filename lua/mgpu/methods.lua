--- Methods that explain a misuse which Lua would answer with an error of its own.
local core = require "mgpu.core"

local M = {}

local inner = setmetatable({}, { __mode = "k" }) -- what checked returned -> fn

--- checked(fn, check) -> a function that calls check with its arguments, then fn.
function M.checked(fn, check)
  local function outer(first, ...)
    check(first, ...)
    return fn(first, ...)
  end
  inner[outer] = fn
  return outer
end

--- colon(example, is_self, fn, check) -> fn as a method. It raises, showing `example`, unless is_self(self) holds: then
--- it was called with a dot. Otherwise it first calls check (nil: none) with its other arguments.
function M.colon(example, is_self, fn, check)
  local function outer(self, ...)
    if not is_self(self) then core.fail("usage", ("a method is called with a colon: write %s"):format(example)) end
    if check then check(...) end
    return fn(self, ...)
  end
  inner[outer] = fn
  return outer
end

--- want_colons(class, what, mark, names): makes these methods of the class raise for a call with a dot, which passes no
--- object with the field `mark`. The error shows what:name(...).
function M.want_colons(class, what, mark, names)
  local function is_self(value) return type(value) == "table" and value[mark] ~= nil end
  for _, name in ipairs(names) do
    class[name] = M.colon(("%s:%s(...)"):format(what, name), is_self, class[name])
  end
end

--- inner(method) -> the function that colon or checked has wrapped, which has the docstring; any other method itself.
function M.inner(method) return inner[method] or method end

--- no_field(call, fn) -> fn as a method that raises, showing `call`, when it is read as if it were a field: t.shape[1].
function M.no_field(call, fn)
  local function refuse() core.fail("usage", ("this is a method, not a field: write %s"):format(call)) end
  local method = newproxy(true)
  local meta = getmetatable(method)
  meta.__call = function(_, ...) return fn(...) end
  meta.__index, meta.__newindex, meta.__len = refuse, refuse, refuse
  meta.__tostring = function() return "method " .. call end
  return method
end

return M
