--- Workers: runs jobs as processes of this machine, some at a time, and shares its cores and GPUs among them.
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"

local M = {}

local NAP, LONGEST_NAP = 0.005, 0.1 -- seconds between looks
local GRACE = 20                    -- seconds from SIGTERM, after which a trial saves, to SIGKILL

-- ---- this machine -------------------------------------------------------------------------------

local function cores()
  local ok, info = pcall(core.device_info, "cpu:0")
  return ok and tonumber(info.text:match "^(%d+) thread") or facts.machine({}).cores or 1
end

-- The GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them.
local function gpus()
  local list, n = {}, #core.devices "cuda"
  for name in (os.getenv "CUDA_VISIBLE_DEVICES" or ""):gmatch "[^,%s]+" do list[#list + 1] = name end
  if #list == 0 then
    for i = 0, n - 1 do list[#list + 1] = tostring(i) end
  end
  return { unpack(list, 1, n) }
end

--- default_parallel() -> how many trials run at a time: the number of GPUs, or without one half the number of cores.
function M.default_parallel()
  local n = #core.devices "cuda"
  return n > 0 and n or math.max(1, math.floor(cores() / 2))
end

-- The variables of the process in slot `slot` of `parallel`.
local function variables_of(slot, parallel, folder)
  local list, devices = { "MGPU_TRIAL=" .. folder, "MGPU_LAUNCH=none" }, gpus()
  if #devices > 0 then
    list[#list + 1] = "CUDA_VISIBLE_DEVICES=" .. devices[(slot - 1) % #devices + 1]
  end
  if not os.getenv "MGPU_THREADS" then
    list[#list + 1] = ("MGPU_THREADS=%d"):format(math.max(1, math.floor(cores() / parallel)))
  end
  return list
end

-- ---- running ------------------------------------------------------------------------------------

-- Ends the processes: SIGTERM, so that they can save, then SIGKILL.
local function end_all(running)
  for _, each in pairs(running) do each.process:signal "TERM" end
  local deadline = core.clock() + GRACE
  while next(running) and core.clock() < deadline do
    for slot, each in pairs(running) do
      if each.process:ended() then running[slot] = nil end
    end
    pcall(core.sleep, NAP)
  end
  for _, each in pairs(running) do each.process:signal "KILL" end
end

local function start(job, slot, parallel, command)
  return core.process_start { program = "/proc/self/exe", arguments = command, output = job.folder .. "/output.txt",
    variables = variables_of(slot, parallel, job.folder) }
end

-- Gives free slots to the jobs that wait, and collects those that have ended. RETURNS whether something happened.
local function turn(state)
  local happened = false
  for slot = 1, state.parallel do
    local each = state.running[slot]
    local status, signal
    if each then status, signal = each.process:ended() end
    if status then
      state.running[slot], happened = nil, true
      state.ended(each.job, status, signal, core.clock() - each.began)
    end
    if not state.running[slot] and state.jobs[state.next] then
      local job = state.jobs[state.next]
      state.next, happened = state.next + 1, true
      state.begun(job)
      state.running[slot] = { job = job, began = core.clock(), process = start(job, slot, state.parallel,
        state.command) }
    end
  end
  return happened
end

--- run(jobs, {parallel =, command =, begun =, ended =}): runs all of them. Each is started in the order of the array.
-- ARGS jobs: array of tables with the folder of each; command: the words of the command line; begun(job) is called
-- before its process starts, ended(job, status, signal, seconds) after it has ended. Errors: a process cannot be
-- started; Ctrl-C; what begun and ended raise. Then all processes are ended first.
function M.run(jobs, given)
  local state = { jobs = jobs, next = 1, running = {}, parallel = given.parallel, command = given.command,
    begun = given.begun, ended = given.ended }
  local ok, problem = pcall(function()
    local nap = NAP
    while state.jobs[state.next] or next(state.running) do
      nap = turn(state) and NAP or math.min(nap * 1.5, LONGEST_NAP)
      core.sleep(nap)
    end
  end)
  if ok then return end
  end_all(state.running)
  error(problem, 0)
end

return M
