-- Long checks of what must never happen, and the table of their results: `make reliability`.
--
--     build/mgpulua tests/reliability/run.lua [--scale X] [NAME...]
--
-- A check is a module here: {what =, count =, few =, run = function(n, folder, timed) -> failed, note, tried}.
-- It tries something `count` times (times X), or `few` times as a test (tests/lua/files/reliability_spec.lua), and
-- returns how often it failed, a remark, and how many were tried if that is not n. timed: limits on time count, too.
-- checks.lua lists them. Each runs in a process of its own. The table goes to build/reliability.md; the exit status is
-- 1 if anything failed.
package.path = "tests/?.lua;" .. package.path

local function temporary_folder()
  local pipe = io.popen "mktemp -d"
  local folder = pipe:read "*l"
  pipe:close()
  return folder
end

-- Runs one check in this process; prints its row, separated by tabs.
local function run_one(name, scale)
  local one = require("reliability." .. name)
  local n, folder = math.ceil((one.count or 1) * scale), temporary_folder()
  local begun = os.time()
  local ok, failed, note, tried = pcall(one.run, n, folder, true)
  os.execute(("rm -rf '%s'"):format(folder))
  if not ok then failed, note = 1, tostring(failed) end
  print(table.concat({ one.what, tried or n, failed, os.time() - begun, ((note or ""):gsub("%s+", " ")) }, "\t"))
end

local function main()
  local scale, names = 1, {}
  require "check".program = os.getenv "MGPU_TEST_PROGRAM" or arg[-1]
  for i = 1, #arg do
    if arg[i] == "--one" then return run_one(arg[i + 1], tonumber(arg[i + 2])) end
    if arg[i] == "--scale" then scale = tonumber(arg[i + 1])
    elseif arg[i - 1] ~= "--scale" then names[#names + 1] = arg[i] end
  end
  local check = require "check"
  local bad, lines = 0, { "| check | tried | failed | seconds | remark |", "| --- | --- | --- | --- | --- |" }
  for _, name in ipairs(#names > 0 and names or require "reliability.checks") do
    local out = check.run(("%s tests/reliability/run.lua --one %s %g"):format(check.program, name, scale))
    local row = { out:match "([^\t\n]*)\t(%d+)\t(%d+)\t(%d+)\t([^\n]*)\n$" }
    if not row[1] then row = { name, "0", "1", "0", (out:gsub("%s+", " ")) } end
    if row[3] ~= "0" then bad = bad + 1 end
    lines[#lines + 1] = ("| %s | %s | %s | %s | %s |"):format(unpack(row, 1, 5))
    print(lines[#lines])
  end
  local file = assert(io.open("build/reliability.md", "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
  print "build/reliability.md"
  os.exit(bad == 0 and 0 or 1)
end

main()
