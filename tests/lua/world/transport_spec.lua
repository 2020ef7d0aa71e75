-- The transports carry messages between processes: the programs of tests/world, started by real launchers.

local check = require "check"
local processes = require "world.processes"
local test = check.test

if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's build needs programs built with it" end
if not processes.compiler() then check.skip "there is no C compiler" end

local built = check.program:match "^(.*)/"

-- Compiles tests/world/NAME.c and returns the path of the program.
local function program(name)
  local path = check.path(name)
  local messages = processes.compile(("tests/world/%s.c"):format(name), path, built)
  if messages then check.fail(messages) end
  return path
end

local exchange, cancel = program "exchange", program "cancel"

local function needs(kind)
  local reason = processes.missing(kind, built)
  if reason then check.skip(reason) end
end

-- Output and exit status of a program in n processes. They end within a time that is long enough for a busy machine.
local function run(kind, n, command)
  local out, status = check.run(("timeout -k 5 240 %s 2>&1"):format(processes.command(kind, n, command)))
  if status == 124 then check.fail("it does not end:\n" .. out) end
  return out, status
end

for kind, transport in pairs(processes.transports) do
  for n = 2, 4 do
    test(("%s: all pairs of %d processes exchange messages of 0 B to 40 MiB"):format(kind, n), function()
      needs(kind)
      local out, status = run(kind, n, exchange .. " " .. kind)
      if status ~= 0 then check.fail(out) end
      for rank = 0, n - 1 do
        check.matches(out, ("rank %d of %d: %s[%%d.]+ exchanged\n"):format(rank, n, transport.name))
      end
      local _, lines = out:gsub("\n", "")
      check.equal(lines, n, "the library prints nothing")
    end)
  end

  test(kind .. ": processes that may not read each other's memory exchange messages, silently", function()
    needs(kind)
    local out = run(kind, 2, ("%s %s %s"):format(program "without_cma", exchange, kind))
    local _, good = out:gsub(" exchanged\n", "")
    local _, lines = out:gsub("\n", "")
    if good ~= 2 or lines ~= 2 then check.fail(out:sub(1, 1000)) end
  end)

  test(kind .. ": a message may have more than 2^31 bytes", function()
    check.slow()
    needs(kind)
    local out, status = run(kind, 2, program "large" .. " " .. kind)
    if status ~= 0 then check.fail(out) end
    check.matches(out, "rank 1: 0 wrong\n")
  end)

  test(kind .. ": messages with a stopped process are given up in time, and their memory is left alone", function()
    needs(kind)
    local out, status = run(kind, 2, cancel .. " " .. kind .. " stopped")
    check.matches(out, "%d given up in time, 0 changed later\n")
    check.matches(out, "later: " .. transport.name .. "?[%d.: ]*a message was given up before, so no more can be "
      .. "exchanged\n")
    check.equal(status, 76, "the status of rank 0")
  end)

  test(kind .. ": a message of another size than expected is an error", function()
    needs(kind)
    local out = run(kind, 2, program "mismatch" .. " " .. kind)
    for _, late in ipairs { "", " late" } do -- the message is there before the receive
      check.matches(out, "rank 1, 8" .. late .. ": [^\n]*: rank 0 sent 4 bytes where 8 were expected\n")
      check.matches(out, "rank 1, 2" .. late .. ": [^\n]*receiving [^\n]*rank 0: [^\n]*runcated")
    end
    check.falsy(out:find "rank 1, 4", "a message of the expected size fails")
    if kind ~= "ucx" then check.matches(out, "MPI was ended in this process, and cannot be started again") end
  end)

  test(kind .. ": signals keep their handlers, and other threads may call the transport", function()
    needs(kind)
    local out, status = run(kind, 2, program "signals" .. " " .. kind)
    check.equal(out, ("0 handlers changed, 0 threads take signals\n"):rep(2))
    check.equal(status, 0)
  end)

  test(kind .. ": processes that never stop the transport end", function()
    needs(kind)
    run(kind, 3, cancel .. " " .. kind .. " leaves")
  end)
end

-- Runs a program under another host name than other processes, as if it were on another host.
local elsewhere = check.path "elsewhere"
check.write(elsewhere, 'exec unshare --uts sh -c \'hostname "rank-$PEER_RANK" && exec "$@"\' - "$@"\n')

test("ucx: a process of another host that has died is reported by the messages with it", function()
  needs "ucx"
  if check.run("unshare --uts true && echo yes") ~= "yes\n" then check.skip "this user may not make namespaces" end
  local out, status = run("ucx", 2, ("sh %s %s ucx dead"):format(elsewhere, cancel))
  check.matches(out, "failed: UCX: sending to rank 1: ")
  check.matches(out, "failed: UCX: receiving from rank 1: ")
  check.matches(out, "\n0 given up in time, 0 changed later\n")
  check.equal(status, 76, "the status of rank 0")
  out, status = run("ucx", 2, ("sh %s %s ucx stopped"):format(elsewhere, cancel))
  check.matches(out, "%d given up in time, 0 changed later\n")
  check.equal(status, 76, "the status of rank 0")
end)

test("ucx: a process of this host that has died does not keep its messages", function()
  needs "ucx"
  for _, wires in ipairs { "all", "tcp" } do
    local out, status = run("ucx", 2, ("env UCX_TLS=%s %s ucx dead"):format(wires, cancel))
    check.matches(out, "%d given up in time, 0 changed later\n")
    check.equal(status, 76, "the status of rank 0")
  end
end)

test("ucx: TCP alone carries messages", function()
  needs "ucx"
  local out, status = run("ucx", 3, "env UCX_TLS=tcp " .. exchange .. " ucx")
  if status ~= 0 then check.fail(out) end
  check.matches(out, "rank 2 of 3: UCX [%d.]+ exchanged\n")
end)

test("ucx: MGPU_INTERFACE names the network card or network, UCX_NET_DEVICES goes before it", function()
  needs "ucx"
  local function exchanged(variables)
    return (run("ucx", 2, ("env UCX_TLS=tcp %s %s ucx 4"):format(variables, exchange)))
  end
  for _, interface in ipairs { "lo", "127.0.0.0/8" } do
    check.matches(exchanged("MGPU_INTERFACE=" .. interface), "rank 1 of 2: UCX [%d.]+ exchanged\n")
  end
  check.matches(exchanged "UCX_NET_DEVICES=lo MGPU_INTERFACE=none7", "rank 1 of 2: UCX [%d.]+ exchanged\n")
  check.matches(exchanged "MGPU_INTERFACE=none7", "rank 1: MGPU_INTERFACE=none7: this host has no such network card")
end)

test("ucx: a process that does not answer is named", function()
  needs "ucx"
  local out, status = check.run(([[
    export PEER_SIZE=2 PEER_STORE=$(mktemp -d)
    PEER_RANK=1 %s ucx 4 2>/dev/null & silent=$!
    while ! [ -e $PEER_STORE/ucx-1 ]; do sleep 0.1; done
    kill -STOP $silent
    PEER_PATIENCE=1 PEER_RANK=0 timeout 60 %s ucx 4 2>&1; status=$?
    kill -KILL $silent; rm -r $PEER_STORE; exit $status]]):format(exchange, exchange))
  check.matches(out, "rank 0: UCX: rank 1 does not answer: if its host has several networks, name the card of a common "
    .. "one by MGPU_INTERFACE or UCX_NET_DEVICES")
  check.equal(status, 1)
end)

test("ucx: a wrong variable of UCX is an error", function()
  needs "ucx"
  local out = run("ucx", 1, ("env UCX_RNDV_THRESH=much %s ucx"):format(exchange))
  check.matches(out, "rank 0: UCX: reading the variables UCX_*: Invalid parameter")
end)

test("ucx: a network card that is missing is an error", function()
  needs "ucx"
  local out, status = run("ucx", 1, ("env UCX_TLS=tcp UCX_NET_DEVICES=none7 %s ucx"):format(exchange))
  check.matches(out, "rank 0: UCX: no network card is up of those that MGPU_INTERFACE or UCX_NET_DEVICES name")
  check.equal(status, 1)
end)

test("a process that the launcher of another MPI started says so", function()
  needs "openmpi"
  needs "mpich"
  local out, status = run("mpich", 2, exchange .. " openmpi")
  check.truthy(status ~= 0)
  check.matches(out, "Open MPI [%d.]+: this process is rank 0 of 1 there, but the launcher made it rank 1 of 2: "
    .. "start it by the mpirun of the same MPI")
end)
