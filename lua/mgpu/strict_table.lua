--- Tables in which reading an unknown field raises an error that suggests the nearest known name.
--
-- strict(kind, t)               makes the table `t` strict.
-- strict.lazy(kind, folder, t, aliases)  RETURNS a strict table whose field X is loaded on first use: it is what
--                               require(folder .. "." .. t[X]) returns, or the field X of that if the file defines
--                               several; t[X] = "file:Y" means the field Y. `aliases`: other names -> names.
--                               Calling the table RETURNS the sorted field names.
--                               Its metatable has the fields folder and files, the file of each name, for the
--                               documentation.
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

--- lazy(kind, folder, t, aliases): see the top.
function M.lazy(kind, folder, t, aliases)
  local names, files, fields = sorted_keys(t), {}, {}
  for name, entry in pairs(t) do
    local file, field = entry:match "^(.*):(.*)$"
    files[name], fields[name] = file or entry, field or name
  end
  return setmetatable({}, {
    __index = function(self, name)
      if aliases and aliases[name] then return self[aliases[name]] end
      if not files[name] then fail_unknown("unknown " .. kind, name, names, kind) end
      local value = require(folder .. "." .. files[name])
      local field = fields[name] or name
      if type(value) == "table" and not getmetatable(value) and value[field] then value = value[field] end
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
