-- mgpulua -H and --hostfile, and the hosts of batch systems: a script in the place of ssh starts the program here.

local check = require "check"
local test = check.test
local sorted = check.sorted_lines

local function script(name, text)
  local path = check.path(name)
  check.write(path, text)
  return path
end

-- In the place of ssh: the other "host" has another environment and folder. Hosts "gone..." cannot be reached, host
-- "bare" has no mgpulua, the connection to host "dies" is killed, and the login at host "talks" prints a line.
local SSH = script("ssh", [[
#!/bin/sh
host=$1; shift
case $host in gone*) echo "no route to $host" >&2; exit 255;; esac
[ "$host" = bare ] && exec /missing/mgpulua
[ "$host" = dies ] && kill -9 $$
[ "$host" = talks ] && echo "Welcome to this host"
cd /
exec env -u MGPU_TOKEN -u MGPU_TEST_TRAVELS -u HUB HOST_NAME="$host" sh -c "$*"
]])
check.run("chmod +x " .. SSH)

local PLACE = script("place.lua", [[
  local v = os.getenv
  local hub = v "MGPU_HUB":gsub(":%d+$", "")
  if hub:find "%d%.%d" then hub = "numeric" end
  print(v "HOST_NAME" or "here", v "MGPU_RANK", v "MGPU_SIZE", v "MGPU_LOCAL_RANK", v "MGPU_LOCAL_SIZE", hub,
    #v "MGPU_TOKEN", ...)]])

-- Runs mgpulua with arguments in shell syntax; `before`: variables for it. Returns its output and exit status.
local function run(arguments, before)
  return check.run(("env -u SLURM_JOB_NODELIST -u SLURM_JOB_ID -u PBS_NODEFILE -u PE_HOSTFILE -u MGPU_OUTPUT "
    .. "MGPU_SSH=%s %s %s %s </dev/null"):format(SSH, before or "", check.program, arguments))
end

test("-H starts processes on several hosts, as many as there are slots", function()
  local text, status = run("-H a:2,b --output all " .. PLACE .. [[ "two words" "it's" '$HOME' "]] .. "a\nb" .. '"')
  local rest = "\tnumeric\t64\ttwo words\tit's\t$HOME\ta\nb\n"
  check.equal(sorted(text), sorted("a\t0\t3\t0\t2" .. rest .. "a\t1\t3\t1\t2" .. rest .. "b\t2\t3\t0\t1" .. rest))
  check.equal(status, 0)
  check.equal(run("-H a:2,b:2 --np 3 " .. PLACE), "a\t0\t3\t0\t2\tnumeric\t64\n")
  check.equal(run("-Hme@a --np=1 --output prefix " .. PLACE), "[0] me@a\t0\t1\t0\t1\tnumeric\t64\n")
end)

test("processes of this host and of others share one numbering, and others learn this host's addresses", function()
  local name = check.run "hostname":gsub("%s+$", "")
  check.equal(sorted(run(("-H localhost,a,%s:2 --output prefix %s"):format(name, PLACE))),
    "[0] here\t0\t4\t0\t3\tnumeric\t64\n[1] a\t1\t4\t0\t1\tnumeric\t64\n"
    .. "[2] here\t2\t4\t1\t3\tnumeric\t64\n[3] here\t3\t4\t2\t3\tnumeric\t64")
  check.equal(sorted(run("-H 127.0.0.1:2 --output all " .. PLACE)),
    "here\t0\t2\t0\t2\tnumeric\t64\nhere\t1\t2\t1\t2\tnumeric\t64")
end)

test("rank 0's host tells where the ranks meet, also behind what its login prints", function()
  check.equal(run("-H talks,a " .. PLACE), "Welcome to this host\ntalks\t0\t2\t0\t1\tnumeric\t64\n")
  local text, status = run("-H gone,a " .. PLACE)
  check.matches(text, "^no route to gone\nmgpulua: host gone: it could not be reached")
  check.equal(status, 255)
end)

test("the working folder and the variables of mgpulua travel, others do not", function()
  local text = run("-H a -e 'print(os.getenv \"MGPU_TEST_TRAVELS\", os.getenv \"HUB\", io.open \"Makefile\" ~= nil)'",
    "MGPU_TEST_TRAVELS='1 2' HUB=3")
  check.equal(text, "1 2\tnil\ttrue\n")
end)

test("--hostfile and the files of PBS and UGE name hosts", function()
  local expected = "a\t0\t3\t0\t2\tnumeric\t64\na\t1\t3\t1\t2\tnumeric\t64\nb\t2\t3\t0\t1\tnumeric\t64"
  local file = check.path "hosts"
  check.write(file, "# two hosts\na slots=2\nb:1\n")
  check.equal(sorted(run(("--hostfile %s --output all %s"):format(file, PLACE))), expected)
  check.write(file, "a\na\nb\n")
  check.equal(sorted(run("--np 3 --output all " .. PLACE, "PBS_NODEFILE=" .. file)), expected)
  check.write(file, "a 2 all.q@a UNDEFINED\nb 4 all.q@b UNDEFINED\n")
  check.equal(sorted(run("--np 3 --output all " .. PLACE, "PE_HOSTFILE=" .. file)), expected)
end)

test("an allocation of SLURM names hosts, but one with a single node takes any number of processes", function()
  check.equal(sorted(run("--np 3 --output all " .. PLACE, "SLURM_JOB_NODELIST='n[1-2]' SLURM_TASKS_PER_NODE='2(x2)'")),
    "n1\t0\t3\t0\t2\tnumeric\t64\nn1\t1\t3\t1\t2\tnumeric\t64\nn2\t2\t3\t0\t1\tnumeric\t64")
  check.equal(run("--np 2 " .. PLACE, "SLURM_JOB_NODELIST='n[1-2]'"), "n1\t0\t2\t0\t1\tnumeric\t64\n")
  check.equal(run("--np 3 " .. PLACE, "SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=1"),
    "here\t0\t3\t0\t3\tnumeric\t64\n")
  check.matches(run("--np 3 " .. PLACE, "SLURM_JOB_NODELIST='n['"), "SLURM_JOB_NODELIST=n[: not a list of nodes")
  local text, status = run("--np 5 " .. PLACE, "SLURM_JOB_NODELIST='n[1-2]' SLURM_JOB_CPUS_PER_NODE='2(x2)'")
  check.matches(text, "--np 5: the 2 hosts of SLURM_JOB_NODELIST have 4 slots: name more hosts")
  check.equal(status, 1)
end)

test("a process that fails on another host gives the status, and all others are ended", function()
  local fails = script("fails.lua", "if os.getenv 'MGPU_RANK' == '3' then os.exit(7) end while true do end")
  check.equal(select(2, run("-H a:2,b:2 " .. fails, "MGPU_LAUNCH_GRACE=0")), 7)
  local killed = script("killed.lua",
    "if os.getenv 'MGPU_RANK' == '3' then os.execute 'kill -9 $PPID' end while true do end")
  local text, status = run("-H a:2,b:2 " .. killed, "MGPU_LAUNCH_GRACE=0")
  check.matches(text, "rank 3 of 4 %(pid %d+%) was killed by signal 9")
  check.equal(status, 137)
end)

test("hosts that cannot be reached or lack mgpulua are named", function()
  local text, status = run("-H a,gone " .. PLACE, "MGPU_LAUNCH_GRACE=0")
  check.matches(text, "no route to gone\n.*mgpulua: host gone: it could not be reached")
  check.equal(status, 255)
  text, status = run("-H bare " .. PLACE)
  check.matches(text, "mgpulua: host bare: mgpulua was not found there")
  check.equal(status, 127)
  text, status = run("-H a " .. PLACE, "MGPU_SSH=/missing/ssh")
  check.matches(text, "mgpulua: --np: cannot run /missing/ssh: No such file or directory")
  check.equal(status, 74)
  check.matches(run("-H a " .. PLACE, "MGPU_SSH=' '"), "MGPU_SSH names no command")
  text, status = run("-H dies " .. PLACE)
  check.matches(text, "mgpulua: the agent of rank 0 of 1 %(pid %d+%) was killed by signal 9")
  check.equal(status, 137)
end)

test("what a host's connection said comes before what its end means", function()
  local hosts = {}
  for i = 1, 40 do hosts[i] = "gone" .. i end
  local text = run("-H a," .. table.concat(hosts, ",") .. " " .. PLACE, "MGPU_LAUNCH_GRACE=5")
  for _, host in ipairs(hosts) do
    check.matches(text, ("no route to %s\n.*mgpulua: host %s: it could not be reached"):format(host, host))
  end
end)

-- Starts processes on two hosts, and runs shell code in which $p is the launcher when all of them run. Returns the
-- output, with a line for each process that is left afterwards.
local function while_running(code)
  local ready = check.path "ready"
  local path = script("runs.lua", ([[
    local f = io.open(%q .. os.getenv "MGPU_RANK" .. ".new", "w")
    f:write(io.open "/proc/self/stat":read "*n")
    f:close()
    os.rename(%q .. os.getenv "MGPU_RANK" .. ".new", %q .. os.getenv "MGPU_RANK")
    while true do end]]):format(ready, ready, ready))
  return check.run(([[rm -f %s*; MGPU_SSH=%s %s -H a:2,b:2 %s & p=$!
    for i in 0 1 2 3; do while [ ! -e %s$i ]; do sleep 0.05; done; done
    %s; wait $p; echo status $?
    for i in 0 1 2 3; do while kill -0 $(cat %s$i) 2>/dev/null; do sleep 0.05; done; done; echo gone]])
    :format(ready, SSH, check.program, path, ready, code, ready))
end

test("signals reach the processes on other hosts", function()
  local text = while_running "kill -TERM $p"
  check.equal(select(2, text:gsub("interrupted!", "")), 4)
  check.matches(text, "status 143\ngone\n$")
end)

test("when the launcher is killed, the processes on other hosts end", function()
  check.matches(while_running "kill -KILL $p", "status 137\n.*gone\n$")
end)

test("the agent refuses orders of another version and damaged ones", function()
  -- What an agent says to these orders, a list of texts.
  local function agent(...)
    local path = check.path "orders"
    check.write(path, #{ ... } > 0 and table.concat({ ... }, "\0") .. "\0" or "")
    return check.run(("%s --agent <%s"):format(check.program, path))
  end
  check.matches(agent(), "mgpulua: host .*: the launcher's orders ended early")
  check.matches(agent("mgpulua 99 agent", 9), "this is \"mgpulua [%d.]+ agent\", but the launcher is "
    .. "\"mgpulua 99 agent\": install the same version on all hosts")
  local hello = "mgpulua " .. check.run(check.program .. " --version"):match "^mgpulua (%S+)" .. " agent"
  check.matches(agent(hello, 3), "the launcher's orders are damaged")
  check.matches(agent(hello, 9, "/"), "the launcher's orders ended early")
  check.matches(agent(hello, 9, "/", "h:1", "token", 1, 0, 0, 1, 0, 5), "the launcher's orders are damaged")
  check.matches(agent(hello, 10, check.path "missing", "h:1", "token", 1, 0, 0, 1, 0, 1, "x"),
    "cannot enter the folder " .. check.path "missing" .. ": No such file")
end)

test("a folder that is gone cannot travel", function()
  local folder = check.path "folder"
  local text, status = check.run(("p=$(readlink -f %s); mkdir %s; cd %s; rmdir %s; MGPU_SSH=%s $p -H a %s")
    :format(check.program, folder, folder, folder, SSH, PLACE))
  check.matches(text, "--np: the path of mgpulua or of this folder is unknown")
  check.equal(status, 74)
end)

test("wrong lists of hosts are refused", function()
  local large = check.path "large"
  check.run("truncate -s 16777217 " .. large)
  for arguments, message in pairs {
    ["-H a,,b"] = "-H a,,b: a host's name is missing",
    ["-H a:0"] = '-H: "a:0": the number of slots must be 1 to 65536',
    ["-H a --hostfile b"] = "-H and --hostfile cannot be combined",
    ["-H a:2,b --np 4"] = "--np 4: the 2 hosts of -H have 3 slots",
    ["-H a --np 2"] = "--np 2: the 1 host of -H has 1 slot:",
    ["--hostfile " .. large] = "/large has 16777217 bytes: that is no list of hosts",
    ["--hostfile " .. check.path "missing"] = "cannot open " .. check.path "missing",
    ["--hostfile " .. script("empty", "# no host\n")] = "/empty names no host",
  } do check.matches(run(arguments .. " " .. PLACE), message) end
end)

test("--elastic goes on without a host that is lost, if enough processes remain", function()
  local path = script("elastic.lua", [[print(os.getenv "MGPU_RANK", os.getenv "MGPU_SIZE")]])
  local text, status = run("--output all --restart 2 --elastic 2:4 -H localhost:1,near:1,gone:2 " .. path,
    "MGPU_LAUNCH_GRACE=0.5")
  check.matches(text, "mgpulua: all processes start again, 2 in the place of 4 %(1 restart is left%)\n")
  check.matches(sorted(text:match "left%)\n(.*)$"), "^0\t2\n1\t2$")
  check.equal(status, 0)
  text, status = run("--output all --restart 2 --elastic 3:4 -H localhost:1,near:1,gone:2 " .. path,
    "MGPU_LAUNCH_GRACE=0.5")
  check.matches(text, "mgpulua: without host gone there is no place for 3 processes\n$")
  check.equal(status, 255)
end)
