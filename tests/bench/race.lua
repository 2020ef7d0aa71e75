-- Contenders that take turns: each is a process that waits for "run N" on its standard input (see
-- ours.lua and the peer_*.py). A noisy machine is noisy for all, and a ratio is the median of those
-- within a round.

local ffi = require "ffi"

local M = {}

-- A contender that has ended must give an error, not a signal.
ffi.cdef "void (*signal(int, void (*)(int)))(int);"
local SIGPIPE, SIG_IGN = 13, ffi.cast("void (*)(int)", 1)
ffi.C.signal(SIGPIPE, SIG_IGN)

--- What a command prints, and its exit status.
local function shell(command)
  local pipe = assert(io.popen("( " .. command .. " ) 2>&1; echo \"@@status $?\""))
  local output, status = pipe:read("*a"):match "^(.*)@@status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end
M.shell = shell

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  local n = #sorted
  return n % 2 == 1 and sorted[(n + 1) / 2] or (sorted[n / 2] + sorted[n / 2 + 1]) / 2
end
M.median = median

-- ---- contenders ---------------------------------------------------------------------------------

-- Starts a contender, its pipes in `folder`.
local function start(contender, folder, i)
  local path = folder .. "/" .. i
  shell(("mkfifo %s.in %s.out"):format(path, path))
  os.execute(("%s <%s.in >%s.out 2>%s.err &"):format(contender.command, path, path, path))
  contender.input = assert(io.open(path .. ".in", "w"))
  contender.output = assert(io.open(path .. ".out"))
  contender.input:setvbuf "no"
  contender.log, contender.ms, contender.medians = path .. ".err", {}, {}
end

local function ask(contender, line)
  contender.input:write(line, "\n")
  local answer = contender.output:read "*l"
  if answer then return answer end
  local text = shell("tail -n 1 " .. contender.log)
  error(contender.name .. " ended: " .. text, 0)
end

local function run(contender, steps)
  local ms, answer = {}, ask(contender, "run " .. steps)
  contender.host = tonumber(answer:match '"host_us": ([%d.]+)')
  for number in answer:match("%[(.*)%]"):gmatch "[%d.eE+-]+" do
    ms[#ms + 1] = tonumber(number)
    contender.ms[#contender.ms + 1] = ms[#ms]
  end
  contender.medians[#contender.medians + 1] = median(ms)
end

-- ---- a race -------------------------------------------------------------------------------------

-- The share of processor time in use over half a second.
local function busy()
  local function read()
    local total, idle, i = 0, 0, 0
    for n in io.lines("/proc/stat")():gmatch "%d+" do
      i, total = i + 1, total + n
      if i == 4 or i == 5 then idle = idle + n end
    end
    return total, idle
  end
  local total, idle = read()
  os.execute "sleep 0.5"
  local total_after, idle_after = read()
  return 1 - (idle_after - idle) / math.max(total_after - total, 1)
end

local function warn_if_busy()
  local share = busy()
  if share > 0.1 then
    print(("WARNING: the machine is %.0f %% busy with other work: do not trust these figures")
      :format(share * 100))
  end
end

--- Races a list of {name =, command =} over `rounds` rounds of `steps` steps; the first is ours. ->
--- those that ran, each with ms (all), medians (of each round), memory (peak MB) and ratio (its
--- median time by ours, the median over the rounds), and host, the microseconds a step cost the host
--- in the last round, where it says so; one that does not start is said to be skipped.
function M.race(contenders, rounds, steps)
  local folder, list = shell("mktemp -d"):gsub("\n", ""), {}
  for i, c in ipairs(contenders) do
    local contender = { name = c.name, command = c.command }
    start(contender, folder, i)
    local ok, problem = pcall(ask, contender, "run 3") -- warm
    if not ok and i == 1 then error(problem, 0) end -- without us there is nothing to compare
    if ok then list[#list + 1] = contender else print("skipped: " .. problem) end
  end
  warn_if_busy()
  for round = 1, rounds do
    for i = 1, #list do run(list[(i + round - 2) % #list + 1], steps) end
  end
  for _, c in ipairs(list) do
    local ratios = {}
    for i = 1, #c.medians do ratios[i] = c.medians[i] / list[1].medians[i] end
    c.ratio = median(ratios)
    c.memory = ask(c, "memory"):match "([%d.]+)%D*$"
    c.input:close()
    c.output:close()
  end
  os.execute("rm -rf " .. folder)
  return list
end

--- Prints what race returned.
function M.report(title, list)
  print("\n" .. title)
  print(("  %-32s %9s %9s %8s %10s"):format("", "median ms", "min ms", "ratio", "peak MB"))
  for _, c in ipairs(list) do
    print(("  %-32s %9.3f %9.3f %8.2f %10s"):format(c.name, median(c.ms), math.min(unpack(c.ms)),
      c.ratio, c.memory))
  end
end

return M
