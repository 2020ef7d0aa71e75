--- Tables whose unknown fields are errors.
--
-- closed(kind, t) RETURNS t; reading a field that it lacks raises, naming the nearest there is.
local core = require "mgpu.core"

return function(kind, t)
  return setmetatable(t, {
    __index = function(_, name)
      local names = {}
      for known in pairs(t) do names[#names + 1] = known end
      local near = type(name) == "string" and core.nearest(name, names)
      core.fail("usage", ("%s has no %q%s"):format(kind, tostring(name),
        near and (" (did you mean %q?)"):format(near) or ""))
    end,
  })
end
