-- Checks that dependencies point one way, and that files keep to their length.
--
--     luajit tests/include_rules.lua FILE...           exit status 1 if a rule is broken
--     luajit tests/include_rules.lua --sizes FILE...   lines by folder, and the longest files
--
-- bind -> graph, data, io -> ops -> core; a device's folder is reached only through its interface;
-- only the bindings and the program know Lua.

-- Folder -> the folders whose headers it may include, besides its own.
local may_include = {
  core = {},
  ops = { core = true },
  device = { core = true, ops = true, comm = true },
  comm = { core = true },
  graph = { core = true, ops = true, device = true, comm = true },
  data = { core = true },
  io = { core = true },
  bind = { core = true, ops = true, graph = true, device = true, data = true, io = true },
  program = { core = true, device = true, program = true },
}

-- Headers that any folder may include: interfaces that lower layers call upwards.
local interface = {
  ["device/device.h"] = "a tensor knows the device that holds it",
  ["graph/graph.h"] = "reading a tensor evaluates it",
  ["ops/op.h"] = "a tensor knows the op that makes it",
  ["comm/collective.h"] = "the row of an op names its collective",
  ["mgpu.h"] = "the public interface",
}

local LONG, TOO_LONG = 600, 1000

local function read(path)
  local f = assert(io.open(path))
  local text = f:read "*a"
  f:close()
  return text
end

local function lines_of(path)
  local _, n = read(path):gsub("\n", "")
  return n
end

local function folder_of(path) return path:match "^runtime/([^/]+)/" or "program" end

local function include_problem(path, header)
  local mine, theirs = folder_of(path), header:match "^([^/]+)/" or "program"
  if theirs == "device" and header:find "^device/[^/]+/" and not header:find "^device/program/" then
    local inside = header:match "^(device/[^/]+/)"
    if path:find("runtime/" .. inside, 1, true) then return nil end
    return "reaches inside a device"
  end
  if mine == theirs or interface[header] or may_include[mine][theirs] then return nil end
  if not header:find "/" then return nil end -- a header beside the file
  return ("%s may not know %s"):format(mine, theirs)
end

local function check(path)
  local problems = {}
  local function problem(text) problems[#problems + 1] = path .. ": " .. text end
  local n = lines_of(path)
  if n > TOO_LONG then problem(("%d lines, at most %d"):format(n, TOO_LONG)) end
  if n > LONG then print(("     %s: %d lines, better under %d"):format(path, n, LONG)) end
  if not path:find "^runtime/" then return problems end
  local mine = folder_of(path)
  if not may_include[mine] then
    problem "is in a folder without a layer: give it one in tests/include_rules.lua"
    return problems
  end
  for header in read(path):gmatch '#include "([^"]+)"' do
    local text = include_problem(path, header)
    if text then problem(('#include "%s": %s'):format(header, text)) end
  end
  local knows_lua = mine == "bind" or mine == "program"
  if not knows_lua and read(path):find "#include <l[ua]+[a-z]*%.h>" then problem "includes Lua" end
  return problems
end

local function print_sizes(paths)
  local folders, names, files, total = {}, {}, {}, 0
  for _, path in ipairs(paths) do
    local folder, n = path:match "^(.*)/", lines_of(path)
    if not folders[folder] then
      folders[folder] = { lines = 0, files = 0 }
      names[#names + 1] = folder
    end
    folders[folder].lines = folders[folder].lines + n
    folders[folder].files = folders[folder].files + 1
    files[#files + 1] = { path = path, lines = n }
    total = total + n
  end
  table.sort(names)
  table.sort(files, function(a, b) return a.lines > b.lines end)
  for _, name in ipairs(names) do
    print(("%7d lines %4d files  %s"):format(folders[name].lines, folders[name].files, name))
  end
  print(("%7d lines %4d files"):format(total, #files))
  for i = 1, math.min(5, #files) do print(("%7d  %s"):format(files[i].lines, files[i].path)) end
end

if arg[1] == "--sizes" then
  print_sizes { unpack(arg, 2) }
else
  local broken = 0
  for _, path in ipairs(arg) do
    for _, text in ipairs(check(path)) do
      print(text)
      broken = broken + 1
    end
  end
  os.exit(broken == 0 and 0 or 1)
end
