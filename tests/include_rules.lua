-- Checks that includes point one way through the layers of runtime/, and that files keep to their length.
--
--     luajit tests/include_rules.lua FILE...   exit status 1 if a rule is broken
--
-- tests/lua/include_rules_spec.lua loads this file as a module and checks all of runtime/ with it.
--
--     core <- ops <- device <- graph <- bind        world: beside ops
--
-- comm includes only core, world includes core and comm, io includes graph, data includes the devices and io. There
-- are no exceptions. A folder inside runtime/device is reached only through the device interface, apart from
-- device/program, which the devices share; only the bindings, the program and its prompt know Lua.

-- Folder -> the folders whose headers it may include, besides its own.
local may_include = {
  core = {},
  ops = { core = true, comm = true }, -- a row names its collective: comm/collective.h
  comm = { core = true },
  world = { core = true, comm = true },
  device = { core = true, ops = true, comm = true, world = true },
  graph = { core = true, ops = true, device = true, comm = true, world = true },
  data = { core = true, ops = true, device = true, io = true },
  io = { core = true, device = true, graph = true },
  server = { core = true },
  bind = { core = true, ops = true, world = true, device = true, graph = true, data = true, io = true,
    server = true },
  program = { core = true, world = true, device = true, bind = true },
  prompt = { core = true, program = true },
  pack = { core = true, device = true, graph = true, io = true, bind = true, program = true },
  main = { core = true, program = true, prompt = true }, -- runtime/main.c
  host = {}, -- runtime/mgpu.h
}

local MOST_LINES = 600

local function read(path)
  local f = assert(io.open(path))
  local text = f:read "*a"
  f:close()
  return text
end

local function line_count(text)
  local _, n = text:gsub("\n", "")
  return n
end

local function folder_of(path)
  return path:match "^runtime/([^/]+)/" or path == "runtime/main.c" and "main" or "host"
end

local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end

local function include_problem(path, header)
  if not header:find "/" and exists(path:match "^.*/" .. header) then return nil end -- beside the file
  local mine, theirs = folder_of(path), header:match "^([^/]+)/" or "host"
  if theirs == "device" and header:find "^device/[^/]+/" and not header:find "^device/program/" then
    local inside = header:match "^(device/[^/]+/)"
    if path:find("runtime/" .. inside, 1, true) then return nil end
    return "reaches inside a device"
  end
  if mine == theirs or may_include[mine][theirs] then return nil end
  return ("%s may not know %s"):format(mine, theirs)
end

-- The rules that a file of this text would break, as a list of sentences.
local function broken_rules(path, text)
  local problems = {}
  local function problem(what) problems[#problems + 1] = path .. ": " .. what end
  local n = line_count(text)
  if n > MOST_LINES then problem(("%d lines, at most %d"):format(n, MOST_LINES)) end
  if not path:find "^runtime/" then return problems end
  local mine = folder_of(path)
  if not may_include[mine] then
    problem "is in a folder without a layer: give it one in tests/include_rules.lua"
    return problems
  end
  for header in text:gmatch '#include "([^"]+)"' do
    local reason = include_problem(path, header)
    if reason then problem(('#include "%s": %s'):format(header, reason)) end
  end
  local knows_lua = mine == "bind" or mine == "program" or mine == "prompt" or mine == "pack"
    or mine == "main"
  if not knows_lua and text:find "#include <l[ua]+[a-z]*%.h>" then problem "includes Lua" end
  return problems
end

local function check(path) return broken_rules(path, read(path)) end

if ... == "module" then return { broken_rules = broken_rules, check = check } end

local broken = 0
for _, path in ipairs(arg) do
  for _, text in ipairs(check(path)) do
    print(text)
    broken = broken + 1
  end
end
os.exit(broken == 0 and 0 or 1)
