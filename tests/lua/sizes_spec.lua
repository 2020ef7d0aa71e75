-- `make size`: the table of the sources.

local check = require "check"

local test = check.test

local function write(name, text)
  local path = check.path(name)
  check.write(path, text)
  return path
end

test("a passage that stands in two files is listed, whatever its white space and comments", function()
  local a = write("a.lua", "local x = 1\n-- why\nlocal y = 2\nlocal z = 3\n\nlocal u = 4\nlocal v = 5\nlocal w = 6\n")
  local b = write("b.lua", "local begin = 0\n  local x = 1\nlocal y  = 2\nlocal z = 3\nlocal u = 4\nlocal v = 5\n"
    .. "local w = 6\n")
  local text = check.run(("luajit tests/sizes.lua %s %s"):format(a, b))
  check.truthy(text:find(("   6 lines  %s:1  %s:2"):format(a, b), 1, true), text)
  check.matches(text, "all +2 +15 +7 ") -- files, lines, median
end)

test("five equal lines are no passage", function()
  local lines = "local x = 1\nlocal y = 2\nlocal z = 3\nlocal u = 4\nlocal v = 5\n"
  local text = check.run(("luajit tests/sizes.lua %s %s"):format(write("a.lua", lines), write("b.lua", lines)))
  check.falsy(text:find "%d lines  ", text)
end)
