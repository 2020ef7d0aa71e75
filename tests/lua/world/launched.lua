-- For specs that start several processes: a script whose processes become one world, and what it prints.
local check = require "check"

local M = {}

-- Each rank prints its place, and what rank 0 sent it.
M.JOIN = check.path "join.lua"
check.write(M.JOIN, [[
  local mgpu = require "mgpu"
  local world = mgpu.world()
  local word = require "mgpu.core".world_send("word " .. world.rank)
  io.write(("%d of %d by %s: %s\n"):format(world.rank, world.size, world.launcher, word))]])

-- What the ranks of JOIN print, in their order.
function M.expected(launcher, size)
  local lines = {}
  for rank = 0, size - 1 do lines[#lines + 1] = ("%d of %d by %s: word 0"):format(rank, size, launcher) end
  return table.concat(lines, "\n")
end

local transports = {}
for _, transport in ipairs(require "mgpu.core".transports()) do transports[transport.name] = not transport.problem end

-- Skip the test, or the file, unless the build has the plug-in, or the system the program.
function M.needs_transport(name)
  if not transports[name] then check.skip("this build has no mgpu-" .. name .. ".so") end
end

function M.needs_program(name)
  if check.run("PATH=$PATH:/usr/sbin; command -v " .. name) == "" then check.skip(name .. " is not installed") end
end

--- free_port() -> a port that was free a moment ago, as text.
function M.free_port()
  return check.run(check.program .. [[ --np 1 -e 'print((os.getenv "MGPU_HUB":match "%d+$"))']]):match "%d+"
end

return M
