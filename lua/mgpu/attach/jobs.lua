--- The jobs of this user, seen from outside: finding them, and asking what each is at.
--
-- runtime/program/attach/client.c is what talks to them.
local core = require "mgpu.core"
local link = require "mgpu.attach.link"

local M = {}

local WITHIN = 1.5 -- seconds for the answers of all jobs together

--- fields(text) -> the lines name=value as a table; numbers as numbers.
function M.fields(text)
  local found = {}
  for name, value in text:gmatch "([%a_]+)=([^\n]*)\n" do
    local is_text = name == "script" or name == "doing" or name == "version" or name == "device" or name == "state"
    found[name] = not is_text and tonumber(value) or value
  end
  return found
end

-- The sockets by their processes, each process once, in order.
local function sockets()
  local list, seen = {}, {}
  for _, job in ipairs(link.jobs()) do
    if not seen[job.pid] then list[#list + 1] = job end
    seen[job.pid] = true
  end
  table.sort(list, function(a, b) return a.pid < b.pid end)
  return list
end

-- Waits for the answer of a job that was asked.
local function collect(job, deadline)
  while not job.state do
    local kind, body, version = job.connection:receive(math.max(deadline - core.clock(), 0))
    if kind == "told" then
      for name, value in pairs(M.fields(body)) do job[name] = value end
    elseif not kind then
      job.state = body == "time" and "no answer"
        or body == "version" and ("another version (protocol %d)"):format(version) or "ended"
    end
  end
end

--- list() -> array of the jobs {pid =, path =, state =, script =, ...}: the fields of runtime/program/attach/state.c. A
--- job that has not begun to compute, or is stopped, has the state "no answer".
function M.list()
  local list, deadline = {}, core.clock() + WITHIN
  for _, job in ipairs(sockets()) do
    job.connection = link.connect(job.path)
    if job.connection and job.connection:send "state" then list[#list + 1] = job end
  end
  for _, job in ipairs(list) do
    collect(job, deadline)
    job.connection:close()
    job.connection = nil
  end
  return list
end

-- ---- as lines -------------------------------------------------------------------------------------

local function span_text(seconds)
  if seconds < 60 then return ("%ds"):format(seconds) end
  if seconds < 3600 then return ("%dm%02ds"):format(seconds / 60, seconds % 60) end
  if seconds < 86400 then return ("%dh%02dm"):format(seconds / 3600, seconds / 60 % 60) end
  return ("%dd%02dh"):format(seconds / 86400, seconds / 3600 % 24)
end

local function counted(name, number, of)
  if not number or number == 0 then return nil end
  return of and of > 0 and ("%s %d/%d"):format(name, number, of) or ("%s %d"):format(name, number)
end

--- what(job) -> "running, epoch 3/10, step 17/100".
function M.what(job)
  local texts = { job.state }
  texts[#texts + 1] = counted("epoch", job.epoch, job.epochs)
  texts[#texts + 1] = counted("step", job.step, job.steps)
  return table.concat(texts, ", ")
end

local HEADS = { "PID", "RANK", "SINCE", "DEVICE", "LOSS", "STATE", "SCRIPT" }

local function row_of(job)
  local since = job.began and span_text(math.max(os.time() - job.began, 0)) or "-"
  return { tostring(job.pid), job.size and job.size > 1 and ("%d/%d"):format(job.rank, job.size) or "-", since,
    job.device or "-", job.loss and ("%.4g"):format(job.loss) or "-", M.what(job), job.script or "-" }
end

--- table_of(list) -> array of lines: a head and a line for each job.
function M.table_of(list)
  local rows, widths, lines = { HEADS }, {}, {}
  for _, job in ipairs(list) do rows[#rows + 1] = row_of(job) end
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, #text) end
  end
  for i, row in ipairs(rows) do
    local cells = {}
    for k, text in ipairs(row) do cells[k] = k < #row and text .. (" "):rep(widths[k] - #text) or text end
    lines[i] = core.printable(table.concat(cells, "  "), true)
  end
  return lines
end

return M
