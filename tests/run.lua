-- Runs test files, each in a process of its own, and adds up their results.
--
--     build/mgpulua tests/run.lua [--jobs N] [--timeout SECONDS] [--deadline SECONDS] [--lua COMMAND] FILE...
--
-- A FILE is a Lua test file (see check.lua) or a cmocka program; file.lua:3/8 is the third eighth of a Lua file's
-- tests, to run a long file as several processes. A crash, a time-out, or a missing summary counts as one failure. So
-- does a file that is still running, or has not begun, when --deadline seconds have passed for all files together. A
-- file may take --timeout seconds; by default 300, times how much slower this machine is than the usual one, times how
-- many processes share a core of it. The last line is `N passed, N failed` and the number of skipped tests, if any. The
-- exit status is 0 only if at least one test passed and none failed.

local ffi = require "ffi"
ffi.cdef [[
  struct pollfd { int fd; short events, revents; };
  int poll(struct pollfd *, unsigned long, int);
  int fileno(void *);
]]

local options = { jobs = 2, timeout = 0, deadline = 86400, lua = arg[-1] } -- timeout 0: see limit_now
local files = {}

local function read_arguments()
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(%a+)$")
    if name and options[name] then
      i = i + 1
      options[name] = tonumber(arg[i]) or arg[i]
    elseif arg[i]:sub(1, 1) == "-" then
      error("unknown option " .. arg[i] .. " (--jobs --timeout --deadline --lua)", 0)
    else
      files[#files + 1] = arg[i]
    end
    i = i + 1
  end
end

-- ---- how long a file may take -------------------------------------------------------------------

local USUAL_LIMIT = 300 -- seconds, at least ten times what the slowest file takes on the usual machine
local USUAL_TIME = 0.045 -- processor seconds of the work below there

-- How many times slower than the usual machine this one is, at least 1: measured by a fixed piece of work.
local function slowness()
  local before, sums, kept = os.clock(), {}, 0
  for round = 1, 6 do
    for i = 1, 2e5 do sums[i % 1000] = (sums[i % 1000] or 0) + i % 7 * 0.5 end
    local words = {}
    for i = 1, 2e4 do words[i] = tostring(i + round) end
    table.sort(words)
    kept = kept + sums[round]
  end
  assert(kept > 0) -- so that the work is not optimized away
  return math.max(1, (os.clock() - before) / USUAL_TIME)
end

local function read_number(path, pattern)
  local f = io.open(path)
  local text = f and f:read "*a" or ""
  if f then f:close() end
  return tonumber(text:match(pattern))
end

local function count_cores()
  local pipe = io.popen "nproc 2>/dev/null"
  local n = tonumber(pipe:read "*l")
  pipe:close()
  return n or 1
end

local slow, cores -- measured once

-- The seconds that a file which starts now may take. It only stops hangs, so it is generous.
local function limit_now()
  if options.timeout > 0 then return options.timeout end
  slow, cores = slow or slowness(), cores or count_cores()
  local busy = (read_number("/proc/loadavg", "^([%d.]+)") or 0) + options.jobs
  return math.ceil(USUAL_LIMIT * slow * math.max(1, busy / cores))
end

-- ---- running files --------------------------------------------------------------------------------

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Starts the process of a file. Its output goes to a temporary file; its exit status and its duration in
-- milliseconds come through a pipe when it ends. It does not listen for --ps of others, whose connection would be a
-- file that a test left open.
local function start(file, limit)
  local program = quote(file:find("/", 1, true) and file or "./" .. file)
  local path, part = file:match "^(.*%.lua):?(.*)$"
  if path then
    program = ("MGPU_ATTACH=0 MGPU_TEST_PROGRAM=%s %s tests/check.lua %s%s"):format(quote(options.lua), options.lua,
      quote(path), part ~= "" and " --part " .. part or "")
  end
  local output = os.tmpname()
  local command = ("exec 2>/dev/null; s=$(date +%%s%%N); timeout -k 5 %d env %s >%s 2>&1 </dev/null; "
    .. "echo $? $(( ($(date +%%s%%N) - s) / 1000000 ))"):format(limit, program, output)
  return { file = file, program = program, limit = limit, output = output, pipe = assert(io.popen(command)) }
end

-- The numbers of passed, failed and skipped tests from the program's own summary; nil without one.
local function summary(output)
  local passed, failed, skipped
  for p, f, s in output:gmatch("(%d+) passed, (%d+) failed, (%d+) skipped") do
    passed, failed, skipped = tonumber(p), tonumber(f), tonumber(s)
  end
  if passed then return passed, failed, skipped end
  if not output:find("[==========]", 1, true) then return nil end
  local function of(word)
    local sum = 0
    for n in output:gmatch("%[  " .. word .. " +%] (%d+) test") do sum = sum + tonumber(n) end
    return sum
  end
  -- cmocka neither counts a group's setup or teardown that fails nor ends with another status; leaks are found there.
  local _, groups = output:gsub("%[  FAILED  %] GROUP ", "")
  return of "PASSED", of "FAILED" + groups, of "SKIPPED"
end

local function reason_of(status, limit)
  if status == 124 or status == 137 then return ("no end after %d s"):format(limit) end
  if status > 128 then return "ended by signal " .. status - 128 end
  return "ended with status " .. status
end

-- Prints the skips of a clean run, or all of a failed run's output except lines about single passed tests.
local function show(output, bad)
  for line in output:gmatch("[^\n]+") do
    local chatter = line:find("^%d+ passed, ") or line:find("^%[[ =-]*%]") or line:find("^run: ")
      or line:find("^%[ RUN") or line:find("^%[       OK")
    if not chatter and (bad or line:find("^skip: ")) then print("     " .. line) end
  end
end

local function read_and_remove(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "*a"
  f:close()
  os.remove(path)
  return text
end

local function finish(job, totals)
  local status, ms = job.pipe:read("*a"):match("^(%d+) (%d+)\n$")
  job.pipe:close()
  local output = read_and_remove(job.output)
  status = tonumber(status)
  local passed, failed, skipped = summary(output)
  local problem
  if not passed then
    passed, failed, skipped, problem = 0, 1, 0, reason_of(status, job.limit)
    local last = output:match(".*run: ([^\n]*)")
    if last then problem = problem .. ", in " .. last end
  elseif status ~= 0 and failed == 0 then
    failed, problem = 1, reason_of(status, job.limit)
  end
  local bad = failed > 0
  local text = ("%d passed"):format(passed)
  if bad then text = text .. (", %d failed"):format(failed) end
  if skipped > 0 then text = text .. (", %d skipped"):format(skipped) end
  print(("%-4s %-44s %-24s %6.1f s"):format(bad and "FAIL" or "ok", job.file, text, ms / 1000))
  show(output, bad)
  if problem then print(("     FAIL: %s: %s"):format(problem, job.program)) end
  totals.passed, totals.failed = totals.passed + passed, totals.failed + failed
  totals.skipped = totals.skipped + skipped
end

read_arguments()
if #files == 0 then
  error("usage: mgpulua tests/run.lua [--jobs N] [--timeout S] [--deadline S] [--lua COMMAND] FILE...", 0)
end
io.stdout:setvbuf "line"

-- Waits until one of the running files ends; removes it from the list and returns it.
local function wait(running)
  local polled = ffi.new("struct pollfd[?]", #running)
  for i, job in ipairs(running) do
    polled[i - 1].fd, polled[i - 1].events = ffi.C.fileno(job.pipe), 1 -- POLLIN
  end
  while ffi.C.poll(polled, #running, -1) < 0 do end -- again after a signal
  for i = 1, #running do
    if polled[i - 1].revents ~= 0 then return table.remove(running, i) end
  end
end

local totals, running, began = { passed = 0, failed = 0, skipped = 0 }, {}, os.time()
for _, file in ipairs(files) do
  if #running == options.jobs then finish(wait(running), totals) end
  local left = began + options.deadline - os.time()
  if left > 0 then
    running[#running + 1] = start(file, math.min(limit_now(), left))
  else
    print(("FAIL %-44s not run: out of time"):format(file))
    totals.failed = totals.failed + 1
  end
end
while #running > 0 do finish(wait(running), totals) end

local verdict = ("%d passed, %d failed"):format(totals.passed, totals.failed)
if totals.skipped > 0 then verdict = verdict .. (", %d skipped"):format(totals.skipped) end
print(verdict)
os.exit(totals.failed == 0 and totals.passed > 0 and 0 or 1, true)
