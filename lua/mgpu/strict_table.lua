--- Tables in which reading an unknown field raises an error that suggests the nearest known name.
--
-- strict(kind, t)               makes the table `t` strict.
-- strict.lazy(kind, folder, t, later)  RETURNS a strict table whose field X is loaded on first use: it is what
--                               require(folder .. "." .. t[X]) returns, or the field X of that if the file defines
--                               several. `later`: an array of names that are planned but not built; reading one says
--                               so. Calling the table RETURNS the sorted field names. Its metatable has the fields
--                               folder and files = t, for tests/docstrings.lua.
-- `kind` names the table in the error: unknown layer "Dens" (did you mean "Dense"?).
local core = require "mgpu.core"

local M = {}

local function sorted_keys(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- kind: of foreign_names.lua
local function fail_unknown(what, name, names, kind)
  local hint = require "mgpu.foreign_names".hint(kind, name, names)
  core.fail("usage", ("%s %q%s"):format(what, tostring(name), hint))
end

--- lazy(kind, folder, files, later): see the top.
function M.lazy(kind, folder, files, later)
  local names, planned = sorted_keys(files), {}
  for _, name in ipairs(later or {}) do planned[name] = true end
  return setmetatable({}, {
    __index = function(self, name)
      if planned[name] then
        core.fail("unsupported", ("mgpulua has no %s %s yet"):format(kind, name))
      end
      if not files[name] then fail_unknown("unknown " .. kind, name, names, kind) end
      local value = require(folder .. "." .. files[name])
      if type(value) == "table" and not getmetatable(value) and value[name] then value = value[name] end
      rawset(self, name, value)
      return value
    end,
    __call = function() return names end,
    folder = folder,
    files = files,
  })
end

local function make_strict(_, kind, t)
  return setmetatable(t, {
    __index = function(_, name) fail_unknown(kind .. " has no", name, sorted_keys(t)) end,
  })
end

return setmetatable(M, { __call = make_strict })
