-- The check behind `make lint` that public functions have docstrings (tests/docstrings.lua).

local check = require "check"
local docstrings = require "docstrings"
local test = check.test

local planted = 0

-- What the check finds in the table that a Lua file with this text returns.
local function found_in(text)
  planted = planted + 1
  local path, found = check.path(("planted%d.lua"):format(planted)), {}
  check.write(path, text)
  docstrings.check_table(found, "planted", assert(loadfile(path))())
  return found
end

test("a function without a comment, or with a plain one, is found", function()
  local found = found_in("local M = {}\n\nfunction M.bare(x) return x end\n\n-- Not enough.\n"
    .. "function M.plain() end\n\nreturn M\n")
  table.sort(found)
  check.equal(#found, 2)
  check.matches(found[1], "planted1.lua:3: planted.bare has no docstring")
  check.matches(found[2], "planted1.lua:6: planted.plain has no docstring")
end)

test("a docstring of several lines is enough, and what is private needs none", function()
  check.equal(found_in("local M = {}\n--- documented(x) -> x.\n-- More of it.\nfunction M.documented(x) return x end\n"
    .. "function M._private() end\nreturn M\n"), {})
end)

test("a method that overrides a documented one needs no docstring", function()
  check.equal(found_in("local Base = {}\n--- call(x) -> y.\nfunction Base.call() end\n"
    .. "local Class = setmetatable({}, { __index = Base })\nfunction Class.call() end\nreturn Class\n"), {})
end)

test("everything that mgpu offers has a docstring", function()
  check.equal(docstrings.check_all(), {})
end)
