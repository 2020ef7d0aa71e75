-- Files that the READMEs and the comments of runtime/ and lua/ name are there, and no row of a README stands twice.

local check = require "check"
local test = check.test

local PAGES = { "README.md", "runtime/README.md", "lua/README.md", "tests/README.md", "tests/cuda/README.md" }

local ENDINGS = { c = true, h = true, cu = true, def = true, lua = true }

-- Names that are not of files here: examples, and headers of the system and of libraries.
local OTHERS = {}
for name in ([[digits.lua file.lua train.lua script.lua nn/layers/scale.lua lua/mgpu/nn/layers/scale.lua
  runtime/device/toy/plugin.c mpi_abi.h stdio.h math.h jpeglib.h]]):gmatch "%S+" do OTHERS[name] = true end

-- The set of the files of the sources, each as all ends of its path: "runtime/core/log.h", "core/log.h", "log.h".
local function files()
  local known, list = {}, {}
  for path in (check.run "find runtime lua tests models examples -type f"):gmatch "[^\n]+" do
    list[#list + 1] = path
    local rest = path
    while rest do
      known[rest] = true
      rest = rest:match "^[^/]*/(.*)$"
    end
  end
  return known, list
end

-- The part of a line that is a comment, of C or Lua; nil if there is none.
local function comment(path, line)
  if path:find "%.lua$" then return line:match "%-%-.*" end
  return line:match "/%*.*" or line:match "^%s*%*.*"
end

-- Adds the names of files in a text that are not known. Members of structs ("v.c"), patterns and ends of names do not
-- count.
local function unknown_names(known, path, text, missing)
  text = " " .. text
  for before, name, ending, after in text:gmatch "(.)(%l[%l%d_/]+%.(%l+))()" do
    local is_name = ENDINGS[ending] and not before:find "[%w_/.*<-]" and not text:find("^[%w_*(]", after)
    if is_name and not known[name] and not OTHERS[name] then missing[#missing + 1] = path .. ": " .. name end
  end
end

test("the files that the READMEs and the comments name are there", function()
  local missing, known, list = {}, files()
  for _, path in ipairs(PAGES) do
    for line in io.lines(path) do unknown_names(known, path, line, missing) end
  end
  for _, path in ipairs(list) do
    if path:find "^runtime/.*%.[ch]u?$" or path:find "^lua/mgpu/.*%.lua$" then
      for line in io.lines(path) do
        local text = comment(path, line)
        if text then unknown_names(known, path, text, missing) end
      end
    end
  end
  check.equal(table.concat(missing, "\n"), "")
end)

test("no row of a README stands twice", function()
  local twice = {}
  for _, path in ipairs(PAGES) do
    local seen = {}
    for line in io.lines(path) do
      local row = line:match "^| (`[^|]*) |" or line:match "^ +([%w_/]+/) %s+%S"
      if row and seen[row] then twice[#twice + 1] = path .. ": " .. row end
      if row then seen[row] = true end
      if line:find "^#" then seen = {} end
    end
  end
  check.equal(table.concat(twice, "\n"), "")
end)
