-- Runs training.lua in several ranks, one of which comes to grief, and says what became of each.
local check = require "check"
local core = require "mgpu.core"

local M = {}

local SILENCE = 2 -- seconds: MGPU_SILENCE here
local PROGRAM = " tests/lua/world/faults/training.lua"

-- name -> the command that starts %d ranks, and the package that it needs. "each" starts them one by one, as a batch
-- system would, so that the exit status of each is seen.
M.launchers = {
  each = "for r in $(seq 0 %d); do start $r & done; wait",
  np = "%s --np %d --output prefix",
  openmpi = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np %d %s",
  mpich = "mpirun.mpich -np %d %s",
}

--- problem(launcher) -> why it cannot be used here, or nil.
function M.problem(launcher)
  local transport = M.launchers[launcher] and launcher:find "mpi" and launcher or "ucx"
  for _, each in ipairs(core.transports()) do
    if each.name == transport and not each.problem then
      local _, status = check.run(transport == "ucx" and "true" or "command -v mpirun." .. transport)
      return status ~= 0 and "no mpirun." .. transport or nil
    end
  end
  return "no transport " .. transport
end

local START = [[
  start() {
    RANK=$1 WORLD_SIZE=%d LOCAL_RANK=$1 LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d \
      env $(eval echo \$EXTRA$1) %s %s %s "%s" </dev/null >%s/output.$1 2>&1
    echo $? >%s/status.$1
  }
]]

-- A port by chance, below those that the system gives to connections.
local function some_port()
  local file = assert(io.open("/dev/urandom", "rb"))
  local a, b = file:read(2):byte(1, 2)
  file:close()
  return 20000 + (a * 256 + b) % 12000
end

local function command_of(launcher, n, folder, options)
  local arguments = ('%s "%s"'):format(folder, options)
  if launcher == "each" then
    return START:format(n, n, some_port(), check.program, PROGRAM, folder, options, folder, folder)
      .. M.launchers.each:format(n - 1)
  elseif launcher == "np" then
    return M.launchers.np:format(check.program, n) .. PROGRAM .. " " .. arguments
  end
  return M.launchers[launcher]:format(n, check.program) .. PROGRAM .. " " .. arguments
end

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- Open MPI's mpirun kills the ranks and does not wait for their ends.
local function stays(pid)
  return select(2, check.run(("for i in $(seq 50); do kill -0 %s || exit 0; sleep 0.1; done; exit 1"):format(pid))) ~= 0
end

-- What the files of a rank tell.
local function rank_of(folder, r)
  local ended = read(("%s/end.%d"):format(folder, r)) or ""
  local done, weights, message, values = ended:match "^(%d+)\n(%C*)\n(%C*)\n(.*)$"
  local pid = read(("%s/pid.%d"):format(folder, r))
  return { status = tonumber(read(("%s/status.%d"):format(folder, r)) or nil), done = tonumber(done), weights = weights,
    message = message and message:gsub("^.-training.lua:%d+: ", ""), values = values,
    output = read(("%s/output.%d"):format(folder, r)),
    left = pid and stays(pid) and pid or nil }
end

--- run(launcher, n, options, before) -> {status, output, seconds, [0] = rank 0, rank 1, ...}; a rank: {status, output,
--- done, weights, message, values, left}, each nil if not known. left: its pid, if it still runs.
-- ARGS options: of training.lua; before: shell variables; EXTRA1="A=1" is for rank 1 of "each".
function M.run(launcher, n, options, before)
  local folder = check.run "mktemp -d":gsub("\n", "")
  local begun = core.clock()
  local output, status = check.run(("export MGPU_SILENCE=%d MGPU_JOIN=20 MGPU_LAUNCH_GRACE=3 %s; %s"):format(SILENCE,
    before or "", command_of(launcher, n, folder, options)))
  local result = { status = status, output = output, seconds = core.clock() - begun }
  for r = 0, n - 1 do result[r] = rank_of(folder, r) end
  check.run("rm -rf " .. folder)
  return result
end

-- ---- what may happen ----------------------------------------------------------------------------

--- cases: {name, options = of training.lua, own = the exit status of the rank that comes to grief, says = what the
--- others are told}. In `options` and `says`, ON is the rank.
M.cases = {
  { "killed", options = "fault='signal',signal=9", own = 137, says = "rank ON %(host %S+, pid %d+%) died: its "
    .. "connection ended %(last seen " },
  { "killed in the middle of a step", own = 137,
    options = "fault='signal',signal=9,delay=0.05,steps=100000,units=200",
    says = "rank ON %(host %S+, pid %d+%) died: its connection ended %(last seen " },
  { "stopped", options = "fault='signal',signal=19,wakes=4.5", own = 76,
    says = "rank ON %(host %S+, pid %d+%) has not answered for 2 s %(last seen " },
  { "leaving the loop early", options = "fault='leave'", own = 0,
    says = "rank ON %(host %S+, pid %d+%) left the script after step 9 while others go on" },
  { "ending with status 0", options = "fault='exit_0'", own = 0,
    says = "rank ON %(host %S+, pid %d+%) left the script after step 9 while others go on" },
  { "ending with status 5", options = "fault='exit'", own = 5,
    says = "rank ON %(host %S+, pid %d+%) left the script at step 9 while others go on: exit status 5" },
  { "raising an error", options = "fault='raise'", own = 1, says = "rank ON %(host %S+, pid %d+%) failed: .*boom" },
  { "out of memory", options = "fault='memory'", own = 1,
    says = "rank ON %(host %S+, pid %d+%) failed: .*cpu:0: out of memory: asked" },
  { "interrupted", options = "fault='signal',signal=2", own = 130,
    says = "rank ON %(host %S+, pid %d+%) failed: .*interrupted!" },
  { "ended by SIGTERM", options = "fault='signal',signal=15", own = 143,
    says = "rank ON %(host %S+, pid %d+%) failed: .*interrupted!" },
}

-- What is wrong with another rank than the one that came to grief, or nil.
local function problem_of(rank, first, says, middle)
  if rank.status and rank.status ~= 76 then return "exit status " .. rank.status end
  if not rank.message then return "it has not come to its end" end
  if not rank.message:find(says) then return "it says: " .. rank.message end
  if rank.message ~= first.message then return "it says something else: " .. rank.message end
  if rank.weights ~= "unchanged" then return "the weights are not those before the step" end
  if not middle and rank.done ~= 9 then return ("%d steps are done"):format(rank.done) end
  return rank.done == first.done and rank.values ~= first.values and "its weights are others" or nil
end

--- try(case, n, on) -> what went wrong when rank `on` of n, each started by itself, comes to grief so, or nil; and the
--- seconds until all had ended. A rank that hangs fails by the limit of the whole test.
function M.try(case, n, on)
  local result = M.run("each", n, ("at=10,on=%d,%s"):format(on, case.options))
  local says, middle = case.says:gsub("ON", on), case.options:find "delay"
  local first = result[on == 0 and 1 or 0]
  local function failed(r, what)
    return ("%s, rank %d of %d: rank %d: %s\n%s"):format(case[1], on, n, r, what, result[r].output or "")
  end
  for r = 0, n - 1 do
    local problem = r ~= on and problem_of(result[r], first, says, middle)
    if problem then return failed(r, problem) end
    if result[r].left then return failed(r, "it still runs") end
  end
  if result[on].status ~= case.own then return failed(on, ("exit status %s"):format(result[on].status)) end
  return nil, result.seconds
end

return M
