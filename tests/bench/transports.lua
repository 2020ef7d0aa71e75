-- The speed of the transports between two processes of this machine: `make bench`, or
--
--     build/mgpulua tests/bench/transports.lua
--
-- A message's time is half of that of a round trip. world.lua measures sums, beside MPI and gloo.

package.path = "tests/?.lua;" .. package.path
local processes = require "world.processes"

local SIZES = { 4, 1e6, 1e7, 1e8 }
local build = arg[-1]:match "^(.*)/" or "build"
local folder = os.tmpname()
os.remove(folder)
os.execute("mkdir " .. folder)

-- Runs a program that prints "BYTES SECONDS" lines: the seconds by bytes.
local function measure(kind, program)
  local seconds, sizes = {}, {}
  for i, bytes in ipairs(SIZES) do sizes[i] = ("%d"):format(bytes) end
  local pipe = io.popen(("%s %s 2>&1"):format(processes.command(kind, 2, program), table.concat(sizes, " ")))
  for line in pipe:lines() do
    local bytes, time = line:match "^(%d+) ([%d.]+)$"
    if not bytes then error(line) end
    seconds[tonumber(bytes)] = tonumber(time)
  end
  pipe:close()
  return seconds
end

local function print_row(name, seconds)
  local cells = { ("%8.2f"):format(seconds[4] * 1e6) }
  for i = 2, #SIZES do cells[i] = ("%8.2f"):format(SIZES[i] / seconds[SIZES[i]] / 1e9) end
  print(("  %-26s %s"):format(name, table.concat(cells, "  ")))
end

print(("  %-26s %8s  %8s  %8s  %8s"):format("two processes", "4 B, us", "1 MB", "10 MB", "100 MB, GB/s"))
local messages = processes.compile("tests/bench/transport_speed.c", folder .. "/speed", build)
if messages then error(messages) end
for _, kind in ipairs { "openmpi", "mpich", "ucx" } do
  local reason = processes.missing(kind, build)
  if reason then
    print(("  %-26s skipped: %s"):format(kind, reason))
  else
    print_row(kind, measure(kind, folder .. "/speed " .. kind))
  end
end
os.execute("rm -r " .. folder)
