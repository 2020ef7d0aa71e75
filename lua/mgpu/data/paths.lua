--- The paths that a source of files is given: one, or a list of them.
local core = require "mgpu.core"

-- Whether it is a path: text without zero bytes.
local function is_path(value) return type(value) == "string" and value ~= "" and not value:find "%z" end

--- paths(who, given) -> a new list of paths. Errors, which begin with `who`: no path, or something else in the list.
return function(who, given)
  local list, fault = type(given) == "table" and given or { given }, nil
  if getmetatable(list) then list = {} else fault = core.array_fault(list) end
  for i, path in ipairs(list) do
    if not is_path(path) then
      fault = ("%s is %s, not a path"):format(list == given and ("path %d"):format(i) or "the first argument",
        type(path) == "string" and ("%q"):format(path) or "a " .. type(path))
      break
    end
  end
  if fault or #list == 0 then
    core.fail("usage", ("%s: %s"):format(who, fault or "a path, or a list of paths, is needed"))
  end
  return { unpack(list) }
end
