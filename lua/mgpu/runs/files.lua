--- RunFiles: writes the files of a run's folder (folder.lua lists them) that have no writer of their own.
--
-- A disk that refuses a file must not end a training: what could not be written is said, and tried again with the next
-- line, as CSVLogger does.
local config = require "mgpu.runs.config"
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"
local logs = require "mgpu.train.logs"

local RunFiles = {}
RunFiles.__index = RunFiles

RunFiles.FORMAT = "mgpulua run 1"

local function time_text() return os.date "%Y-%m-%d %H:%M:%S" end

-- The message without the user's line at its beginning.
local function bare(message) return (tostring(message):gsub("^.-:%d+: ", "")) end

--- new(path) -> the files of the folder, which is there.
function RunFiles.new(path)
  return setmetatable({ path = path, due = {}, pending = "", size = 0, epochs = 0, clean = false }, RunFiles)
end

-- Calls fn; RETURNS whether the disk took it, and says what it did not take. Other errors are raised.
local function attempt(self, what, fn, ...)
  local ok, message = pcall(fn, ...)
  if ok then return true end
  if core.error_code() ~= "io" then error(message, 0) end
  require "mgpu.say"("fit: run %s: %s was not written%s: %s\n", self.path, what,
    self.ending and "" or ", it is tried again later", bare(message))
  return false
end

--- files:put(name, text): replaces a file of the folder.
function RunFiles:put(name, text)
  local written = attempt(self, name, core.write_file, self.path .. "/" .. name, text)
  self.due[name] = not written and text or nil
end

-- What could not be written before.
local function put_due(self)
  local due = self.due
  self.due = {}
  for name, text in pairs(due) do self:put(name, text) end
end

-- The fields of state.json that change.
local function put_state(self)
  local state = self.state
  state.epochs, state.updated = self.epochs, time_text()
  self:put("state.json", core.json_encode(state))
end

local MOST_EARLIER = 100 -- starts that are listed

-- What run.json must keep of the earlier starts of a run that goes on. A script that has changed since is kept, too.
local function earlier_starts(self, script)
  local ok, old = pcall(core.json_decode, facts.read(self.path .. "/run.json", 16 * 2 ^ 20) or "")
  if not ok or type(old) ~= "table" then return nil end
  local list = type(old.earlier) == "table" and old.earlier or {}
  list[#list + 1] = { started = old.started, command = old.command, script = old.script }
  if #list > MOST_EARLIER then table.remove(list, 1) end
  local text = facts.read(self.path .. "/script.lua", 16 * 2 ^ 20)
  local hash = type(old.script) == "table" and old.script.sha256
  if text and type(hash) == "string" and hash:find "^%x+$" and hash ~= (script and script.sha256) then
    self:put(("script-%s.lua"):format(hash:sub(1, 8)), text)
  end
  return list
end

--- files:start(run): the run begins, or goes on: writes state.json, run.json and the script.
-- ARGS run: the fields of run.json beside those that facts.lua knows; devices: array of names.
function RunFiles:start(run, devices)
  local script, pid = facts.script(), facts.pid()
  self.began = core.clock()
  self.state = { format = RunFiles.FORMAT, state = "running", pid = pid, host = facts.host(),
    process_start = pid and facts.process_start(pid) or nil, started = time_text() }
  put_state(self)
  run.format, run.started = RunFiles.FORMAT, self.state.started
  run.script = script and { path = config.plain(script.path), sha256 = script.sha256, git = script.git } or nil
  run.earlier = run.continues and earlier_starts(self, script) or nil
  run.command, run.versions = config.plain(facts.command()), facts.versions()
  run.machine, run.environment = config.plain(facts.machine(devices)), facts.environment()
  self:put("run.json", core.json_encode(run))
  if script then self:put("script.lua", script.text) end
end

-- A value of the logs for JSON, which has no NaN and no infinity.
local function value_of(value)
  if type(value) ~= "table" then return config.plain(value) end
  local list = {}
  for i, item in ipairs(value) do list[i] = value_of(item) end
  return #list > 0 and list or core.empty_array
end

--- files:line(epoch, values, seconds): appends a line to history.jsonl. values: logs, or a table by name.
function RunFiles:line(epoch, values, seconds)
  local found = {}
  if getmetatable(values) then
    for name, value in logs.each(values) do found[name] = value_of(value) end
  else
    for name, value in pairs(values) do found[name] = value_of(value) end
  end
  self.epochs = epoch
  self.pending = self.pending .. core.json_encode { epoch = epoch, time = time_text(), seconds = seconds,
    values = found } .. "\n"
  put_due(self)
  self:flush()
end

--- files:flush(): appends the lines that wait. RETURNS whether none waits any more.
function RunFiles:flush()
  if self.pending == "" then return true end
  local path = self.path .. "/history.jsonl"
  if not self.clean then -- somebody may have cut it
    local file = core.file_exists(path) and io.open(path, "rb")
    self.size = math.min(self.size, file and file:seek "end" or 0)
    if file then file:close() end
  end
  self.clean = attempt(self, "history.jsonl", function()
    self.size = core.append_file(path, self.size, self.pending)
    self.pending = ""
  end)
  return self.clean
end

--- files:finish(state, fields): the run has ended. state: "done", "stopped" or "failed"; fields: of state.json.
function RunFiles:finish(state, fields)
  if not self.state then return end
  self.ending = true
  self:flush()
  put_due(self)
  for name, value in pairs(fields or {}) do self.state[name] = config.plain(value) end
  self.state.state, self.state.ended = state, time_text()
  self.state.seconds = core.clock() - self.began
  put_state(self)
end

--- files:get_state() -> how far history.jsonl is written, for a checkpoint.
function RunFiles:get_state() return { size = self.size, pending = self.pending, epochs = self.epochs } end

--- files:set_state(state): goes on from there: lines of epochs that are done again are dropped.
function RunFiles:set_state(state)
  self.size, self.pending, self.epochs, self.clean = state.size, state.pending, state.epochs, false
end

return RunFiles
