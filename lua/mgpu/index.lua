--- Tables of classes and functions that are loaded on first use.
--
-- index(kind, folder, names) RETURNS a table whose field X is what `folder.names[X]` returns. An
-- unknown field is an error that names the nearest valid one.
local core = require "mgpu.core"

return function(kind, folder, names)
  local list = {}
  for name in pairs(names) do list[#list + 1] = name end
  table.sort(list)
  return setmetatable({}, {
    __index = function(self, name)
      local file = names[name]
      if not file then
        local near = type(name) == "string" and core.nearest(name, list)
        core.fail("usage", ("unknown %s %q%s"):format(kind, tostring(name),
          near and (" (did you mean %q?)"):format(near) or ""))
      end
      local value = require(folder .. "." .. file)
      rawset(self, name, value)
      return value
    end,
    __call = function() return list end, -- the names, for documentation and tests
  })
end
