-- Processes of every launcher become one world, whose ranks exchange a number.

local check = require "check"
local test = check.test

local launched = require "lua.world.launched"
local JOIN, expected, sorted = launched.JOIN, launched.expected, check.sorted_lines
local needs_transport, needs_program = launched.needs_transport, launched.needs_program

-- Starts a process with each text of variables, and returns their output, sorted.
local function together(variables)
  local commands = {}
  for i, text in ipairs(variables) do
    commands[i] = ("env %s MGPU_OUTPUT=all %s %s </dev/null &"):format(text, check.program, JOIN)
  end
  return sorted(check.run(table.concat(commands, " ") .. " wait"))
end

test("mgpulua --np starts one world of 1 to 4 ranks", function()
  needs_transport "ucx"
  for n = 2, 4 do
    local text = check.run(("%s --np %d --output all %s"):format(check.program, n, JOIN))
    check.equal(sorted(text), expected("mgpulua", n))
  end
  check.equal(check.run(("%s --np 1 %s"):format(check.program, JOIN)), "0 of 1 by none: word 0\n")
end)

test("processes with torchrun's variables are one world", function()
  needs_transport "ucx"
  local port, variables = launched.free_port(), {}
  for rank = 0, 2 do
    variables[rank + 1] = ("RANK=%d WORLD_SIZE=3 LOCAL_RANK=%d LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=%s "
      .. "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=False OMP_NUM_THREADS=1"):format(rank, rank, port)
  end
  check.equal(together(variables), expected("torchrun", 3))
end)

test("processes with TF_CONFIG are one world", function()
  needs_transport "ucx"
  local cluster, variables = ('{"chief": ["127.0.0.1:%s"], "worker": ["127.0.0.1:1"]}'):format(launched.free_port()), {}
  for i, role in ipairs { "chief", "worker" } do
    variables[i] = ("'TF_CONFIG={\"cluster\": %s, \"task\": {\"type\": \"%s\", \"index\": 0}}'"):format(cluster, role)
  end
  check.equal(together(variables), expected("tf_config", 2))
end)

test("processes started by mpirun of Open MPI are one world, by MPI or by UCX", function()
  needs_program "mpirun.openmpi"
  needs_transport "openmpi"
  local mpirun = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np 3"
  local function run(before)
    return sorted(check.run(("%s %s %s --output all %s </dev/null"):format(before, mpirun, check.program, JOIN)))
  end
  check.equal(run "", expected("openmpi", 3))
  needs_transport "ucx"
  check.equal(run("MGPU_TRANSPORT=ucx MGPU_HUB=127.0.0.1:" .. launched.free_port()), expected("openmpi", 3))
end)

test("processes started by mpirun of MPICH are one world", function()
  needs_program "mpirun.mpich"
  needs_transport "mpich"
  check.equal(sorted(check.run(("mpirun.mpich -np 3 %s --output all %s </dev/null"):format(check.program, JOIN))),
    expected("hydra", 3))
end)

test("ranks on two hosts are one world", function() -- hosts that are network namespaces
  needs_transport "ucx"
  needs_program "ip"
  local pid = check.run "echo $PPID":match "%d+"
  local a, b = "mgpu-a" .. pid, "mgpu-b" .. pid
  local text = check.run(([[ip netns add A && ip netns add B && trap 'ip netns del A; ip netns del B' EXIT &&
    ip link add va netns A type veth peer name vb netns B && ip -n A addr add 10.213.77.1/24 dev va &&
    ip -n B addr add 10.213.77.2/24 dev vb && ip -n A link set va up && ip -n B link set vb up &&
    ip -n A link set lo up && ip -n B link set lo up || { echo no namespaces; exit; }
    for i in $(seq 100); do [ "$(ip netns exec B cat /sys/class/net/vb/operstate)" = up ] && break; sleep 0.1; done
    MGPU_SSH='ip netns exec' %s -H A,B:2 --output all %s]]):format(check.program, JOIN):gsub("%f[%w]A%f[%W]", a)
    :gsub("%f[%w]B%f[%W]", b))
  if text:find "no namespaces" then check.skip "the system lets this process make no network namespaces" end
  check.equal(sorted(text), expected("mgpulua", 3))
end)
