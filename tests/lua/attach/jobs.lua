-- Jobs for the specs of --attach: they train until they are told to stop.
local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"

local M = {}

-- A fit that goes on until the file arg[1] .. ".stop" is there, or for arg[2] epochs, and says at its first step
-- that it has begun. Then it prints its weights, to the last bit, and what was attached.
M.JOB = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L = mgpu.layers
  mgpu.seed(1)
  math.randomseed(1)
  answer = 42
  model = mgpu.Sequential { L.Input { 4 }, L.Dense { 8, activation = "relu" }, L.Dropout { 0.5 }, L.Dense { 1 } }
  model:compile { loss = "mse", optimizer = "adam" }
  local x, y = mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }
  local path, epochs = arg[1], tonumber(arg[2])
  local control = {
    on_train_batch_end = function(_, batch) if batch == 1 then core.write_file(path, "ready") end end,
    on_epoch_end = function(self, epoch)
      core.sleep(0.01)
      if not epochs and core.file_exists(path .. ".stop") then self.model.stop_training = true end
    end,
  }
  local h = model:fit(x, y, { epochs = epochs or 1e6, batch_size = 8, verbose = 0, callbacks = control })
  local bits = {}
  for _, w in ipairs(model:get_weights()) do
    local list = w:to "float64":reshape { -1 }:totable()
    for _, v in ipairs(list) do bits[#bits + 1] = ("%.17g"):format(v) end
  end
  print("weights " .. table.concat(bits, " "))
  print("random", math.random(), mgpu.rand({ 1 }):item())
  local times = 0
  for _, a in ipairs(h.attached) do times = times + (a.times or 1) end
  print("attached", times, h.attached[1] and h.attached[1].what)
  print("epochs", #h.epoch, "rate", model.compiled.optimizer.learning_rate)
  print("changed", rawget(_G, "_"), rawget(_G, "job"))
]]

-- Runs the shell commands `text` beside a job; in them $p is its process, $m the program, $f its file. The job ends
-- after them -> their output, and the job's.
function M.beside(text, given)
  given = given or {}
  local script, ready, output = check.path "job.lua", check.path "ready", check.path "output"
  check.write(script, given.job or M.JOB)
  check.run(("rm -f %s %s.stop"):format(ready, ready))
  check.run(("mkdir -p -m 700 %s"):format(check.path "run"))
  check.write(check.path "beside.sh", ([[
    unset MGPU_ATTACH
    export XDG_RUNTIME_DIR=%s
    m=%s f=%s
    %s $m %s $f %s >%s 2>&1 & p=$!
    while [ ! -s $f ] && kill -0 $p; do sleep 0.02; done
    %s
    touch $f.stop
    wait $p; echo "status $?" >>%s]]):format(check.path "run", check.program, ready, given.environment or "", script,
    given.epochs or "", output, text, output))
  return check.run("sh " .. check.path "beside.sh"), check.read(output)
end

--- ranks(job) -> what --ps=json says of the job's processes, by rank.
function M.ranks(job)
  local list = {}
  for _, each in ipairs(core.json_decode((check.run(("%s %s --ps=json"):format(job.environment, check.program))))) do
    if each.script == check.path "job.lua" then list[each.rank] = each end
  end
  return list
end

--- pid_of(job, rank) -> the process of that rank, when it is there.
function M.pid_of(job, rank)
  return fixtures.wait_until(function() return M.ranks(job)[rank] end, "a rank " .. rank).pid
end

--- with(fn, given = {}): runs fn(job) while a job trains; job: {pid =, path =, run = XDG_RUNTIME_DIR, environment =
--- variables that clients need, for the shell}. given: job = another script; options of the program; environment.
--- RETURNS the job's output, with its status.
function M.with(fn, given)
  given = given or {}
  local run, path = check.path "run", check.path "ready"
  check.run(("mkdir -p -m 700 %s; rm -f %s %s.*"):format(run, path, path))
  check.write(check.path "job.lua", given.job or M.JOB)
  local environment = given.environment or "XDG_RUNTIME_DIR=" .. run
  local command = ("%s MGPU_ATTACH=1 %s%s %s %s"):format(environment, check.program, given.options or "",
    check.path "job.lua", path)
  check.run(("{ %s >%s.out 2>&1 & echo $! >%s.pid; wait $!; echo status $? >>%s.out; : >%s.end; } >/dev/null 2>&1 &"
    ):format(command, path, path, path, path))
  local function wait_for(name)
    fixtures.wait_until(function() return core.file_exists(name) end,
      function() return name .. ": " .. check.read(path .. ".out") end)
  end
  wait_for(path)
  local pid = tonumber(check.read(path .. ".pid"))
  local ok, message = pcall(fn, { pid = pid, path = path, environment = environment, run = run })
  check.write(path .. ".stop", "")
  if not ok then check.run("kill -9 " .. pid) end
  local ended, why = pcall(wait_for, path .. ".end")
  if not ended then
    check.run("kill -9 " .. pid)
    if ok then error(why, 0) end
  end
  if not ok then error(message, 0) end
  return check.read(path .. ".out")
end

return M
