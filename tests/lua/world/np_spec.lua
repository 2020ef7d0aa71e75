-- mgpulua --np: processes that it starts on this host, their output, signals and exit statuses.

local check = require "check"
local test = check.test
local sorted = check.sorted_lines

-- Runs mgpulua with arguments in shell syntax; `before`: variables for it. Returns output and exit status.
local function run(arguments, before)
  return check.run(("env -u MGPU_OUTPUT %s %s %s </dev/null"):format(before or "", check.program, arguments))
end

local function script(name, text)
  local path = check.path(name)
  check.write(path, text)
  return path
end

local PLACE = script("place.lua", [[
  local v = os.getenv
  print(v "MGPU_RANK", v "MGPU_SIZE", v "MGPU_LOCAL_RANK", v "MGPU_LOCAL_SIZE",
    v "MGPU_HUB":match "^[%d.]+:%d+$" ~= nil, #v "MGPU_TOKEN", ...)]])

test("--np starts the script with its arguments in so many processes, and rank 0's output is shown", function()
  for n = 1, 4 do
    local text, status = run(("--np %d %s a --np 7 -H"):format(n, PLACE))
    check.equal(text, ("0\t%d\t0\t%d\ttrue\t64\ta\t--np\t7\t-H\n"):format(n, n))
    check.equal(status, 0)
  end
  local text = run("--output all --np=3 " .. PLACE)
  check.equal(sorted(text), "0\t3\t0\t3\ttrue\t64\n1\t3\t1\t3\ttrue\t64\n2\t3\t2\t3\ttrue\t64")
  text = run("--np=2 --output=prefix " .. PLACE)
  check.equal(sorted(text), "[0] 0\t2\t0\t2\ttrue\t64\n[1] 1\t2\t1\t2\ttrue\t64")
end)

test("all processes share an address and a token that no command line shows", function()
  local path = script("secret.lua", [[
    local f = io.open "/proc/self/cmdline"
    assert(not f:read "*a":find(os.getenv "MGPU_TOKEN", 1, true))
    print(os.getenv "MGPU_HUB", os.getenv "MGPU_TOKEN")]])
  local first = run("--np 2 --output all " .. path)
  local a, b = first:match "^(%C+\t%x+)\n(%C+\t%x+)\n$"
  check.truthy(a and a == b, first)
  check.truthy(first ~= run("--np 2 --output all " .. path), "another run has another token")
end)

test("options of the program reach every process, and -e runs in each", function()
  local text = run "--np 2 --output all -joff -e 'print((jit.status()))' -e 'print(2)'"
  check.equal(sorted(text), "2\n2\nfalse\nfalse")
  script("-dash.lua", "print(...)")
  local program = check.run("readlink -f " .. check.program):gsub("%s+$", "")
  check.equal(check.run(("cd %s && %s --np 2 -- -dash.lua -v"):format(check.path "", program)), "-v\n")
  check.equal(run "--np 2 --nranks_per_gpu 3 -e 'print(os.getenv \"MGPU_RANKS_PER_GPU\")'", "3\n")
end)

test("lines of several processes do not mix, and errors of all are shown", function()
  local path = script("lines.lua", [[
    local r = os.getenv "MGPU_RANK"
    for i = 1, 300 do io.write(r, " ", r:rep(i), "\n") end
    io.stderr:write("error " .. r .. "\n")
    io.write "no newline"]])
  local text = run("--np 3 --output prefix " .. path)
  local count = {}
  for line in text:gmatch "[^\n]+" do
    local rank, what = line:match "^%[(%d)%] (.*)$"
    check.truthy(rank and (what:match("^" .. rank .. " " .. rank .. "+$") or what == "error " .. rank
      or what == "no newline"), line)
    count[rank] = (count[rank] or 0) + 1
  end
  check.equal(count, { ["0"] = 302, ["1"] = 302, ["2"] = 302 })
  text = check.run(("%s --np 3 %s 2>&1 >/dev/null </dev/null"):format(check.program, path))
  check.equal(sorted(text), "error 0\nerror 1\nerror 2")
end)

test("the exit status is that of the first process that fails for a reason of its own", function()
  local path = script("fail.lua", "os.exit(tonumber((select(1 + os.getenv 'MGPU_RANK', ...))))")
  check.equal(select(2, run(("--np 3 %s 0 5 0"):format(path))), 5)
  check.equal(select(2, run(("--np 2 %s 74 0"):format(path))), 74)
  check.equal(select(2, run(("--np 3 %s 76 0 76"):format(path))), 76)
  local peers = script("peers.lua", [[
    if os.getenv "MGPU_RANK" == "1" then require "mgpu.core".sleep(1) os.exit(9) end
    os.exit(76)]])
  check.equal(select(2, run("--np 3 " .. peers)), 9)
end)

test("if one process fails, the others are ended after a while", function()
  local ready = check.path "looping"
  local path = script("loop.lua", ([[
    local rank, ready = os.getenv "MGPU_RANK", %q
    if rank == "1" then while not (io.open(ready .. 0) and io.open(ready .. 2)) do end error "boom" end
    io.open(ready .. rank, "w"):close()
    while true do end]]):format(ready))
  local text, status = run("--np 3 " .. path, "MGPU_LAUNCH_GRACE=0.2")
  check.equal(status, 1)
  check.matches(text, "loop.lua:2: boom")
  check.equal(select(2, text:gsub("interrupted!", "")), 2)
  local deaf = script("deaf.lua", [[
    if os.getenv "MGPU_RANK" == "1" then os.exit(3) end
    require "ffi".cdef "int sigprocmask(int, const void *, void *); int sigfillset(void *);"
    local set = require "ffi".new "char[128]"
    require "ffi".C.sigfillset(set)
    require "ffi".C.sigprocmask(0, set, nil)
    while true do end]])
  check.equal(select(2, run("--np 2 " .. deaf, "MGPU_LAUNCH_GRACE=0")), 3)
end)

test("a stopped process is ended too", function()
  local path = script("stops.lua", ([[
    local pid = %q
    if os.getenv "MGPU_RANK" == "1" then
      repeat
        local f = io.open(pid)
        local stat = f and io.open("/proc/" .. f:read "*a" .. "/stat"):read "*a" or ""
      until stat:find ") T "
      os.exit(4)
    end
    local f = io.open(pid .. ".new", "w")
    f:write(io.open "/proc/self/stat":read "*n")
    f:close()
    os.rename(pid .. ".new", pid)
    os.execute "kill -STOP $PPID"
    while true do end]]):format(check.path "stopped"))
  local text, status = run("--np 2 " .. path, "MGPU_LAUNCH_GRACE=0")
  check.matches(text, "interrupted!")
  check.equal(status, 4)
end)

test("--restart starts all processes again when one fails, at most so often", function()
  local path = script("again.lua", ([[
    local f = io.open(%q, "a")
    f:write "x"
    f:close()
    if os.getenv "MGPU_RANK" == "1" and #io.open(%q):read "*a" <= tonumber(arg[1]) then os.exit(9) end
    print "done"]]):format(check.path "starts", check.path "starts"))
  local function started(restarts, failures)
    os.remove(check.path "starts")
    local text, status = run(("--np 2 --restart %d %s %d"):format(restarts, path, failures), "MGPU_LAUNCH_GRACE=0.1")
    return status, text:match "[^\n]* %(.* left%)[^(]*$", #check.read(check.path "starts")
  end
  local status, text, starts = started(2, 2)
  check.equal({ status, starts }, { 0, 4 })
  check.matches(text, "mgpulua: all processes start again, 2 in the place of 2 %(1 restart is left%)")
  check.equal({ started(1, 100) }, { 9, "mgpulua: all processes start again, 2 in the place of 2 (0 restarts are left)"
    .. "\ndone\n", 4 })
  local saved = script("saved.lua", "os.exit(75)")
  check.equal({ run("--np 2 --restart 3 " .. saved) }, { "", 75 })
end)

test("a killed process is named, and the status is 128 and its signal", function()
  local text, status = run([[--np 3 -e '
    if os.getenv "MGPU_RANK" == "2" then os.execute "kill -9 $PPID" end
    while true do end']], "MGPU_LAUNCH_GRACE=0")
  check.matches(text, "mgpulua: rank 2 of 3 %(pid %d+%) was killed by signal 9 %(Killed%)")
  check.equal(status, 137)
end)

-- The status of mgpulua --np, to which this signal is sent when all its processes have called `ready`.
local function signalled(name, chunk)
  local ready = check.path "ready"
  local command = ([[rm -f %s.*
    %s --np 2 -e 'local function ready() io.open("%s." .. os.getenv "MGPU_RANK", "w"):close() end %s' & p=$!
    while [ ! -e %s.0 ] || [ ! -e %s.1 ]; do sleep 0.05; done
    kill -%s $p; wait $p; echo status $?]]):format(ready, check.program, ready, chunk, ready, ready, name)
  return check.run(command)
end

test("signals reach all processes", function()
  for name, status in pairs { INT = 130, TERM = 143 } do
    local text = signalled(name, "ready() while true do end")
    check.equal(select(2, text:gsub("interrupted!", "")), 2)
    check.matches(text, "status " .. status .. "\n$")
  end
  check.matches(signalled("USR1", "ready() while true do end"), "status 138\n$")
  check.matches(signalled("TERM", "print(pcall(function() ready() while true do end end)) os.exit(0)"),
    "false\tinterrupted!\nstatus 0\n$")
end)

test("Ctrl-C ends ranks that wait for others", function()
  local text = signalled("INT", [[local world = require "mgpu".world()
    ready()
    if world.rank == 0 then while true do end end
    world:barrier()]])
  check.equal(text:match "error in error handling", nil)
  check.matches(text, "status 130\n$")
end)

test("the processes end when their launcher is killed", function()
  local pids = check.path "pids"
  local path = script("orphans.lua", ([[
    local f = io.open(%q .. os.getenv "MGPU_RANK", "w")
    f:write(io.open "/proc/self/stat":read "*n")
    f:close()
    os.rename(%q .. os.getenv "MGPU_RANK", %q .. os.getenv "MGPU_RANK")
    while true do end]]):format(pids .. ".new", pids .. ".new", pids))
  local text = check.run(([[%s --np 2 %s & p=$!; while [ ! -e %s0 ] || [ ! -e %s1 ]; do sleep 0.05; done
    kill -9 $p; for i in 0 1; do while kill -0 $(cat %s$i) 2>/dev/null; do sleep 0.05; done; done; echo gone]])
    :format(check.program, path, pids, pids, pids))
  check.matches(text, "gone\n$")
end)

test("standard input belongs to rank 0", function()
  local path = script("reads.lua", "print(os.getenv 'MGPU_RANK', io.read())")
  local text = check.run(("echo words | %s --np 2 --output all %s"):format(check.program, path))
  check.equal(sorted(text), "0\twords\n1\tnil")
end)

test("a limit on open files is told", function()
  local function limited(files, options)
    return check.run(("(ulimit -n %d; exec %s %s %s) </dev/null"):format(files, check.program, options, PLACE))
  end
  check.matches(limited(24, "--np 20 --output prefix"),
    "cannot make pipes for rank %d+ of 20: Too many open files %(limited")
  check.matches(limited(4, "--np 2"), "mgpulua: --np: cannot find a free port: Too many open files")
  check.matches(check.run(("ulimit -n 4; RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 %s --output prefix %s")
    :format(check.program, PLACE)), "mgpulua: --output prefix: cannot make pipes: Too many open files")
end)

test("wrong options are refused before anything starts", function()
  for arguments, message in pairs {
    ["--np 0 x.lua"] = "--np 0: give a whole number from 1 to",
    ["--np two x.lua"] = "--np two: give a whole number",
    ["--np 2x x.lua"] = "--np 2x: give a whole number",
    ["--np 60000 " .. PLACE] = "%-%-np 60000: this host has %d+ CPUs, so more than %d+ processes look like a mistake: "
      .. "give %-H localhost:60000",
    ["--np 2"] = "--np needs a script: the prompt runs in one process only",
    ["-i --np 2 " .. PLACE] = "--np needs a script: the prompt",
    ["--np 2 -"] = "--np needs a script in a file",
    ["--np 2 --output most " .. PLACE] = "--output most; the choices are rank0, all, prefix",
    ["--np 2 --nranks_per_gpu 0 " .. PLACE] = "--nranks_per_gpu 0: give a whole number from 1 to",
    ["--np 2 --restart 0 " .. PLACE] = "--restart 0: give a whole number from 1 to",
    ["--restart 2 " .. PLACE] = "--restart needs --np, -H or --hostfile",
    ["--np 2 --elastic 2 " .. PLACE] = "--elastic 2: give the least and the largest number of processes, as in 2:4",
    ["--np 2 --elastic 4:2 " .. PLACE] = "--elastic 4:2: give the least",
    ["--np 2 --elastic 3:4 " .. PLACE] = "--elastic 3:4: it does not allow 2 processes",
    ["--output most " .. PLACE] = "--output most; the choices",
  } do
    local text, status = run(arguments)
    check.matches(text, "^mgpulua: " .. (message:find "%%" and message or message:gsub("%-", "%%-")))
    check.equal(status, 1)
  end
  local text, status = run("--np 3 " .. check.path "missing.lua")
  check.equal(text, ("mgpulua: cannot open %s: No such file or directory\n"):format(check.path "missing.lua"))
  check.equal(status, 74)
  check.matches(run("--np 2 " .. PLACE, "MGPU_OUTPUT=mots"), "MGPU_OUTPUT=mots; the choices")
end)
