-- Races processes that take turns. Each contender waits for "run N" on its standard input (the protocol of
-- peer_protocol.py). Since they take turns in short rounds, noise of the machine affects all; a ratio is the
-- median of the ratios within rounds. A contender that gives no answer in time is ended and left out.

local ffi = require "ffi"
local cores = require "cores"

local M = {}

-- Writing to a contender that has ended must be an error, not a signal.
ffi.cdef [[
  void (*signal(int, void (*)(int)))(int);
  struct pollfd { int fd; short events, revents; };
  int poll(struct pollfd *, unsigned long, int);
  int fileno(void *);
]]
local SIGPIPE, SIG_IGN = 13, ffi.cast("void (*)(int)", 1)
ffi.C.signal(SIGPIPE, SIG_IGN)

--- Runs a command -> its output with stderr, its exit status.
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

--- Starts a server, which contenders of several races use: a process with the named pipes PATH.in and PATH.out, and
--- PATH.err and PATH.pid. It opens the pipes for both directions, so it does not wait for who opens the other ends.
function M.serve(path, command)
  shell(("rm -f %s.in %s.out; mkfifo %s.in %s.out"):format(path, path, path, path))
  os.execute(("%s 0<>%s.in 1<>%s.out 2>%s.err & echo $! >%s.pid"):format(command, path, path, path, path))
end

--- Whether a server runs.
function M.is_served(path) return select(2, shell(("kill -0 $(cat %s.pid)"):format(path))) == 0 end

-- Starts a contender with named pipes in `folder`. It is killed after `seconds`, even if this process dies. One with a
-- server uses its pipes.
local function start(contender, folder, i, seconds)
  local path = contender.server or folder .. "/" .. i
  if not contender.server then
    shell(("mkfifo %s.in %s.out"):format(path, path))
    os.execute(("timeout -k 2 %d %s <%s.in >%s.out 2>%s.err & echo $! >%s.pid"):format(seconds,
      contender.command, path, path, path, path))
  elseif not M.is_served(path) then
    error(contender.name .. " has ended", 0)
  end
  contender.pid = io.lines(path .. ".pid")()
  contender.input = assert(io.open(path .. ".in", "w"))
  contender.output = assert(io.open(path .. ".out"))
  contender.input:setvbuf "no"
  contender.log, contender.ms, contender.medians = path .. ".err", {}, {}
end

local function stop(contender)
  if not contender.input then return end
  contender.input:close()
  contender.output:close()
  if contender.server then return end
  shell("kill " .. contender.pid) -- the timeout command, which ends its child; both are gone if all went well
end

local function tell(contender, line) contender.input:write(line, "\n") end

-- The contender's next line; an error if it does not come within `seconds` or tells of an error. A server that is late
-- is ended, because its answer would be taken for the next one.
local function answer_of(contender, seconds)
  local polled = ffi.new("struct pollfd", { ffi.C.fileno(contender.output), 1 }) -- POLLIN
  if ffi.C.poll(polled, 1, seconds * 1000) == 0 then
    if contender.server then shell("kill -9 " .. contender.pid) end
    error(("%s gave no answer in %d s"):format(contender.name, seconds), 0)
  end
  local answer = contender.output:read "*l"
  local problem = answer and answer:match '^{"error": "(.*)"}$' or not answer and shell("tail -n 1 " .. contender.log)
  if problem then error(contender.name .. ": " .. problem, 0) end
  return answer
end

local function ask(contender, line, seconds)
  tell(contender, line)
  return answer_of(contender, seconds)
end

-- A round of one contender: adds its times to ms and their median to medians.
local function run_steps(contender, steps, seconds)
  if contender.use then ask(contender, contender.use, seconds) end -- others use the server in turn
  local ms, answer = {}, ask(contender, "run " .. steps, seconds)
  contender.host = tonumber(answer:match '"host_us": ([%d.]+)')
  for number in answer:match("%[(.*)%]"):gmatch "[%d.eE+-]+" do
    ms[#ms + 1] = tonumber(number)
    contender.ms[#contender.ms + 1] = ms[#ms]
  end
  contender.medians[#contender.medians + 1] = median(ms)
end

-- ---- a race -------------------------------------------------------------------------------------

-- The share of processor time that is in use, over half a second.
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

-- Seconds to wait for an answer: `limit`, but not beyond the time `last`.
local function patience(limit, last)
  return last and math.max(1, math.min(limit, last - os.time())) or limit
end

-- Starts the contenders one after another -> those that answered. Each runs its first steps alone, so that nothing
-- disturbs what it chooses by timing. If ours, the first, does not answer, that is an error.
local function start_all(contenders, folder, limit, last)
  local list = {}
  for i, c in ipairs(contenders) do
    local ok, problem = pcall(function()
      start(c, folder, i, last and math.max(last - os.time(), 1) + 2 * limit or 86400)
      if c.use then ask(c, c.use, patience(limit, last)) end
      ask(c, "run 3", patience(limit, last))
    end)
    if not ok then stop(c) end
    if not ok and i == 1 then error(problem, 0) end -- without us there is nothing to compare
    if ok then list[#list + 1] = c else print("skipped: " .. problem) end
  end
  return list
end

-- One round; the order rotates from round to round. A contender that fails is left out from then on.
local function one_round(list, round, steps, limit, last)
  local order = {}
  for i = 1, #list do order[i] = list[(i + round - 2) % #list + 1] end
  for _, c in ipairs(order) do
    local ok, problem = pcall(run_steps, c, steps, patience(limit, last))
    if not ok then
      stop(c)
      if c == list[1] then error(problem, 0) end
      print("skipped: " .. problem)
      for i = #list, 2, -1 do if list[i] == c then table.remove(list, i) end end
    end
  end
end

--- Races a list of {name =, command =} over `rounds` rounds of `steps` steps; the first is ours. Instead of a command
--- a contender can have a `server`, the path of M.serve, and a line `use` that makes it train the contender's step. If
--- the list has `threads`, the distance of that many cores is measured before each round, and after the last; with
--- `busy`, other work of the machine is not looked for. Returns those that ran and, for the report, `cores`; each with
---     ms        all times of steps, in milliseconds
---     medians   the median of each round
---     ratio     the median over the rounds of its median time / our median time
---     memory    peak memory in MB
---     host      microseconds of the host for a step in the last round, if it reports that
--- One that does not start, or gives no answer within `limit` seconds (300), is printed as skipped. No round
--- begins after `last`, a time as os.time gives it, and nobody is waited for after it.
function M.race(contenders, rounds, steps, limit, last)
  limit = limit or 300
  local folder, copies = shell("mktemp -d"):gsub("\n", ""), {}
  for i, c in ipairs(contenders) do
    copies[i] = { name = c.name, command = c.command, server = c.server, use = c.use }
  end
  local list = start_all(copies, folder, limit, last)
  list.cores = contenders.threads and cores.watch(contenders.threads)
  if not contenders.busy then warn_if_busy() end
  for round = 1, rounds do
    if round > 1 and last and os.time() > last then break end
    if list.cores then list.cores.measure() end
    one_round(list, round, steps, limit, last)
  end
  if list.cores then list.cores.measure() end
  for _, c in ipairs(list) do
    local ratios = {}
    for i = 1, #c.medians do ratios[i] = c.medians[i] / list[1].medians[i] end
    c.ratio = median(ratios)
    c.memory = ask(c, "memory", limit):match "([%d.]+)%D*$"
    stop(c)
  end
  os.execute("rm -rf " .. folder)
  cores.finish()
  return list
end

--- Prints the result of race as a table.
function M.report(title, list)
  print("\n" .. title)
  print(("  %-32s %9s %9s %8s %10s"):format("", "median ms", "min ms", "ratio", "peak MB"))
  for _, c in ipairs(list) do
    print(("  %-32s %9.3f %9.3f %8.2f %10s"):format(c.name, median(c.ms), math.min(unpack(c.ms)),
      c.ratio, c.memory))
  end
  if list.cores then print("  a cache line from one core to another: " .. list.cores.text()) end
end

return M
