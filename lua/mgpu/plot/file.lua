--- Where pictures go: the check of names before any work, and the writing.
local core = require "mgpu.core"
local world = require "mgpu.parallel.world"
local options = require "mgpu.options"

local M = {}

--- check(who, path, ending, declared, given) -> the checked options. Raises unless a file with this ending can be
--- written at the path.
function M.check(who, path, ending, declared, given)
  if type(path) ~= "string" then
    core.fail("usage", ('%s "x%s": the path must be text, got %s'):format(who, ending,
      path == nil and "nothing" or "a " .. type(path)))
  end
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    core.fail("usage", ("%s: options are a table, got a %s"):format(who, type(given)))
  end
  if path:lower():sub(-#ending) ~= ending then
    core.fail("usage", ("%s: %s: the name must end in %s"):format(who, path, ending))
  end
  core.check_creatable(path, who)
  return options.check(who, declared, given or {})
end

--- write(path, text): the file is the old one or complete.
function M.write(path, text)
  if world.is_first() then core.write_file(path, text .. "\n") end
end

return M
