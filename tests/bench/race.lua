-- Contenders that take turns: each is a process that waits for "run N" on its standard input (see
-- ours.lua and the peer_*.py). A noisy machine is noisy for all, and a ratio is the median of those
-- within a round. One that gives no answer in time is ended and left out.

local ffi = require "ffi"

local M = {}

-- A contender that has ended must give an error, not a signal.
ffi.cdef [[
  void (*signal(int, void (*)(int)))(int);
  struct pollfd { int fd; short events, revents; };
  int poll(struct pollfd *, unsigned long, int);
  int fileno(void *);
]]
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

-- Starts a contender, its pipes in `folder`; it ends after `seconds` whatever happens here.
local function start(contender, folder, i, seconds)
  local path = folder .. "/" .. i
  shell(("mkfifo %s.in %s.out"):format(path, path))
  os.execute(("timeout -k 2 %d %s <%s.in >%s.out 2>%s.err & echo $! >%s.pid"):format(seconds,
    contender.command, path, path, path, path))
  contender.pid = io.lines(path .. ".pid")()
  contender.input = assert(io.open(path .. ".in", "w"))
  contender.output = assert(io.open(path .. ".out"))
  contender.input:setvbuf "no"
  contender.log, contender.ms, contender.medians = path .. ".err", {}, {}
end

local function stop(contender)
  contender.input:close()
  contender.output:close()
  shell("kill " .. contender.pid) -- timeout, which ends the rest; gone already if all went well
end

local function tell(contender, line) contender.input:write(line, "\n") end

-- The answer, a line, if it comes within `seconds`.
local function answer_of(contender, seconds)
  local polled = ffi.new("struct pollfd", { ffi.C.fileno(contender.output), 1 }) -- POLLIN
  if ffi.C.poll(polled, 1, seconds * 1000) == 0 then
    error(("%s gave no answer in %d s"):format(contender.name, seconds), 0)
  end
  local answer = contender.output:read "*l"
  if answer then return answer end
  local text = shell("tail -n 1 " .. contender.log)
  error(contender.name .. " ended: " .. text, 0)
end

local function ask(contender, line, seconds)
  tell(contender, line)
  return answer_of(contender, seconds)
end

local function run(contender, steps, seconds)
  local ms, answer = {}, ask(contender, "run " .. steps, seconds)
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

-- Seconds to wait for an answer: `limit`, or what is left until `last`, in which others answer too.
local function patience(limit, last)
  return last and math.max(1, math.min(limit, last - os.time())) or limit
end

-- Those that gave an answer to the first steps. All start at once, and then each takes its steps
-- alone: what they choose by measuring is chosen undisturbed.
local function warmed(contenders, folder, limit, last)
  local list = {}
  for i, c in ipairs(contenders) do
    start(c, folder, i, last and math.max(last - os.time(), 1) + 2 * limit or 86400)
  end
  for i, c in ipairs(contenders) do
    local ok, problem = pcall(ask, c, "run 3", patience(limit, last))
    if not ok then stop(c) end
    if not ok and i == 1 then
      for k = 2, #contenders do stop(contenders[k]) end
      error(problem, 0) -- without us there is nothing to compare
    end
    if ok then list[#list + 1] = c else print("skipped: " .. problem) end
  end
  return list
end

-- One round, each beginning in turn; who fails is left out from then on.
local function one_round(list, round, steps, limit, last)
  local order = {}
  for i = 1, #list do order[i] = list[(i + round - 2) % #list + 1] end
  for _, c in ipairs(order) do
    local ok, problem = pcall(run, c, steps, patience(limit, last))
    if not ok then
      stop(c)
      if c == list[1] then error(problem, 0) end
      print("skipped: " .. problem)
      for i = #list, 2, -1 do if list[i] == c then table.remove(list, i) end end
    end
  end
end

--- Races a list of {name =, command =} over `rounds` rounds of `steps` steps; the first is ours. ->
--- those that ran, each with ms (all), medians (of each round), memory (peak MB) and ratio (its
--- median time by ours, the median over the rounds), and host, the microseconds a step cost the host
--- in the last round, where it says so; one that does not start, or gives no answer within `limit`
--- seconds (300), is said to be skipped. No round begins after `last`, a time of os.time's, and
--- from then on none waits for an answer.
function M.race(contenders, rounds, steps, limit, last)
  limit = limit or 300
  local folder, copies = shell("mktemp -d"):gsub("\n", ""), {}
  for i, c in ipairs(contenders) do copies[i] = { name = c.name, command = c.command } end
  local list = warmed(copies, folder, limit, last)
  warn_if_busy()
  for round = 1, rounds do
    if round > 1 and last and os.time() > last then break end
    one_round(list, round, steps, limit, last)
  end
  for _, c in ipairs(list) do
    local ratios = {}
    for i = 1, #c.medians do ratios[i] = c.medians[i] / list[1].medians[i] end
    c.ratio = median(ratios)
    c.memory = ask(c, "memory", limit):match "([%d.]+)%D*$"
    stop(c)
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
